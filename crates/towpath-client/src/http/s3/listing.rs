//! Listings: the keys below a prefix, page by page, as directories show them.

use std::collections::VecDeque;

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use towpath_proto::s3::{Object, Page};
use towpath_store::{Caller, Entry, Error, Fault, FileKind, Listing, Metadata, Result, StorePath, VersionTag};

use super::bucket::{Bucket, prefix_of};

/// Entries of one page, and so of one batch.
const PAGE_ENTRIES: usize = 1000;

/// A listing underway.
struct Reader {
    bucket: Bucket,
    caller: Caller,
    path: StorePath,
    prefix: String,
    place: Place,
}

/// Where a listing has got to.
enum Place {
    Start,
    Next(String),
    End,
}

/// The entries of the directory `path`.
pub(super) fn list(bucket: Bucket, caller: Caller, path: StorePath) -> Listing {
    let begin = async move {
        let prefix = match prefix_of(&path) {
            Ok(prefix) => prefix,
            Err(error) => return stream::once(async { Err(error) }).boxed(),
        };
        let reader = Reader { bucket, caller, path, prefix, place: Place::Start };
        stream::try_unfold(reader, |mut reader| async move {
            let batch = reader.batch().await.map_err(|error| error.at(&reader.path))?;
            Ok(batch.map(|batch| (batch, reader)))
        })
        .boxed()
    };
    stream::once(begin).flatten().boxed()
}

impl Reader {
    /// The next entries, never an empty batch; none at the end.
    async fn batch(&mut self) -> Result<Option<Vec<Entry>>> {
        loop {
            let next = match &self.place {
                Place::End => return Ok(None),
                Place::Start => None,
                Place::Next(next) => Some(next.as_str()),
            };
            let page = self.bucket.page(&self.caller, &self.prefix, true, PAGE_ENTRIES, next).await?;
            let is_nothing = page.objects.is_empty() && page.prefixes.is_empty() && page.next.is_none();
            if is_nothing && matches!(self.place, Place::Start) {
                self.explain_nothing().await?;
            }
            let batch = entries(&page, &self.prefix);
            self.place = page.next.map_or(Place::End, Place::Next);
            if !batch.is_empty() {
                return Ok(Some(batch));
            }
        }
    }

    /// Where no key lies, there is no directory, but perhaps a file.
    async fn explain_nothing(&self) -> Result<()> {
        if self.path.is_root() || self.bucket.stat(&self.caller, &self.path).await?.is_directory() {
            return Ok(());
        }
        Err(Error::new(Fault::NotDirectory, "it is not a directory"))
    }
}

/// What a page has, as entries of the directory with that prefix, also under names that no path can have: so nobody takes the rest for all. The directory's
/// own marker is none of them.
fn entries(page: &Page, prefix: &str) -> Vec<Entry> {
    let objects = page.objects.iter().filter_map(|object| {
        let name =
            object.key.strip_prefix(prefix.as_bytes()).filter(|name| !name.is_empty() && !name.contains(&b'/'))?;
        Some(Entry { name: Bytes::copy_from_slice(name), metadata: metadata_of(object) })
    });
    let directories = page.prefixes.iter().filter_map(|key| {
        let name = key.strip_prefix(prefix.as_bytes())?.strip_suffix(b"/").filter(|name| !name.contains(&b'/'))?;
        Some(Entry { name: Bytes::copy_from_slice(name), metadata: Metadata::new(FileKind::Directory, 0) })
    });
    objects.chain(directories).collect()
}

/// What a page tells of an object.
pub(super) fn metadata_of(object: &Object) -> Metadata {
    let mut metadata = Metadata::new(FileKind::File, object.size);
    metadata.mtime_ns = object.modified_s.and_then(|seconds| seconds.checked_mul(1_000_000_000));
    metadata.version =
        object.etag.as_ref().filter(|etag| !etag.is_weak()).and_then(|etag| VersionTag::new(etag.opaque()));
    metadata
}

/// All keys that begin with `prefix`, in pages.
pub(super) fn keys<'a>(
    bucket: &'a Bucket,
    caller: &'a Caller,
    prefix: &'a str,
) -> impl stream::Stream<Item = Result<VecDeque<Object>>> + 'a {
    stream::try_unfold(Place::Start, move |place| async move {
        let next = match &place {
            Place::End => return Ok(None),
            Place::Start => None,
            Place::Next(next) => Some(next.as_str()),
        };
        let page = bucket.page(caller, prefix, false, PAGE_ENTRIES, next).await?;
        Ok(Some((page.objects.into(), page.next.map_or(Place::End, Place::Next))))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_all_below_a_prefix_but_its_marker() {
        let long = "n".repeat(300);
        let object = |key: &str| Object { key: key.into(), size: 1, modified_s: Some(7), etag: None };
        let page = Page {
            objects: ["d/", "d/a", "d/..", "d/b//", "other", &format!("d/{long}")].map(object).into(),
            prefixes: ["d/c/", "d//", "d/./"].map(|key| key.as_bytes().to_vec()).into(),
            next: None,
        };
        let names: Vec<_> = entries(&page, "d/").into_iter().map(|entry| entry.name).collect();
        assert_eq!(names, ["a", "..", &long, "c", "", "."], "what no path can name is told of too");
    }
}
