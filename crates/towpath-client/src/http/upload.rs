//! New files: a PUT whose body is streamed while the pieces arrive.
//!
//! HTTP has no way to write at an offset, so pieces are sent in order; a piece that arrives early waits for those
//! before it. A small file is sent when it is complete, with its digests and its modification time in the header. The
//! transfer of a larger one starts early; its last piece is held back until `commit` has verified the expected size and
//! digests, so that no server shows a file that its writer aborted.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::{sync::watch, time::timeout};
use tokio_util::task::AbortOnDropHandle;
use towpath_proto::checksum::{Algorithms, Digests, Extent, Hasher};
use towpath_store::{Error, Expectation, Fault, FileKind, Kind, Metadata, Overwrite, Result, WriteHandle};

use super::{body_channel::BodyChannel, put::Put};

/// Bytes to buffer before a PUT starts: files up to this size are sent in one request that can be retried.
const GATHERED_BYTES: usize = 1 << 20;

/// A file being written.
#[derive(Debug)]
pub(super) struct Upload {
    put: Arc<Put>,
    state: Mutex<State>,
    /// The next offset; `u64::MAX` when no more data are accepted.
    next: watch::Sender<u64>,
}

#[derive(Debug)]
struct State {
    hasher: Hasher,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Gathering { pieces: Vec<Bytes> },
    Sending(PutInFlight),
    Finished,
}

/// A PUT in flight.
#[derive(Debug)]
struct PutInFlight {
    body_channel: Arc<BodyChannel>,
    task: AbortOnDropHandle<Result<Metadata>>,
}

/// Whether a piece was accepted.
enum BufferOutcome {
    Yes,
    /// The buffer has no space.
    Full(Arc<BodyChannel>),
}

