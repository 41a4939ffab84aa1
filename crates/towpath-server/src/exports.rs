//! The exports of a server: which paths exist, and which may be changed.
//!
//! [`Exports`] holds the prefixes from the settings and answers questions about paths; the data are in one store, which
//! combines those of all exports. `docs/rfcs/0007-exports.md` explains the design.

use towpath_store::{Error, Fault, StorePath, nested_pair};

use crate::{
    ServeConfig, StartError,
    access::{Activity, DenialReason},
    config::ExportConfig,
};

/// The exports of a server. By default there is one, at `/`.
#[derive(Debug, Clone)]
pub struct Exports(Vec<Export>);

/// An export: a part of the namespace.
#[derive(Debug, Clone)]
struct Export {
    /// The path of its root directory.
    prefix: StorePath,
    is_writable: bool,
}

impl Default for Exports {
    fn default() -> Self {
        Self(vec![Export { prefix: StorePath::root(), is_writable: true }])
    }
}

impl Exports {
    /// Reads the exports in `config`.
    ///
    /// # Errors
    /// [`StartError::Export`] for an invalid prefix, or one within another.
    pub fn new(config: &ServeConfig) -> Result<Self, StartError> {
        if config.export.is_empty() {
            return Ok(Self::default());
        }
        let export = |ExportConfig { prefix, writable, .. }: &ExportConfig| {
            let path = StorePath::parse(prefix.as_bytes())
                .map_err(|error| StartError::Export(format!("prefix `{prefix}`: {error}")))?;
            Ok(Export { prefix: path, is_writable: *writable })
        };
        let exports: Vec<_> = config.export.iter().map(export).collect::<Result<_, StartError>>()?;
        let prefixes: Vec<_> = exports.iter().map(|export| export.prefix.clone()).collect();
        match nested_pair(&prefixes) {
            Some((a, b)) if a == b => Err(StartError::Export(format!("the prefix {a} is configured twice"))),
            Some((a, b)) => {
                let message = format!("of the prefixes {a} and {b}, one contains the other: use separate directories");
                Err(StartError::Export(message))
            }
            None => Ok(Self(exports)),
        }
    }

    /// Returns the path of each export.
    pub fn prefixes(&self) -> impl Iterator<Item = &StorePath> {
        self.0.iter().map(|export| &export.prefix)
    }

    /// Returns the paths of the read-only exports.
    pub fn read_only(&self) -> impl Iterator<Item = &StorePath> {
        self.0.iter().filter(|export| !export.is_writable).map(|export| &export.prefix)
    }

    /// Whether an export contains both paths.
    pub(crate) fn share(&self, a: &StorePath, b: &StorePath) -> bool {
        self.0.iter().any(|export| a.is_within(&export.prefix) && b.is_within(&export.prefix))
    }

    /// Whether `path` is strictly above an export.
    pub(crate) fn is_above(&self, path: &StorePath) -> bool {
        self.0.iter().any(|export| export.prefix.is_within(path) && export.prefix != *path)
    }

    /// Whether an export contains `path`, or lies below it.
    pub(crate) fn meet(&self, path: &StorePath) -> bool {
        self.0.iter().any(|export| path.is_within(&export.prefix) || export.prefix.is_within(path))
    }

    /// Whether `path` belongs to the structure of the server: the directory of an export, or one above. It can be
    /// neither removed nor renamed nor replaced.
    pub(crate) fn is_fixed(&self, path: &StorePath) -> bool {
        self.0.iter().any(|export| export.prefix.is_within(path))
    }

    /// Returns the activity that rights must allow for `activity` on `path`. The directories above the exports contain
    /// only names from the settings, so the right to query them suffices to list them. `None` outside of the exports:
    /// nothing exists there, and nothing is allowed.
    pub(crate) fn required(&self, activity: Activity, path: &StorePath) -> Option<Activity> {
        match activity {
            _ if !self.meet(path) => None,
            Activity::List if self.is_above(path) => Some(Activity::Stat),
            activity => Some(activity),
        }
    }

