//! A file made of what a pipe gives, and a file given to one: in order, with as much in flight as the window has room for.
//!
//! A pipe gives nothing twice, so that nothing goes on where it ended. What was given to one cannot be taken back: that it is not what the
//! source promised is told when all of it has passed.

use std::{io, pin::pin};

use bytes::Bytes;
use futures::{Stream, StreamExt as _, TryStreamExt as _, stream, try_join};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    sync::mpsc,
};
use tokio_util::io::StreamReader;
use towpath_proto::checksum::{Agreement, Algorithm, Digest, Digests, Hasher};
use towpath_store::{
    Blame, ContentStream, CreateOptions, Error, Expectation, Fault, Metadata, OpenOptions, ReadHandle, Result,
    WriteHandle,
    sys::clock::{self, Instant},
};

use super::{FILE_BYTES, Mover};
use crate::{
    Copied, DigestOrigin, Job, Part, Place, Route, Verified, extents,
    file::{FIRST_BYTES, PIECE_BYTES, ask_destination, ask_source, resized},
    stage::{Stage, StageGuard},
    verified::verified,
    window::{Permit, Priority},
};

/// What is computed of bytes that nobody has promised anything of.
const COMPUTED: Algorithm = Algorithm::Crc32c;

/// A piece of a file, with what it holds until it has been given away.
struct Piece<'a> {
    data: Bytes,
    permit: Permit,
    stage: StageGuard<'a>,
}

impl Mover {
    /// Makes the file `to` of what `input` gives until its end. Nothing is visible unless all of it arrived; a destination on this machine, and a towpath server,
    /// compare it with the CRC32C of what passed here. Dropping the future leaves nothing.
    ///
    /// # Errors
    /// Those of the store; `Io` if the input cannot be read.
    pub async fn fill(&self, input: impl AsyncRead + Unpin, to: &Place) -> Result<Copied> {
        let start = clock::now();
        self.recall("", to.at()).await;
        self.note_ends([false, to.is_remote()]);
        let opening = self.stages.enter(Stage::Open, FILE_BYTES);
        let digests = [COMPUTED].into_iter().collect();
        let options =
            CreateOptions { overwrite: self.options.overwrite, parents: true, digests, ..CreateOptions::default() };
        let target = to.store.create(&to.caller, &to.path, options).await?;
        drop(opening);
        // As long as there is input nobody knows how much more will come.
        let list = self.progress.list();
        let part = self.progress.find(None);
        let mut passed = Hasher::new(digests);
        if let Err(error) = self.write_all(input, &*target, &mut passed, &part).await {
            // The first error is the one to tell.
            let _ = target.abort().await;
            return Err(error.at(&to.path));
        }
        drop(list);
        let (bytes, computed) = (passed.bytes(), passed.finish());
        let _committing = self.stages.enter(Stage::Commit, FILE_BYTES);
        // Others would read the file once more for it, or must not.
        let promised = if to.checks_on_the_way() { computed.clone() } else { Digests::default() };
        let expected = Expectation { size: Some(bytes), digests: promised, mtime_ns: None };
        let arrived = target.commit(expected).await.map_err(|error| error.at(&to.path))?;
        let destination = if to.checks_on_the_way() { DigestOrigin::Written } else { DigestOrigin::Reported };
        let verified = verified((&computed, |_| DigestOrigin::Streamed), (&arrived.digests, |_| destination));
        Ok(self.passed(start, bytes, verified))
    }