impl Upload {
    /// Creates an upload without sending anything.
    pub(super) fn new(put: Put) -> Self {
        let algorithms = Algorithms::DEFAULT.union(put.options.digests);
        let state = State { hasher: Hasher::new(algorithms), stage: Stage::Gathering { pieces: Vec::new() } };
        Self { put: Arc::new(put), state: Mutex::new(state), next: watch::Sender::new(0) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `offset` is next.
    ///
    /// # Errors
    /// `InvalidArgument` if that cannot happen, or does not happen for very long although all earlier pieces that
    /// arrived have been sent: their source may be slow.
    async fn turn(&self, offset: u64) -> Result<()> {
        let mut next = self.next.subscribe();
        loop {
            let now = *next.borrow_and_update();
            match now {
                u64::MAX => return Err(finished()),
                _ if now == offset => return Ok(()),
                _ if now > offset => return Err(self.cannot_go_back(now, offset)),
                _ => {}
            }
            if timeout(self.put.store.site.options.patience, next.changed()).await.is_ok() {
                continue;
            }
            if *self.next.borrow() == now && self.waits_for_writer() {
                let message = format!(
                    "HTTP uploads are written in order: the bytes at {now} are missing before those at {offset}"
                );
                return Err(Error::new(Fault::InvalidArgument, message));
            }
        }
    }

    fn cannot_go_back(&self, now: u64, offset: u64) -> Error {
        let message = format!("HTTP uploads are written in order: {now} bytes are sent, including those at {offset}");
        Error::new(Fault::InvalidArgument, message)
    }

    fn waits_for_writer(&self) -> bool {
        match &self.state().stage {
            Stage::Gathering { .. } | Stage::Finished => true,
            Stage::Sending(sending) => sending.body_channel.waits_for_writer(),
        }
    }

    /// Accepts the next piece. Does not wait, so that a cancelled write has either happened or not.
    fn accept(&self, offset: u64, data: &Bytes) -> Result<BufferOutcome> {
        let mut state = self.state();
        if *self.next.borrow() != offset {
            return Err(self.cannot_go_back(*self.next.borrow(), offset));
        }
        let end = offset.checked_add(data.len() as u64).filter(|end| *end < u64::MAX);
        let end = end.ok_or_else(|| Error::new(Fault::TooLarge, "the maximum file size is exceeded"))?;
        if let Stage::Sending(sending) = &state.stage
            && sending.body_channel.length().is_some_and(|length| end > length)
        {
            return Err(Error::new(
                Fault::InvalidArgument,
                "the file is longer than the size declared at its creation",
            ));
        }
        match &mut state.stage {
            Stage::Finished => return Err(finished()),
            Stage::Gathering { pieces } => pieces.push(data.clone()),
            Stage::Sending(sending) => {
                if !sending.body_channel.offer(data)? {
                    return Ok(BufferOutcome::Full(Arc::clone(&sending.body_channel)));
                }
            }
        }
        state.hasher.update(data);
        if end > GATHERED_BYTES as u64
            && let Stage::Gathering { pieces } = &mut state.stage
        {
            let pieces = std::mem::take(pieces);
            // A file that is longer than its announced size is sent without a length.
            let length = self.put.options.size_hint.filter(|size| *size >= end);
            state.stage = Stage::Sending(self.start(BodyChannel::new(length, pieces)));
        }
        drop(state);
        self.next.send_replace(end);
        Ok(BufferOutcome::Yes)
    }

    fn start(&self, body_channel: BodyChannel) -> PutInFlight {
        let (put, body_channel) = (Arc::clone(&self.put), Arc::new(body_channel));
        let sent = Arc::clone(&body_channel);
        let task = tokio::spawn(async move {
            let outcome = put.stream(&sent).await;
            // Later writes fail with the error of the upload.
            sent.fail(outcome.as_ref().err().cloned().unwrap_or_else(finished));
            outcome
        });
        PutInFlight { body_channel, task: AbortOnDropHandle::new(task) }
    }

    /// Takes the state, so that no more data can be written; returns `None` if that was done before.
    fn finish(&self) -> Option<(Stage, Hasher)> {
        let mut state = self.state();
        let stage = std::mem::replace(&mut state.stage, Stage::Finished);
        let hasher = std::mem::replace(&mut state.hasher, Hasher::new(Algorithms::NONE));
        drop(state);
        self.next.send_replace(u64::MAX);
        (!matches!(stage, Stage::Finished)).then_some((stage, hasher))
    }

    async fn send(&self, stage: Stage, digests: &Digests, expected: &Expectation, size: u64) -> Result<Metadata> {
        match stage {
            Stage::Gathering { pieces } => {
                let whole = match <[Bytes; 1]>::try_from(pieces) {
                    Ok([only]) => only,
                    Err(pieces) => Bytes::from(pieces.concat()),
                };
                self.put.at_once(whole, digests, expected.mtime_ns).await
            }
            Stage::Sending(sending) => {
                if self.put.options.size_hint.is_some_and(|promised| promised != size)
                    && sending.body_channel.length().is_some()
                {
                    return Err(Error::new(
                        Fault::Truncated,
                        "the file is shorter than the size declared at its creation",
                    ));
                }
                sending.body_channel.complete();
                let outcome = sending.task.await;
                outcome.unwrap_or_else(|error| {
                    Err(Error::new(Fault::Internal, format!("the upload's task ended: {error}")))
                })
            }
            Stage::Finished => Err(finished()),
        }
    }
}

fn finished() -> Error {
    Error::new(Fault::HandleNotOpen, "the upload is finished")
}

/// Removes the remains of a failed upload, even if its future is dropped.
#[derive(Debug)]
struct CleanupGuard {
    put: Arc<Put>,
    /// Number of bytes that the server may have received; `None` if it received none, or is to keep them.
    sent_bytes: Option<u64>,
}

impl CleanupGuard {
    /// Ends the requests of an aborted upload.
    fn after(put: &Arc<Put>, stage: Stage) -> Self {
        let sent_bytes = match stage {
            Stage::Sending(sending) => Some(sending.body_channel.close()),
            Stage::Gathering { .. } | Stage::Finished => None,
        };
        Self { put: Arc::clone(put), sent_bytes }
    }

    async fn run(mut self) {
        if let Some(bytes) = self.sent_bytes {
            self.put.clean_up(bytes).await;
            self.sent_bytes = None;
        }
    }

    /// Disables the clean-up.
    fn spare(mut self) {
        self.sent_bytes = None;
    }
}

impl Drop for CleanupGuard {
    fn drop(&mut self) {
        let Some(bytes) = self.sent_bytes else { return };
        // Without a runtime no request is possible.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let put = Arc::clone(&self.put);
            let background = put.store.site.background.clone();
            background.spawn_on(async move { put.clean_up(bytes).await }, &runtime);
        }
    }
}

/// Returns whether the server rejected the upload itself, so that the file with this name is not from it.
fn is_refusal(error: &Error) -> bool {
    matches!(error.kind(), Kind::NotFound | Kind::Denied | Kind::Invalid | Kind::Conflict)
        && error.fault() != Fault::NoSpace
}

#[async_trait]
impl WriteHandle for Upload {
    async fn write(&self, offset: u64, data: Bytes) -> Result<()> {
        let located = |error: Error| error.at(&self.put.path);
        if offset.checked_add(data.len() as u64).is_none_or(|end| end > i64::MAX as u64) {
            return Err(located(Error::new(Fault::TooLarge, "the maximum file size is exceeded")));
        }
        if data.is_empty() {
            return if matches!(self.state().stage, Stage::Finished) { Err(located(finished())) } else { Ok(()) };
        }
        self.turn(offset).await.map_err(located)?;
        loop {
            match self.accept(offset, &data).map_err(located)? {
                BufferOutcome::Yes => return Ok(()),
                BufferOutcome::Full(body_channel) => body_channel.room(data.len()).await,
            }
        }
    }

