//! Patterns in URLs: `root://host//data/*.root` names all matching paths.
//!
//! `*` matches any part of a name, `[a-c]` one character, `{a,b}` alternatives, each within one name; a leading dot must
//! be written. A shell expands the patterns of local paths itself. An existing path whose name contains these characters
//! takes precedence over the pattern. In a percent-encoded URL, `%2A` is a literal `*`; in all URLs, `[*]` is.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt as _,
};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use globset::{GlobBuilder, GlobMatcher};
use percent_encoding::percent_decode_str;
use towpath_mover::StoreLocation;
use towpath_proto::url::{Family, Location, Url};
use towpath_store::{Error, Fault, ListOptions, StorePath};

use crate::{failure::Failure, location::StoreResolver};

/// Maximum memory for the matches of one pattern in bytes: about a million paths.
const MAX_MATCHED_BYTES: usize = 128 << 20;

/// The special characters of patterns, percent-encoded.
const SPECIAL: [&str; 7] = ["%2A", "%2C", "%3F", "%5B", "%5D", "%7B", "%7D"];

/// Maximum number of directories listed concurrently.
const LISTINGS: usize = 32;

/// An argument to process, or the reason why it names nothing.
pub(crate) type Place = Result<OsString, Failure>;

/// Returns the arguments as they are.
pub(crate) fn literal(paths: &[OsString]) -> Vec<Place> {
    paths.iter().cloned().map(Ok).collect()
}

/// Returns the arguments as they are if `no_glob`, else [`expanded`].
pub(crate) async fn expanded_unless(no_glob: bool, paths: &[OsString], resolver: &StoreResolver) -> Vec<Place> {
    if no_glob { literal(paths) } else { expanded(paths, resolver).await }
}

/// Replaces each pattern by the matching URLs, in the order of their names.
pub(crate) async fn expanded(paths: &[OsString], resolver: &StoreResolver) -> Vec<Place> {
    let mut places = Vec::new();
    for path in paths {
        match Location::from_argument(path) {
            Ok(Location::Remote(url)) => match pattern(path, &url) {
                Some(pattern) => match matching(path, (&url, &pattern), resolver).await {
                    Ok(matches) => places.extend(matches),
                    Err(failure) => places.push(Err(failure)),
                },
                None => places.push(Ok(path.clone())),
            },
            _ => places.push(Ok(path.clone())),
        }
    }
    places
}

/// A path with at least one pattern.
struct PathPattern {
    names: Vec<NamePattern>,
    /// Whether it ends in a slash.
    is_directory: bool,
}

/// A component of a path.
enum NamePattern {
    Literal(Vec<u8>),
    Glob {
        matcher: GlobMatcher,
        /// Whether it matches names with a leading dot.
        hidden: bool,
    },
}

/// Returns the path of `url`, which was typed as `typed`, if it is a pattern.
fn pattern(typed: &OsStr, url: &Url) -> Option<PathPattern> {
    let names: Vec<_> = match url.scheme().family() {
        Family::Xrootd => url.path().split(|byte| *byte == b'/').flat_map(NamePattern::of_text).collect(),
        Family::Http | Family::S3 => {
            let (_, rest) = typed.to_str()?.split_once("://")?;
            let path = rest[rest.find('/')?..].split(['?', '#']).next()?;
            path.split('/').flat_map(NamePattern::of_encoded).collect()
        }
    };
    let has_glob = names.iter().any(|name| matches!(name, NamePattern::Glob { .. }));
    has_glob.then(|| PathPattern { names, is_directory: url.path().ends_with(b"/") })
}

impl NamePattern {
    /// Returns the component that is written as `name`; none if it is empty or `.`.
    fn of_text(name: &[u8]) -> Vec<Self> {
        match glob(name) {
            Some(glob) => vec![glob],
            None => Self::literal(name),
        }
    }

    /// Like [`Self::of_text`], for a percent-encoded component. Encoded characters are never special. A component with
    /// an encoded character in a class is literal.
    fn of_encoded(name: &str) -> Vec<Self> {
        let escaped = has_pattern(name.as_bytes()).then(|| escaped(name)).flatten();
        match escaped.and_then(|text| glob(&percent_decode_str(&text).collect::<Vec<_>>())) {
            Some(glob) => vec![glob],
            None => Self::literal(&percent_decode_str(name).collect::<Vec<_>>()),
        }
    }

    /// Returns the components of a literal text; an encoded slash separates two.
    fn literal(text: &[u8]) -> Vec<Self> {
        let names = text.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b"."));
        names.map(|name| Self::Literal(name.to_vec())).collect()
    }
}

