//! The last known version of each path, for rules that permit opening a file without a request to the origin.
//!
//! A name is a small file, replaced atomically. After a loss of power it may be missing; the next open then queries the
//! origin.

use std::path::PathBuf;

use towpath_proto::{
    checksum::{Algorithm, Hasher},
    xrootd::page::crc32c,
};
use towpath_store::{Result, StorePath};

use crate::{
    disk::{CacheDisk, absent_if_missing},
    entry::disk_error,
    index::{IndexCodec, MAX_HEADER_BYTES, decode_header},
    version::{Version, hex},
};

/// A version, and when the origin reported it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KnownVersion {
    pub(crate) version: Version,
    /// Seconds since the Unix epoch.
    pub(crate) asked_s: i64,
}

impl KnownVersion {
    fn encode(&self, disk: &CacheDisk) -> Vec<u8> {
        let mut bytes = IndexCodec::new(disk.id, self.version.name()).header(&self.version);
        bytes.extend_from_slice(&self.asked_s.to_le_bytes());
        bytes.extend_from_slice(&crc32c(&bytes).to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8], disk: &CacheDisk) -> Option<Self> {
        let (cache, version, length) = decode_header(bytes)?;
        let (body, checksum) = bytes.split_at_checked(length + 8)?;
        let is_intact = cache == disk.id && checksum == crc32c(body).to_le_bytes();
        let asked_s = i64::from_le_bytes(body.get(length..)?.try_into().ok()?);
        is_intact.then_some(Self { version, asked_s })
    }

    /// Reads the known version of a path at an origin. A damaged name counts as unknown. May wait for the disk.
    pub(crate) fn read(disk: &CacheDisk, origin: &str, path: &StorePath) -> Result<Option<Self>> {
        let file = absent_if_missing(disk.volume.open(&name_of(origin, path)).map(Some));
        let file = file.map_err(|error| disk_error("opening a name of the cache", &error))?;
        let Some(file) = file else { return Ok(None) };
        let mut bytes = Vec::new();
        let read = file.read_at(0, MAX_HEADER_BYTES + 12, &mut bytes);
        read.map_err(|error| disk_error("reading a name of the cache", &error))?;
        let known = Self::decode(&bytes, disk);
        Ok(known.filter(|known| *known.version.origin == *origin && known.version.path == *path))
    }

    /// Replaces the known version of the path. May wait for the disk.
    pub(crate) fn write(&self, disk: &CacheDisk) -> Result<()> {
        let name = name_of(&self.version.origin, &self.version.path);
        let written = disk.replace(&name, &self.encode(disk), false);
        written.map_err(|error| disk_error("writing a name of the cache", &error))
    }

    /// Forgets a path. May wait for the disk.
    pub(crate) fn forget(disk: &CacheDisk, origin: &str, path: &StorePath) {
        // If it stays, the next reader finds out again.
        let _ = disk.volume.remove(&name_of(origin, path));
    }
}

/// Identifies a path at an origin: the SHA-256 of both.
pub(crate) type NameKey = [u8; 32];

/// Returns the key of a path at an origin.
pub(crate) fn key_of(origin: &str, path: &StorePath) -> NameKey {
    let mut bytes = (origin.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(origin.as_bytes());
    bytes.extend_from_slice(path.as_bytes());
    let digest = Hasher::digest_of(Algorithm::Sha256, &bytes);
    digest.bytes().try_into().expect("a SHA-256 has 32 bytes")
}

/// Returns the name of the file of a path: `names/ab/cdef…`.
fn name_of(origin: &str, path: &StorePath) -> PathBuf {
    let hex = hex(&key_of(origin, path));
    let (directory, rest) = hex.split_at(2);
    PathBuf::from(format!("names/{directory}/{rest}"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use towpath_store::sys::{disk as files, volume::SystemVolume};

    use super::*;

    #[test]
    fn a_name_is_believed_only_if_it_is_whole_and_of_its_path() {
        let directory = tempfile::tempdir().unwrap();
        let disk = CacheDisk::open(Arc::new(SystemVolume::open(directory.path()).unwrap()), 1).unwrap();
        let path = StorePath::parse(b"/f").unwrap();
        let version =
            Version { origin: "http://host".into(), path: path.clone(), size: 5, mtime_ns: Some(7), tag: None };
        let known = KnownVersion { version, asked_s: 1000 };
        assert_eq!(KnownVersion::read(&disk, "http://host", &path).unwrap(), None);
        known.write(&disk).unwrap();
        assert_eq!(KnownVersion::read(&disk, "http://host", &path).unwrap(), Some(known));
        let file = directory.path().join(name_of("http://host", &path));
        let other = directory.path().join(name_of("http://host", &StorePath::parse(b"/g").unwrap()));
        std::fs::create_dir_all(other.parent().unwrap()).unwrap();
        files::write(&other, &files::read(&file, 1 << 20).unwrap()).unwrap();
        assert_eq!(KnownVersion::read(&disk, "http://host", &StorePath::parse(b"/g").unwrap()).unwrap(), None);
        let bytes = files::read(&file, 1 << 20).unwrap();
        for length in 0..bytes.len() {
            files::write(&file, &bytes[..length]).unwrap();
            assert_eq!(KnownVersion::read(&disk, "http://host", &path).unwrap(), None);
        }
        KnownVersion::forget(&disk, "http://host", &path);
        assert!(!file.exists());
    }
}
