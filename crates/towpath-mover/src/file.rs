//! One file from a store to a store: pieces read and written side by side, checked at the end against what the source knows.

mod commit;

use std::{iter, ops::Range, pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{
    StreamExt as _, TryStreamExt as _,
    future::{self, Either},
    stream,
};
use tokio::time::sleep;
use towpath_proto::checksum::Digests;
use towpath_store::{
    ContentStream, CreateOptions, Error, Fault, Metadata, OpenOptions, Overwrite, READ_BYTES, ReadHandle, Result,
    ResumeKey, Space, WriteHandle, sys::clock,
};

use self::commit::commit;
pub(crate) use self::commit::{ask_destination, ask_source};
use crate::{
    Job, Mover, Place, clash, extents,
    mover::FILE_BYTES,
    progress::Part,
    replicas::Identity,
    retry,
    stage::{Stage, StageGuard},
    verified::Verified,
    window::{Permit, Priority},
};

/// Bytes of one piece, unless the source is asked for more at once.
pub(crate) const PIECE_BYTES: u64 = READ_BYTES as u64;

/// So many pieces at least fill the window.
const LEAST_PIECES: u64 = 32;

/// Bytes asked for together with the metadata: all of a small file.
pub(crate) const FIRST_BYTES: u64 = 256 << 10;

/// Bytes asked for of a file that was listed as empty: a page, so that many empty files do not fill the window.
const EMPTY_BYTES: u64 = 4 << 10;

/// A file for a server that may be sent only when it is whole, and so is in flight until it is shown there.
const SMALL_BYTES: u64 = 64 << 10;

/// The most that a destination holds of a file whose pieces must come in order, beside what is in flight: what waits for a connection.
const MOST_GATHERED_BYTES: u64 = 4 << 20;

/// From this size on a file goes on where it ended when it is copied again. Below it costs more than it saves: two files more in the staging
/// area, and a question over the network.
pub(crate) const RESUMED_BYTES: u64 = 64 << 20;

/// How long ago a file must have changed, in nanoseconds, that a version in whole seconds stands for its content: the second that was told, and one for
/// clocks that differ.
const CHANGING_NS: i64 = 2_000_000_000;

/// How long to wait for a destination that holds the key of an upload: a server finds out after a minute or two that a network was lost.
const IN_USE_WAIT: Duration = Duration::from_secs(120);

/// How often to ask it meanwhile.
const IN_USE_PAUSE: Duration = Duration::from_secs(3);

/// A file that arrived.
#[derive(Debug)]
pub struct Copied {
    /// Its size.
    pub bytes: u64,
    /// The digests that both ends have, and where they come from; none if the source knew none and none was asked for: then only the size was compared.
    pub verified: Vec<Verified>,
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

/// Bytes of `job` that are asked for together with its metadata. A file that was listed as empty is read too: only the end of its content proves
/// that it is.
pub(crate) fn first_bytes(job: &Job) -> u64 {
    match job.size {
        Some(0) => EMPTY_BYTES,
        size => size.unwrap_or(FIRST_BYTES).min(FIRST_BYTES),
    }
}

/// What a destination that takes pieces in order holds of `job` at most.
pub(crate) fn gathered_bytes(job: &Job) -> u64 {
    FILE_BYTES + job.size.unwrap_or(MOST_GATHERED_BYTES).min(MOST_GATHERED_BYTES)
}

/// Why a start of a copy came to nothing, by what another start may do about it.
#[derive(Debug)]
pub(crate) enum Failure {
    /// No byte was moved.
    NotBegun(Error),
    /// The source became another version; nothing is left at the destination.
    Changed(Error),
    /// The destination was lost, or the source while what came stays. So much was missing at the destination when the start began to move bytes.
    BrokenOff { error: Error, missing_bytes: u64 },
    /// What came is not what the source `promised`.
    Unlike { error: Error, promised: Digests },
    /// Another start would end the same way.
    Final(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::NotBegun(error)
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        let (Failure::NotBegun(error)
        | Failure::Changed(error)
        | Failure::BrokenOff { error, .. }
        | Failure::Unlike { error, .. }
        | Failure::Final(error)) = failure;
        error
    }
}

/// What ended the way of bytes from end to end.
struct Broken {
    error: Error,
    /// Sources ask again by themselves when they are lost.
    is_destinations: bool,
}

impl From<Error> for Broken {
    fn from(error: Error) -> Self {
        Self { error, is_destinations: false }
    }
}

/// Copies one file. Nothing is visible at the destination unless all of it arrived and was checked. If the source `promised` digests of what
/// arrived damaged, it is read with all checksums on its way, and compared with them again.
pub(crate) async fn copy(
    job: &Job,
    part: &Part,
    mover: &Mover,
    permit: Permit,
    promised: &Digests,
) -> Result<Copied, Failure> {
    let Job { from, .. } = job;
    let held = FILE_BYTES + first_bytes(job);
    // What a file brings whose size nobody knows is counted when it is known.
    mover.limit.pass(if job.size.is_some() { held } else { FILE_BYTES }).await;
    let mut stage = mover.stages.enter(Stage::Open, held);
    let options = OpenOptions { verifies_digests: promised.is_empty(), ..OpenOptions::default() };
    let is_directory = || Error::new(Fault::IsDirectory, "it is a directory: use -r to copy it").at(&from.path);
    let explain = |error: Error| {
        if error.fault() == Fault::IsDirectory { is_directory() } else { error.at(&from.path) }
    };
    let source = from.store.open(&from.caller, &from.path, options).await.map_err(explain)?;
    let first_bytes = first_bytes(job);
    let mut first = pin!(future::maybe_done(source.read_into(0, first_bytes as usize, Vec::new())));
    // The rest is asked for as soon as the metadata are there: what has begun to flow on a long path must not stop.
    let mut metadata = match beside(source.metadata(), first.as_mut()).await {
        Ok(metadata) => metadata,
        Err(error) => {
            let stream = ContentStream::instead_of(error, &*source).await.map_err(explain)?;
            drop((permit, stage));
            return mover.copy_stream(job, part, stream).await.map_err(Failure::Final);
        }
    };
    if metadata.is_directory() {
        return Err(is_directory().into());
    }
    warn_of_time(from, &metadata);
    if job.size.is_none() {
        beside(mover.limit.pass(metadata.size.min(first_bytes)), first.as_mut()).await;
    }
    keep_promise(&mut metadata.digests, promised);
    if mover.options.overwrite == Overwrite::Replace {
        beside(clash::refuse_itself(job, &metadata), first.as_mut()).await?;
    }
    let options = create_options(job, mover, &metadata);
    let may_go_on = options.resume.is_some();
    let target = beside(begin(job, mover, &mut stage, options), first.as_mut()).await;
    // Of a file that may go on nobody knows yet what is there of it.
    let target = match target {
        Err(error) if !may_go_on => return Err(explained(job, metadata.size, error).await.into()),
        outcome => outcome?,
    };
    let mut missing_bytes = metadata.size;
    // By which digest parts of an earlier run were found.
    let mut proof = None;
    let is_small = metadata.size <= first_bytes.min(SMALL_BYTES) && job.to.is_remote();
    let mut small = None;
    let moved = async {
        let present = if may_go_on { beside(target.present(), first.as_mut()).await? } else { Vec::new() };
        let missing = extents::missing(metadata.size, &present);
        missing_bytes = missing.iter().map(|range| range.end - range.start).sum();
        if !present.is_empty() {
            proof = job.from.replicas().and_then(|replicas| replicas.proof(&metadata));
        }
        part.begin(job, metadata.size, metadata.size - missing_bytes);
        let next = if present.is_empty() { metadata.size.min(first_bytes) } else { 0 };
        let head = async {
            stage.pass(Stage::Read);
            first.as_mut().await;
            let data = first.as_mut().take_output().unwrap_or_else(|| Ok(Vec::new())).map_err(explain)?;
            stage.pass(Stage::Write);
            if present.is_empty() {
                put(job, &*target, 0, data, next).await?;
            }
            drop(stage);
            match is_small {
                true => small = Some(permit),
                false => {
                    part.moved(next);
                    permit.complete();
                }
            }
            Ok(())
        };
        let pieces = extents::pieces(missing, next, || piece_bytes(job, mover));
        let rest = move_rest(job, &*source, &*target, pieces, mover, part);
        future::try_join(head, rest).await?;
        Ok(look_again(job, mover, &*source, &metadata).await?)
    };
    if let Err(Broken { error, is_destinations }) = moved.await {
        // What the server is may have been found out only by the upload.
        let stays = may_go_on && job.to.store.capabilities().resume && error.fault() != Fault::Changed;
        if !stays {
            // The first error is the one to tell; what cannot be removed now is removed when the store is opened again.
            let _ = target.abort().await;
        }
        let needed_bytes = if stays { part.left_bytes() } else { metadata.size };
        return Err(match explained(job, needed_bytes, error).await {
            error if error.fault() == Fault::Changed => Failure::Changed(error),
            error if (stays || is_destinations) && retry::is_loss(&error) => {
                Failure::BrokenOff { error, missing_bytes }
            }
            error => Failure::Final(error),
        });
    }
    let copied = commit(job, mover, &*source, promised, proof, &*target).await?;
    if let Some(permit) = small {
        part.moved(copied.bytes);
        permit.complete();
    }
    Ok(copied)
}

/// Warns of a local file whose time of change does not fit into 64 bits of nanoseconds.
fn warn_of_time(from: &Place, metadata: &Metadata) {
    if metadata.mtime_ns.is_none() && !from.is_remote() {
        tracing::warn!(%from, "its time of change cannot be kept, as it is not between the years 1678 and 2261: the copy has the time at which it is made");
    }
}

/// How the copy of a source that `metadata` describe is made.
fn create_options(job: &Job, mover: &Mover, metadata: &Metadata) -> CreateOptions {
    CreateOptions {
        overwrite: mover.options.overwrite,
        parents: true,
        mode: metadata.mode.map(|mode| mode & 0o777 & !mover.options.umask),
        size_hint: Some(metadata.size),
        mtime_ns: metadata.mtime_ns,
        digests: metadata.digests.algorithms(),
        resume: resume_key(job, metadata),
    }
}

/// Adds what an earlier start was promised. What the source says by now counts: it may be another version.
fn keep_promise(digests: &mut Digests, promised: &Digests) {
    for digest in promised.iter() {
        if digests.get(digest.algorithm()).is_none() {
            digests.insert(*digest);
        }
    }
}

/// Asks a source whether it is still the version that was opened, when all of it has been read and no digest will tell: pieces of a file that
/// is written in place may be of two versions.
async fn look_again(job: &Job, mover: &Mover, source: &dyn ReadHandle, metadata: &Metadata) -> Result<()> {
    let is_compared = !metadata.digests.is_empty() && job.to.checks_on_the_way();
    let has_digest = mover.options.checksum.is_some() || is_compared;
    if !job.from.is_remote() || has_digest || metadata.size <= first_bytes(job) {
        return Ok(());
    }
    match source.read(metadata.size, 1).await?.is_empty() {
        true => Ok(()),
        false => Err(resized().at(&job.from.path)),
    }
}

/// Begins the upload. A destination that lost its client may take a while to notice, and holds the key until then; that, and one that has too much to
/// do, is waited for.
async fn begin(
    job: &Job,
    mover: &Mover,
    stage: &mut StageGuard<'_>,
    options: CreateOptions,
) -> Result<Arc<dyn WriteHandle>> {
    let to = &job.to;
    if options.resume.is_some() {
        mover.progress.proves();
    }
    let give_up = clock::now() + IN_USE_WAIT;
    let mut is_told = false;
    loop {
        match to.store.create(&to.caller, &to.path, options.clone()).await {
            Err(error) if error.fault() == Fault::Overloaded && options.resume.is_some() && clock::now() < give_up => {
                if !is_told {
                    stage.pass(Stage::Wait);
                    let seconds = IN_USE_WAIT.as_secs();
                    mover.progress.waits(job);
                    tracing::warn!(path = %to, %error, "the destination cannot begin yet: waiting for up to {seconds} s");
                }
                is_told = true;
                sleep(IN_USE_PAUSE).await;
            }
            outcome => {
                stage.pass(Stage::Open);
                return outcome;
            }
        }
    }
}

/// The error of an upload of which `bytes` are still to be written; of a lack of room it says how much, if the destination tells.
async fn explained(job: &Job, bytes: u64, error: Error) -> Error {
    let to = &job.to;
    let mut at = to.path.parent().filter(|_| error.fault() == Fault::NoSpace);
    while let Some(path) = at {
        match to.store.space(&to.caller, &path).await {
            Ok(Space { free, .. }) if free < bytes => {
                let message = format!("{}: {} bytes more are needed there", error.message(), bytes - free);
                return Error::new(Fault::NoSpace, message).blamed_on(error.blame()).at(&to.path);
            }
            Err(error) if error.fault() == Fault::NotFound => at = path.parent(),
            _ => break,
        }
    }
    error
}

/// The outcome of `main`, while `reading` goes on: an answer that nobody takes would hold a place at its site, which `main` may be waiting for.
async fn beside<T>(main: impl Future<Output = T>, reading: impl Future<Output = ()> + Unpin) -> T {
    match future::select(pin!(main), reading).await {
        Either::Left((outcome, _)) => outcome,
        Either::Right(((), main)) => main.await,
    }
}

/// The name under which another run finds what this one leaves of a large file. None if nothing would prove that it is of the same file: the source
/// tells no version, or one that may pass for another.
fn resume_key(job: &Job, metadata: &Metadata) -> Option<ResumeKey> {
    if metadata.size < RESUMED_BYTES || !job.to.store.capabilities().resume {
        return None;
    }
    let (size, to) = (metadata.size.to_le_bytes(), job.to.to_string());
    let from = match job.from.replicas() {
        None => job.from.to_string(),
        Some(replicas) => match replicas.identity(metadata)? {
            Identity::Alone(source) => source.to_string(),
            Identity::Proved(sources, digest) => {
                let sources = sources.iter().map(ToString::to_string);
                let parts: Vec<_> = [to, format!("{digest:#}")].into_iter().chain(sources).collect();
                let parts = iter::once(size.as_slice()).chain(parts.iter().map(String::as_bytes));
                return Some(ResumeKey::of(&parts.collect::<Vec<_>>()));
            }
        },
    };
    let version = match (&metadata.version, metadata.mtime_ns) {
        _ if may_change_unseen(metadata, clock::unix_ns()) => return None,
        (Some(version), _) => version.as_str().to_owned(),
        (None, Some(mtime_ns)) => mtime_ns.to_string(),
        (None, None) => return None,
    };
    Some(ResumeKey::of(&[from.as_bytes(), &size, version.as_bytes(), to.as_bytes()]))
}

/// Whether the file may change without another version, because its time is told in whole seconds and the second may not be over: xroot and most
/// entity tags of web servers know no shorter time. A clock ahead of this one is taken for such a time too.
fn may_change_unseen(metadata: &Metadata, now_ns: i64) -> bool {
    let is_whole = |mtime_ns: &i64| mtime_ns % 1_000_000_000 == 0;
    metadata.mtime_ns.filter(is_whole).is_some_and(|mtime_ns| mtime_ns > now_ns.saturating_sub(CHANGING_NS))
}

/// How long the next piece is, if there is so much.
fn piece_bytes(job: &Job, mover: &Mover) -> u64 {
    let longest = job.from.store.capabilities().read_bytes as u64;
    (mover.window_bytes() / LEAST_PIECES).min(longest).max(PIECE_BYTES)
}

/// Transfers pieces, as many in flight as the window permits.
async fn move_rest(
    job: &Job,
    source: &dyn ReadHandle,
    target: &dyn WriteHandle,
    pieces: impl Iterator<Item = Range<u64>> + Send,
    mover: &Mover,
    part: &Part,
) -> Result<(), Broken> {
    stream::iter(pieces)
        .then(|piece| async move {
            let length = piece.end - piece.start;
            let permit = mover.acquire(length, Priority::Piece).await;
            mover.limit.pass(length).await;
            Ok((piece, permit))
        })
        .try_for_each_concurrent(None, |(piece, permit)| async move {
            let length = piece.end - piece.start;
            let mut stage = mover.stages.enter(Stage::Read, length);
            let data = source.read_into(piece.start, length as usize, Vec::with_capacity(length as usize)).await?;
            stage.pass(Stage::Write);
            put(job, target, piece.start, data, length).await?;
            part.moved(length);
            permit.complete();
            drop(stage);
            Ok(())
        })
        .await
}

/// The error of a read that gave less or more than the source said there is.
pub(crate) fn resized() -> Error {
    Error::new(Fault::Changed, "its size changed while it was read")
}

async fn put(job: &Job, target: &dyn WriteHandle, offset: u64, piece: Vec<u8>, length: u64) -> Result<(), Broken> {
    if piece.len() as u64 != length {
        return Err(resized().at(&job.from.path).into());
    }
    if length == 0 {
        return Ok(());
    }
    target.write(offset, Bytes::from(piece)).await.map_err(|error| Broken { error, is_destinations: true })
}
