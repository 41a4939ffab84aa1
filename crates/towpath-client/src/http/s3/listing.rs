//! Directory listings: the keys below a prefix, page by page, as files and directories.

use std::{
    collections::{BTreeSet, HashSet, VecDeque},
    hash::{BuildHasher as _, RandomState},
    mem,
};

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use towpath_proto::s3::{Object, Page};
use towpath_store::{Blame, Caller, Entry, Error, Fault, FileKind, Listing, Metadata, Result, StorePath, VersionTag};

use super::bucket::{Bucket, prefix_of};

/// Maximum number of entries in a page, and therefore in a batch.
const PAGE_ENTRIES: usize = 1000;

/// Maximum number of consecutive pages without a new entry: some servers page through everything below a directory, and
/// name it on each page.
const MAX_FRUITLESS: usize = 10_000;

/// A listing in progress.
struct Reader {
    bucket: Bucket,
    caller: Caller,
    path: StorePath,
    prefix: String,
    paging: Paging,
    /// Directories of the previous page. Keys are sorted, so pages that repeat a directory are consecutive.
    directories: BTreeSet<Bytes>,
}

/// The position of a listing, and a check that it ends: a server may repeat a page, or send pages without end. Uses 16
/// bytes per page.
#[derive(Default)]
struct Paging {
    target: PagePosition,
    /// Hashes of page tokens and last keys, each of which appears once in a finite listing.
    seen: HashSet<u64>,
    hasher: RandomState,
    fruitless: usize,
}

/// The position of the next page.
#[derive(Default)]
enum PagePosition {
    #[default]
    Start,
    Next(String),
    End,
}

/// Lists the directory `path`.
pub(super) fn list(bucket: Bucket, caller: Caller, path: StorePath) -> Listing {
    let begin = async move {
        let prefix = match prefix_of(&path) {
            Ok(prefix) => prefix,
            Err(error) => return stream::once(async { Err(error) }).boxed(),
        };
        let reader = Reader { bucket, caller, path, prefix, paging: Paging::default(), directories: BTreeSet::new() };
        stream::try_unfold(reader, |mut reader| async move {
            let batch = reader.batch().await.map_err(|error| error.at(&reader.path))?;
            Ok(batch.map(|batch| (batch, reader)))
        })
        .boxed()
    };
    stream::once(begin).flatten().boxed()
}

impl Reader {
    /// Returns the next entries, never an empty batch; `None` at the end.
    async fn batch(&mut self) -> Result<Option<Vec<Entry>>> {
        loop {
            let next = match &self.paging.target {
                PagePosition::End => return Ok(None),
                PagePosition::Start => None,
                PagePosition::Next(next) => Some(next.as_str()),
            };
            let page = self.bucket.page(&self.caller, &self.prefix, true, PAGE_ENTRIES, next).await?;
            let is_nothing = page.objects.is_empty() && page.prefixes.is_empty() && page.next.is_none();
            if is_nothing && matches!(self.paging.target, PagePosition::Start) {
                self.check_is_directory().await?;
            }
            let Level { files, directories } = Level::of(&page, &self.prefix);
            let known = mem::replace(&mut self.directories, directories);
            let new = self.directories.difference(&known).map(|name| directory(name.clone()));
            let batch: Vec<_> = files.into_iter().chain(new).collect();
            self.paging.advance(&self.bucket, page, batch.is_empty())?;
            if !batch.is_empty() {
                return Ok(Some(batch));
            }
        }
    }

    /// Checks that a path without keys below it is a directory, and not a file.
    async fn check_is_directory(&self) -> Result<()> {
        if self.path.is_root() || self.bucket.stat(&self.caller, &self.path).await?.is_directory() {
            return Ok(());
        }
        Err(Error::new(Fault::NotDirectory, "it is not a directory"))
    }
}

/// The entries of one directory in a page.
#[derive(Debug, Default, PartialEq, Eq)]
struct Level {
    files: Vec<Entry>,
    /// The unique names of directories.
    directories: BTreeSet<Bytes>,
}

impl Level {
    /// Collects the entries of `page` in the directory with this prefix. Names that no path can have are included, so
    /// that they are reported.
    ///
    /// A key with a slash after the prefix denotes a directory, regardless of its position: Amazon lists it among the
    /// common prefixes, s3proxy and gofakes3 list the marker of a directory among the objects, and a server without
    /// support for the delimiter lists everything below. The directory's own marker is not an entry unless it has
    /// content: then it is a file without a name, which no path can denote.
    fn of(page: &Page, prefix: &str) -> Self {
        let mut level = Self::default();
        // A page with other keys is rejected as a whole.
        let below = |key: &'_ [u8]| key.get(prefix.len()..).map(Bytes::copy_from_slice);
        for (object, rest) in page.objects.iter().filter_map(|object| Some((object, below(&object.key)?))) {
            let is_own_marker = rest.is_empty() && object.size == 0;
            if !is_own_marker && !level.add_directory(&rest) {
                level.files.push(Entry { name: rest, metadata: metadata_of(object) });
            }
        }
        for rest in page.prefixes.iter().filter_map(|key| below(key)) {
            level.add_directory(&rest);
        }
        level
    }

