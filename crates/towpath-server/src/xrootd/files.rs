//! The open files of a session.
//!
//! A handle on the wire is a small number, the lowest free one. The connection's reader assigns it when `open`
//! arrives, before the file is opened, so a client that predicts its handle can pipeline reads behind the `open`;
//! they wait in the file's [`RequestQueue`].

use std::sync::{
    Arc, Mutex, MutexGuard, OnceLock, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use towpath_proto::xrootd::{FileHandle, page::Page};
use towpath_store::{Error, Fault, Metadata, ReadHandle, StorePath, WriteHandle, sys::clock::Instant};

use super::{
    active_request::ErrorResponse, attributes::PendingAttributes, request_queue::RequestQueue, third_party::Pull,
};
use crate::{
    access::{Activity, Identity},
    fair_pool::{Lease, PeerProgress},
};

/// The open files of a session, by handle.
#[derive(Debug)]
pub(super) struct Files {
    slots: Mutex<Vec<Option<Arc<Slot>>>>,
    limit: usize,
}

/// An assigned handle.
#[derive(Debug, Default)]
pub(super) struct Slot {
    /// The queue of the requests for it.
    pub(super) queue: RequestQueue,
    file: OnceLock<OpenFile>,
    number: u32,
    /// The client's lease of one open file, and its progress.
    _lease: Option<Lease>,
    progress: Option<Arc<PeerProgress>>,
}

/// An open file.
#[derive(Debug)]
pub(super) struct OpenFile {
    /// Path of the file.
    pub(super) path: StorePath,
    /// The identity that opened it.
    pub(super) identity: Arc<Identity>,
    /// The kind of access.
    pub(super) access: FileAccess,
}

/// The kind of access to an open file.
#[derive(Debug)]
pub(super) enum FileAccess {
    /// For reading.
    Read(Arc<dyn ReadHandle>),
    /// For writing; may be shared by other handles.
    Write(Arc<WritableFile>),
    /// For fetching from another server.
    Pull(Box<Pull>),
}

/// A file that is open for writing.
#[derive(Debug)]
pub(super) struct WritableFile {
    pub(super) handle: Arc<dyn WriteHandle>,
    /// Whether it is invisible until it is closed.
    is_new: bool,
    /// Whether received data are kept if it is not committed.
    is_resumable: bool,
    /// The size that the client announced.
    pub(super) announced_bytes: Option<u64>,
    /// Damaged pages that have not been sent again.
    bad_pages: Mutex<Vec<Page>>,
    /// Whether data were lost on the way to the store.
    spoiled: AtomicBool,
    /// Attributes to set on a new file when it is closed.
    pub(super) attributes: PendingAttributes,
}

impl Files {
    /// Creates a table for at most `limit` open files.
    pub(super) fn new(limit: usize) -> Self {
        Self { slots: Mutex::default(), limit }
    }

    /// Whether fewer than `number` handles are assigned.
    pub(super) fn has_fewer_than(&self, number: usize) -> bool {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.iter().flatten().take(number).count() < number
    }

    /// Whether a file is open.
    pub(super) fn has_open(&self) -> bool {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.iter().flatten().any(|slot| slot.file.get().is_some())
    }

    /// Assigns the lowest free handle.
    ///
    /// # Errors
    /// `Overloaded` if the session has reached its limit of open files.
    pub(super) fn reserve(&self, lease: Lease, progress: Arc<PeerProgress>) -> Result<Arc<Slot>, ErrorResponse> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let index = slots.iter().position(Option::is_none).unwrap_or(slots.len());
        if index >= self.limit {
            let message = format!("the session has {} open files: close some", self.limit);
            return Err(ErrorResponse::new(Fault::Overloaded, message));
        }
        let number = u32::try_from(index).unwrap_or(u32::MAX);
        let slot = Arc::new(Slot { number, _lease: Some(lease), progress: Some(progress), ..Slot::default() });
        if index == slots.len() {
            slots.push(None);
        }
        if let Some(entry) = slots.get_mut(index) {
            *entry = Some(Arc::clone(&slot));
        }
        Ok(slot)
    }

    /// Returns the slot of `handle`.
    ///
    /// # Errors
    /// `HandleNotOpen` if it was never assigned, or closed.
    pub(super) fn find(&self, handle: FileHandle) -> Result<Arc<Slot>, ErrorResponse> {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.get(index(handle)).and_then(Option::clone).ok_or_else(not_open)
    }

    /// Releases the handle, so that later requests do not find it.
    pub(super) fn release(&self, handle: FileHandle) -> Result<Arc<Slot>, ErrorResponse> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.get_mut(index(handle)).and_then(Option::take).ok_or_else(not_open)
    }

    /// Releases the handle of `slot` if it still belongs to it: after a `close`, another `open` may have got it.
    pub(super) fn release_slot(&self, slot: &Arc<Slot>) {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = slots.get_mut(index(slot.handle())) {
            entry.take_if(|other| Arc::ptr_eq(other, slot));
        }
    }

    /// Releases all handles. Files in use are closed after their last use.
    pub(super) fn clear(&self) {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

fn not_open() -> ErrorResponse {
    ErrorResponse::new(Fault::HandleNotOpen, "the handle does not belong to an open file")
}

/// Little-endian, like the reference server on common hosts: the bytes of handle 1 are 1, 0, 0, 0.
fn index(handle: FileHandle) -> usize {
    u32::from_le_bytes(handle.0) as usize
}

impl Slot {
    /// Returns the handle in its wire format.
    pub(super) fn handle(&self) -> FileHandle {
        FileHandle(self.number.to_le_bytes())
    }

    /// Records that the client uses it.
    pub(super) fn touch(&self, now: Instant) {
        if let Some(progress) = &self.progress {
            progress.touch(now);
        }
    }

    /// Stores the opened file.
    pub(super) fn set_file(&self, file: OpenFile) {
        // Called only by the `open` for which this slot was reserved.
        let _ = self.file.set(file);
    }

    /// Returns the open file.
    ///
    /// # Errors
    /// `HandleNotOpen` if opening it failed.
    pub(super) fn file(&self) -> Result<&OpenFile, ErrorResponse> {
        self.file.get().ok_or_else(not_open)
    }
}

impl OpenFile {
    /// Returns the metadata of the open file.
    pub(super) async fn metadata(&self) -> towpath_store::Result<Metadata> {
        match &self.access {
            FileAccess::Read(handle) => handle.metadata().await,
            FileAccess::Write(writing) => writing.handle.metadata().await,
            FileAccess::Pull(pull) => Ok(pull.metadata()),
        }
    }

    /// Reads a range and appends it to `buffer`; less only at the end of the file. A writer may read the data of its
    /// own upload; reading the previous content of a file opened for update requires the right to read.
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

    /// Returns the file for reading; `None` if it is open otherwise.
    pub(super) fn reader(&self) -> Option<&Arc<dyn ReadHandle>> {
        match &self.access {
            FileAccess::Read(handle) => Some(handle),
            FileAccess::Write(_) | FileAccess::Pull(_) => None,
        }
    }

    /// Returns the file for writing.
    ///
    /// # Errors
    /// `HandleNotOpen` if it is open for reading.
    pub(super) fn writing(&self) -> Result<&Arc<WritableFile>, ErrorResponse> {
        match &self.access {
            FileAccess::Write(writing) => Ok(writing),
            FileAccess::Read(_) | FileAccess::Pull(_) => {
                Err(ErrorResponse::new(Fault::HandleNotOpen, "the file is not open for writing"))
            }
        }
    }

    /// Returns the file being fetched.
    ///
    /// # Errors
    /// `InvalidArgument` if it is not one.
    pub(super) fn pull(&self) -> Result<&Pull, ErrorResponse> {
        match &self.access {
            FileAccess::Pull(pull) => Ok(pull),
            _ => Err(ErrorResponse::new(Fault::InvalidArgument, "no third-party copy was requested")),
        }
    }
}

impl WritableFile {
    /// Creates the state of a new file, which will have `announced_bytes`.
    pub(super) fn create(handle: Arc<dyn WriteHandle>, announced_bytes: Option<u64>, is_resumable: bool) -> Self {
        Self { is_new: true, is_resumable, announced_bytes, ..Self::update(handle) }
    }

    /// Creates the state of an existing file that is updated in place.
    pub(super) fn update(handle: Arc<dyn WriteHandle>) -> Self {
        Self {
            handle,
            is_new: false,
            is_resumable: false,
            announced_bytes: None,
            bad_pages: Mutex::default(),
            spoiled: AtomicBool::new(false),
            attributes: PendingAttributes::default(),
        }
    }

    /// Whether it is invisible until it is closed.
    pub(super) fn is_new(&self) -> bool {
        self.is_new
    }

    /// Whether received data are kept if it is not committed.
    pub(super) fn is_resumable(&self) -> bool {
        self.is_resumable
    }

    /// Describes what happens to the file if it is closed incomplete.
    pub(super) fn describe_fate(&self) -> &'static str {
        match (self.is_new, self.is_resumable) {
            (false, _) => "the file lacks them",
            (true, false) => "the file is discarded",
            (true, true) => "the upload can be resumed",
        }
    }

    /// Records that a write failed: a new file then lacks data and must not become visible.
    pub(super) fn spoil(&self) {
        self.spoiled.store(self.is_new, Ordering::Relaxed);
    }

    /// Whether a new file lacks data.
    pub(super) fn is_spoiled(&self) -> bool {
        self.spoiled.load(Ordering::Relaxed)
    }

    /// Returns the damaged pages that have not been sent again.
    pub(super) fn bad_pages(&self) -> MutexGuard<'_, Vec<Page>> {
        self.bad_pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
