//! Times and modes of directories: set when nothing more is put into them, because whatever is put there changes the time.
//!
//! A [`Filling`] goes with everything that is still to be put into a directory of the destination. When the last one goes away, the directory is
//! [`Full`], and comes out at the other end of [`channel`].

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use tokio::sync::mpsc;
use towpath_store::{Changes, Fault, Result};

use crate::{Job, Place};

/// A directory into which something may still be put.
#[derive(Debug, Clone)]
pub(crate) struct Filling(Arc<Open>);

#[derive(Debug)]
struct Open {
    full: OnceLock<Full>,
    is_changed: AtomicBool,
    sender: mpsc::UnboundedSender<Full>,
}

/// A directory that is to get its time and mode.
#[derive(Debug)]
pub(crate) struct Full {
    /// The directory at both ends.
    pub(crate) ends: Job,
    pub(crate) changes: Changes,
}

/// Where directories come in, and where they come out. There are never more of them than are filled at one time, and a few.
pub(crate) fn channel() -> (mpsc::UnboundedSender<Full>, mpsc::UnboundedReceiver<Full>) {
    mpsc::unbounded_channel()
}

impl Filling {
    /// A directory that goes to `sender` when it is full.
    pub(crate) fn new(sender: mpsc::UnboundedSender<Full>) -> Self {
        Self(Arc::new(Open { full: OnceLock::new(), is_changed: AtomicBool::new(false), sender }))
    }

    /// Where it goes when it is full.
    pub(crate) fn sender(&self) -> mpsc::UnboundedSender<Full> {
        self.0.sender.clone()
    }

    /// Says what is to be set of it once it is full, if something was put into it, or if it `is_due` anyway. The first word counts.
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
            // If nobody is there to receive it, the copy has been given up.
            let _ = self.sender.send(full);
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
