//! Metadata from responses: version, size, time and digests of a file.

use std::sync::Arc;

use http::{HeaderMap, header};
use towpath_proto::{
    checksum::{Algorithm, Digests, Hasher},
    http::{
        condition::EntityTag,
        date,
        dav::Entry,
        digest::{parse_content_md5, parse_digest, parse_owncloud, parse_repr_digest},
    },
    s3,
};
use towpath_store::{DirectoryId, FileKind, Metadata, VersionTag, sys::clock};

use super::{freshness, request::Request};

/// Prefix of version tags that are not a server's entity tag: no request can be made conditional on them. Unlike in an
/// entity tag, the format of the rest is known.
const OWN_TAG: char = '~';

/// One version of a file: its tag, and the condition that selects it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) tag: VersionTag,
    pub(super) condition: Option<Condition>,
    /// The tag of size and date, if known: it is used to compare versions of which only one has an entity tag.
    dated: Option<VersionTag>,
    /// A weak entity tag, without the prefix `W/`.
    weak: Option<VersionTag>,
}

/// A header field that makes a request fail with 412 if the file is another version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Condition {
    /// `If-Match`.
    Match(String),
    /// `If-Unmodified-Since`: weaker, as dates are in seconds.
    UnmodifiedSince(String),
}

impl Version {
    /// Creates the version of a tag that a caller kept; with a condition if the tag is an entity tag of the server.
    pub(super) fn of_tag(tag: &VersionTag) -> Self {
        let own = tag.as_str().starts_with(OWN_TAG);
        let condition = (!own).then(|| Condition::Match(format!("\"{}\"", tag.as_str())));
        Self { tag: tag.clone(), condition, dated: Some(tag.clone()).filter(is_dated), weak: None }
    }

    /// Returns the version in the metadata of a file, if any.
    pub(super) fn of_metadata(metadata: &Metadata) -> Option<Self> {
        let mut version = Self::of_tag(metadata.version.as_ref()?);
        if metadata.mtime_ns.is_some() {
            version.dated = version.dated.or_else(|| dated(metadata.size, metadata.mtime_s()));
            version.condition =
                version.condition.or_else(|| Some(Condition::UnmodifiedSince(date::format(metadata.mtime_s()))));
        }
        Some(version)
    }

    /// Creates a version from an entity tag, or, without a reliable one, from size and date.
    fn new(etag: Option<&EntityTag>, size: u64, modified_s: Option<i64>) -> Option<Self> {
        let dated = modified_s.and_then(|modified_s| dated(size, modified_s));
        if let Some(etag) = etag.filter(|etag| !etag.is_weak()) {
            let own = etag.opaque().starts_with(OWN_TAG);
            let tag = VersionTag::new(etag.opaque()).filter(|_| !own).or_else(|| hashed(etag.opaque()))?;
            return Some(Self { tag, condition: Some(Condition::Match(etag.to_string())), dated, weak: None });
        }
        let condition = modified_s.map(|modified_s| Condition::UnmodifiedSince(date::format(modified_s)));
        let weak = etag.and_then(|etag| VersionTag::new(etag.opaque())).map(VersionTag::into_weak);
        Some(Self { tag: dated.clone()?, condition, dated, weak })
    }

    /// Returns the entity tag, strong or weak.
    fn entity_tag(&self) -> Option<&VersionTag> {
        if is_dated(&self.tag) { self.weak.as_ref() } else { Some(&self.tag) }
    }

    /// Returns whether both are the same version; `None` if unknown. A server may send an entity tag in one response
    /// and none, or a weak one, in another (PROPFIND and GET): such versions are compared by size and date.
    pub(super) fn is_same(&self, other: &Version) -> Option<bool> {
        let tags = self.entity_tag().zip(other.entity_tag()).map(|(ours, theirs)| ours == theirs);
        let are_strong = self.weak.is_none() && other.weak.is_none();
        match tags {
            Some(is_same) if is_same || are_strong => Some(is_same),
            tags => self.dated.as_ref().zip(other.dated.as_ref()).map(|(ours, theirs)| ours == theirs).or(tags),
        }
    }
}

