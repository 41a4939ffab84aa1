//! One file from a store to a store: pieces read and written side by side, checked at the end against what the source knows.

use std::{ops::Range, pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{
    StreamExt as _, TryStreamExt as _,
    future::{self, Either},
    stream,
};
use tokio::time::sleep;
use towpath_proto::checksum::{Digest, Digests};
use towpath_store::{
    CreateOptions, Error, Expectation, Fault, Metadata, OpenOptions, Overwrite, ReadHandle, Result, ResumeKey, Space,
    WriteHandle, sys::clock,
};

use crate::{
    Job, Mover, clash, extents,
    mover::FILE_BYTES,
    progress::Part,
    stage::Stage,
    window::{Room, Turn},
};

/// Bytes of one piece: large enough that a request costs nothing beside its data, small enough to stay in a processor's cache.
pub(crate) const PIECE_BYTES: u64 = 2 << 20;
/// Bytes asked for together with the metadata: all of a small file.
const FIRST_BYTES: u64 = 256 << 10;

/// From this size on a file goes on where it ended when it is copied again. Below it costs more than it saves: two files more in the staging
/// area, and a question over the network.
const RESUMED_BYTES: u64 = 64 << 20;

/// How long to wait for a destination that holds the key of an upload: a server finds out after a minute or two that a network was lost.
const IN_USE_WAIT: Duration = Duration::from_secs(120);

/// How often to ask it meanwhile.
const IN_USE_PAUSE: Duration = Duration::from_secs(3);

/// A file that arrived.
#[derive(Debug)]
pub struct Copied {
    /// Its size.
    pub bytes: u64,
    /// The digests on which both ends agree; none if the source knew none and none was asked for.
    pub verified: Digests,
    /// Which way it went.
    pub route: Route,
    /// From when there was room for it until it was shown under its name.
    pub took: Duration,
}

/// Which way a file went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// Through this machine.
    Streamed,
    /// The destination fetched it from the source.
    Pulled,
    /// The source sent it to the destination.
    Pushed,
}

impl Route {
    /// Its name, for programs.
    pub fn name(self) -> &'static str {
        match self {
            Route::Streamed => "streamed",
            Route::Pulled => "pull",
            Route::Pushed => "push",
        }
    }
}

/// Bytes of `job` that are asked for together with its metadata.
pub(crate) fn first_bytes(job: &Job) -> u64 {
    job.size.unwrap_or(FIRST_BYTES).min(FIRST_BYTES)
}

