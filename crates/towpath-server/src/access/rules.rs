//! The access rules in the settings, with paths in the namespace of the server.
//!
//! A rule in `[access]` is cut to the exports that it covers and that have no rules of their own; a rule of an export
//! is moved below its prefix.

use std::{fmt, iter};

use towpath_store::StorePath;

use super::Grant;
use crate::{
    ServeConfig, StartError,
    config::{AccessConfig, AnonymousRule, ExportAccess, Right, UserRule},
    exports::Exports,
};

/// A rule in the settings.
#[derive(Debug)]
pub(crate) struct Rule<'a> {
    /// The callers that it applies to.
    pub(crate) callers: Callers<'a>,
    /// The paths at and below which it applies.
    pub(crate) paths: Vec<StorePath>,
    /// Whether the paths must be directories.
    is_directory: bool,
    /// The granted rights.
    pub(crate) allow: &'a [Right],
}

/// The callers of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Callers<'a> {
    /// All callers.
    Everyone,
    /// Users with a password: all, or those with these names.
    Users(Option<&'a [String]>),
}

impl Rule<'_> {
    /// Returns the grants of its callers.
    pub(super) fn grants(&self) -> impl Iterator<Item = Grant> {
        let directory = self.is_directory;
        let at = move |path: &StorePath| {
            let path = path.clone();
            move |right: &Right| Grant { right: *right, path: path.clone(), directory }
        };
        self.paths.iter().flat_map(move |path| self.allow.iter().map(at(path)))
    }
}

/// A rule as it is written in the settings.
#[derive(Debug, Clone, Copy)]
struct WrittenRule<'a> {
    callers: Callers<'a>,
    path: &'a str,
    allow: &'a [Right],
}

impl<'a> From<&'a AnonymousRule> for WrittenRule<'a> {
    fn from(AnonymousRule { path, allow }: &'a AnonymousRule) -> Self {
        Self { callers: Callers::Everyone, path, allow }
    }
}

impl<'a> From<&'a UserRule> for WrittenRule<'a> {
    fn from(UserRule { names, path, allow }: &'a UserRule) -> Self {
        Self { callers: Callers::Users(names.as_deref()), path, allow }
    }
}

/// An export, and its own rules of one kind, if it has any.
struct ExportRules<'a> {
    prefix: &'a StorePath,
    own: Option<Vec<WrittenRule<'a>>>,
}

/// Returns all rules for callers without a token.
///
/// # Errors
/// [`StartError::Access`] for an invalid path, or one that no export contains.
pub(crate) fn rules<'a>(config: &'a ServeConfig, exports: &'a Exports) -> Result<Vec<Rule<'a>>, StartError> {
    // Without `[[export]]` there is one export, without rules of its own.
    let own = config.export.iter().map(|export| Some(&export.access)).chain(iter::repeat(None));
    let exports: Vec<(&StorePath, Option<&ExportAccess>)> = exports.prefixes().zip(own).collect();
    let AccessConfig { anonymous, users, .. } = &config.access;
    let mut rules = place("anonymous", anonymous, &own_rules(&exports, |own| own.anonymous.as_deref()))?;
    rules.extend(place("users", users, &own_rules(&exports, |own| own.users.as_deref()))?);
    Ok(rules)
}