    /// Makes the file of `job` of a source whose length is not known. Nothing is visible unless the source came to its end, and is what it was said to be.
    /// A digest that the user wants to be compared is computed by reading the source once more; where its end cannot be proven, that fails.
    ///
    /// # Errors
    /// Those of both stores; `ChecksumMismatch`.
    pub(crate) async fn copy_stream(&self, job: &Job, part: &Part, stream: ContentStream) -> Result<Copied> {
        let Job { from, to, .. } = job;
        let start = clock::now();
        let opening = self.stages.enter(Stage::Open, FILE_BYTES);
        let has_proven_end = stream.has_proven_end();
        let ContentStream { pieces, digests: mut promised, .. } = stream;
        // The destination computes them too as the pieces come, and need not read the file for them.
        let wanted = [COMPUTED].into_iter().chain(self.options.checksum);
        let digests = wanted.chain(promised.algorithms().iter()).collect();
        let options =
            CreateOptions { overwrite: self.options.overwrite, parents: true, digests, ..CreateOptions::default() };
        let target = to.store.create(&to.caller, &to.path, options).await?;
        drop(opening);
        let mut passed = Hasher::new(digests);
        let input = StreamReader::new(pieces.map_err(io::Error::other));
        if let Err(error) = self.write_all(input, &*target, &mut passed, part).await {
            let _ = target.abort().await;
            return Err(error);
        }
        let (bytes, computed) = (passed.bytes(), passed.finish());
        let asked = ask_source(job, self, FILE_BYTES, &mut promised).await;
        let asked = match asked.and_then(|asked| keeps(&computed, &promised, from).map(|()| asked)) {
            Ok(asked) => asked,
            Err(error) => {
                let _ = target.abort().await;
                return Err(error);
            }
        };
        warn_unless_proven(from, has_proven_end);
        let committing = self.stages.enter(Stage::Commit, FILE_BYTES);
        let arrives = if to.checks_on_the_way() { computed.clone() } else { Digests::default() };
        let expected = Expectation { size: Some(bytes), digests: arrives, mtime_ns: None };
        let mut arrived = target.commit(expected).await.map_err(|error| error.at(&to.path))?.digests;
        drop(committing);
        let read_back = ask_destination(job, self, FILE_BYTES, &promised, &mut arrived).await?;
        // What the source did not promise is not verified, however well it was written.
        let source =
            |digest: &Digest| if asked == Some(*digest) { DigestOrigin::Computed } else { DigestOrigin::Reported };
        let destination = |digest: &Digest| match read_back {
            Some(read_back) if read_back == *digest => DigestOrigin::Computed,
            _ if to.checks_on_the_way() => DigestOrigin::Written,
            _ => DigestOrigin::Streamed,
        };
        let verified = verified((&promised, source), (&computed, destination));
        Ok(Copied { bytes, verified, route: Route::Streamed, took: start.elapsed() })
    }

    async fn write_all(
        &self,
        input: impl AsyncRead + Unpin,
        target: &dyn WriteHandle,
        passed: &mut Hasher,
        part: &Part,
    ) -> Result<()> {
        stream::try_unfold(input, |mut input| async move {
            let permit = self.acquire(PIECE_BYTES, Priority::Piece).await;
            let stage = self.stages.enter(Stage::Read, PIECE_BYTES);
            let piece = read_piece(&mut input).await.map_err(unreadable)?;
            self.limit.pass(piece.len() as u64).await;
            Ok((!piece.is_empty()).then_some(((piece, permit, stage), input)))
        })
        .try_for_each_concurrent(None, |(piece, permit, mut stage)| {
            let (offset, length) = (passed.bytes(), piece.len() as u64);
            passed.update(&piece);
            async move {
                stage.pass(Stage::Write);
                target.write(offset, piece).await?;
                part.expect(length);
                part.moved(length);
                permit.complete();
                Ok(())
            }
        })
        .await
    }