    async fn present(&self) -> Result<Vec<Extent>> {
        Ok(Vec::new())
    }

    async fn read(&self, _offset: u64, _length: usize) -> Result<Bytes> {
        Err(Error::new(Fault::Unsupported, "HTTP uploads cannot be read back while they are written")
            .at(&self.put.path))
    }

    async fn set_size(&self, size: u64) -> Result<()> {
        let now = *self.next.borrow();
        let fault = match () {
            () if now == u64::MAX => return Err(finished().at(&self.put.path)),
            () if now == size => return Ok(()),
            () if size > i64::MAX as u64 => Fault::TooLarge,
            () => Fault::Unsupported,
        };
        Err(Error::new(fault, "the size of an HTTP upload cannot be set").at(&self.put.path))
    }

    async fn sync(&self) -> Result<()> {
        Ok(())
    }

    async fn metadata(&self) -> Result<Metadata> {
        match *self.next.borrow() {
            u64::MAX => Err(finished().at(&self.put.path)),
            size => Ok(Metadata::new(FileKind::File, size)),
        }
    }

    async fn commit(&self, expected: Expectation) -> Result<Metadata> {
        let located = |error: Error| error.at(&self.put.path);
        let Some((stage, hasher)) = self.finish() else { return Err(located(finished())) };
        let (size, digests) = (hasher.bytes(), hasher.finish());
        if let Err(error) = expected.check_size(size).and_then(|()| expected.check_digests(&digests)) {
            CleanupGuard::after(&self.put, stage).run().await;
            return Err(located(error));
        }
        let cleanup_guard = CleanupGuard { put: Arc::clone(&self.put), sent_bytes: Some(size) };
        let sent = self.send(stage, &digests, &expected, size).await;
        let (outcome, is_put) = match sent {
            Ok(reported) => (self.put.verify(reported, size, &digests, &expected).await, true),
            Err(error) => (Err(error), false),
        };
        match &outcome {
            Ok(_) => cleanup_guard.spare(),
            // A file of another client is kept.
            Err(error) if is_put && error.fault() != Fault::Changed => {
                self.put.remove().await;
                cleanup_guard.spare();
            }
            Err(error) if is_refusal(error) => cleanup_guard.spare(),
            Err(_) => cleanup_guard.run().await,
        }
        outcome.map_err(located)
    }

    async fn abort(&self) -> Result<()> {
        if let Some((stage, _)) = self.finish() {
            CleanupGuard::after(&self.put, stage).run().await;
        }
        Ok(())
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let Some((stage, _)) = self.finish() {
            drop(CleanupGuard::after(&self.put, stage));
        }
    }
}

impl Put {
    /// Returns whether an existing file is an error.
    pub(super) fn only_new(&self) -> bool {
        self.options.overwrite == Overwrite::Refuse
    }
}