/// Puts each percent-encoded special character of the percent-encoded `name` into a class of its own: `%2A` becomes
/// `[%2A]`. Returns `None` for a name with an encoded character in a class, or with a class that is not closed.
fn escaped(name: &str) -> Option<String> {
    let mut escaped = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(character) = rest.chars().next() {
        let special = rest.get(..3).filter(|start| SPECIAL.iter().any(|special| special.eq_ignore_ascii_case(start)));
        let length = match (character, special) {
            ('[', _) => class_length(rest)?,
            (_, Some(special)) => special.len(),
            _ => character.len_utf8(),
        };
        let (part, behind) = rest.split_at(length);
        match special {
            Some(special) => escaped.extend(["[", special, "]"]),
            None => escaped.push_str(part),
        }
        rest = behind;
    }
    Some(escaped)
}

/// Returns the length in bytes of the class at the start of `text`; `None` if it is not closed or has an encoded
/// character.
fn class_length(text: &str) -> Option<usize> {
    // The first character of a class, also behind `!`, is not its end.
    let start = if text[1..].starts_with(['!', '^']) { 2 } else { 1 };
    let first = text[start..].chars().next()?.len_utf8();
    let length = start + first + text[start + first..].find(']')? + 1;
    (!text[..length].contains('%')).then_some(length)
}

fn has_pattern(path: &[u8]) -> bool {
    path.iter().any(|byte| b"*[{".contains(byte))
}

/// Returns the pattern of a name; `None` for a name that is not a valid pattern.
fn glob(name: &[u8]) -> Option<NamePattern> {
    let text = std::str::from_utf8(name).ok().filter(|_| has_pattern(name))?;
    let glob = GlobBuilder::new(text).backslash_escape(false).build().ok()?;
    Some(NamePattern::Glob { matcher: glob.compile_matcher(), hidden: name.starts_with(b".") })
}

/// Returns the URLs that match `pattern`, the path of `url`, which was typed as `typed`.
async fn matching(
    typed: &OsStr,
    (url, pattern): (&Url, &PathPattern),
    resolver: &StoreResolver,
) -> Result<Vec<Place>, Failure> {
    let location = resolver.location(typed)?;
    match location.store.stat(&location.caller, &location.path).await {
        Ok(_) => return Ok(vec![Ok(typed.to_owned())]),
        Err(error) if matches!(error.fault(), Fault::NotFound | Fault::NotDirectory) => {}
        // The name may exist. As a pattern it would name other files, which `rm` would remove.
        Err(error) => return Err(Failure::from(error).at(&location)),
    }
    let mut paths = expand(&location, pattern).await.map_err(|failure| failure.at(&location))?;
    if paths.is_empty() {
        let message = "no path matches the pattern, and none has this name";
        return Err(Failure::from(Error::new(Fault::NotFound, message)).at(&location));
    }
    paths.sort_unstable();
    let slash: &[u8] = if pattern.is_directory { b"/" } else { b"" };
    let place = |path: StorePath| match url.with_path([path.as_bytes(), slash].concat()) {
        Ok(url) => Ok(OsString::from(url.expose_with_password())),
        Err(_) => {
            let error = Error::new(Fault::InvalidArgument, "its name cannot be written in a URL").at(&path);
            Err(Failure::from(error).at(&location))
        }
    };
    Ok(paths.into_iter().map(place).collect())
}

/// Returns the existing paths in the store of `location` that match `pattern`.
async fn expand(location: &StoreLocation, pattern: &PathPattern) -> Result<Vec<StorePath>, Failure> {
    let mut found = vec![StorePath::root()];
    let mut is_guessed = false;
    for (index, name) in pattern.names.iter().enumerate() {
        let is_last = index + 1 == pattern.names.len();
        let wants_directories = !is_last || pattern.is_directory;
        match name {
            NamePattern::Glob { matcher, hidden } => {
                let matcher = NameMatcher { matcher, hidden: *hidden, wants_directories };
                let listed = stream::iter(&found).map(|directory| matcher.list(location, directory, is_guessed));
                found = listed.buffered(LISTINGS).try_concat().await?;
                is_guessed = true;
            }
            NamePattern::Literal(name) => {
                let joined = found.iter().map(|path| Ok(location.with_path(path.clone()).join(name)?.path));
                found = joined.collect::<Result<_, Failure>>()?;
                if is_guessed && is_last {
                    found = existing(location, found).await?;
                }
            }
        }
        if found.iter().map(|path| path.as_bytes().len() + 64).sum::<usize>() > MAX_MATCHED_BYTES {
            let message = format!("more than {} paths match the pattern", found.len());
            return Err(Error::new(Fault::TooLarge, message).at(&location.path).into());
        }
    }
    Ok(found)
}

/// Returns the paths that exist.
async fn existing(location: &StoreLocation, paths: Vec<StorePath>) -> Result<Vec<StorePath>, Failure> {
    let asked = stream::iter(paths).map(|path| async move {
        match location.store.stat(&location.caller, &path).await {
            Ok(_) => Ok(vec![path]),
            Err(error) if matches!(error.fault(), Fault::NotFound | Fault::NotDirectory) => Ok(Vec::new()),
            Err(error) => Err(Failure::from(error.at(&path))),
        }
    });
    asked.buffered(LISTINGS).try_concat().await
}