/// Returns each export with its own rules of one kind.
fn own_rules<'a, Own: 'a>(
    exports: &[(&'a StorePath, Option<&'a ExportAccess>)],
    kind: impl Fn(&'a ExportAccess) -> Option<&'a [Own]>,
) -> Vec<ExportRules<'a>>
where
    WrittenRule<'a>: From<&'a Own>,
{
    let written = |own: &'a [Own]| own.iter().map(WrittenRule::from).collect();
    exports.iter().map(|(prefix, own)| ExportRules { prefix, own: own.and_then(&kind).map(written) }).collect()
}

/// Returns the rules of one kind: those of `[access]`, and those of the exports.
fn place<'a, Common: 'a>(
    kind: &str,
    common: &'a [Common],
    exports: &[ExportRules<'a>],
) -> Result<Vec<Rule<'a>>, StartError>
where
    WrittenRule<'a>: From<&'a Common>,
{
    let mut rules = Vec::new();
    for written in common.iter().map(WrittenRule::from) {
        let path = parse(kind, written.path)?;
        rules.push(written.at(covered(&path, exports).map_err(|why| refused(kind, written.path, &why))?));
    }
    for (prefix, own) in exports.iter().filter_map(|export| Some((export.prefix, export.own.as_ref()?))) {
        for written in own {
            let path = prefix.concat(&parse(kind, written.path)?);
            rules.push(written.at(vec![path.map_err(|error| refused(kind, written.path, &error))?]));
        }
    }
    Ok(rules)
}

impl<'a> WrittenRule<'a> {
    fn at(self, paths: Vec<StorePath>) -> Rule<'a> {
        let Self { callers, path, allow } = self;
        // A rule for `/` covers the directories of the exports, too.
        let is_directory = path.ends_with('/') && path.contains(|c| c != '/');
        Rule { callers, paths, is_directory, allow }
    }
}

/// Returns the paths at which a rule of `[access]` for `path` applies.
fn covered(path: &StorePath, exports: &[ExportRules<'_>]) -> Result<Vec<StorePath>, String> {
    if let Some(export) = exports.iter().find(|export| path.is_within(export.prefix)) {
        return match export.own {
            None => Ok(vec![path.clone()]),
            // A rule for everything is the default.
            Some(_) if path.is_root() => Ok(Vec::new()),
            Some(_) => Err(format!("the export {} has rules of its own, which replace this one", export.prefix)),
        };
    }
    let below: Vec<_> = exports.iter().filter(|export| export.prefix.is_within(path)).collect();
    if below.is_empty() {
        return Err("no export contains this path".to_owned());
    }
    let paths: Vec<_> =
        below.iter().filter(|export| export.own.is_none()).map(|export| export.prefix.clone()).collect();
    if paths.is_empty() && !path.is_root() {
        return Err("all exports below it have rules of their own, which replace this one".to_owned());
    }
    Ok(paths)
}

fn parse(kind: &str, path: &str) -> Result<StorePath, StartError> {
    StorePath::parse(path.as_bytes()).map_err(|error| refused(kind, path, &error))
}

fn refused(kind: &str, path: &str, why: &dyn fmt::Display) -> StartError {
    StartError::Access(format!("{kind} path `{path}`: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ExportConfig;

    fn rule(path: &str, right: Right) -> AnonymousRule {
        AnonymousRule { path: path.into(), allow: vec![right] }
    }

    /// Returns the paths and rights of all callers, for exports with rules of their own or without.
    fn grants(common: &[AnonymousRule], exports: &[(&str, Option<&[AnonymousRule]>)]) -> Result<String, StartError> {
        let mut config = ServeConfig::default();
        config.access.anonymous = common.to_vec();
        config.access.users.clear();
        for (prefix, own) in exports {
            let mut export = ExportConfig { prefix: (*prefix).into(), ..ExportConfig::default() };
            export.access.anonymous = own.map(<[AnonymousRule]>::to_vec);
            config.export.push(export);
        }
        let exports = Exports::new(&config)?;
        let grants: Vec<_> = rules(&config, &exports)?.iter().flat_map(Rule::grants).collect();
        Ok(crate::access::describe(&grants))
    }

    #[test]
    fn rules_apply_to_the_exports_that_they_cover() {
        let read_all = [rule("/", Right::Read)];
        let create = [rule("/in", Right::Create)];
        for (common, exports, expected) in [
            (&read_all, vec![], "read /"),
            (&read_all, vec![("/a", None), ("/b/c", None)], "read /a, read /b/c"),
            (&[rule("/b", Right::Read)], vec![("/a", None), ("/b/c", None)], "read /b/c"),
            (&[rule("/a/x", Right::Read)], vec![("/a", None), ("/b", None)], "read /a/x"),
            (&read_all, vec![("/a", Some(&create[..])), ("/b", None)], "read /b, create /a/in"),
            (&read_all, vec![("/a", Some(&[])), ("/b", Some(&[]))], "do nothing"),
            (&read_all, vec![("/a", Some(&read_all[..]))], "read /a"),
        ] {
            assert_eq!(grants(common, &exports).unwrap(), expected, "{exports:?}");
        }
    }

    #[test]
    fn rules_without_effect_are_refused() {
        let own = [rule("/", Right::Read)];
        for (path, problem) in [
            ("/c", "no export contains this path"),
            ("/a/x", "the export /a has rules of its own"),
            ("/a", "the export /a has rules of its own"),
            ("/d", "all exports below it have rules of their own"),
            ("c", "must start with /"),
        ] {
            let exports = [("/a", Some(&own[..])), ("/b", None), ("/d/e", Some(&own[..]))];
            let error = grants(&[rule(path, Right::Read)], &exports).unwrap_err().to_string();
            assert!(error.starts_with(&format!("access: anonymous path `{path}`: ")), "{error}");
            assert!(error.contains(problem), "{error}");
        }
    }
}
