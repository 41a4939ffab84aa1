//! The last known version of each path, for rules that permit opening a file without a request to the origin.
//!
//! A name is a small file, replaced atomically. After a loss of power it may be missing; the next open then queries the
//! origin.

use std::{
    io,
    path::{Path, PathBuf},
    sync::atomic::Ordering::Relaxed,
};

use towpath_proto::{
    checksum::{Algorithm, Hasher},
    xrootd::page::crc32c,
};
use towpath_store::{
    Freshness, Result,
    sys::{clock, volume::Volume},
};

use crate::{
    disk::{CacheDisk, absent_if_missing},
    entry::disk_error,
    index::{IndexCodec, MAX_HEADER_BYTES, decode_header},
    target::Target,
    version::{Version, hex},
};

/// The file with the time up to which names do not count.
const SINCE: &str = "names-since";
/// Maximum length in bytes of the fields after the header of a version.
const MAX_TRAILER_BYTES: usize = 8 + 8 + 2 + Freshness::MAX_BYTES + 4;

/// A version, and when the origin reported it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KnownVersion {
    pub(crate) version: Version,
    /// When the origin was queried, in seconds since the Unix epoch.
    pub(crate) asked_s: i64,
    /// What the origin stated; an empty statement if nothing.
    pub(crate) freshness: Freshness,
}

impl KnownVersion {
    fn encode(&self, disk: &CacheDisk) -> Vec<u8> {
        let mut bytes = IndexCodec::new(disk.id, self.version.name()).header(&self.version);
        let statement = self.freshness.cache_control().as_bytes();
        bytes.extend_from_slice(&self.asked_s.to_le_bytes());
        bytes.extend_from_slice(&self.freshness.generated_s.to_le_bytes());
        bytes.extend_from_slice(&u16::try_from(statement.len()).unwrap_or(u16::MAX).to_le_bytes());
        bytes.extend_from_slice(statement);
        bytes.extend_from_slice(&crc32c(&bytes).to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8], disk: &CacheDisk) -> Option<Self> {
        let (cache, version, length) = decode_header(bytes)?;
        let (body, checksum) = bytes.split_at_checked(bytes.len().checked_sub(4)?)?;
        let (asked_s, rest) = body.get(length..)?.split_first_chunk()?;
        let (generated_s, rest) = rest.split_first_chunk()?;
        let (statement_bytes, statement) = rest.split_first_chunk()?;
        let is_whole = statement.len() == usize::from(u16::from_le_bytes(*statement_bytes));
        let is_intact = is_whole && cache == disk.id && checksum == crc32c(body).to_le_bytes();
        let freshness = Freshness::new(std::str::from_utf8(statement).ok()?, i64::from_le_bytes(*generated_s));
        is_intact.then_some(Self { version, asked_s: i64::from_le_bytes(*asked_s), freshness })
    }

    /// Reads the known version of a path at an origin. A damaged name counts as unknown. May wait for the disk.
    pub(crate) fn read(disk: &CacheDisk, origin: &str, target: &Target) -> Result<Option<Self>> {
        let file = absent_if_missing(disk.volume.open(&name_of(origin, target)).map(Some));
        let file = file.map_err(|error| disk_error("opening a name of the cache", &error))?;
        let Some(file) = file else { return Ok(None) };
        let mut bytes = Vec::new();
        let read = file.read_at(0, MAX_HEADER_BYTES + MAX_TRAILER_BYTES + 1, &mut bytes);
        read.map_err(|error| disk_error("reading a name of the cache", &error))?;
        let known = Self::decode(&bytes, disk);
        let is_forgotten = |known: &Self| known.asked_s <= disk.names_since_s.load(Relaxed);
        let is_of_path = |known: &Self| *known.version.origin == *origin && known.version.target == *target;
        Ok(known.filter(|known| is_of_path(known) && !is_forgotten(known)))
    }

    /// Replaces the known version of the path. May wait for the disk.
    pub(crate) fn write(&self, disk: &CacheDisk) -> Result<()> {
        let name = name_of(&self.version.origin, &self.version.target);
        let written = disk.replace(&name, &self.encode(disk), false);
        written.map_err(|error| disk_error("writing a name of the cache", &error))
    }

    /// Forgets a path. If its file cannot be removed, all names are forgotten until a restart. May wait for the disk.
    pub(crate) fn forget(disk: &CacheDisk, origin: &str, target: &Target) {
        if let Err(error) = absent_if_missing(disk.volume.remove(&name_of(origin, target)).map(Some)) {
            disk.record_failure(&disk_error("removing a name of the cache", &error));
            disk.names_since_s.store(clock::unix_s(), Relaxed);
        }
    }
}

