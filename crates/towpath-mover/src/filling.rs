//! Times and modes of directories: set when nothing more is put into them, because whatever is put there changes the time.
//!
//! A [`Filling`] goes with everything that is still to be put into a directory of the destination. When the last one goes away, the directory is
//! [`Full`], and comes out at the other end of [`channel`]. A [`Turn`] goes with it all the way: so there are never more than [`MOST`] of them.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use towpath_store::{Changes, Fault, Result};

use crate::{Job, Place};

/// Directories that are being filled, or are full and have not got their times: a file of its own may be under way to each. They take ten megabytes.
pub(crate) const MOST: usize = 16 << 10;

/// What a directory has from when it is listed until it has got its time.
type Turn = OwnedSemaphorePermit;

/// A directory into which something may still be put.
#[derive(Debug, Clone)]
pub(crate) struct Filling(Arc<Open>);

#[derive(Debug)]
struct Open {
    full: OnceLock<Full>,
    is_changed: AtomicBool,
    fillings: Fillings,
    turn: Option<Turn>,
}

/// Where directories come in to be filled.
#[derive(Debug, Clone)]
pub(crate) struct Fillings {
    sender: mpsc::UnboundedSender<(Full, Option<Turn>)>,
    turns: Arc<Semaphore>,
}

/// A directory that is to get its time and mode.
#[derive(Debug)]
pub(crate) struct Full {
    /// The directory at both ends.
    pub(crate) ends: Job,
    pub(crate) changes: Changes,
}

/// Where directories come in, and where they come out when they are full; each has its turn until that is dropped.
pub(crate) fn channel() -> (Fillings, mpsc::UnboundedReceiver<(Full, Option<Turn>)>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (Fillings { sender, turns: Arc::new(Semaphore::new(MOST)) }, receiver)
}

impl Fillings {
    /// A directory that is to be filled; waits while there are as many as may be. Nobody who holds up others that are being filled may wait for it.
    pub(crate) async fn begin(&self) -> Filling {
        // Nobody closes it.
        let turn = Arc::clone(&self.turns).acquire_owned().await.ok();
        let (full, is_changed) = (OnceLock::new(), AtomicBool::new(false));
        Filling(Arc::new(Open { full, is_changed, fillings: self.clone(), turn }))
    }
}

impl Filling {
    /// Where others come in.
    pub(crate) fn others(&self) -> Fillings {
        self.0.fillings.clone()
    }

    /// Sets the metadata to apply once the directory is complete, if an entry was added to it or `is_due`. The first
    /// call counts.
    pub(crate) fn set(&self, full: Full, is_due: bool) {
        let _ = self.0.full.set(full);
        if is_due {
            self.changes();
        }
    }

    /// Something is put into it, or taken away.
    pub(crate) fn changes(&self) {
        self.0.is_changed.store(true, Relaxed);
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Some(full) = self.full.take().filter(|_| self.is_changed.load(Relaxed)) {
            // Without a receiver the copy was cancelled.
            let _ = self.fillings.sender.send((full, self.turn.take()));
        }
    }
}

impl Full {
    /// Sets time and mode.
    pub(crate) async fn finish(&self) -> Result<()> {
        set(&self.ends.to, self.changes).await
    }
}

/// Sets time and mode, or only the time where there are no modes.
pub(crate) async fn set(place: &Place, changes: Changes) -> Result<()> {
    let change = |changes| place.store.change(&place.caller, &place.path, changes);
    match change(changes).await {
        Err(error) if error.fault() == Fault::Unsupported && changes.mode.is_some() && changes.mtime_ns.is_some() => {
            change(Changes { mode: None, ..changes }).await
        }
        outcome => outcome,
    }
}
