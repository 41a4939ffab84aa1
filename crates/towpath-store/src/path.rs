//! Paths within a store: absolute, normalized byte strings.

use std::fmt;

/// Maximum length of a path in bytes (Linux `PATH_MAX` minus its NUL).
pub const MAX_PATH_BYTES: usize = 4095;
/// Maximum length of a component in bytes (Linux `NAME_MAX`).
pub const MAX_NAME_BYTES: usize = 255;

/// An absolute, normalized path in a store: it starts with `/`, and has no empty, `.` or `..` component and no trailing
/// slash (except the root `/`). Names are bytes without an assumed encoding, as in the file systems of the field.
///
/// ```
/// use towpath_store::StorePath;
/// let path = StorePath::parse(b"//data/./run1//f.root").unwrap();
/// assert_eq!(path.as_bytes(), b"/data/run1/f.root");
/// assert!(StorePath::parse(b"/data/../etc").is_err());
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StorePath(Box<[u8]>);

/// Why bytes are not a valid [`StorePath`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// The path does not start with `/`.
    #[error("the path is not absolute: it must start with /")]
    Relative,
    /// The path has a `..` component; it is rejected rather than resolved, so that it cannot leave the root under any
    /// interpretation.
    #[error("the path has a `..` component")]
    Parent,
    /// The path has a NUL byte.
    #[error("the path has a NUL byte")]
    Nul,
    /// The path is longer than [`MAX_PATH_BYTES`], or a component is longer than [`MAX_NAME_BYTES`].
    #[error("the path is longer than {MAX_PATH_BYTES} bytes, or one of its names than {MAX_NAME_BYTES}")]
    TooLong,
}

impl StorePath {
    /// Returns the root of the store.
    pub fn root() -> Self {
        Self(Box::from(*b"/"))
    }

    /// Normalizes an absolute path: collapses slashes, removes `.` and a trailing slash, rejects `..`.
    ///
    /// # Errors
    /// [`PathError`] describes the invalid bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, PathError> {
        if bytes.first() != Some(&b'/') {
            return Err(PathError::Relative);
        }
        if bytes.contains(&0) {
            return Err(PathError::Nul);
        }
        let mut normal = Vec::with_capacity(bytes.len().min(MAX_PATH_BYTES + 1));
        for name in bytes.split(|b| *b == b'/').filter(|name| !matches!(*name, b"" | b".")) {
            push_name(&mut normal, name)?;
        }
        if normal.is_empty() {
            normal.push(b'/');
        }
        Ok(Self(normal.into()))
    }

    /// Returns the path as bytes, with its leading slash.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the path without its leading slash, as for `openat`; empty for the root.
    pub fn relative(&self) -> &[u8] {
        &self.0[1..]
    }

    /// Returns whether this is the root.
    pub fn is_root(&self) -> bool {
        self.0.len() == 1
    }

    /// Iterates over the names from the root down; empty for the root.
    pub fn components(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.relative().split(|b| *b == b'/').filter(|name| !name.is_empty())
    }

    /// Returns the last name; `None` for the root.
    pub fn name(&self) -> Option<&[u8]> {
        self.components().next_back()
    }

    /// Returns the parent directory; `None` for the root.
    pub fn parent(&self) -> Option<Self> {
        if self.is_root() {
            return None;
        }
        let slash = self.0.iter().rposition(|b| *b == b'/').unwrap_or(0);
        Some(Self(self.0[..slash.max(1)].into()))
    }

    /// Returns the path of `name` in this directory.
    ///
    /// # Errors
    /// [`PathError`] if `name` is not a single normal component.
    pub fn join(&self, name: &[u8]) -> Result<Self, PathError> {
        match name {
            b".." => return Err(PathError::Parent),
            b"" | b"." => return Err(PathError::Relative),
            _ if name.contains(&0) => return Err(PathError::Nul),
            _ if name.contains(&b'/') => return Err(PathError::Relative),
            _ => {}
        }
        let mut joined = if self.is_root() { Vec::new() } else { self.0.to_vec() };
        push_name(&mut joined, name)?;
        Ok(Self(joined.into()))
    }

    /// Returns the path of `inner`, an absolute path, below this one: `/a` and `/b/c` are `/a/b/c`.
    ///
    /// # Errors
    /// [`PathError::TooLong`].
    pub fn concat(&self, inner: &Self) -> Result<Self, PathError> {
        let path = match (self.is_root(), inner.is_root()) {
            (true, _) => return Ok(inner.clone()),
            (_, true) => return Ok(self.clone()),
            _ => [&*self.0, &*inner.0].concat(),
        };
        if path.len() > MAX_PATH_BYTES { Err(PathError::TooLong) } else { Ok(Self(path.into())) }
    }

    /// Returns the absolute path below `prefix`, the inverse of [`Self::concat`]; `None` if it is elsewhere.
    pub fn relative_to(&self, prefix: &Self) -> Option<Self> {
        if !self.is_within(prefix) {
            return None;
        }
        let start = if prefix.is_root() { 0 } else { prefix.0.len() };
        let rest = &self.0[start..];
        Some(if rest.is_empty() { Self::root() } else { Self(rest.into()) })
    }

    /// Returns whether `self` is `prefix` or a descendant of it, by whole components: `/foo/bar` contains `/foo/bar/x`,
    /// not `/foo/bargain`.
    pub fn is_within(&self, prefix: &Self) -> bool {
        match self.0.strip_prefix(&*prefix.0) {
            Some(rest) => prefix.is_root() || rest.is_empty() || rest[0] == b'/',
            None => false,
        }
    }
}

