//! A disk in memory that fails, fills up, and forgets.
//!
//! [`FaultVolume::crash`] gives the disk as it may be after a loss of power: of the writes that were not synced, each is
//! there, lost, or torn at a sector, independently of their order; a name that was created, renamed or removed may be as
//! before or as after. (A real disk with a journal loses less.)

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    fs::File,
    io,
    ops::Range,
    path::{Path, PathBuf},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use towpath_store::{
    Space,
    sys::volume::{FileUsage, Volume, VolumeEntry, VolumeFile},
};

use crate::random::Random;

/// Unit of torn writes in bytes.
const SECTOR_BYTES: usize = 512;
/// Unit of space in bytes.
const BLOCK_BYTES: u64 = 4096;
/// Size of the disk in bytes, as reported.
const TOTAL_BYTES: u64 = 1 << 30;

/// A disk in memory. Clones share it.
#[derive(Clone, Default)]
pub struct FaultVolume(Arc<Disk>);

#[derive(Default)]
struct Disk {
    names: Mutex<Names>,
    faults: Mutex<Vec<PlannedFault>>,
    /// Number of bytes that may still be written; `None` without limit.
    free_bytes: Mutex<Option<u64>>,
    /// Number of calls that may fail.
    calls: AtomicU64,
    /// Names of the calls that wait, and how many do.
    held: Mutex<BTreeMap<&'static str, u64>>,
    /// Notified when a call begins to wait, and when calls no longer wait.
    changed: Condvar,
}

/// Holds the calls of one name until it is dropped.
#[must_use]
pub struct HeldCalls {
    volume: FaultVolume,
    name: &'static str,
}

