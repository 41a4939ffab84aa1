//! Copies from and to pipes: in order, with as many bytes in flight as the window permits.
//!
//! A pipe cannot be read twice, so a copy from a pipe is not resumed. Data written to a pipe cannot be revoked: a
//! checksum mismatch is reported after the whole file was written.

use std::pin::pin;

use bytes::Bytes;
use futures::{Stream, StreamExt as _, TryStreamExt as _, stream, try_join};
use tokio::{io::AsyncRead, sync::mpsc};
use towpath_proto::checksum::{Digests, Hasher};
use towpath_store::{
    ContentStream, CreateOptions, Error, Expectation, Metadata, OpenOptions, ReadHandle, Result,
    sys::clock::{self, Instant},
};

use super::Mover;
use crate::{
    CopiedFile, DigestOrigin, Route, StoreLocation, VerifiedDigest,
    context::{FILE_BYTES, FIRST_BYTES},
    extents,
    file::{PIECE_BYTES, resized},
    stage::{Stage, StageGuard},
    unsized_source::{COMPUTED, verify, warn_unless_proven, write_all},
    verified_digest::verified,
    window::{Permit, Priority},
};

/// A piece of a file, with its permit until it is written.
struct Piece<'a> {
    data: Bytes,
    permit: Permit,
    stage: StageGuard<'a>,
}

impl Mover {
    /// Copies `input` to the file `to`. Nothing is visible unless all of it arrived; local and towpath destinations
    /// verify the CRC32C computed here. Dropping the future removes the written data.
    ///
    /// # Errors
    /// Errors of the store; `Io` if the input cannot be read.
    pub async fn fill(&self, input: impl AsyncRead + Unpin, to: &StoreLocation) -> Result<CopiedFile> {
        let start = clock::now();
        self.load_path_metrics("", to.at()).await;
        self.note_ends([false, to.is_remote()]);
        let opening = self.context.stages.enter(Stage::Open, FILE_BYTES);
        let digests = [COMPUTED].into_iter().collect();
        let options = CreateOptions {
            overwrite: self.context.options.overwrite,
            parents: true,
            digests,
            ..CreateOptions::default()
        };
        let target = to.store.create(&to.caller, &to.path, options).await?;
        drop(opening);
        // The size is unknown until the input ends.
        let list = self.context.progress.list();
        let part = self.context.progress.find(None);
        let mut passed = Hasher::new(digests);
        if let Err(error) = write_all(&self.context, input, &*target, &mut passed, &part).await {
            // Only the first error is reported.
            let _ = target.abort().await;
            return Err(error.at(&to.path));
        }
        drop(list);
        let (bytes, computed) = (passed.bytes(), passed.finish());
        let _committing = self.context.stages.enter(Stage::Commit, FILE_BYTES);
        // Other destinations would read the whole file again to verify it.
        let promised = if to.checks_on_the_way() { computed.clone() } else { Digests::default() };
        let expected = Expectation { size: Some(bytes), digests: promised, mtime_ns: None };
        let arrived = target.commit(expected).await.map_err(|error| error.at(&to.path))?;
        let destination = if to.checks_on_the_way() { DigestOrigin::Written } else { DigestOrigin::Reported };
        let verified = verified((&computed, |_| DigestOrigin::Streamed), (&arrived.digests, |_| destination));
        Ok(self.passed(start, bytes, verified))
    }