/// Forgets all paths: names that the origin reported up to now no longer count. May wait for the disk.
///
/// # Errors
/// Errors of the disk; the names are then forgotten until a restart.
pub(crate) fn forget_all(disk: &CacheDisk) -> Result<()> {
    let now_s = clock::unix_s();
    disk.names_since_s.store(now_s, Relaxed);
    let mut bytes = now_s.to_le_bytes().to_vec();
    bytes.extend_from_slice(&crc32c(&bytes).to_le_bytes());
    let written = disk.replace(Path::new(SINCE), &bytes, false);
    written.map_err(|error| disk_error("forgetting the names of the cache", &error))
}

/// Reads the time up to which names do not count, in seconds since the Unix epoch. If the file is damaged, it is now.
pub(crate) fn read_since_s(volume: &dyn Volume) -> io::Result<i64> {
    let Some(file) = absent_if_missing(volume.open(Path::new(SINCE)).map(Some))? else { return Ok(i64::MIN) };
    let mut bytes = Vec::new();
    file.read_at(0, 13, &mut bytes)?;
    let intact = bytes.split_first_chunk().filter(|(since_s, checksum)| *checksum == crc32c(*since_s).to_le_bytes());
    Ok(intact.map_or_else(clock::unix_s, |(since_s, _)| i64::from_le_bytes(*since_s)))
}

/// Identifies a path at an origin: the SHA-256 of both.
pub(crate) type NameKey = [u8; 32];

/// Returns the key of a path at an origin.
pub(crate) fn key_of(origin: &str, target: &Target) -> NameKey {
    let mut bytes = (origin.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(origin.as_bytes());
    bytes.extend_from_slice(&target.key_bytes());
    let digest = Hasher::digest_of(Algorithm::Sha256, &bytes);
    digest.bytes().try_into().expect("a SHA-256 has 32 bytes")
}

/// Returns the name of the file of a path: `names/ab/cdef…`.
fn name_of(origin: &str, target: &Target) -> PathBuf {
    let hex = hex(&key_of(origin, target));
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
        let target = Target::parse(b"/f").unwrap();
        let version =
            Version { origin: "http://host".into(), target: target.clone(), size: 5, mtime_ns: Some(7), tag: None };
        let known = KnownVersion { version, asked_s: 1000, freshness: Freshness::new("max-age=60", 990) };
        assert_eq!(KnownVersion::read(&disk, "http://host", &target).unwrap(), None);
        known.write(&disk).unwrap();
        assert_eq!(KnownVersion::read(&disk, "http://host", &target).unwrap(), Some(known));
        let file = directory.path().join(name_of("http://host", &target));
        let other = directory.path().join(name_of("http://host", &Target::parse(b"/g").unwrap()));
        std::fs::create_dir_all(other.parent().unwrap()).unwrap();
        files::write(&other, &files::read(&file, 1 << 20).unwrap()).unwrap();
        assert_eq!(KnownVersion::read(&disk, "http://host", &Target::parse(b"/g").unwrap()).unwrap(), None);
        let bytes = files::read(&file, 1 << 20).unwrap();
        for length in 0..bytes.len() {
            files::write(&file, &bytes[..length]).unwrap();
            assert_eq!(KnownVersion::read(&disk, "http://host", &target).unwrap(), None);
        }
        files::write(&file, &[bytes.as_slice(), b"x"].concat()).unwrap();
        assert_eq!(KnownVersion::read(&disk, "http://host", &target).unwrap(), None);
        KnownVersion::forget(&disk, "http://host", &target);
        assert!(!file.exists());
    }

    #[test]
    fn names_that_are_forgotten_together_stay_forgotten() {
        let directory = tempfile::tempdir().unwrap();
        let volume = Arc::new(SystemVolume::open(directory.path()).unwrap());
        let disk = CacheDisk::open(Arc::clone(&volume) as _, 1).unwrap();
        let target = Target::parse(b"/f").unwrap();
        let version = Version { origin: "h".into(), target: target.clone(), size: 5, mtime_ns: Some(7), tag: None };
        let known = |asked_s| {
            let version = version.clone();
            KnownVersion { version, asked_s, freshness: Freshness::new("", asked_s) }
        };
        let now_s = clock::unix_s();
        known(now_s - 1).write(&disk).unwrap();
        assert!(KnownVersion::read(&disk, "h", &target).unwrap().is_some());
        forget_all(&disk).unwrap();
        assert!(KnownVersion::read(&disk, "h", &target).unwrap().is_none());
        let since_s = read_since_s(&*volume).unwrap();
        assert!(since_s >= now_s && since_s == disk.names_since_s.load(Relaxed));
        known(since_s + 1).write(&disk).unwrap();
        assert!(KnownVersion::read(&disk, "h", &target).unwrap().is_some());
        let file = directory.path().join(SINCE);
        for damaged in [vec![], vec![0; 12], vec![0; 13]] {
            files::write(&file, &damaged).unwrap();
            assert!(read_since_s(&*volume).unwrap() >= now_s, "{damaged:?}");
        }
    }
}