/// The pattern of one name.
struct NameMatcher<'a> {
    matcher: &'a GlobMatcher,
    /// Whether it matches names with a leading dot.
    hidden: bool,
    wants_directories: bool,
}

impl NameMatcher<'_> {
    /// Returns the matching entries of `directory`; none if it `is_guessed` and not a directory.
    async fn list(
        &self,
        location: &StoreLocation,
        directory: &StorePath,
        is_guessed: bool,
    ) -> Result<Vec<StorePath>, Failure> {
        let options = ListOptions { metadata: self.wants_directories, digests: false };
        let mut listing = location.store.list(&location.caller, directory, options);
        let mut found = Vec::new();
        let mut bytes = 0;
        while let Some(batch) = listing.next().await {
            let batch = match batch {
                Ok(batch) => batch,
                Err(error) if is_guessed && !is_listable(location, directory, &error).await => return Ok(Vec::new()),
                Err(error) => return Err(error.at(directory).into()),
            };
            for entry in batch {
                if self.matches(&entry.name) && (!self.wants_directories || entry.metadata.is_directory()) {
                    let path = location.with_path(directory.clone()).join(&entry.name)?.path;
                    bytes += path.as_bytes().len();
                    found.push(path);
                }
            }
            if bytes > MAX_MATCHED_BYTES {
                break;
            }
        }
        Ok(found)
    }

    fn matches(&self, name: &[u8]) -> bool {
        (self.hidden || !name.starts_with(b".")) && self.matcher.is_match(OsStr::from_bytes(name))
    }
}

/// Returns whether a path whose listing failed with `error` is a directory. The XRootD protocol does not report that it
/// is a file.
async fn is_listable(location: &StoreLocation, path: &StorePath, error: &Error) -> bool {
    match error.fault() {
        Fault::NotFound | Fault::NotDirectory => false,
        Fault::Io => {
            let found = location.store.stat(&location.caller, path).await;
            found.is_ok_and(|metadata| metadata.is_directory())
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the components of the pattern in `typed`: globs in `<>`.
    fn names(typed: &str) -> Option<String> {
        let pattern = pattern(OsStr::new(typed), &typed.parse().unwrap())?;
        let names = pattern.names.iter().map(|name| match name {
            NamePattern::Literal(name) => String::from_utf8_lossy(name).into_owned(),
            NamePattern::Glob { matcher, .. } => format!("<{}>", matcher.glob().glob()),
        });
        Some(names.collect::<Vec<_>>().join("/"))
    }

    #[test]
    fn encoded_special_characters_are_literal() {
        for (typed, expected) in [
            ("root://h//a%2A*", Some("<a%2A*>")),
            ("root://h//a", None),
            ("root://h//a[b", None),
            ("http://h/a%2Ab", None),
            ("http://[::1]/a", None),
            ("http://[::1]/./a//*", Some("a/<*>")),
            ("http://h/a?b=*", None),
            ("http://h/a%2a*/b%20c%3Fd", Some("<a[*]*>/b c?d")),
            ("http://h/*%2Fb", Some("<*/b>")),
            ("http://h/a%2Fb*/c%2Fd", Some("<a/b*>/c/d")),
            ("s3://bucket/{a%2Cb,c}/", Some("<{a[,]b,c}>")),
            // A class that is not closed, or with an encoded character: the whole component is literal.
            ("http://h/w[1/%2A", None),
            ("http://h/a[%2A/*", Some("a[*/<*>")),
            ("http://h/[%2A%5D]%5B*/[a-c]", Some("[*]][*/<[a-c]>")),
            ("http://h/[%21a]", None),
            ("http://h/[a%2Dc]", None),
            ("http://h/[a%5D*]", None),
            ("http://h/[!]a]%2A", Some("<[!]a][*]>")),
        ] {
            assert_eq!(names(typed).as_deref(), expected, "{typed}");
        }
    }

    #[test]
    fn names_without_a_valid_pattern_are_literal() {
        for name in ["a.root", "a[b", "a{b", r"a\b"] {
            assert!(glob(name.as_bytes()).is_none(), "{name}");
        }
        for (name, found) in
            [("*.root", "a.root"), ("[ab]", "b"), ("{a,b}.txt", "b.txt"), (r"*\*", r"a\b"), ("a[*]*[?]", "a*bc?")]
        {
            let Some(NamePattern::Glob { matcher, hidden }) = glob(name.as_bytes()) else { panic!("{name}") };
            let matcher = NameMatcher { matcher: &matcher, hidden, wants_directories: false };
            assert!(matcher.matches(found.as_bytes()), "{name}");
            assert!(!matcher.matches(b".root") && !matcher.matches(b"abc?d"), "{name}");
        }
    }
}
