//! The open files of a session.
//!
//! A handle on the wire is a small number, the lowest that is free. The reader of the connection gives it out as `open` comes, before
//! anybody knows whether the file can be opened: so a client that guesses its handle may send reads behind the `open`;
//! they wait in the file's [`Order`].

use std::sync::{
    Arc, Mutex, MutexGuard, OnceLock, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use towpath_proto::xrootd::{FileHandle, page::Page};
use towpath_store::{Error, Fault, Metadata, ReadHandle, StorePath, WriteHandle, sys::clock::Instant};

use super::{attributes::Waiting, exchange::Refusal, order::Order, third_party::Pull};
use crate::{
    access::{Activity, Identity},
    shares::{Lease, Standing},
};

/// The open files of a session, by handle.
#[derive(Debug)]
pub(super) struct Files {
    slots: Mutex<Vec<Option<Arc<Slot>>>>,
    limit: usize,
}

/// A handle that was given out.
#[derive(Debug, Default)]
pub(super) struct Slot {
    /// The order of the requests about it.
    pub(super) order: Order,
    file: OnceLock<OpenFile>,
    number: u32,
    /// The client's right to one open file, and whether it uses it.
    _lease: Option<Lease>,
    standing: Option<Arc<Standing>>,
}

/// A file that is open.
#[derive(Debug)]
pub(super) struct OpenFile {
    /// Where it is.
    pub(super) path: StorePath,
    /// Who opened it.
    pub(super) identity: Arc<Identity>,
    /// How it is open.
    pub(super) access: FileAccess,
}

/// How a file is open.
#[derive(Debug)]
pub(super) enum FileAccess {
    /// For reading.
    Read(Arc<dyn ReadHandle>),
    /// For writing; other handles may share it.
    Write(Arc<Writing>),
    /// To be fetched from another server.
    Pull(Box<Pull>),
}

/// A file that is open for writing.
#[derive(Debug)]
pub(super) struct Writing {
    pub(super) handle: Arc<dyn WriteHandle>,
    /// Whether it is invisible until it is closed.
    is_new: bool,
    /// Whether what came stays if it is not committed.
    is_resumable: bool,
    /// The size that the client announced.
    pub(super) announced_bytes: Option<u64>,
    /// Pages that came damaged and have not been sent again.
    bad_pages: Mutex<Vec<Page>>,
    /// Whether data were lost on the way to the store.
    spoiled: AtomicBool,
    /// Attributes that a new file gets when it is closed.
    pub(super) attributes: Waiting,
}

impl Files {
    /// No open files, and at most `limit` later.
    pub(super) fn new(limit: usize) -> Self {
        Self { slots: Mutex::default(), limit }
    }

    /// Whether fewer than so many handles are given out.
    pub(super) fn has_fewer_than(&self, number: usize) -> bool {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.iter().flatten().take(number).count() < number
    }

    /// Whether a file is open.
    pub(super) fn has_open(&self) -> bool {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.iter().flatten().any(|slot| slot.file.get().is_some())
    }

    /// Gives out the lowest free handle.
    ///
    /// # Errors
    /// `Overloaded` if the session has as many open files as it may.
    pub(super) fn reserve(&self, lease: Lease, standing: Arc<Standing>) -> Result<Arc<Slot>, Refusal> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let index = slots.iter().position(Option::is_none).unwrap_or(slots.len());
        if index >= self.limit {
            let message = format!("the session has {} open files: close some", self.limit);
            return Err(Refusal::new(Fault::Overloaded, message));
        }
        let number = u32::try_from(index).unwrap_or(u32::MAX);
        let slot = Arc::new(Slot { number, _lease: Some(lease), standing: Some(standing), ..Slot::default() });
        if index == slots.len() {
            slots.push(None);
        }
        if let Some(place) = slots.get_mut(index) {
            *place = Some(Arc::clone(&slot));
        }
        Ok(slot)
    }

    /// The slot that `handle` names.
    ///
    /// # Errors
    /// `HandleNotOpen` if it was never given out, or closed.
    pub(super) fn find(&self, handle: FileHandle) -> Result<Arc<Slot>, Refusal> {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.get(index(handle)).and_then(Option::clone).ok_or_else(not_open)
    }

    /// Takes the handle back: later requests do not find it.
    pub(super) fn release(&self, handle: FileHandle) -> Result<Arc<Slot>, Refusal> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.get_mut(index(handle)).and_then(Option::take).ok_or_else(not_open)
    }

    /// Takes the handle of `slot` back, if it still is that one's: `close` may have freed it, and another `open` got it.
    pub(super) fn release_slot(&self, slot: &Arc<Slot>) {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = slots.get_mut(index(slot.handle())) {
            place.take_if(|other| Arc::ptr_eq(other, slot));
        }
    }

    /// Takes all handles back. Files that are still in use close when that use ends.
    pub(super) fn clear(&self) {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

fn not_open() -> Refusal {
    Refusal::new(Fault::HandleNotOpen, "the handle names no open file")
}

/// As the reference server, in its host's order: the bytes of handle 1 are 1, 0, 0, 0.
fn index(handle: FileHandle) -> usize {
    u32::from_le_bytes(handle.0) as usize
}

impl Slot {
    /// The handle as it goes over the wire.
    pub(super) fn handle(&self) -> FileHandle {
        FileHandle(self.number.to_le_bytes())
    }

    /// Records that the client uses it.
    pub(super) fn touch(&self, now: Instant) {
        if let Some(standing) = &self.standing {
            standing.touch(now);
        }
    }

    /// Says what was opened.
    pub(super) fn opened(&self, file: OpenFile) {
        // Only the one `open` that this slot was reserved for calls this.
        let _ = self.file.set(file);
    }

    /// The open file.
    ///
    /// # Errors
    /// `HandleNotOpen` if opening it failed.
    pub(super) fn file(&self) -> Result<&OpenFile, Refusal> {
        self.file.get().ok_or_else(not_open)
    }
}

impl OpenFile {
    /// Metadata of what is open.
    pub(super) async fn metadata(&self) -> towpath_store::Result<Metadata> {
        match &self.access {
            FileAccess::Read(handle) => handle.metadata().await,
            FileAccess::Write(writing) => writing.handle.metadata().await,
            FileAccess::Pull(pull) => Ok(pull.metadata()),
        }
    }

    /// Reads a range, appended to `buffer`; less only at the end of the file. What an upload has written its writer may read; what was in a
    /// file before it was opened to be changed, only who has the right to read it.
    pub(super) async fn read_into(
        &self,
        offset: u64,
        length: usize,
        mut buffer: Vec<u8>,
    ) -> towpath_store::Result<Vec<u8>> {
        match &self.access {
            FileAccess::Read(handle) => handle.read_into(offset, length, buffer).await,
            FileAccess::Write(writing) => {
                if !writing.is_new() {
                    self.identity.check(Activity::Read, &self.path)?;
                }
                buffer.extend_from_slice(&writing.handle.read(offset, length).await?);
                Ok(buffer)
            }
            FileAccess::Pull(_) => Err(Error::new(Fault::HandleNotOpen, "the file is being fetched")),
        }
    }

    /// The file for writing.
    ///
    /// # Errors
    /// `HandleNotOpen` if it is open for reading.
    pub(super) fn writing(&self) -> Result<&Arc<Writing>, Refusal> {
        match &self.access {
            FileAccess::Write(writing) => Ok(writing),
            FileAccess::Read(_) | FileAccess::Pull(_) => {
                Err(Refusal::new(Fault::HandleNotOpen, "the file is not open for writing"))
            }
        }
    }

    /// The file being fetched.
    ///
    /// # Errors
    /// `InvalidArgument` if it is none.
    pub(super) fn pull(&self) -> Result<&Pull, Refusal> {
        match &self.access {
            FileAccess::Pull(pull) => Ok(pull),
            _ => Err(Refusal::new(Fault::InvalidArgument, "no third-party copy was asked for")),
        }
    }
}

impl Writing {
    /// A new file, which will have `announced_bytes`.
    pub(super) fn create(handle: Arc<dyn WriteHandle>, announced_bytes: Option<u64>, is_resumable: bool) -> Self {
        Self { is_new: true, is_resumable, announced_bytes, ..Self::update(handle) }
    }

    /// A file that exists and is changed in place.
    pub(super) fn update(handle: Arc<dyn WriteHandle>) -> Self {
        Self {
            handle,
            is_new: false,
            is_resumable: false,
            announced_bytes: None,
            bad_pages: Mutex::default(),
            spoiled: AtomicBool::new(false),
            attributes: Waiting::default(),
        }
    }

    /// Whether it is invisible until it is closed.
    pub(super) fn is_new(&self) -> bool {
        self.is_new
    }

    /// Whether what came stays if it is not committed.
    pub(super) fn is_resumable(&self) -> bool {
        self.is_resumable
    }

    /// What becomes of it if it is closed and lacks something.
    pub(super) fn fate(&self) -> &'static str {
        match (self.is_new, self.is_resumable) {
            (false, _) => "the file lacks them",
            (true, false) => "the file is discarded",
            (true, true) => "the upload can go on",
        }
    }

    /// Remembers that a write failed: a new file then lacks data, and must not become visible.
    pub(super) fn spoil(&self) {
        self.spoiled.store(self.is_new, Ordering::Relaxed);
    }

    /// Whether a new file lacks data.
    pub(super) fn is_spoiled(&self) -> bool {
        self.spoiled.load(Ordering::Relaxed)
    }

    /// The pages that came damaged and have not been sent again.
    pub(super) fn bad_pages(&self) -> MutexGuard<'_, Vec<Page>> {
        self.bad_pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