impl HeldCalls {
    /// Blocks until a call waits.
    pub fn wait(&self) {
        let mut held = lock(&self.volume.0.held);
        while held.get(self.name) == Some(&0) {
            held = self.volume.0.changed.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for HeldCalls {
    fn drop(&mut self) {
        lock(&self.volume.0.held).remove(self.name);
        self.volume.0.changed.notify_all();
    }
}

#[derive(Default)]
struct Names {
    /// What is visible now.
    current: BTreeMap<PathBuf, Arc<Content>>,
    /// The names as of the last crash. No later name is certainly on the disk: the stores never sync names.
    durable: BTreeMap<PathBuf, Arc<Content>>,
}

/// A failure that is to come.
#[derive(Debug)]
struct PlannedFault {
    name: &'static str,
    after: u64,
    kind: io::ErrorKind,
}

#[derive(Default)]
struct Content {
    bytes: Mutex<Bytes>,
}

#[derive(Default, Clone)]
struct Bytes {
    current: Vec<u8>,
    /// Sectors that cannot be read until they are written or freed.
    unreadable: BTreeSet<usize>,
    durable: Vec<u8>,
    unsynced: Vec<Change>,
}

impl Bytes {
    fn is_readable(&self, range: Range<usize>) -> bool {
        let sectors = range.start / SECTOR_BYTES..range.end.div_ceil(SECTOR_BYTES);
        sectors.is_empty() || self.unreadable.range(sectors).next().is_none()
    }
}

#[derive(Clone)]
enum Change {
    Write(u64, Vec<u8>),
    SetSize(u64),
    Punch(u64, u64),
}

impl Change {
    fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Change::Write(offset, data) => {
                let start = *offset as usize;
                if content.len() < start + data.len() {
                    content.resize(start + data.len(), 0);
                }
                content[start..start + data.len()].copy_from_slice(data);
            }
            Change::SetSize(size) => content.resize(*size as usize, 0),
            Change::Punch(offset, length) => {
                let end = content.len().min((offset + length) as usize);
                content[end.min(*offset as usize)..end].fill(0);
            }
        }
    }

    /// The change as it may be on the disk after a loss of power; `None` if it is lost.
    fn after_crash(&self, random: &mut Random) -> Option<Self> {
        match (random.below(4), self) {
            (0, _) => None,
            (1, Change::Write(offset, data)) => {
                let sectors = data.len().div_ceil(SECTOR_BYTES) as u64;
                let kept = random.below(sectors + 1) as usize * SECTOR_BYTES;
                Some(Change::Write(*offset, data[..kept.min(data.len())].to_vec()))
            }
            _ => Some(self.clone()),
        }
    }
}

impl fmt::Debug for FaultVolume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultVolume").field("files", &self.names().current.len()).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FaultVolume {
    fn names(&self) -> MutexGuard<'_, Names> {
        lock(&self.0.names)
    }

    /// Makes one call of this name (such as `write_at`) fail after the given number of further calls of that name.
    pub fn fail(&self, name: &'static str, after: u64, kind: io::ErrorKind) {
        lock(&self.0.faults).push(PlannedFault { name, after, kind });
    }

    /// Makes calls of this name wait until the returned guard is dropped.
    pub fn hold(&self, name: &'static str) -> HeldCalls {
        lock(&self.0.held).insert(name, 0);
        HeldCalls { volume: self.clone(), name }
    }

    /// Sets how many bytes may be written from now on; `None` for no limit.
    pub fn set_free_bytes(&self, bytes: Option<u64>) {
        *lock(&self.0.free_bytes) = bytes;
    }

    /// Number of calls that could have failed so far.
    pub fn calls(&self) -> u64 {
        self.0.calls.load(Relaxed)
    }

    /// Makes the sector at `offset` of a file unreadable, until all of it is written or freed. Returns false if there is
    /// no such file.
    #[must_use]
    pub fn lose_sector(&self, name: &Path, offset: u64) -> bool {
        let content = self.names().current.get(name).cloned();
        content.is_some_and(|content| lock(&content.bytes).unreadable.insert(offset as usize / SECTOR_BYTES))
    }

    /// The names of all files.
    pub fn files(&self) -> Vec<PathBuf> {
        self.names().current.keys().cloned().collect()
    }

    /// The content of a file.
    pub fn content(&self, name: &Path) -> Option<Vec<u8>> {
        self.names().current.get(name).map(|content| lock(&content.bytes).current.clone())
    }

    /// The disk as it may be after a loss of power now. This one stays as it is.
    #[must_use]
    pub fn crash(&self, random: &mut Random) -> Self {
        let names = self.names();
        let mut after = BTreeMap::new();
        let all: BTreeSet<_> = names.current.keys().chain(names.durable.keys()).cloned().collect();
        for name in all {
            let one = if random.below(2) == 0 { &names.durable } else { &names.current };
            let Some(content) = one.get(&name) else { continue };
            let bytes = lock(&content.bytes).clone();
            let mut content = bytes.durable;
            bytes.unsynced.iter().filter_map(|change| change.after_crash(random)).for_each(|change| {
                change.apply(&mut content);
            });
            let bytes = Bytes { current: content.clone(), durable: content, ..Bytes::default() };
            after.insert(name, Arc::new(Content { bytes: Mutex::new(bytes) }));
        }
        let names = Names { current: after.clone(), durable: after };
        Self(Arc::new(Disk { names: Mutex::new(names), ..Disk::default() }))
    }

    /// Waits while calls of this name are held.
    fn wait_while_held(&self, name: &'static str) {
        let mut held = lock(&self.0.held);
        if let Some(waiting) = held.get_mut(name) {
            *waiting += 1;
            self.0.changed.notify_all();
            while held.contains_key(name) {
                held = self.0.changed.wait(held).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// Counts a call, waits while calls of its name are held, and fails it if that is planned.
    fn check(&self, name: &'static str) -> io::Result<()> {
        self.0.calls.fetch_add(1, Relaxed);
        self.wait_while_held(name);
        let mut faults = lock(&self.0.faults);
        let due = faults.iter().position(|planned| planned.name == name && planned.after == 0);
        faults.iter_mut().filter(|planned| planned.name == name).for_each(|planned| {
            planned.after = planned.after.saturating_sub(1);
        });
        due.map_or(Ok(()), |index| Err(faults.remove(index).kind.into()))
    }

    fn find(&self, name: &Path) -> io::Result<Arc<Content>> {
        self.names().current.get(name).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn file(&self, content: Arc<Content>) -> Arc<dyn VolumeFile> {
        Arc::new(FaultVolumeFile { volume: self.clone(), content })
    }
}

impl Volume for FaultVolume {
    fn lock(&self) -> io::Result<()> {
        Ok(())
    }

    fn open(&self, name: &Path) -> io::Result<Arc<dyn VolumeFile>> {
        self.check("open")?;
        Ok(self.file(self.find(name)?))
    }

    fn open_or_create(&self, name: &Path) -> io::Result<Arc<dyn VolumeFile>> {
        self.check("open_or_create")?;
        let content = Arc::clone(self.names().current.entry(name.to_owned()).or_default());
        Ok(self.file(content))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.check("rename")?;
        let mut names = self.names();
        let content = names.current.remove(from).ok_or(io::ErrorKind::NotFound)?;
        names.current.insert(to.to_owned(), content);
        Ok(())
    }

    fn remove(&self, name: &Path) -> io::Result<()> {
        self.check("remove")?;
        self.names().current.remove(name).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn entries(&self, directory: &Path) -> io::Result<Vec<VolumeEntry>> {
        self.check("entries")?;
        let names = self.names();
        let below = names.current.keys().filter_map(|name| name.strip_prefix(directory).ok());
        let entries: BTreeMap<_, _> = below
            .filter_map(|rest| {
                let mut components = rest.components();
                let first = components.next()?;
                Some((first.as_os_str().to_owned(), components.next().is_some()))
            })
            .collect();
        if entries.is_empty() {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(entries.into_iter().map(|(name, is_directory)| VolumeEntry { name, is_directory }).collect())
    }

    fn usage(&self, name: &Path) -> io::Result<FileUsage> {
        self.check("usage")?;
        let allocated_bytes = (lock(&self.find(name)?.bytes).current.len() as u64).next_multiple_of(BLOCK_BYTES);
        Ok(FileUsage { allocated_bytes, changed_s: 0 })
    }

    fn touch(&self, name: &Path) -> io::Result<()> {
        self.check("touch")?;
        self.find(name).map(drop)
    }

    fn space(&self) -> io::Result<Space> {
        self.check("space")?;
        let free = lock(&self.0.free_bytes).unwrap_or(TOTAL_BYTES);
        Ok(Space { total: TOTAL_BYTES, free })
    }
}

struct FaultVolumeFile {
    volume: FaultVolume,
    content: Arc<Content>,
}

impl fmt::Debug for FaultVolumeFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultVolumeFile").finish_non_exhaustive()
    }
}

impl FaultVolumeFile {
    fn bytes(&self) -> MutexGuard<'_, Bytes> {
        lock(&self.content.bytes)
    }

    fn change(&self, change: Change) {
        let mut bytes = self.bytes();
        change.apply(&mut bytes.current);
        let (start, end) = match &change {
            Change::Write(offset, data) => (*offset, *offset + data.len() as u64),
            Change::Punch(offset, length) => (*offset, *offset + length),
            Change::SetSize(size) => (*size, u64::MAX),
        };
        bytes.unreadable.retain(|sector| {
            let (first, behind) = ((sector * SECTOR_BYTES) as u64, ((sector + 1) * SECTOR_BYTES) as u64);
            first < start || behind > end
        });
        bytes.unsynced.push(change);
    }
}

impl VolumeFile for FaultVolumeFile {
    fn read_at(&self, offset: u64, length: usize, buffer: &mut Vec<u8>) -> io::Result<usize> {
        self.volume.check("read_at")?;
        let bytes = self.bytes();
        let start = bytes.current.len().min(offset as usize);
        let end = bytes.current.len().min(start + length);
        if !bytes.is_readable(start..end) {
            return Err(io::Error::from_raw_os_error(5));
        }
        buffer.extend_from_slice(&bytes.current[start..end]);
        Ok(end - start)
    }

    fn read_now_at(&self, offset: u64, buffer: &mut [u8]) -> Option<()> {
        self.volume.wait_while_held("read_now_at");
        let bytes = self.bytes();
        let start = offset as usize;
        let data = bytes.current.get(start..)?.get(..buffer.len())?;
        if !bytes.is_readable(start..start + buffer.len()) {
            return None;
        }
        buffer.copy_from_slice(data);
        Some(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.volume.check("write_at")?;
        let mut free_bytes = lock(&self.volume.0.free_bytes);
        if let Some(free) = &mut *free_bytes {
            let Some(rest) = free.checked_sub(data.len() as u64) else {
                let half = data.len() / 2;
                drop(free_bytes);
                self.change(Change::Write(offset, data[..half].to_vec()));
                return Err(io::Error::from_raw_os_error(28));
            };
            *free = rest;
        }
        drop(free_bytes);
        self.change(Change::Write(offset, data.to_vec()));
        Ok(())
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        self.volume.check("set_size")?;
        self.change(Change::SetSize(size));
        Ok(())
    }

    fn punch_hole(&self, offset: u64, length: u64) -> io::Result<()> {
        self.volume.check("punch_hole")?;
        self.change(Change::Punch(offset, length));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.volume.check("sync_data")?;
        let mut bytes = self.bytes();
        bytes.durable = bytes.current.clone();
        bytes.unsynced.clear();
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        self.volume.check("size")?;
        Ok(self.bytes().current.len() as u64)
    }

    fn system_file(&self) -> Option<Arc<File>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_keeps_what_was_synced_and_any_part_of_the_rest() {
        let volume = FaultVolume::default();
        let file = volume.open_or_create(Path::new("f")).expect("no fault is planned");
        file.write_at(0, &[1; 2000]).expect("no fault is planned");
        file.sync_data().expect("no fault is planned");
        file.write_at(1000, &[2; 2000]).expect("no fault is planned");
        let after: Vec<_> = (0..100).map(|seed| volume.crash(&mut Random::new(seed)).content(Path::new("f"))).collect();
        assert!(after.contains(&None), "the name was not synced");
        let whole = volume.content(Path::new("f"));
        assert!(after.contains(&whole));
        let torn = |content: &Vec<u8>| content.len() == 1000 + SECTOR_BYTES || content.len() == 2000;
        assert!(after.iter().flatten().any(torn));
        assert!(after.iter().flatten().all(|content| content[..1000] == [1; 1000]));
    }

    #[test]
    fn a_full_disk_says_so_and_may_have_written_a_part() {
        let volume = FaultVolume::default();
        let file = volume.open_or_create(Path::new("f")).expect("no fault is planned");
        volume.set_free_bytes(Some(10));
        assert_eq!(file.write_at(0, &[1; 20]).expect_err("it is full").kind(), io::ErrorKind::StorageFull);
        assert_eq!(volume.content(Path::new("f")).map(|content| content.len()), Some(10));
        volume.set_free_bytes(None);
        volume.fail("write_at", 1, io::ErrorKind::TimedOut);
        file.write_at(0, &[1]).expect("the fault is for the next call");
        assert_eq!(file.write_at(0, &[1]).expect_err("it is planned").kind(), io::ErrorKind::TimedOut);
    }
}
