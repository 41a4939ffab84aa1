//! Where a probe writes: a directory of its own, which goes away with all that is in it.

use std::time::Duration;

use tokio::{runtime::Handle, sync::oneshot, time::sleep};
use tokio_util::task::TaskTracker;
use towpath_store::{Error, Fault, Result, sys::random};

use crate::{Filter, Place, Removal};

/// The divisor of the free space that gives the maximum size of a scratch file.
const ROOM_SHARE: u64 = 10;

/// The largest scratch file.
const MAX_BYTES: u64 = 8 << 30;

/// Delays before each attempt to remove scratch files.
const REMOVAL_PAUSES: [Duration; 4] =
    [Duration::ZERO, Duration::from_millis(200), Duration::from_millis(500), Duration::from_secs(1)];

/// A directory for scratch files, which goes away when it is dropped, with all that is in it.
#[derive(Debug)]
pub struct Scratch {
    directory: Option<Place>,
    background: TaskTracker,
}

impl Scratch {
    /// Creates a scratch directory in the directory `above`. A task of `background` removes it: after waiting for that
    /// tracker it is gone.
    ///
    /// # Errors
    /// Those of the store, even if the created directory could not be removed.
    pub async fn new(above: &Place, background: &TaskTracker) -> Result<Self> {
        let (sender, made) = oneshot::channel();
        let (above, tracker) = (above.clone(), background.clone());
        // In a task of its own: an interruption meanwhile would otherwise lose track of the created directory.
        background.spawn(async move {
            if let Err(Ok(unwanted)) = sender.send(Self::make(&above, tracker).await) {
                unwanted.remove().await;
            }
        });
        made.await.unwrap_or_else(|_| Err(Error::new(Fault::Cancelled, "the program ends")))
    }

    async fn make(above: &Place, background: TaskTracker) -> Result<Self> {
        let directory = above.join(format!(".towpath-probe-{:016x}", random::number()).as_bytes())?;
        let Place { store, caller, path, .. } = &directory;
        store.make_directory(caller, path, false, None).await?;
        // A user with permission to create but not to remove leaves at most this directory.
        if let Err(error) = store.remove_directory(caller, path).await {
            let message = format!("what is made here cannot be removed ({error}): an empty directory is left");
            return Err(Error::new(error.fault(), message).at(path));
        }
        store.make_directory(caller, path, false, None).await?;
        Ok(Self { directory: Some(directory), background })
    }

    /// Removes it. If this is dropped before its end, the rest goes as if it had been dropped itself.
    pub async fn remove(mut self) {
        if let Some(directory) = self.directory.clone() {
            remove(directory).await;
            self.directory = None;
        }
    }

    fn directory(&self) -> &Place {
        self.directory.as_ref().expect("it is there until it is dropped")
    }

    /// A file in it.
    pub(super) fn file(&self, name: &str) -> Result<Place> {
        self.directory().join(name.as_bytes())
    }

    /// The largest file that it may hold, in bytes.
    pub(super) async fn room(&self) -> u64 {
        let Place { store, caller, path, .. } = self.directory();
        store.space(caller, path).await.map_or(MAX_BYTES, |space| (space.free / ROOM_SHARE).min(MAX_BYTES))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let (Some(directory), Ok(runtime)) = (self.directory.take(), Handle::try_current()) {
            self.background.spawn_on(remove(directory), &runtime);
        }
    }
}

/// Removes everything. Writes of an interrupted probe may arrive late, so this is retried.
async fn remove(directory: Place) {
    let mut failures = Vec::new();
    for pause in REMOVAL_PAUSES {
        sleep(pause).await;
        failures.clear();
        Removal::new(&directory, (&Filter::default(), &directory.path), |error| failures.push(error)).run().await;
        if failures.is_empty() {
            return;
        }
    }
    failures.iter().for_each(|error| tracing::warn!(%error, "what a probe wrote could not be removed"));
}