/// Copies one file. Nothing is visible at the destination unless all of it arrived and was checked.
pub(crate) async fn copy(job: &Job, part: &Part, mover: &Mover, room: Room) -> Result<Copied> {
    let Job { from, .. } = job;
    let held = FILE_BYTES + first_bytes(job);
    let mut stay = mover.stages.enter(Stage::Open, held);
    let options = OpenOptions { verifies_digests: true, ..OpenOptions::default() };
    let is_directory = || Error::new(Fault::IsDirectory, "it is a directory: use -r to copy it").at(&from.path);
    let explain = |error: Error| {
        if error.fault() == Fault::IsDirectory { is_directory() } else { error.at(&from.path) }
    };
    let source = from.store.open(&from.caller, &from.path, options).await.map_err(explain)?;
    let first_bytes = first_bytes(job);
    let mut first = pin!(future::maybe_done(source.read_into(0, first_bytes as usize, Vec::new())));
    // The rest is asked for as soon as the metadata are there: what has begun to flow on a long path must not stop.
    let metadata = beside(source.metadata(), first.as_mut()).await.map_err(explain)?;
    if metadata.is_directory() {
        return Err(is_directory());
    }
    if mover.options.overwrite == Overwrite::Replace {
        beside(clash::refuse_itself(job, &metadata), first.as_mut()).await?;
    }
    let options = CreateOptions {
        overwrite: mover.options.overwrite,
        parents: true,
        mode: metadata.mode.map(|mode| mode & 0o777 & !mover.options.umask),
        size_hint: Some(metadata.size),
        mtime_ns: metadata.mtime_ns,
        resume: resume_key(job, &metadata),
        ..CreateOptions::default()
    };
    let may_go_on = options.resume.is_some();
    let target = beside(begin(job, mover, options), first.as_mut()).await;
    // Of a file that may go on nobody knows yet what is there of it.
    let target = if may_go_on { target? } else { explained(job, metadata.size, target).await? };
    let moved = async {
        let present = if may_go_on { beside(target.present(), first.as_mut()).await? } else { Vec::new() };
        let missing = extents::missing(metadata.size, &present);
        let missing_bytes: u64 = missing.iter().map(|range| range.end - range.start).sum();
        part.begin(job, metadata.size, metadata.size - missing_bytes);
        let next = if present.is_empty() { metadata.size.min(first_bytes) } else { 0 };
        let head = async {
            stay.pass(Stage::Read);
            first.as_mut().await;
            let data = first.as_mut().take_output().unwrap_or_else(|| Ok(Vec::new())).map_err(explain)?;
            stay.pass(Stage::Write);
            if present.is_empty() {
                put(&*target, 0, data, next, part).await?;
            }
            drop((room, stay));
            Ok(())
        };
        let rest = move_rest(&*source, &*target, extents::pieces(missing, next, PIECE_BYTES), mover, part);
        future::try_join(head, rest).await
    };
    if let Err(error) = moved.await {
        // The first error is the one to tell; what cannot be removed now is removed when the store is opened again. Of a file that may go on
        // later all stays that is of this version.
        if !may_go_on || error.fault() == Fault::Changed {
            let _ = target.abort().await;
            return explained(job, metadata.size, Err(error)).await;
        }
        return explained(job, part.left_bytes(), Err(error)).await;
    }
    commit(job, mover, &metadata, &*target).await
}

/// Begins the upload. A destination that lost its client may take a while to notice, and holds the key until then; that is waited for.
async fn begin(job: &Job, mover: &Mover, options: CreateOptions) -> Result<Arc<dyn WriteHandle>> {
    let to = &job.to;
    let give_up = clock::now() + IN_USE_WAIT;
    let mut is_told = false;
    loop {
        match to.store.create(&to.caller, &to.path, options.clone()).await {
            Err(error) if error.fault() == Fault::Overloaded && options.resume.is_some() && clock::now() < give_up => {
                if !is_told {
                    let seconds = IN_USE_WAIT.as_secs();
                    mover.progress.waits(job);
                    tracing::warn!(path = %to, "the destination still holds an earlier upload of this file: waiting for up to {seconds} s");
                }
                is_told = true;
                sleep(IN_USE_PAUSE).await;
            }
            outcome => return outcome,
        }
    }
}

/// The outcome of an upload of which `bytes` are still to be written; of a lack of room it says how much, if the destination tells.
async fn explained<T>(job: &Job, bytes: u64, outcome: Result<T>) -> Result<T> {
    let to = &job.to;
    let error = match outcome {
        Err(error) if error.fault() == Fault::NoSpace => error,
        outcome => return outcome,
    };
    let mut at = to.path.parent();
    while let Some(path) = at {
        match to.store.space(&to.caller, &path).await {
            Ok(Space { free, .. }) if free < bytes => {
                let message = format!("{}: {} bytes more are needed there", error.message(), bytes - free);
                return Err(Error::new(Fault::NoSpace, message).blamed_on(error.blame()).at(&to.path));
            }
            Err(error) if error.fault() == Fault::NotFound => at = path.parent(),
            _ => break,
        }
    }
    Err(error)
}

/// The outcome of `main`, while `reading` goes on: an answer that nobody takes would hold a place at its site, which `main` may be waiting for.
async fn beside<T>(main: impl Future<Output = T>, reading: impl Future<Output = ()> + Unpin) -> T {
    match future::select(pin!(main), reading).await {
        Either::Left((outcome, _)) => outcome,
        Either::Right(((), main)) => main.await,
    }
}

