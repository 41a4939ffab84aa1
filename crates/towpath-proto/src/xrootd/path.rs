//! Paths in requests: raw bytes, with opaque information after `?`.

use std::{borrow::Cow, fmt};

use bytes::{BufMut, Bytes, BytesMut};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode, percent_encode};

use super::wire::text;
use super::{DecodeError, FileHandle};

/// A path and its opaque information (`cgi`), split at the first `?`.
///
/// The bytes are unchanged except for the removal of trailing NULs; [`normalized`](Self::normalized) returns the path
/// to operate on. `Debug` hides the opaque information, because it may contain a bearer token (`authz=Bearer%20...`).
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct PathAndCgi {
    /// The bytes before the first `?`.
    pub path: Bytes,
    /// The bytes after the first `?`: `k=v&k=v`. Empty if there are none; a bare trailing `?` is dropped.
    pub cgi: Bytes,
}

impl PathAndCgi {
    /// Splits `argument` at its first `?`.
    ///
    /// # Errors
    /// [`DecodeError::Missing`] if the path is empty, [`DecodeError::Invalid`] if it contains a NUL.
    pub fn decode(argument: Bytes) -> Result<Self, DecodeError> {
        let this = Self::split(text(argument, "path")?);
        if this.path.is_empty() { Err(DecodeError::Missing { what: "path" }) } else { Ok(this) }
    }

    /// Creates a path without opaque information. A `?` in it becomes the separator on the wire.
    #[must_use]
    pub fn new(path: impl Into<Bytes>) -> Self {
        Self::split(path.into())
    }

    /// Returns the same path with `cgi` as its opaque information.
    #[must_use]
    pub fn with_cgi(self, cgi: impl Into<Bytes>) -> Self {
        Self { path: self.path, cgi: cgi.into() }
    }

    fn split(mut path: Bytes) -> Self {
        let Some(question) = path.iter().position(|&byte| byte == b'?') else {
            return Self { path, cgi: Bytes::new() };
        };
        let mut cgi = path.split_off(question);
        cgi = cgi.slice(1..);
        Self { path, cgi }
    }

    /// Key in the opaque information (with any value) that marks the path as percent-encoded, so that names may contain
    /// a question mark. Only for servers that support [`NodeInfo::KEY`](super::response::NodeInfo::KEY).
    pub(crate) const ENCODED_KEY: &str = "towpath.encoded";

    /// Percent-encodes the bytes of the path that are special on the wire, and adds the pair that marks it as encoded.
    #[must_use]
    pub fn percent_encoded(path: &[u8], cgi: &[u8]) -> Self {
        const ESCAPED: &AsciiSet = &CONTROLS.add(b'%').add(b'?');
        let path = percent_encode(path, ESCAPED).to_string().into();
        let separator = if cgi.is_empty() { "" } else { "&" };
        let cgi = [cgi, separator.as_bytes(), Self::ENCODED_KEY.as_bytes(), b"=1"].concat().into();
        Self { path, cgi }
    }

    /// Returns the bytes of the path, decoded if it is encoded.
    pub fn path_bytes(&self) -> Cow<'_, [u8]> {
        match self.cgi_value(Self::ENCODED_KEY) {
            Some(_) => percent_decode(&self.path).into(),
            None => Cow::Borrowed(&self.path),
        }
    }

    /// Appends `path` or `path?cgi`.
    pub fn encode(&self, out: &mut BytesMut) {
        out.reserve(self.encoded_len());
        out.put_slice(&self.path);
        if !self.cgi.is_empty() {
            out.put_u8(b'?');
            out.put_slice(&self.cgi);
        }
    }

    /// Returns the number of bytes that [`encode`](Self::encode) appends.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        let cgi = if self.cgi.is_empty() { 0 } else { self.cgi.len().saturating_add(1) };
        self.path.len().saturating_add(cgi)
    }

    /// Returns the pairs of the opaque information; an element without `=` has an empty value, empty elements are
    /// skipped.
    pub fn cgi_pairs(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.cgi.split(|&byte| byte == b'&').filter(|pair| !pair.is_empty()).map(|pair| {
            let mut halves = pair.splitn(2, |&byte| byte == b'=');
            (halves.next().unwrap_or_default(), halves.next().unwrap_or_default())
        })
    }

    /// Returns the value of the first `key` in the opaque information, not percent-decoded.
    #[must_use]
    pub fn cgi_value(&self, key: &str) -> Option<&[u8]> {
        self.cgi_pairs().find(|(name, _)| *name == key.as_bytes()).map(|(_, value)| value)
    }

    /// Returns the path to operate on: absolute, with single slashes, without `.` components, and without a trailing
    /// slash (except for `/` itself). Does not copy a path that already has this form.
    ///
    /// # Errors
    /// [`DecodeError::Invalid`] if the path is relative or has a `..` component.
    pub fn normalized(&self) -> Result<Bytes, DecodeError> {
        const INVALID: DecodeError = DecodeError::Invalid { what: "path" };
        let Some((b'/', relative)) = self.path.split_first() else {
            return Err(INVALID);
        };
        let mut clean = relative.is_empty() || !relative.ends_with(b"/");
        for (index, part) in relative.split(|&byte| byte == b'/').enumerate() {
            match part {
                b".." => return Err(INVALID),
                b"" if index == 0 && relative.is_empty() => {}
                b"" | b"." => clean = false,
                _ => {}
            }
        }
        Ok(if clean { self.path.clone() } else { collapse(relative) })
    }
}

/// Returns `/` followed by the components of `relative` that are neither empty nor `.`.
fn collapse(relative: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(relative.len().saturating_add(1));
    for part in relative.split(|&byte| byte == b'/').filter(|part| !matches!(*part, b"" | b".")) {
        out.put_u8(b'/');
        out.put_slice(part);
    }
    if out.is_empty() {
        out.put_u8(b'/');
    }
    out.freeze()
}

impl From<&str> for PathAndCgi {
    fn from(path: &str) -> Self {
        Self::new(Bytes::copy_from_slice(path.as_bytes()))
    }
}

impl fmt::Debug for PathAndCgi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.path.escape_ascii(), if self.cgi.is_empty() { "" } else { "?.." })
    }
}

/// Target of a request that accepts either a path or an open file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Target {
    /// A path.
    Path(PathAndCgi),
    /// An open file.
    Handle(FileHandle),
}

impl Target {
    /// Returns the path in `payload`, or `handle` if there is none.
    pub(super) fn decode(handle: FileHandle, payload: Bytes) -> Result<Self, DecodeError> {
        match PathAndCgi::decode(payload) {
            Ok(path) => Ok(Self::Path(path)),
            Err(DecodeError::Missing { .. }) => Ok(Self::Handle(handle)),
            Err(error) => Err(error),
        }
    }

    /// Returns the handle for the header, all zeros for a path.
    pub(super) fn handle(&self) -> FileHandle {
        match self {
            Self::Path(_) => FileHandle::default(),
            Self::Handle(handle) => *handle,
        }
    }

    /// Appends the path, or nothing for a handle.
    pub(super) fn encode(&self, out: &mut BytesMut) {
        if let Self::Path(path) = self {
            path.encode(out);
        }
    }
}
