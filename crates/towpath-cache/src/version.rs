//! The version of a file at an origin, which an entry of the cache is bound to.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use towpath_proto::checksum::{Algorithm, Hasher};
use towpath_store::{FileKind, Metadata, VersionTag};

use crate::{index::EntryName, results::is_of_content, rules::Recheck, target::Target};

/// One version of a file. Every field is part of the name of its entry: a changed file is another entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Version {
    /// URL of the origin, without credentials.
    pub(crate) origin: Arc<str>,
    /// Target at the origin; its bytes, nothing folded or decoded.
    pub(crate) target: Target,
    /// Size in bytes.
    pub(crate) size: u64,
    /// Modification time in nanoseconds since the Unix epoch, as precise as the origin reports it.
    pub(crate) mtime_ns: Option<i64>,
    /// Tag of the origin.
    pub(crate) tag: Option<VersionTag>,
}

impl Version {
    /// Returns the version that `metadata` describe; `None` if they do not identify one.
    pub(crate) fn of(origin: &Arc<str>, target: &Target, metadata: &Metadata) -> Option<Self> {
        let Metadata { size, mtime_ns, version, .. } = metadata;
        (version.is_some() || mtime_ns.is_some()).then(|| Self {
            origin: Arc::clone(origin),
            target: target.clone(),
            size: *size,
            mtime_ns: *mtime_ns,
            tag: version.clone(),
        })
    }

    /// Returns the metadata of the file, as far as they are known.
    pub(crate) fn metadata(&self) -> Metadata {
        Metadata { mtime_ns: self.mtime_ns, version: self.tag.clone(), ..Metadata::new(FileKind::File, self.size) }
    }

    /// Returns the name of the entry: SHA-256 of the fields, each variable one after its length.
    pub(crate) fn name(&self) -> EntryName {
        let tag = self.tag.as_ref().map_or("", |tag| tag.as_str());
        let mut bytes = Vec::new();
        for text in [self.origin.as_bytes(), &self.target.key_bytes(), tag.as_bytes()] {
            bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
            bytes.extend_from_slice(text);
        }
        bytes.extend_from_slice(&self.size.to_le_bytes());
        bytes.extend_from_slice(&self.mtime_ns.unwrap_or(i64::MIN).to_le_bytes());
        let digest = Hasher::digest_of(Algorithm::Sha256, &bytes);
        digest.bytes().try_into().expect("a SHA-256 has 32 bytes")
    }
}

/// Which files of several origins with the same tree have the same content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SameContent {
    /// Those of the same size and modification time, in whole seconds: not all origins report more.
    OfSizeAndTime,
    /// Those of the same size, because files never change.
    OfSize,
}

impl SameContent {
    /// Returns how to compare files under a rule.
    pub(crate) fn under(recheck: Recheck) -> Self {
        if recheck == Recheck::Never { Self::OfSize } else { Self::OfSizeAndTime }
    }

    /// Returns whether the file with `metadata` at `origin` has the content of `version`.
    pub(crate) fn is_of(self, version: &Version, origin: &str, metadata: &Metadata) -> bool {
        let seconds = |mtime_ns: Option<i64>| mtime_ns.map(|mtime_ns| mtime_ns.div_euclid(1_000_000_000));
        // Two executions of a query may have the same size and time.
        if is_of_content(version.tag.as_ref()) || is_of_content(metadata.version.as_ref()) {
            return (version.size, &version.tag) == (metadata.size, &metadata.version);
        }
        let is_same_time = || version.mtime_ns.is_some() && seconds(version.mtime_ns) == seconds(metadata.mtime_ns);
        match *version.origin == *origin {
            true => {
                (version.size, version.mtime_ns, &version.tag) == (metadata.size, metadata.mtime_ns, &metadata.version)
            }
            false => version.size == metadata.size && (self == Self::OfSize || is_same_time()),
        }
    }
}

/// Returns bytes in lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the name of a file of an entry in the cache directory: `entries/ab/cdef….data`.
pub(crate) fn file_name(name: &EntryName, extension: &str) -> PathBuf {
    let hex = hex(name);
    let (directory, rest) = hex.split_at(2);
    PathBuf::from(format!("entries/{directory}/{rest}.{extension}"))
}

/// Returns the entry of a file in the cache directory, the inverse of [`file_name`]; `None` for other files.
pub(crate) fn entry_name(path: &Path) -> Option<EntryName> {
    let directory = path.parent()?.file_name()?.to_str()?;
    let hex = format!("{directory}{}", path.file_stem()?.to_str()?);
    if hex.len() != 64 || !hex.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    let mut name = [0; 32];
    for (byte, at) in name.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(hex.get(at..at + 2)?, 16).ok()?;
    }
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_difference_is_another_entry() {
        let origin: Arc<str> = "http://host".into();
        let metadata =
            Metadata { mtime_ns: Some(5), version: VersionTag::new("a"), ..Metadata::new(FileKind::File, 9) };
        let target = |text: &[u8]| Target::parse(text).unwrap();
        let of = |origin: &Arc<str>, text: &[u8], metadata: &Metadata| {
            Version::of(origin, &target(text), metadata).unwrap().name()
        };
        let name = of(&origin, b"/ns/data.txt", &metadata);
        assert_eq!(name, of(&origin, b"//ns/./data.txt", &metadata), "the same path of the store");
        for (origin, text, metadata) in [
            ("http://other", b"/ns/data.txt".as_slice(), metadata.clone()),
            ("http://host", b"/ns/Data.txt", metadata.clone()),
            ("http://host", b"/ns/data%2Etxt", metadata.clone()),
            ("http://host", b"/ns/data.txt;v=1", metadata.clone()),
            ("http://host", b"/ns/data.txt?v=1", metadata.clone()),
            ("http://host", b"/ns/data.txt\0?v=1", metadata.clone()),
            ("http://host", "/ns/d\u{e4}ta".as_bytes(), metadata.clone()),
            ("http://host", "/ns/da\u{308}ta".as_bytes(), metadata.clone()),
            ("http://host", b"/ns/data.txt", Metadata { size: 10, ..metadata.clone() }),
            ("http://host", b"/ns/data.txt", Metadata { mtime_ns: None, ..metadata.clone() }),
            ("http://host", b"/ns/data.txt", Metadata { version: VersionTag::new("b"), ..metadata }),
        ] {
            assert_ne!(name, of(&origin.into(), text, &metadata), "{origin} {text:?}");
        }
        assert!(Version::of(&origin, &target(b"/f"), &Metadata::new(FileKind::File, 9)).is_none());
    }

    #[test]
    fn entries_are_spread_over_directories() {
        let name = file_name(&[0xab; 32], "data");
        assert_eq!(name, PathBuf::from(format!("entries/ab/{}.data", "ab".repeat(31))));
        assert_eq!(entry_name(&name), Some([0xab; 32]));
        for other in ["entries/ab/x.data", "entries/towpath-cache", "README", "entries/AB/cd.data"] {
            assert_eq!(entry_name(Path::new(other)), None);
        }
    }
}