/// Adds the condition that the file is another version than the one with the metadata `held`: by its entity tag, or
/// without one by its time.
pub(super) fn unless(request: Request, held: &Metadata) -> Request {
    let condition = held.version.as_ref().and_then(|tag| Version::of_tag(tag).condition);
    match (condition, held.mtime_ns) {
        (Some(Condition::Match(tag)), _) => request.with(header::IF_NONE_MATCH, tag),
        (_, Some(_)) => request.with(header::IF_MODIFIED_SINCE, date::format(held.mtime_s())),
        (_, None) => request,
    }
}

/// Returns the tag for size and date, which is weak.
fn dated(size: u64, modified_s: i64) -> Option<VersionTag> {
    VersionTag::new(&format!("{OWN_TAG}{size:x}.{modified_s:x}")).map(VersionTag::into_weak)
}

/// Returns whether a tag consists of size and date: only these have a dot, and hashes have none.
fn is_dated(tag: &VersionTag) -> bool {
    tag.as_str().starts_with(OWN_TAG) && tag.as_str().contains('.')
}

/// Returns a tag for an entity tag that is too long, or has bytes that a tag cannot have.
fn hashed(opaque: &str) -> Option<VersionTag> {
    let digest = Hasher::digest_of(Algorithm::Sha256, opaque.as_bytes()).to_string();
    VersionTag::new(&format!("{OWN_TAG}{}", digest.get(..48)?))
}

/// Returns metadata and version from the header of a response about a file of `size` bytes.
pub(super) fn of_headers(headers: &HeaderMap, size: u64) -> (Metadata, Option<Version>) {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let etag = text(header::ETAG.as_str()).and_then(EntityTag::parse);
    let modified_s = text(header::LAST_MODIFIED.as_str()).and_then(date::parse);
    let version = Version::new(etag.as_ref(), size, modified_s);
    let mut metadata = Metadata::new(FileKind::File, size);
    metadata.mtime_ns = modified_s.and_then(nanoseconds);
    metadata.version = version.as_ref().map(|version| version.tag.clone());
    metadata.digests = digests(headers);
    metadata.freshness = freshness::of_headers(headers, clock::unix_s()).map(Arc::new);
    (metadata, version)
}

/// Returns the digests of the whole file in the header of a response. An invalid value is ignored: it is not needed to
/// interpret the response, and damaged data are detected later.
pub(super) fn digests(headers: &HeaderMap) -> Digests {
    let mut all = Digests::new();
    for (name, value) in headers {
        let Ok(text) = value.to_str() else { continue };
        let parsed = match name.as_str() {
            "digest" => parse_digest(text),
            "repr-digest" => parse_repr_digest(text),
            "oc-checksum" => parse_owncloud(text),
            // Covers the content of the response, which is the whole file only without a range.
            "content-md5" if !headers.contains_key(header::CONTENT_RANGE) => parse_content_md5(text).map(Digests::from),
            _ => continue,
        };
        parsed.unwrap_or_default().iter().for_each(|digest| all.insert(*digest));
    }
    if !headers.contains_key(header::CONTENT_RANGE) {
        let reported = s3::digests(|name| headers.get(name)?.to_str().ok());
        reported.iter().for_each(|digest| all.insert(*digest));
    }
    all
}

/// Converts a WebDAV entry to metadata; the minimum is the existence. Permission bits are omitted: servers invent them,
/// and they cannot be set.
pub(super) fn of_entry(entry: &Entry) -> Metadata {
    let directory_id = entry.directory_id.and_then(DirectoryId::from_number).filter(|_| entry.is_collection);
    Metadata { is_link: entry.is_link, directory_id, ..without_node(entry) }
}

fn without_node(entry: &Entry) -> Metadata {
    if entry.status.is_some() || entry.is_special {
        let mut metadata = Metadata::new(FileKind::Other, 0);
        metadata.mtime_ns = entry.modified_s.and_then(nanoseconds);
        return metadata;
    }
    if entry.is_collection {
        let mut metadata = Metadata::new(FileKind::Directory, 0);
        metadata.mtime_ns = entry.modified_s.and_then(nanoseconds);
        return metadata;
    }
    let size = entry.size_bytes.unwrap_or(0);
    let mut metadata = Metadata::new(FileKind::File, size);
    metadata.mtime_ns = entry.modified_s.and_then(nanoseconds);
    metadata.version = Version::new(entry.etag.as_ref(), size, entry.modified_s).map(|version| version.tag);
    metadata.digests = entry.digests.clone();
    metadata
}

