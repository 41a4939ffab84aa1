//! Patterns in URLs: `root://host//data/*.root` names all matching paths.
//!
//! `*` matches any part of a name, `[a-c]` one character, `{a,b}` alternatives, each within one name; a leading dot must
//! be written. A shell expands the patterns of local paths itself. An existing path whose name contains these characters
//! takes precedence over the pattern.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt as _,
};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use globset::{GlobBuilder, GlobMatcher};
use towpath_mover::StoreLocation;
use towpath_proto::url::{Location, Url};
use towpath_store::{Error, Fault, ListOptions, StorePath};

use crate::{
    failure::Failure,
    location::{StoreResolver, shown},
};

/// Maximum memory for the matches of one pattern in bytes: about a million paths.
const MAX_MATCHED_BYTES: usize = 128 << 20;

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
            Ok(Location::Remote(url)) if has_pattern(url.path()) => match matching(path, &url, resolver).await {
                Ok(urls) => places.extend(urls.into_iter().map(Ok)),
                Err(failure) => places.push(Err(failure)),
            },
            _ => places.push(Ok(path.clone())),
        }
    }
    places
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

/// Returns the URLs that match the path of `url`, which was typed as `typed`.
async fn matching(typed: &OsStr, url: &Url, resolver: &StoreResolver) -> Result<Vec<OsString>, Failure> {
    let location = resolver.location(typed)?;
    match location.store.stat(&location.caller, &location.path).await {
        Ok(_) => return Ok(vec![typed.to_owned()]),
        Err(error) if matches!(error.fault(), Fault::NotFound | Fault::NotDirectory) => {}
        // The name may exist. As a pattern it would name other files, which `rm` would remove.
        Err(error) => return Err(Failure::from(error).at(&location)),
    }
    let is_directory = url.path().ends_with(b"/");
    let mut paths = expand(&location, is_directory).await.map_err(|failure| failure.at(&location))?;
    if paths.is_empty() {
        let message = "no path matches the pattern, and none has this name";
        return Err(Failure::from(Error::new(Fault::NotFound, message)).at(&location));
    }
    paths.sort_unstable();
    let slash: &[u8] = if is_directory { b"/" } else { b"" };
    let urls = paths.iter().map(|path| match url.with_path([path.as_bytes(), slash].concat()) {
        Ok(url) => Ok(OsString::from(url.expose_with_password())),
        Err(error) => Err(Failure::Usage(format!("{}: a match cannot be written as a URL: {error}", shown(typed)))),
    });
    urls.collect()
}

/// Returns the existing paths that match the path of `location`: directories only, if `is_directory`.
async fn expand(location: &StoreLocation, is_directory: bool) -> Result<Vec<StorePath>, Failure> {
    let names: Vec<&[u8]> = location.path.components().collect();
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
