//! Sets times and modes of destination directories after their last entry was written, because each new entry changes
//! the modification time of its directory.
//!
//! Every pending entry of a directory holds a clone of its [`PendingDirectory`]. When the last clone is dropped, the
//! directory is sent as [`CompleteDirectory`] to the receiver of [`channel`]. A [`PendingPermit`] is held from the
//! first step to the last, which limits the number of such directories to [`MOST`].

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use towpath_store::{Changes, Fault, Result};

use crate::{Job, StoreLocation};

/// Maximum number of directories that are incomplete or wait for their time. Each may have a file in flight. They take
/// ten megabytes.
pub(crate) const MOST: usize = 16 << 10;

/// The permit that a directory holds from its listing until its time is set.
type PendingPermit = OwnedSemaphorePermit;

/// Keeps a directory open for further entries while any clone exists.
#[derive(Debug, Clone)]
pub(crate) struct PendingDirectory(Arc<PendingState>);

#[derive(Debug)]
struct PendingState {
    full: OnceLock<CompleteDirectory>,
    is_changed: AtomicBool,
    pending_directories: PendingDirectories,
    turn: Option<PendingPermit>,
}

/// Creates [`PendingDirectory`]s, within the limit of directories.
#[derive(Debug, Clone)]
pub(crate) struct PendingDirectories {
    sender: mpsc::UnboundedSender<(CompleteDirectory, Option<PendingPermit>)>,
    turns: Arc<Semaphore>,
}

/// A complete directory that needs its time and mode.
#[derive(Debug)]
pub(crate) struct CompleteDirectory {
    /// The directory at both ends.
    pub(crate) ends: Job,
    pub(crate) changes: Changes,
}

/// Returns the sender for new directories and the receiver of complete ones; each keeps its permit until that is
/// dropped.
pub(crate) fn channel() -> (PendingDirectories, mpsc::UnboundedReceiver<(CompleteDirectory, Option<PendingPermit>)>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (PendingDirectories { sender, turns: Arc::new(Semaphore::new(MOST)) }, receiver)
}

impl PendingDirectories {
    /// Waits for a permit and opens a directory. Must not be awaited by a task on which another open directory depends.
    pub(crate) async fn begin(&self) -> PendingDirectory {
        // The semaphore is never closed.
        let turn = Arc::clone(&self.turns).acquire_owned().await.ok();
        let (full, is_changed) = (OnceLock::new(), AtomicBool::new(false));
        PendingDirectory(Arc::new(PendingState { full, is_changed, pending_directories: self.clone(), turn }))
    }
}

impl PendingDirectory {
    /// Returns the sender for further directories.
    pub(crate) fn others(&self) -> PendingDirectories {
        self.0.pending_directories.clone()
    }

    /// Sets the metadata to apply once the directory is complete, provided that an entry was added or removed, or
    /// `is_due`. Only the first call has an effect.
    pub(crate) fn set(&self, full: CompleteDirectory, is_due: bool) {
        let _ = self.0.full.set(full);
        if is_due {
            self.changes();
        }
    }

    /// Records that an entry was added or removed.
    pub(crate) fn changes(&self) {
        self.0.is_changed.store(true, Relaxed);
    }
}

impl Drop for PendingState {
    fn drop(&mut self) {
        if let Some(full) = self.full.take().filter(|_| self.is_changed.load(Relaxed)) {
            // A closed receiver means that the copy was cancelled.
            let _ = self.pending_directories.sender.send((full, self.turn.take()));
        }
    }
}

impl CompleteDirectory {
    /// Applies the time and mode.
    pub(crate) async fn finish(&self) -> Result<()> {
        set(&self.ends.to, self.changes).await
    }
}

/// Applies the time and mode; only the time if the store does not support modes.
pub(crate) async fn set(location: &StoreLocation, changes: Changes) -> Result<()> {
    let change = |changes| location.store.change(&location.caller, &location.path, changes);
    match change(changes).await {
        Err(error) if error.fault() == Fault::Unsupported && changes.mode.is_some() && changes.mtime_ns.is_some() => {
            change(Changes { mode: None, ..changes }).await
        }
        outcome => outcome,
    }
}
