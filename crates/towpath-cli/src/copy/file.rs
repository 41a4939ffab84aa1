//! One file from a store to a store: pieces read and written side by side, checked at the end against what the source knows.

use std::sync::Arc;

use bytes::Bytes;
use futures::{TryStreamExt as _, stream};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use towpath_proto::checksum::{Digest, Digests};
use towpath_store::{
    CreateOptions, Error, Expectation, Fault, Metadata, OpenOptions, Overwrite, ReadHandle, Result, WriteHandle,
};

use super::{Job, Order, clash};

/// Bytes of one piece: large enough that a request costs nothing beside its data, small enough to stay in a processor's cache.
const PIECE_BYTES: u64 = 2 << 20;
/// Bytes asked for together with the metadata: all of a small file.
const FIRST_BYTES: u64 = 256 << 10;
/// Pieces of one file at once.
const PIECES: usize = 8;
/// Bytes in flight of all files together.
const WINDOW_BYTES: usize = 128 << 20;

/// The bytes in flight that all files together may have.
#[derive(Debug)]
pub(super) struct Window {
    free: Arc<Semaphore>,
}

impl Default for Window {
    fn default() -> Self {
        Self { free: Arc::new(Semaphore::new(WINDOW_BYTES)) }
    }
}

/// A file that arrived.
#[derive(Debug)]
pub(super) struct Copied {
    /// Its size.
    pub bytes: u64,
    /// The digests on which both ends agree; none if the source knew none and none was asked for.
    pub verified: Digests,
}

impl Copied {
    /// What `--json` prints of it.
    pub(super) fn json(&self, job: &Job) -> Value {
        let verified: Vec<String> =
            self.verified.iter().map(|digest| format!("{}:{digest}", digest.algorithm())).collect();
        json!({"from": job.from.to_string(), "to": job.to.to_string(), "bytes": self.bytes, "verified": verified})
    }
}

/// Copies one file. Nothing is visible at the destination unless all of it arrived and was checked.
pub(super) async fn copy(job: &Job, order: &Order<'_>) -> Result<Copied> {
    let caller = &order.places.caller;
    let options = OpenOptions { verifies_digests: true, ..OpenOptions::default() };
    let is_directory = || Error::new(Fault::IsDirectory, "it is a directory: use -r to copy it").at(&job.from.path);
    let explain = |error: Error| {
        if error.fault() == Fault::IsDirectory { is_directory() } else { error.at(&job.from.path) }
    };
    let source = job.from.store.open(caller, &job.from.path, options).await.map_err(explain)?;
    let room = order.window.room(FIRST_BYTES).await;
    let first = source.read_into(0, FIRST_BYTES as usize, Vec::new());
    let (metadata, first) = futures::try_join!(source.metadata(), first).map_err(explain)?;
    if metadata.is_directory() {
        return Err(is_directory());
    }
    if order.overwrite == Overwrite::Replace {
        clash::refuse_itself(job, &metadata, order.places).await?;
    }
    order.progress.expect(metadata.size);
    let options = CreateOptions {
        overwrite: order.overwrite,
        parents: true,
        mode: metadata.mode.map(|mode| mode & 0o777 & !order.umask),
        size_hint: Some(metadata.size),
        ..CreateOptions::default()
    };
    let target = job.to.store.create(caller, &job.to.path, options).await?;
    let moved = async {
        put(&*target, 0, first, metadata.size.min(FIRST_BYTES), order).await?;
        // Given back before more is asked for: no file holds room while it waits for room.
        drop(room);
        move_rest(&*source, &*target, metadata.size, order).await
    };
    if let Err(error) = moved.await {
        // The first error is the one to tell; what cannot be removed now is removed when the store is opened again.
        let _ = target.abort().await;
        return Err(error);
    }
    commit(job, order, &metadata, &*target).await
}

async fn move_rest(source: &dyn ReadHandle, target: &dyn WriteHandle, size: u64, order: &Order<'_>) -> Result<()> {
    let offsets = (FIRST_BYTES..size).step_by(PIECE_BYTES as usize).map(Ok);
    stream::iter(offsets)
        .try_for_each_concurrent(PIECES, |offset| async move {
            let length = PIECE_BYTES.min(size - offset);
            let _room = order.window.room(length).await;
            let piece = source.read_into(offset, length as usize, Vec::with_capacity(length as usize)).await?;
            put(target, offset, piece, length, order).await
        })
        .await
}

async fn put(target: &dyn WriteHandle, offset: u64, piece: Vec<u8>, length: u64, order: &Order<'_>) -> Result<()> {
    if piece.len() as u64 != length {
        return Err(Error::new(Fault::Changed, "its size changed while it was read"));
    }
    if length > 0 {
        target.write(offset, Bytes::from(piece)).await?;
        order.progress.moved(length);
    }
    Ok(())
}

async fn commit(job: &Job, order: &Order<'_>, metadata: &Metadata, target: &dyn WriteHandle) -> Result<Copied> {
    let mut digests = metadata.digests.clone();
    if let Some(algorithm) = order.checksum
        && digests.get(algorithm).is_none()
    {
        digests.insert(job.from.store.digest(&order.places.caller, &job.from.path, algorithm, &|_| {}).await?);
    }
    // A storage that sets no times says when the copy was made.
    let mtime_ns = metadata.mtime_ns.filter(|_| job.to.store.capabilities().set_mtime);
    let expected = Expectation { size: Some(metadata.size), digests: digests.clone(), mtime_ns };
    let mut arrived = target.commit(expected).await.map_err(|error| error.at(&job.to.path))?;
    if let Some(promised) = order.checksum.and_then(|algorithm| digests.get(algorithm))
        && arrived.digests.get(promised.algorithm()).is_none()
    {
        arrived.digests.insert(insist(job, order, &promised).await?);
    }
    let mut verified = Digests::default();
    for digest in digests.iter().filter(|digest| agrees(digest, &arrived.digests)) {
        verified.insert(*digest);
    }
    Ok(Copied { bytes: metadata.size, verified })
}

/// Compares a digest that the storage did not compare when it took the file: the file is read for it. Unless it is the right one, the file
/// goes away.
async fn insist(job: &Job, order: &Order<'_>, promised: &Digest) -> Result<Digest> {
    let (store, caller) = (&job.to.store, &order.places.caller);
    let error = match store.digest(caller, &job.to.path, promised.algorithm(), &|_| {}).await {
        Ok(found) if found == *promised => return Ok(found),
        Ok(found) => {
            Error::new(Fault::ChecksumMismatch, format!("it arrived with {found:#}, {promised:#} was promised"))
        }
        Err(error) => error,
    };
    if let Err(error) = store.remove_file(caller, &job.to.path).await {
        tracing::warn!(path = %job.to, %error, "a file that is not what was promised could not be removed");
    }
    Err(error.at(&job.to.path))
}

fn agrees(digest: &Digest, others: &Digests) -> bool {
    others.get(digest.algorithm()).is_some_and(|other| other == *digest)
}

impl Window {
    /// Room for `bytes` in flight, once there is.
    pub(super) async fn room(&self, bytes: u64) -> tokio::sync::OwnedSemaphorePermit {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(WINDOW_BYTES as u32);
        Arc::clone(&self.free).acquire_many_owned(bytes).await.expect("the semaphore is never closed")
    }
}