/// The name under which another run finds what this one leaves of a large file; none if the source has no version that could be told from
/// another one.
fn resume_key(job: &Job, metadata: &Metadata) -> Option<ResumeKey> {
    if metadata.size < RESUMED_BYTES || !job.to.store.capabilities().resume {
        return None;
    }
    let version = match (&metadata.version, metadata.mtime_ns) {
        (Some(version), _) => version.as_str().to_owned(),
        (None, Some(mtime_ns)) => mtime_ns.to_string(),
        (None, None) => return None,
    };
    let (from, to) = (job.from.to_string(), job.to.to_string());
    Some(ResumeKey::of(&[from.as_bytes(), &metadata.size.to_le_bytes(), version.as_bytes(), to.as_bytes()]))
}

/// Moves pieces, as many at once as the window has room for.
async fn move_rest(
    source: &dyn ReadHandle,
    target: &dyn WriteHandle,
    pieces: impl Iterator<Item = Range<u64>> + Send,
    mover: &Mover,
    part: &Part,
) -> Result<()> {
    stream::iter(pieces)
        .then(|piece| async move {
            let room = mover.room(piece.end - piece.start, Turn::Piece).await;
            Ok((piece, room))
        })
        .try_for_each_concurrent(None, |(piece, room)| async move {
            let length = piece.end - piece.start;
            let mut stay = mover.stages.enter(Stage::Read, length);
            let data = source.read_into(piece.start, length as usize, Vec::with_capacity(length as usize)).await?;
            stay.pass(Stage::Write);
            put(target, piece.start, data, length, part).await?;
            drop((room, stay));
            Ok(())
        })
        .await
}

async fn put(target: &dyn WriteHandle, offset: u64, piece: Vec<u8>, length: u64, part: &Part) -> Result<()> {
    if piece.len() as u64 != length {
        return Err(Error::new(Fault::Changed, "its size changed while it was read"));
    }
    if length > 0 {
        target.write(offset, Bytes::from(piece)).await?;
        part.moved(length);
    }
    Ok(())
}

async fn commit(job: &Job, mover: &Mover, metadata: &Metadata, target: &dyn WriteHandle) -> Result<Copied> {
    let Job { from, to, .. } = job;
    let held = FILE_BYTES + first_bytes(job);
    let mut digests = metadata.digests.clone();
    if let Some(algorithm) = mover.options.checksum
        && digests.get(algorithm).is_none()
    {
        let _stay = mover.stages.enter(Stage::Check, held);
        digests.insert(from.store.digest(&from.caller, &from.path, algorithm, &|_| {}).await?);
    }
    let expected = Expectation { size: Some(metadata.size), digests: digests.clone(), mtime_ns: metadata.mtime_ns };
    let mut stay = mover.stages.enter(Stage::Commit, held);
    let mut arrived = target.commit(expected).await.map_err(|error| error.at(&to.path))?;
    if let Some(promised) = mover.options.checksum.and_then(|algorithm| digests.get(algorithm))
        && arrived.digests.get(promised.algorithm()).is_none()
    {
        stay.pass(Stage::Check);
        arrived.digests.insert(insist(job, &promised).await?);
    }
    let mut verified = Digests::default();
    for digest in digests.iter().filter(|digest| agrees(digest, &arrived.digests)) {
        verified.insert(*digest);
    }
    Ok(Copied { bytes: metadata.size, verified, route: Route::Streamed, took: Duration::ZERO })
}

/// Compares a digest that the storage did not compare when it took the file: the file is read for it. Unless it is the right one, the file
/// goes away.
async fn insist(job: &Job, promised: &Digest) -> Result<Digest> {
    let to = &job.to;
    let error = match to.store.digest(&to.caller, &to.path, promised.algorithm(), &|_| {}).await {
        Ok(found) if found == *promised => return Ok(found),
        Ok(found) => {
            Error::new(Fault::ChecksumMismatch, format!("it arrived with {found:#}, {promised:#} was promised"))
        }
        Err(error) => error,
    };
    if let Err(error) = to.store.remove_file(&to.caller, &to.path).await {
        tracing::warn!(path = %to, %error, "a file that is not what was promised could not be removed");
    }
    Err(error.at(&to.path))
}

fn agrees(digest: &Digest, others: &Digests) -> bool {
    others.get(digest.algorithm()).is_some_and(|other| other == *digest)
}
