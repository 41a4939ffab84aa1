//! Paths that are never evicted. They are kept in one small file, which is replaced as a whole.

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use towpath_proto::xrootd::page::crc32c;
use towpath_store::{Error, Fault, Result, StorePath};

use crate::{
    disk::{CacheDisk, absent_if_missing},
    entry::disk_error,
};

/// Name of the file.
const FILE: &str = "pins";
/// First bytes of the file.
const MAGIC: &[u8; 16] = b"towpath pins 01\n";
/// Maximum length of the file in bytes: about 10,000 pins.
const MAX_BYTES: usize = 4 << 20;

/// A pinned path: everything at or below it stays in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pin {
    /// URL of the origin, without credentials.
    pub origin: String,
    /// Path at the origin.
    pub path: StorePath,
}

/// The pins of a cache.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    /// Locked only to copy or replace the reference: each open of a file needs it.
    current: Mutex<Arc<Vec<Pin>>>,
    /// Held while a change is written to the disk.
    writing: Mutex<()>,
}

impl Pins {
    fn new(pins: Vec<Pin>) -> Self {
        Self { current: Mutex::new(Arc::new(pins)), writing: Mutex::default() }
    }

    fn current(&self) -> Arc<Vec<Pin>> {
        Arc::clone(&self.current.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the pins of a cache. May wait for the disk.
    ///
    /// # Errors
    /// Errors of the disk; `Io` for a damaged file, because entries that must stay would be evicted.
    pub(crate) fn read(disk: &CacheDisk) -> Result<Self> {
        let file = absent_if_missing(disk.volume.open(Path::new(FILE)).map(Some));
        let file = file.map_err(|error| disk_error("opening the pins of the cache", &error))?;
        let Some(file) = file else { return Ok(Self::default()) };
        let mut bytes = Vec::new();
        let read = file.read_at(0, MAX_BYTES, &mut bytes);
        read.map_err(|error| disk_error("reading the pins of the cache", &error))?;
        let damaged = || Error::new(Fault::Io, "the file `pins` of the cache is damaged: remove it, and pin again");
        decode(&bytes).map(Self::new).ok_or_else(damaged)
    }

    /// Returns whether a path is pinned.
    pub(crate) fn contain(&self, origin: &str, path: &StorePath) -> bool {
        self.current().iter().any(|pin| pin.origin == origin && path.is_within(&pin.path))
    }

    /// Returns all pins.
    pub(crate) fn list(&self) -> Vec<Pin> {
        self.current().to_vec()
    }

    /// Adds or removes a pin. May wait for the disk; meanwhile the old pins count.
    ///
    /// # Errors
    /// Errors of the disk; `NotFound` if a pin to be removed does not exist; `TooLarge` for too many pins.
    pub(crate) fn set(&self, disk: &CacheDisk, pin: Pin, is_pinned: bool) -> Result<()> {
        let _one = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let pins = self.current();
        let mut changed = pins.to_vec();
        changed.retain(|other| *other != pin);
        if !is_pinned && changed.len() == pins.len() {
            return Err(Error::new(Fault::NotFound, "this path is not pinned").at(&pin.path));
        }
        if is_pinned {
            changed.push(pin);
        }
        let bytes = encode(&changed);
        if bytes.len() > MAX_BYTES {
            return Err(Error::new(Fault::TooLarge, "there are too many pins: pin their parent directories"));
        }
        let written = disk.replace(Path::new(FILE), &bytes, true);
        written.map_err(|error| disk_error("writing the pins of the cache", &error))?;
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(changed);
        Ok(())
    }
}

fn encode(pins: &[Pin]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    for pin in pins {
        for text in [pin.origin.as_bytes(), pin.path.as_bytes()] {
            bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
            bytes.extend_from_slice(text);
        }
    }
    bytes.extend_from_slice(&crc32c(&bytes).to_le_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> Option<Vec<Pin>> {
    let (body, checksum) = bytes.split_at_checked(bytes.len().checked_sub(4)?)?;
    let mut rest = body.strip_prefix(MAGIC)?;
    if checksum != crc32c(body).to_le_bytes() {
        return None;
    }
    let mut pins = Vec::new();
    while !rest.is_empty() {
        let mut text = || {
            let length = u32::from_le_bytes(rest.split_off(..4)?.try_into().ok()?);
            rest.split_off(..length as usize)
        };
        let origin = std::str::from_utf8(text()?).ok()?.to_owned();
        pins.push(Pin { origin, path: StorePath::parse(text()?).ok()? });
    }
    Some(pins)
}

#[cfg(test)]
mod tests {
    use towpath_store::sys::{disk as files, volume::SystemVolume};

    use super::*;

    #[test]
    fn pins_survive_a_restart_and_damage_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let disk = CacheDisk::open(Arc::new(SystemVolume::open(directory.path()).unwrap()), 1).unwrap();
        let pin = |text: &str| Pin { origin: "http://host".into(), path: StorePath::parse(text.as_bytes()).unwrap() };
        let pins = Pins::read(&disk).unwrap();
        pins.set(&disk, pin("/a"), true).unwrap();
        pins.set(&disk, pin("/b/\u{e4}\n"), true).unwrap();
        pins.set(&disk, pin("/a"), true).unwrap();
        assert_eq!(pins.set(&disk, pin("/c"), false).unwrap_err().fault(), Fault::NotFound);
        let again = Pins::read(&disk).unwrap();
        assert_eq!(again.list(), [pin("/b/\u{e4}\n"), pin("/a")]);
        assert!(again.contain("http://host", &pin("/a/f").path));
        assert!(!again.contain("http://host", &pin("/ab").path) && !again.contain("http://other", &pin("/a").path));
        again.set(&disk, pin("/a"), false).unwrap();
        assert_eq!(Pins::read(&disk).unwrap().list().len(), 1);
        let file = directory.path().join(FILE);
        let bytes = files::read(&file, 1 << 20).unwrap();
        for length in 0..bytes.len() {
            files::write(&file, &bytes[..length]).unwrap();
            assert_eq!(Pins::read(&disk).unwrap_err().fault(), Fault::Io, "{length}");
        }
    }
}