    /// Adds the directory that contains, or is denoted by, `rest` of a key. Returns whether there is one.
    fn add_directory(&mut self, rest: &Bytes) -> bool {
        let slash = rest.iter().position(|byte| *byte == b'/');
        self.directories.extend(slash.map(|slash| rest.slice(..slash)));
        slash.is_some()
    }
}

fn directory(name: Bytes) -> Entry {
    Entry { name, metadata: Metadata::new(FileKind::Directory, 0) }
}

impl Paging {
    /// Advances past `page`, which had no new entry if `is_fruitless`; returns its objects.
    ///
    /// # Errors
    /// `Protocol` if the listing does not seem to end.
    fn advance(&mut self, bucket: &Bucket, page: Page, is_fruitless: bool) -> Result<Vec<Object>> {
        let Page { objects, prefixes, next } = page;
        let is_fruitless = is_fruitless || (objects.is_empty() && prefixes.is_empty());
        self.fruitless = if is_fruitless { self.fruitless + 1 } else { 0 };
        let token = next.as_ref().map(|token| self.hasher.hash_one((true, token.as_bytes())));
        let last_key = objects.last().map(|object| self.hasher.hash_one((false, object.key.as_slice())));
        let is_new = [token, last_key].into_iter().flatten().all(|mark| self.seen.insert(mark));
        if !is_new || self.fruitless > MAX_FRUITLESS {
            let message = format!("the listing from {} does not end", bucket.target("", "").root());
            return Err(Error::new(Fault::Protocol, message).blamed_on(Blame::Storage));
        }
        self.target = next.map_or(PagePosition::End, PagePosition::Next);
        Ok(objects)
    }
}

/// Returns the metadata of an object in a page.
pub(super) fn metadata_of(object: &Object) -> Metadata {
    let mut metadata = Metadata::new(FileKind::File, object.size);
    metadata.mtime_ns = object.modified_s.and_then(|seconds| seconds.checked_mul(1_000_000_000));
    metadata.version =
        object.etag.as_ref().filter(|etag| !etag.is_weak()).and_then(|etag| VersionTag::new(etag.opaque()));
    metadata
}

/// Lists all keys that begin with `prefix`, in pages.
pub(super) fn keys<'a>(
    bucket: &'a Bucket,
    caller: &'a Caller,
    prefix: &'a str,
) -> impl stream::Stream<Item = Result<VecDeque<Object>>> + 'a {
    stream::try_unfold(Paging::default(), move |mut paging| async move {
        let next = match &paging.target {
            PagePosition::End => return Ok(None),
            PagePosition::Start => None,
            PagePosition::Next(next) => Some(next.as_str()),
        };
        let page = bucket.page(caller, prefix, false, PAGE_ENTRIES, next).await?;
        let objects = paging.advance(bucket, page, false)?;
        Ok(Some((objects.into(), paging)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(key: &str, size: u64) -> Object {
        Object { key: key.into(), size, modified_s: Some(7), etag: None }
    }

    fn page(objects: &[(&str, u64)], prefixes: &[&str]) -> Page {
        Page {
            objects: objects.iter().map(|(key, size)| object(key, *size)).collect(),
            prefixes: prefixes.iter().map(|key| key.as_bytes().to_vec()).collect(),
            next: None,
        }
    }

    fn names(page: &Page) -> (Vec<Bytes>, Vec<Bytes>) {
        let Level { files, directories } = Level::of(page, "d/");
        (files.into_iter().map(|entry| entry.name).collect(), directories.into_iter().collect())
    }

    #[test]
    fn entries_are_all_below_a_prefix_but_its_empty_marker() {
        let long = "n".repeat(300);
        let page = page(
            &[("d/", 0), ("d/a", 1), ("d/..", 1), ("d/b//", 1), (&format!("d/{long}"), 1)],
            &["d/c/", "d//", "d/./"],
        );
        let (files, directories) = names(&page);
        assert_eq!(files, ["a", "..", &long], "what no path can name is listed too");
        assert_eq!(directories, ["", ".", "b", "c"]);
    }

    #[test]
    fn a_key_with_a_slash_is_a_directory_wherever_it_stands() {
        let both = page(&[("d/", 0), ("d/a/", 0), ("d/b/c/e", 1), ("d/b/f", 1)], &["d/a/", "d/g/"]);
        assert_eq!(names(&both), (Vec::new(), ["a", "b", "g"].map(Bytes::from).to_vec()));
    }

    #[test]
    fn a_marker_with_content_is_a_file_without_a_name() {
        assert_eq!(names(&page(&[("d/", 8), ("d/x", 1)], &[])).0, ["", "x"]);
    }
}
