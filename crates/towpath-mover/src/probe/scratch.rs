//! The directory for files that a probe writes; it is removed with its contents.

use std::time::Duration;

use tokio::{runtime::Handle, sync::oneshot, time::sleep};
use tokio_util::task::TaskTracker;
use towpath_store::{Error, Fault, Result, sys::random};

use crate::{Filter, Removal, StoreLocation};

/// Divisor of the free space that limits the size of a scratch file.
const ROOM_SHARE: u64 = 10;

/// Maximum size of a scratch file in bytes.
const MAX_BYTES: u64 = 8 << 30;

/// Delays before each attempt to remove scratch files.
const REMOVAL_PAUSES: [Duration; 4] =
    [Duration::ZERO, Duration::from_millis(200), Duration::from_millis(500), Duration::from_secs(1)];

/// A directory for scratch files. Dropping it removes it with its contents.
#[derive(Debug)]
pub struct Scratch {
    directory: Option<StoreLocation>,
    background: TaskTracker,
}

impl Scratch {
    /// Creates a scratch directory in the directory `above`. A task of `background` removes it, so that it is gone when
    /// that tracker is done.
    ///
    /// # Errors
    /// Errors of the store, including failure to remove the created directory.
    pub async fn new(above: &StoreLocation, background: &TaskTracker) -> Result<Self> {
        let (sender, made) = oneshot::channel();
        let (above, tracker) = (above.clone(), background.clone());
        // A separate task, because an interruption would otherwise lose track of the created directory.
        background.spawn(async move {
            if let Err(Ok(unwanted)) = sender.send(Self::make(&above, tracker).await) {
                unwanted.remove().await;
            }
        });
        made.await.unwrap_or_else(|_| Err(Error::new(Fault::Cancelled, "the program ends")))
    }

    async fn make(above: &StoreLocation, background: TaskTracker) -> Result<Self> {
        let directory = above.join(format!(".towpath-probe-{:016x}", random::number()).as_bytes())?;
        let StoreLocation { store, caller, path, .. } = &directory;
        store.make_directory(caller, path, false, None).await?;
        // A user may have permission to create but not to remove; then at most this empty directory is left.
        if let Err(error) = store.remove_directory(caller, path).await {
            let message = format!("files created here cannot be removed ({error}); an empty directory is left");
            return Err(Error::new(error.fault(), message).at(path));
        }
        store.make_directory(caller, path, false, None).await?;
        Ok(Self { directory: Some(directory), background })
    }

    /// Removes the directory. Dropping this future is equivalent to dropping the directory.
    pub async fn remove(mut self) {
        if let Some(directory) = self.directory.clone() {
            remove(directory).await;
            self.directory = None;
        }
    }

    fn directory(&self) -> &StoreLocation {
        self.directory.as_ref().expect("set until the directory is dropped")
    }

    /// Returns the file `name` in the directory.
    pub(super) fn file(&self, name: &str) -> Result<StoreLocation> {
        self.directory().join(name.as_bytes())
    }

    /// Returns the maximum size of a file in bytes.
    pub(super) async fn room(&self) -> u64 {
        let StoreLocation { store, caller, path, .. } = self.directory();
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

/// Removes the directory with its contents. Writes of an interrupted probe may arrive late, so the removal is retried.
async fn remove(directory: StoreLocation) {
    let mut failures = Vec::new();
    for pause in REMOVAL_PAUSES {
        sleep(pause).await;
        failures.clear();
        Removal::new(&directory, (&Filter::default(), &directory.path), |error| failures.push(error)).run().await;
        if failures.is_empty() {
            return;
        }
    }
    failures.iter().for_each(|error| tracing::warn!(%error, "cannot remove the scratch files of a probe"));
}