fn nanoseconds(unix_s: i64) -> Option<i64> {
    unix_s.checked_mul(1_000_000_000)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn version(fields: &[(&'static str, &str)]) -> Option<Version> {
        let fields = fields.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_str(value).unwrap()));
        of_headers(&HeaderMap::from_iter(fields), 16).1
    }

    #[test]
    fn only_strong_tags_are_relied_on() {
        let date = ("last-modified", "Thu, 01 Jan 1970 00:01:40 GMT");
        let strong = version(&[("etag", "\"v1\""), date]).unwrap();
        assert_eq!((strong.tag.as_str(), strong.condition.clone()), ("v1", Some(Condition::Match("\"v1\"".into()))));
        assert_eq!(Version::of_tag(&strong.tag).condition, strong.condition);
        assert!(!strong.tag.is_weak());
        let weak = version(&[("etag", "W/\"v1\""), date]).unwrap();
        assert_eq!(weak.tag.as_str(), "~10.64");
        assert!(weak.tag.is_weak() && weak.weak.as_ref().is_some_and(VersionTag::is_weak));
        assert_eq!(weak.condition, Some(Condition::UnmodifiedSince(date.1.into())));
        assert_eq!(Version::of_tag(&weak.tag).condition, None);
        assert_eq!(version(&[("etag", "W/\"v1\"")]), None);
    }

    #[test]
    fn versions_are_compared_by_what_both_have() {
        let (tag, other_tag) = (("etag", "\"v1\""), ("etag", "\"v2\""));
        let (date, later) =
            (("last-modified", "Thu, 01 Jan 1970 00:01:40 GMT"), ("last-modified", "Thu, 01 Jan 1970 00:01:41 GMT"));
        let weak = |date| vec![("etag", "W/\"v1\""), date];
        for (one, two, is_same) in [
            (vec![tag, date], vec![tag, later], Some(true)),
            (vec![tag, date], vec![other_tag, date], Some(false)),
            (vec![tag, date], vec![date], Some(true)),
            (vec![tag, date], vec![later], Some(false)),
            (vec![tag, date], weak(later), Some(true)),
            (vec![other_tag, date], weak(date), Some(true)),
            (vec![other_tag], weak(date), Some(false)),
            (vec![date], weak(date), Some(true)),
            (vec![date], vec![("etag", "v1"), later], Some(false)),
            (vec![tag], vec![date], None),
        ] {
            let (one, two) = (version(&one).unwrap(), version(&two).unwrap());
            assert_eq!(one.is_same(&two), is_same, "{one:?} {two:?}");
            assert_eq!(two.is_same(&one), is_same, "{two:?} {one:?}");
        }
        let kept = Version::of_tag(&version(&[date]).unwrap().tag);
        assert_eq!(kept.is_same(&version(&[tag, date]).unwrap()), Some(true));
        assert_eq!(kept.is_same(&version(&[tag, later]).unwrap()), Some(false));
    }

    #[test]
    fn tags_that_do_not_fit_are_hashed() {
        let long = format!("\"{}\"", "x".repeat(200));
        for etag in [long.as_str(), "\"~10.64\""] {
            let version = version(&[("etag", etag)]).unwrap();
            assert_eq!(version.tag.as_str().len(), 49);
            assert_eq!(version.condition, Some(Condition::Match(etag.into())));
        }
    }

    #[test]
    fn digests_are_gathered_from_all_fields() {
        let fields = [
            ("digest", "adler32=091e01de"),
            ("repr-digest", "md5=:JfnnlDI7RTiF9RgfG2JNCw==:"),
            ("oc-checksum", "MD5:x"),
        ];
        let headers = fields.map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)));
        let digests = digests(&HeaderMap::from_iter(headers));
        assert_eq!(
            digests.algorithms(),
            towpath_proto::checksum::Algorithms::of(&[Algorithm::Adler32, Algorithm::Md5])
        );
    }
}
