//! What a request names at an origin (RFC 9112 §3.2): a path, and a query or a long name if that selects the content.

use std::{borrow::Cow, fmt, ops::Deref, sync::Arc};

use towpath_proto::url::{redact, without_secrets};
use towpath_store::StorePath;

/// Maximum length in bytes of a query whose content is cached.
const MAX_QUERY_BYTES: usize = 4 << 10;

/// A path with a query, or without one. A last name that is too long for a path counts as a query of its directory. Rules,
/// quotas and pins concern the path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    path: StorePath,
    /// As the client sent it, without its token, but with the question mark or slash before it ([`towpath_store::OpenOptions::query`]);
    /// not empty.
    query: Option<Arc<str>>,
}

impl Target {
    /// Creates the target of a request.
    pub(crate) fn new(path: StorePath, query: Option<Arc<str>>) -> Self {
        Self { path, query: query.filter(|query| query.len() > 1) }
    }

    /// Returns the query, with the character before it.
    pub fn query(&self) -> Option<&Arc<str>> {
        self.query.as_ref()
    }

    /// Returns whether the content may be cached: the query is not long, and has no secret, which would get to the disk.
    pub(crate) fn is_cacheable(&self) -> bool {
        self.query.as_ref().is_none_or(|query| query.len() <= MAX_QUERY_BYTES && without_secrets(query) == **query)
    }

    /// Returns the bytes that identify it: the path; if there is a query, a zero byte, which no path has, and the query.
    pub(crate) fn key_bytes(&self) -> Cow<'_, [u8]> {
        match &self.query {
            None => Cow::Borrowed(self.path.as_bytes()),
            Some(query) => Cow::Owned([self.path.as_bytes(), b"\0", query.as_bytes()].concat()),
        }
    }

    /// Parses what [`Self::key_bytes`] returns; `None` if it is something else.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut parts = bytes.splitn(2, |byte| *byte == 0);
        let path = StorePath::parse(parts.next()?).ok()?;
        let query = match parts.next() {
            None => None,
            Some([] | [_]) => return None,
            Some([before, ..]) if !matches!(before, b'?' | b'/') => return None,
            Some(query) => Some(std::str::from_utf8(query).ok()?.into()),
        };
        Some(Self { path, query })
    }
}

impl From<StorePath> for Target {
    fn from(path: StorePath) -> Self {
        Self { path, query: None }
    }
}

impl Deref for Target {
    type Target = StorePath;

    fn deref(&self) -> &StorePath {
        &self.path
    }
}

/// The values of secret keys are masked.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.query {
            None => self.path.fmt(f),
            Some(name) if self.path.is_root() && name.starts_with('/') => f.write_str(&redact(name)),
            Some(query) => write!(f, "{}{}", self.path, redact(query)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_not_mistaken_for_a_part_of_the_name() {
        let path = |text: &[u8]| StorePath::parse(text).unwrap();
        let targets = [
            Target::from(path(b"/f")),
            Target::from(path(b"/f?a=1")),
            Target::new(path(b"/f"), Some("?a=1".into())),
            Target::new(path(b"/f"), Some("?a=1&b=/x".into())),
            Target::new(path(b"/f"), Some("/a=1".into())),
            Target::new(path(b"/f?a=1"), Some("?b=/x".into())),
        ];
        for (index, target) in targets.iter().enumerate() {
            let bytes = target.key_bytes();
            assert_eq!(Target::parse(&bytes).as_ref(), Some(target));
            assert_eq!(targets.iter().position(|other| other.key_bytes() == bytes), Some(index));
        }
        assert_eq!(Target::new(path(b"/f"), Some("?".into())), targets[0]);
        assert_eq!(Target::new(path(b"/"), Some("/a".into())).to_string(), "/a");
        let secret = Target::new(path(b"/f"), Some("?a=1&X-Amz-Signature=b".into()));
        assert_eq!(secret.to_string(), "/f?a=1&X-Amz-Signature=***");
        assert!(!secret.is_cacheable() && targets.iter().all(Target::is_cacheable));
        for bytes in [b"/f\0".as_slice(), b"/f\0\xff", b"/f\0?\xff", b"/f\0a=1", b"/f\0?", b"f/../..\0?a"] {
            assert_eq!(Target::parse(bytes), None);
        }
    }
}
