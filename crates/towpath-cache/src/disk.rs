//! The directory of a cache: its identity, the threads that access it, and whether it works.

use std::{
    io,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use towpath_proto::xrootd::page::crc32c;
use towpath_store::{
    Error,
    disk_pool::DiskPool,
    sys::{
        clock::{self, Instant},
        random,
        volume::Volume,
    },
};

use crate::{index::CacheId, names};

/// The file that identifies a cache directory.
const IDENTITY: &str = "towpath-cache";
/// Name of the directory of files to be renamed or removed.
pub(crate) const TRASH: &str = "trash";
/// First bytes of the identity file.
const MAGIC: &[u8; 16] = b"towpath cache 1\n";
/// How long nothing is stored after the disk has failed. Meanwhile reads of absent data go to the origin.
const PAUSE: Duration = Duration::from_secs(5);

/// The disk of a cache.
#[derive(Debug)]
pub(crate) struct CacheDisk {
    pub(crate) volume: Arc<dyn Volume>,
    pub(crate) pool: DiskPool,
    pub(crate) id: CacheId,
    /// Names that were reported up to then do not count; in seconds since the Unix epoch.
    pub(crate) names_since_s: AtomicI64,
    /// Until when nothing is stored.
    paused_until: Mutex<Option<Instant>>,
    failures: AtomicU64,
}

impl CacheDisk {
    /// Opens the directory of a cache. A new one gets an identity, which all files of the cache carry; without the
    /// identity file they are not recognized.
    ///
    /// # Errors
    /// Errors of the disk; `WouldBlock` if another process uses the directory; `Unsupported` if the file system cannot
    /// free parts of files.
    pub(crate) fn open(volume: Arc<dyn Volume>, jobs: usize) -> io::Result<Self> {
        volume.lock()?;
        check_holes(&*volume)?;
        let id = match read_identity(&*volume)? {
            Some(id) => id,
            None => write_identity(&*volume)?,
        };
        let pool = DiskPool::new(jobs);
        let names_since_s = AtomicI64::new(names::read_since_s(&*volume)?);
        Ok(Self { volume, pool, id, names_since_s, paused_until: Mutex::default(), failures: AtomicU64::new(0) })
    }

    fn paused_until(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.paused_until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces a small file as a whole: after a crash it has the old or the new content, and a leftover is in the trash.
    /// With `is_synced` the new content is on the disk before it gets its name.
    ///
    /// # Errors
    /// Errors of the disk.
    pub(crate) fn replace(&self, name: &Path, bytes: &[u8], is_synced: bool) -> io::Result<()> {
        let part = Path::new(TRASH).join(random::key());
        let replace = || {
            let file = self.volume.open_or_create(&part)?;
            file.write_at(0, bytes)?;
            if is_synced {
                file.sync_data()?;
            }
            self.volume.rename(&part, name)
        };
        replace().inspect_err(|_| {
            // What cannot be removed now is removed at the next start.
            let _ = self.volume.remove(&part);
        })
    }

    /// Whether data may be stored.
    pub(crate) fn accepts_data(&self) -> bool {
        self.paused_until().is_none_or(|until| until <= clock::now())
    }

    /// Records that bytes of one file could not be read. They count as damaged; other files are stored as before.
    pub(crate) fn record_unreadable(&self, error: &Error) {
        self.failures.fetch_add(1, Relaxed);
        tracing::warn!(%error, "the disk of the cache cannot read a part of a file: it is fetched again");
    }

    /// Records that data could not be stored, or a file not opened: nothing is stored for a while.
    pub(crate) fn record_failure(&self, error: &Error) {
        self.failures.fetch_add(1, Relaxed);
        let was_paused = self.paused_until().replace(clock::now() + PAUSE).is_some();
        if !was_paused {
            tracing::warn!(%error, "the disk of the cache failed: absent data are read from their origin");
        }
    }

    /// Records that data were stored.
    pub(crate) fn record_success(&self) {
        let mut paused_until = self.paused_until();
        if paused_until.is_some_and(|until| until <= clock::now()) {
            *paused_until = None;
            tracing::info!("the disk of the cache works again");
        }
    }

    /// Returns the number of failures.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Relaxed)
    }
}

/// Returns nothing in place of an error about a missing file.
pub(crate) fn absent_if_missing<T>(outcome: io::Result<Option<T>>) -> io::Result<Option<T>> {
    match outcome {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        outcome => outcome,
    }
}

/// Checks that space in the middle of a file can be freed. Other failures, such as a full disk, are left to the uses of
/// the disk: a cache must start with them.
fn check_holes(volume: &dyn Volume) -> io::Result<()> {
    let name = Path::new(TRASH).join("holes");
    let punched = volume.open_or_create(&name).and_then(|file| {
        file.write_at(0, &[1; 8192])?;
        file.punch_hole(0, 4096)
    });
    // If it stays, the next walk removes it.
    let _ = volume.remove(&name);
    match punched {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => {
            let message = "its file system cannot free parts of files (ext4, XFS, Btrfs and tmpfs can)";
            Err(io::Error::new(error.kind(), message))
        }
        _ => Ok(()),
    }
}

fn read_identity(volume: &dyn Volume) -> io::Result<Option<CacheId>> {
    let Some(file) = absent_if_missing(volume.open(Path::new(IDENTITY)).map(Some))? else { return Ok(None) };
    let mut bytes = Vec::new();
    file.read_at(0, 37, &mut bytes)?;
    let Some((body, checksum)) = bytes.split_at_checked(32).filter(|(_, checksum)| checksum.len() == 4) else {
        return Ok(None);
    };
    let (magic, id) = body.split_at(16);
    let is_intact = magic == MAGIC && checksum == crc32c(body).to_le_bytes();
    Ok(id.try_into().ok().filter(|_| is_intact))
}

fn write_identity(volume: &dyn Volume) -> io::Result<CacheId> {
    let id: CacheId = random::bytes();
    let mut bytes = [MAGIC.as_slice(), &id].concat();
    bytes.extend_from_slice(&crc32c(&bytes).to_le_bytes());
    let file = volume.open_or_create(Path::new(IDENTITY))?;
    file.set_size(0)?;
    file.write_at(0, &bytes)?;
    file.sync_data()?;
    Ok(id)
}