    /// Checks that the exports allow `activity` on `path`, whatever the rights of the caller.
    ///
    /// # Errors
    /// `ReadOnly`.
    pub(crate) fn check(&self, activity: Activity, path: &StorePath) -> Result<(), Error> {
        let changes =
            matches!(activity, Activity::Create | Activity::CreateDirectory | Activity::Rename | Activity::Modify);
        match self.0.iter().find(|export| path.is_within(&export.prefix)) {
            Some(export) if changes && !export.is_writable => {
                let message = format!("the export {} is read-only", export.prefix);
                Err(Error::new(Fault::ReadOnly, message).with_reason(DenialReason::ReadOnly.name()).at(path))
            }
            // A client may create directories from the root on; those above the exports exist.
            None if changes && !(activity == Activity::CreateDirectory && self.is_above(path)) => {
                let prefixes: Vec<_> = self.prefixes().map(ToString::to_string).collect();
                let message = format!("only the exports can be changed: {}", prefixes.join(", "));
                Err(Error::new(Fault::ReadOnly, message).at(path))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> StorePath {
        StorePath::parse(text.as_bytes()).unwrap()
    }

    fn config(prefixes: &[(&str, bool)]) -> ServeConfig {
        let export = |(prefix, writable): &(&str, bool)| ExportConfig {
            prefix: (*prefix).into(),
            writable: *writable,
            ..ExportConfig::default()
        };
        ServeConfig { export: prefixes.iter().map(export).collect(), ..ServeConfig::default() }
    }

    #[test]
    fn invalid_prefixes_are_refused() {
        for (prefixes, problem) in [
            (["/a", "/a/"], "configured twice"),
            (["/a", "/a/b"], "one contains the other"),
            (["/", "/b"], "one contains the other"),
            (["a", "/b"], "must start with /"),
            (["/a/../c", "/b"], "`..`"),
        ] {
            let error = Exports::new(&config(&prefixes.map(|prefix| (prefix, true)))).unwrap_err().to_string();
            assert!(error.starts_with("export: ") && error.contains(problem), "{error}");
        }
        assert!(Exports::new(&config(&[("/a", true), ("/ab", true)])).is_ok());
    }

    #[test]
    fn a_read_only_export_cannot_be_changed() {
        let exports = Exports::new(&config(&[("/a", false), ("/b/c", true)])).unwrap();
        for activity in Activity::ALL {
            let reads = matches!(activity, Activity::Stat | Activity::List | Activity::Read | Activity::Stage);
            assert_eq!(exports.check(activity, &path("/a/x")).is_ok(), reads, "{activity:?}");
            assert!(exports.check(activity, &path("/b/c/x")).is_ok());
        }
        let error = exports.check(Activity::Create, &path("/a/x")).unwrap_err();
        assert_eq!((error.fault(), error.reason()), (Fault::ReadOnly, Some("read_only")));
    }

    #[test]
    fn directories_of_the_structure_are_fixed() {
        let exports = Exports::new(&config(&[("/a", true), ("/b/c", true)])).unwrap();
        for (at, is_fixed) in [("/", true), ("/a", true), ("/b", true), ("/b/c", true), ("/a/x", false), ("/c", false)]
        {
            assert_eq!(exports.is_fixed(&path(at)), is_fixed, "{at}");
        }
        assert_eq!(exports.required(Activity::List, &path("/b")), Some(Activity::Stat));
        assert_eq!(exports.required(Activity::List, &path("/b/c")), Some(Activity::List));
        assert_eq!(Exports::default().required(Activity::List, &path("/")), Some(Activity::List));
    }

    #[test]
    fn nothing_exists_outside_of_the_exports() {
        let exports = Exports::new(&config(&[("/a", true)])).unwrap();
        assert_eq!(exports.required(Activity::Read, &path("/c")), None);
        let error = exports.check(Activity::Create, &path("/c")).unwrap_err();
        assert_eq!((error.fault(), error.reason()), (Fault::ReadOnly, None));
    }
}
