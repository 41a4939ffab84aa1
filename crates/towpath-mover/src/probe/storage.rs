//! What a storage gives and takes, over the network if it is far: a file that is there is read, scratch files are written and removed.

use std::{
    future::Future,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use tokio::{runtime::Handle, sync::oneshot, time::sleep};
use tokio_util::task::TaskTracker;
use towpath_client::Client;
use towpath_proto::probe::noise;
use towpath_store::{
    CreateOptions, Error, Expectation, Fault, OpenOptions, Result,
    sys::{clock, disk, processor, random},
};

use super::Keeper;
use crate::{
    Filter, Place, Removal,
    account::{Account, Leg},
    file,
    stage::Stage,
    watch,
};

/// Bytes that are asked for or offered at once: those of a copy.
const PIECE_BYTES: usize = file::PIECE_BYTES as usize;

/// The most and the least bytes under way.
const WINDOW: [u64; 2] = [8 << 20, 64 << 20];

/// Files under way at once: more than are measured, so that the later ones wait for no round trip of the first.
const FILES: usize = 1024;

/// Of the room that is free, the share that a scratch file may take.
const ROOM_SHARE: u64 = 10;

/// The largest scratch file.
const MOST_BYTES: u64 = 8 << 30;

/// How long to wait before each attempt to remove what was written.
const REMOVAL_PAUSES: [Duration; 4] =
    [Duration::ZERO, Duration::from_millis(200), Duration::from_millis(500), Duration::from_secs(1)];

/// What was found of a storage in one direction.
#[derive(Debug, Clone)]
pub struct StorageLine {
    /// Bytes that were read or written.
    pub bytes: u64,
    /// How long it took; to write, until it was safe at the storage.
    pub seconds: f64,
    /// What held it up.
    pub account: Account,
}

impl StorageLine {
    /// Bytes per second.
    pub fn rate(&self) -> f64 {
        self.bytes as f64 / self.seconds.max(1e-9)
    }
}

/// What single files cost.
#[derive(Debug, Clone, Copy)]
pub struct Files {
    /// How large each was, in bytes.
    pub bytes: usize,
    /// Seconds that each further file took to be written.
    pub write_s: f64,
    /// Seconds that each further file took to be read.
    pub read_s: f64,
}

/// How a storage is measured.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// For how long, about; twice that at most.
    pub duration: Duration,
    /// Bytes under way, as far as that makes sense: twice what the path holds.
    pub window: u64,
}

impl Effort {
    fn pieces(&self) -> usize {
        self.window.clamp(WINDOW[0], WINDOW[1]) as usize / PIECE_BYTES
    }
}

/// Reads `file` for some time, or to its end.
///
/// # Errors
/// Those of the store; `InvalidArgument` for an empty file, of which nothing can be learnt.
pub async fn read(client: &Client, file: &Place, effort: Effort) -> Result<StorageLine> {
    let handle = file.store.open(&file.caller, &file.path, OpenOptions::default()).await?;
    let size = handle.metadata().await?.size;
    if size == 0 {
        return Err(Error::new(Fault::InvalidArgument, "an empty file tells nothing").at(&file.path));
    }
    if let Some(local) = handle.local_file() {
        disk::forget(&local);
    }
    let ends = clock::now() + effort.duration;
    let moved = AtomicU64::new(0);
    let pieces = (0..size).step_by(PIECE_BYTES).take_while(|_| clock::now() < ends);
    let reading = stream::iter(pieces)
        .map(|offset| {
            let length = usize::try_from(size - offset).unwrap_or(usize::MAX).min(PIECE_BYTES);
            let (handle, moved) = (&handle, &moved);
            async move {
                let data = handle.read(offset, length).await?;
                moved.fetch_add(data.len() as u64, Relaxed);
                if data.len() == length { Ok(()) } else { Err(Error::new(Fault::Truncated, "the file became shorter")) }
            }
        })
        .buffer_unordered(effort.pieces())
        .try_collect::<()>();
    watched(client, file, Stage::Read, &moved, effort, reading).await
}

/// A directory for scratch files, which goes away when it is dropped, with all that is in it.
#[derive(Debug)]
pub struct Scratch {
    directory: Option<Place>,
    background: TaskTracker,
}