    /// Passes the file `from` to `put` in order, piece by piece, while later pieces are read.
    ///
    /// # Errors
    /// Errors of the store and of `put`; `Changed` if the file changed, and `ChecksumMismatch` if the data do not match
    /// the digests of the source.
    pub async fn drain<E: From<Error>>(
        &self,
        from: &StoreLocation,
        mut put: impl AsyncFnMut(Bytes) -> Result<(), E>,
    ) -> Result<CopiedFile, E> {
        let start = clock::now();
        self.load_path_metrics(from.at(), "").await;
        self.note_ends([from.is_remote(), false]);
        let permit = self.context.acquire(FIRST_BYTES, Priority::File).await;
        let mut stage = self.context.stages.enter(Stage::Open, FIRST_BYTES);
        // With page checksums, if available: corruption that they detect must not reach the pipe.
        let source = from.store.open(&from.caller, &from.path, OpenOptions::default()).await?;
        let (metadata, first) = match try_join!(source.metadata(), source.read(0, FIRST_BYTES as usize)) {
            Ok(begun) => begun,
            Err(error) => {
                let stream = ContentStream::instead_of(error, &*source).await?;
                drop((permit, stage));
                return self.drain_stream(from, stream, put).await;
            }
        };
        let Metadata { size, digests: promised, .. } = metadata;
        if first.len() as u64 > size {
            return Err(resized().at(&from.path).into());
        }
        self.context.limit.pass(first.len() as u64).await;
        stage.pass(Stage::Write);
        let part = self.context.progress.find(Some(size));
        let mut passed = Hasher::new(promised.algorithms());
        // Unbounded: each piece holds its permit.
        let (sender, mut arrived) = mpsc::unbounded_channel();
        let reading = async {
            let sender = sender;
            let mut rest = pin!(self.rest_of(&*source, size, first.len() as u64));
            let mut next = Some(Piece { data: first, permit, stage });
            while let Some(piece) = next {
                if sender.send(piece).is_err() {
                    break;
                }
                next = rest.try_next().await.map_err(|error| error.at(&from.path))?;
            }
            Ok(())
        };
        let putting = async {
            while let Some(Piece { data, permit, stage: _stage }) = arrived.recv().await {
                let length = data.len() as u64;
                passed.update(&data);
                put(data).await?;
                part.transferred(length);
                permit.complete();
            }
            Ok::<_, E>(())
        };
        try_join!(reading, putting)?;
        if passed.bytes() != size {
            return Err(resized().at(&from.path).into());
        }
        if from.is_remote() && promised.is_empty() {
            // If the file is modified in place, its pieces may be of two versions: check at least that the size is
            // unchanged.
            if !source.read(size, 1).await?.is_empty() {
                return Err(resized().at(&from.path).into());
            }
        }
        let computed = passed.finish();
        verify(&computed, &promised, from)?;
        Ok(self.passed(start, size, verified_digests(&promised, &computed)))
    }

    /// Passes a file of unknown length to `put` as it arrives.
    async fn drain_stream<E: From<Error>>(
        &self,
        from: &StoreLocation,
        stream: ContentStream,
        mut put: impl AsyncFnMut(Bytes) -> Result<(), E>,
    ) -> Result<CopiedFile, E> {
        let start = clock::now();
        let has_proven_end = stream.has_proven_end();
        let ContentStream { mut pieces, metadata: Metadata { digests: promised, .. }, .. } = stream;
        let part = self.context.progress.find(None);
        let mut passed = Hasher::new(promised.algorithms());
        while let Some(piece) = pieces.try_next().await? {
            self.context.limit.pass(piece.len() as u64).await;
            passed.update(&piece);
            part.expect(piece.len() as u64);
            part.transferred(piece.len() as u64);
            put(piece).await?;
        }
        let (bytes, computed) = (passed.bytes(), passed.finish());
        verify(&computed, &promised, from)?;
        warn_unless_proven(from, has_proven_end);
        Ok(self.passed(start, bytes, verified_digests(&promised, &computed)))
    }

    /// Reads a file of `size` bytes in order, starting at `first_bytes`.
    fn rest_of<'a>(
        &'a self,
        source: &'a dyn ReadHandle,
        size: u64,
        first_bytes: u64,
    ) -> impl Stream<Item = Result<Piece<'a>>> {
        stream::iter(extents::pieces(extents::missing(size, &[]), first_bytes, || PIECE_BYTES))
            .then(move |range| async move {
                let length = range.end - range.start;
                let permit = self.context.acquire(length, Priority::Piece).await;
                self.context.limit.pass(length).await;
                (range, permit)
            })
            .map(move |(range, permit)| async move {
                let length = range.end - range.start;
                let mut stage = self.context.stages.enter(Stage::Read, length);
                let data = source.read(range.start, length as usize).await?;
                // The piece now waits to be written.
                stage.pass(Stage::Write);
                if data.len() as u64 == length { Ok(Piece { data, permit, stage }) } else { Err(resized()) }
            })
            .buffered(usize::MAX)
    }

    /// Records the end of a file with the digests of both ends.
    fn passed(&self, start: Instant, bytes: u64, verified: Vec<VerifiedDigest>) -> CopiedFile {
        self.note_end();
        if !verified.is_empty() {
            self.context.progress.verified(bytes);
        }
        CopiedFile { bytes, verified, route: Route::Streamed, took: start.elapsed() }
    }
}

/// Returns the verified digests of a file that was written to a pipe.
fn verified_digests(promised: &Digests, computed: &Digests) -> Vec<VerifiedDigest> {
    verified((promised, |_| DigestOrigin::Reported), (computed, |_| DigestOrigin::Streamed))
}

#[cfg(test)]
mod tests;