    /// Gives the file `from` to `put`, piece after piece in order; the next ones come meanwhile.
    ///
    /// # Errors
    /// Those of the store and of `put`; `Changed` if the file did, and `ChecksumMismatch` if what was given is not what the source promises.
    pub async fn drain<E: From<Error>>(
        &self,
        from: &Place,
        mut put: impl AsyncFnMut(Bytes) -> Result<(), E>,
    ) -> Result<Copied, E> {
        let start = clock::now();
        self.recall(from.at(), "").await;
        self.note_ends([from.is_remote(), false]);
        let permit = self.acquire(FIRST_BYTES, Priority::File).await;
        let mut stage = self.stages.enter(Stage::Open, FIRST_BYTES);
        // With the checksums of its pages, if it has them: who reads the pipe gets nothing that is known to be damaged.
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
        self.limit.pass(first.len() as u64).await;
        stage.pass(Stage::Write);
        let part = self.progress.find(Some(size));
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
                part.moved(length);
                permit.complete();
            }
            Ok::<_, E>(())
        };
        try_join!(reading, putting)?;
        if passed.bytes() != size {
            return Err(resized().at(&from.path).into());
        }
        if from.is_remote() && promised.is_empty() {
            // Pieces of a file that is written in place may be of two versions: it is asked whether it is still the one that was opened.
            if !source.read(size, 1).await?.is_empty() {
                return Err(resized().at(&from.path).into());
            }
        }
        let computed = passed.finish();
        keeps(&computed, &promised, from)?;
        Ok(self.passed(start, size, taken(&promised, &computed)))
    }

    /// Gives a file of unknown length to `put` as it comes.
    async fn drain_stream<E: From<Error>>(
        &self,
        from: &Place,
        stream: ContentStream,
        mut put: impl AsyncFnMut(Bytes) -> Result<(), E>,
    ) -> Result<Copied, E> {
        let start = clock::now();
        let has_proven_end = stream.has_proven_end();
        let ContentStream { mut pieces, digests: promised, .. } = stream;
        let part = self.progress.find(None);
        let mut passed = Hasher::new(promised.algorithms());
        while let Some(piece) = pieces.try_next().await? {
            self.limit.pass(piece.len() as u64).await;
            passed.update(&piece);
            part.expect(piece.len() as u64);
            part.moved(piece.len() as u64);
            put(piece).await?;
        }
        let (bytes, computed) = (passed.bytes(), passed.finish());
        keeps(&computed, &promised, from)?;
        warn_unless_proven(from, has_proven_end);
        Ok(self.passed(start, bytes, taken(&promised, &computed)))
    }

    /// What a file of `size` has from `first_bytes` on, in order.
    fn rest_of<'a>(
        &'a self,
        source: &'a dyn ReadHandle,
        size: u64,
        first_bytes: u64,
    ) -> impl Stream<Item = Result<Piece<'a>>> {
        stream::iter(extents::pieces(extents::missing(size, &[]), first_bytes, || PIECE_BYTES))
            .then(move |range| async move {
                let length = range.end - range.start;
                let permit = self.acquire(length, Priority::Piece).await;
                self.limit.pass(length).await;
                (range, permit)
            })
            .map(move |(range, permit)| async move {
                let length = range.end - range.start;
                let mut stage = self.stages.enter(Stage::Read, length);
                let data = source.read(range.start, length as usize).await?;
                // From now on it waits for its turn.
                stage.pass(Stage::Write);
                if data.len() as u64 == length { Ok(Piece { data, permit, stage }) } else { Err(resized()) }
            })
            .buffered(usize::MAX)
    }

    /// A file has passed, with the digests that both ends have.
    fn passed(&self, start: Instant, bytes: u64, verified: Vec<Verified>) -> Copied {
        self.note_end();
        if !verified.is_empty() {
            self.progress.verified(bytes);
        }
        Copied { bytes, verified, route: Route::Streamed, took: start.elapsed() }
    }
}

/// By what a file is verified that went to a pipe.
fn taken(promised: &Digests, computed: &Digests) -> Vec<Verified> {
    verified((promised, |_| DigestOrigin::Reported), (computed, |_| DigestOrigin::Streamed))
}

/// The next piece, full unless the input ends; nothing at its end.
async fn read_piece(input: &mut (impl AsyncRead + Unpin)) -> io::Result<Bytes> {
    let mut piece = Vec::with_capacity(PIECE_BYTES as usize);
    while (piece.len() as u64) < PIECE_BYTES && input.read_buf(&mut piece).await? > 0 {}
    Ok(piece.into())
}

fn unreadable(error: io::Error) -> Error {
    // A store's error has passed through as it was.
    match error.downcast::<Error>() {
        Ok(error) => error,
        Err(error) => Error::new(Fault::Io, format!("what is to be written there cannot be read: {error}")),
    }
}

/// Compares what came with what the source `promised`.
fn keeps(computed: &Digests, promised: &Digests, from: &Place) -> Result<()> {
    let Agreement::Different(algorithm) = computed.compare(promised) else { return Ok(()) };
    let message = format!("what came from there is not what it promises: its {algorithm} is another one");
    Err(Error::new(Fault::ChecksumMismatch, message).blamed_on(blame(from)).at(&from.path))
}

/// Warns of a source that may have been cut off without a sign of it.
fn warn_unless_proven(from: &Place, has_proven_end: bool) {
    if !has_proven_end {
        tracing::warn!(
            path = %from,
            "the server gives no length and ends the file by closing the connection: whether it is complete cannot be verified"
        );
    }
}

fn blame(from: &Place) -> Blame {
    if from.is_remote() { Blame::Network } else { Blame::Storage }
}

#[cfg(test)]
mod tests;