impl Scratch {
    /// Makes one in the directory `above`. It is removed by a task of `background`: who waits for that can be sure that it is gone.
    ///
    /// # Errors
    /// Those of the store, also if what was made here could not be removed.
    pub async fn new(above: &Place, background: &TaskTracker) -> Result<Self> {
        let (sender, made) = oneshot::channel();
        let (above, tracker) = (above.clone(), background.clone());
        // By a task of its own: who is interrupted meanwhile would not know what there is to be removed.
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
        // Who may make and not remove shall leave no more than this.
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

    /// A file in it.
    fn file(&self, name: &str) -> Result<Place> {
        self.directory.as_ref().expect("it is there until it is dropped").join(name.as_bytes())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let (Some(directory), Ok(runtime)) = (self.directory.take(), Handle::try_current()) {
            self.background.spawn_on(remove(directory), &runtime);
        }
    }
}

/// Removes all of it. What was on its way when a probe was interrupted may yet come, so this is tried several times.
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

/// Writes a file for some time, and waits until it is safe. Gives the file too.
///
/// # Errors
/// Those of the store.
pub async fn write(client: &Client, scratch: &Scratch, effort: Effort) -> Result<(StorageLine, Place)> {
    let file = scratch.file("large")?;
    let room = file.store.space(&file.caller, &file.path).await.map_or(MOST_BYTES, |space| space.free / ROOM_SHARE);
    let handle = file.store.create(&file.caller, &file.path, CreateOptions::default()).await?;
    let ends = clock::now() + effort.duration;
    let moved = AtomicU64::new(0);
    let piece = Bytes::from(noise(PIECE_BYTES));
    let offsets = (0..room.min(MOST_BYTES)).step_by(PIECE_BYTES).take_while(|_| clock::now() < ends);
    let writing = async {
        stream::iter(offsets)
            .map(|offset| {
                let (handle, moved, piece) = (&handle, &moved, piece.clone());
                async move {
                    handle.write(offset, piece).await?;
                    moved.fetch_add(PIECE_BYTES as u64, Relaxed);
                    Ok::<_, Error>(())
                }
            })
            .buffer_unordered(if file.store.capabilities().write_any_order { effort.pieces() } else { 1 })
            .try_collect::<()>()
            .await?;
        handle.commit(Expectation { size: Some(moved.load(Relaxed)), ..Expectation::default() }).await.map(drop)
    };
    let line = watched(client, &file, Stage::Write, &moved, effort, writing).await?;
    Ok((line, file))
}

/// What single files of `bytes` cost: some are written, then more, and read.
///
/// # Errors
/// Those of the store.
pub async fn files(scratch: &Scratch, bytes: usize, counts: [usize; 2]) -> Result<Files> {
    let data = Bytes::from(noise(bytes));
    let make = async |name: String| {
        let file = scratch.file(&name)?;
        let options = CreateOptions { size_hint: Some(bytes as u64), ..CreateOptions::default() };
        let handle = file.store.create(&file.caller, &file.path, options).await?;
        handle.write(0, data.clone()).await?;
        handle.commit(Expectation { size: Some(bytes as u64), ..Expectation::default() }).await.map(drop)
    };
    let fetch = async |name: String| {
        let file = scratch.file(&name)?;
        let handle = file.store.open(&file.caller, &file.path, OpenOptions::default()).await?;
        handle.read(0, bytes).await.map(drop)
    };
    let names = |group: usize| (0..counts[group]).map(move |index| format!("{group}-{index}"));
    let wrote = [each(names(0), make).await?, each(names(1), make).await?];
    let read = [each(names(0), fetch).await?, each(names(1), fetch).await?];
    // What both groups take whatever their number, round trips, is not what a file costs.
    let more = counts[1].saturating_sub(counts[0]).max(1) as f64;
    let [write_s, read_s] = [wrote, read].map(|[few, many]| ((many - few) / more).max(0.0));
    Ok(Files { bytes, write_s, read_s })
}

/// Does `one` for each name, many at once; gives the seconds that it took.
async fn each(names: impl Iterator<Item = String>, one: impl AsyncFn(String) -> Result<()>) -> Result<f64> {
    let began = clock::now();
    stream::iter(names).map(|name| one(name)).buffer_unordered(FILES).try_collect::<()>().await?;
    Ok(began.elapsed().as_secs_f64())
}

/// Does `work` on `place` while it is watched.
async fn watched(
    client: &Client,
    place: &Place,
    stage: Stage,
    moved: &AtomicU64,
    effort: Effort,
    work: impl Future<Output = Result<()>>,
) -> Result<StorageLine> {
    let leg = match stage {
        Stage::Read => Leg::In,
        _ => Leg::Out,
    };
    let began = clock::now();
    let mut keeper = Keeper::new(began, place.is_remote().then_some(leg), stage);
    let look = |keeper: &mut Keeper| {
        let connections = if place.is_remote() { client.connections() } else { Vec::new() };
        keeper.add(clock::now(), moved.load(Relaxed), connections, processor::time_wanted());
    };
    let watching = async {
        let mut ticks = watch::ticks();
        loop {
            ticks.tick().await;
            look(&mut keeper);
            client.ask_far_ends().await;
        }
    };
    tokio::select! {
        outcome = work => outcome?,
        () = sleep(effort.duration * 2) => {}
        () = watching => unreachable!("it looks until it is dropped"),
    }
    look(&mut keeper);
    let (bytes, seconds) = (moved.load(Relaxed), began.elapsed().as_secs_f64());
    if bytes == 0 {
        let message = format!("not even {PIECE_BYTES} bytes in {seconds:.0} s");
        return Err(Error::new(Fault::TimedOut, message).at(&place.path));
    }
    Ok(StorageLine { bytes, seconds, account: keeper.account() })
}
