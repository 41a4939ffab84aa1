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
use towpath_mover::StoreLocation;
use towpath_proto::url::{Family, Location, Url, decode_href};
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

/// Returns the path of `url`, which was typed as `typed`, with escaped special characters; `None` if it is not a
/// pattern.
fn pattern(typed: &OsStr, url: &Url) -> Option<Vec<u8>> {
    if url.scheme().family() == Family::Xrootd {
        return Some(url.path().to_vec()).filter(|path| has_pattern(path));
    }
    let (_, rest) = typed.to_str()?.split_once("://")?;
    let path = &rest[rest.find('/')?..];
    let path = path.split(['?', '#']).next().filter(|path| has_pattern(path.as_bytes()))?;
    decode_href(&escaped(path)).ok()
}

/// Puts each percent-encoded special character of the percent-encoded `path` into a class of its own: `%2A` becomes
/// `[%2A]`.
fn escaped(path: &str) -> String {
    let mut escaped = String::with_capacity(path.len());
    let mut is_in_class = false;
    let mut rest = path;
    while let Some(character) = rest.chars().next() {
        let encoded = rest.get(..3).filter(|start| SPECIAL.iter().any(|special| special.eq_ignore_ascii_case(start)));
        let part = encoded.unwrap_or(&rest[..character.len_utf8()]);
        match (part, is_in_class) {
            ("[", _) => is_in_class = true,
            ("]", _) => is_in_class = false,
            _ => {}
        }
        if encoded.is_some() && !is_in_class {
            escaped.extend(["[", part, "]"]);
        } else {
            escaped.push_str(part);
        }
        rest = &rest[part.len()..];
    }
    escaped
}

fn has_pattern(path: &[u8]) -> bool {
    path.iter().any(|byte| b"*[{".contains(byte))
}

/// Returns the matcher of a name; `None` for a name that is not a valid pattern.
fn matcher(name: &[u8]) -> Option<GlobMatcher> {
    let text = std::str::from_utf8(name).ok().filter(|_| has_pattern(name))?;
    let glob = GlobBuilder::new(text).backslash_escape(false).build().ok()?;
    Some(glob.compile_matcher())
}

/// Returns the URLs that match `pattern`, the path of `url`, which was typed as `typed`.
async fn matching(
    typed: &OsStr,
    (url, pattern): (&Url, &[u8]),
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
    let slash: &[u8] = if pattern.ends_with(b"/") { b"/" } else { b"" };
    let place = |path: StorePath| match url.with_path([path.as_bytes(), slash].concat()) {
        Ok(url) => Ok(OsString::from(url.expose_with_password())),
        Err(_) => {
            let error = Error::new(Fault::InvalidArgument, "its name cannot be written in a URL").at(&path);
            Err(Failure::from(error).at(&location))
        }
    };
    Ok(paths.into_iter().map(place).collect())
}

/// Returns the existing paths in the store of `location` that match `pattern`: directories only, if it ends in a slash.
async fn expand(location: &StoreLocation, pattern: &[u8]) -> Result<Vec<StorePath>, Failure> {
    let is_directory = pattern.ends_with(b"/");
    let names: Vec<&[u8]> = pattern.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).collect();
    let mut found = vec![StorePath::root()];
    let mut is_guessed = false;
    for (index, name) in names.iter().enumerate() {
        let is_last = index + 1 == names.len();
        let wants_directories = !is_last || is_directory;
        if let Some(matcher) = matcher(name) {
            let matcher = NameMatcher { matcher, hidden: name.starts_with(b"."), wants_directories };
            let listed = stream::iter(&found).map(|directory| matcher.list(location, directory, is_guessed));
            found = listed.buffered(LISTINGS).try_concat().await?;
            is_guessed = true;
        } else {
            let joined = found.iter().map(|path| Ok(location.with_path(path.clone()).join(name)?.path));
            found = joined.collect::<Result<_, Failure>>()?;
            if is_guessed && is_last {
                found = existing(location, found).await?;
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
struct NameMatcher {
    matcher: GlobMatcher,
    /// Whether it matches names with a leading dot.
    hidden: bool,
    wants_directories: bool,
}

impl NameMatcher {
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

    #[test]
    fn encoded_special_characters_are_literal() {
        for (typed, path) in [
            ("root://h//a%2A*", Some("/a%2A*")),
            ("root://h//a", None),
            ("http://h/a%2Ab", None),
            ("http://[::1]/a", None),
            ("http://h/a?b=*", None),
            ("http://h/a%2a*/b%20c%3Fd", Some("/a[*]*/b c[?]d")),
            ("http://h/[%2A%5D]%5B", Some("/[*]][[]")),
            ("s3://bucket/{a%2Cb,c}/", Some("/{a[,]b,c}/")),
        ] {
            let url: Url = typed.parse().unwrap();
            let found = pattern(OsStr::new(typed), &url);
            assert_eq!(found.as_deref(), path.map(str::as_bytes), "{typed}");
        }
        let matcher = matcher(b"a[*]*[?]").unwrap();
        assert!(matcher.is_match("a*bc?") && !matcher.is_match("abc?") && !matcher.is_match("a*bcd"));
    }

    #[test]
    fn names_without_a_valid_pattern_are_literal() {
        for name in ["a.root", "a[b", "a{b", r"a\b"] {
            assert!(matcher(name.as_bytes()).is_none(), "{name}");
        }
        for (name, found) in [("*.root", "a.root"), ("[ab]", "b"), ("{a,b}.txt", "b.txt"), (r"*\*", r"a\b")] {
            let hidden =
                NameMatcher { matcher: matcher(name.as_bytes()).unwrap(), hidden: false, wants_directories: false };
            assert!(hidden.matches(found.as_bytes()), "{name}");
            assert!(!hidden.matches(b".root"), "{name}");
        }
    }
}