fn push_name(path: &mut Vec<u8>, name: &[u8]) -> Result<(), PathError> {
    if name == b".." {
        return Err(PathError::Parent);
    }
    if name.len() > MAX_NAME_BYTES || path.len() + 1 + name.len() > MAX_PATH_BYTES {
        return Err(PathError::TooLong);
    }
    path.push(b'/');
    path.extend_from_slice(name);
    Ok(())
}

/// Returns whether a terminal interprets a character rather than displays it: control characters, and those that change
/// the writing direction. (The marks U+200E and U+200F do not change it, and are common in names.)
pub fn is_obeyed(c: char) -> bool {
    c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Displays a name or path with escapes for bytes that are not UTF-8 and for characters that a terminal
/// [interprets](is_obeyed).
#[derive(Debug, Clone, Copy)]
pub struct Printable<'a>(pub &'a [u8]);

impl fmt::Display for StorePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Printable(&self.0).fmt(f)
    }
}

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Ok(text) = str::from_utf8(self.0)
            && !text.contains(is_obeyed)
        {
            return f.write_str(text);
        }
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                if is_obeyed(c) { write!(f, "{}", c.escape_default())? } else { write!(f, "{c}")? }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for StorePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn path(text: &str) -> StorePath {
        StorePath::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn concatenation_and_its_inverse() {
        for (prefix, inner, whole) in [("/", "/a", "/a"), ("/a", "/", "/a"), ("/a", "/b/c", "/a/b/c"), ("/", "/", "/")]
        {
            let whole = path(whole);
            assert_eq!(path(prefix).concat(&path(inner)).unwrap(), whole);
            assert_eq!(whole.relative_to(&path(prefix)).unwrap(), path(inner));
        }
        assert_eq!(path("/ab").relative_to(&path("/a")), None);
        let long = path(&"/x".repeat(MAX_PATH_BYTES / 2));
        assert_eq!(path("/a").concat(&long), Err(PathError::TooLong));
    }

    #[test]
    fn normalizes() {
        for (given, normal) in [("/", "/"), ("//", "/"), ("/a//b/", "/a/b"), ("/./a/.", "/a"), ("/...", "/...")] {
            assert_eq!(path(given).as_bytes(), normal.as_bytes());
        }
    }

    #[test]
    fn refuses() {
        let long = [b"/".as_slice(), &[b'x'; 256]].concat();
        let deep = b"/0123456789".repeat(400);
        for (given, why) in [
            (b"a".as_slice(), PathError::Relative),
            (b"", PathError::Relative),
            (b"/a/..", PathError::Parent),
            (b"/../a", PathError::Parent),
            (b"/a\0", PathError::Nul),
            (&long, PathError::TooLong),
            (&deep, PathError::TooLong),
        ] {
            assert_eq!(StorePath::parse(given), Err(why), "{given:?}");
        }
    }

    #[test]
    fn prefixes_are_whole_components() {
        assert!(path("/foo/bar").is_within(&path("/foo/bar")));
        assert!(path("/foo/bar/x").is_within(&path("/foo/bar")));
        assert!(!path("/foo/bargain").is_within(&path("/foo/bar")));
        assert!(path("/x").is_within(&StorePath::root()));
        assert!(!path("/foo").is_within(&path("/foo/bar")));
    }

    #[test]
    fn odd_bytes_print_escaped() {
        assert_eq!(StorePath::parse(b"/a\n\xff").unwrap().to_string(), "/a\\n\\xff");
        assert_eq!(path("/\u{202e}toor.a\u{2069}ü").to_string(), "/\\u{202e}toor.a\\u{2069}ü");
    }

    proptest! {
        #[test]
        fn parsing_is_idempotent_and_confined(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(path) = StorePath::parse(&bytes) {
                prop_assert_eq!(&StorePath::parse(path.as_bytes()).unwrap(), &path);
                prop_assert!(path.components().all(|name| !name.is_empty() && name != b"." && name != b".."));
                prop_assert_eq!(path.parent().is_none(), path.is_root());
            }
        }

        #[test]
        fn join_undoes_parent(bytes in proptest::collection::vec(any::<u8>(), 1..64)) {
            if let Ok(path) = StorePath::parse(&bytes)
                && let (Some(parent), Some(name)) = (path.parent(), path.name()) {
                    prop_assert_eq!(parent.join(name).unwrap(), path);
                }
        }
    }
}
