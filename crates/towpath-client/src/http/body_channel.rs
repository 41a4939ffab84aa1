//! A bounded channel from a writer to the body of a PUT in flight, with backpressure.
//!
//! The last piece is held back until [`BodyChannel::complete`]: a server must not receive the whole upload before the
//! writer has verified it and commits. Nothing flows before [`BodyChannel::go`], because a server may refuse or
//! redirect an upload after its header (`Expect: 100-continue`).

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use tokio::sync::Notify;
use towpath_store::{Error, Result};

/// Bytes buffered for the connection: two pieces of the mover, so that one is sent while the next is checked. A larger
/// piece is accepted when the buffer is empty.
const WAITING_BYTES: usize = 4 << 20;

/// The channel of one upload.
#[derive(Debug)]
pub(super) struct BodyChannel {
    length: Option<u64>,
    state: Mutex<State>,
    /// Notified when space is freed, and when the channel is closed.
    room: Notify,
    /// Notified when the server accepts the body (`100 Continue`).
    started: Notify,
}

#[derive(Debug, Default)]
struct State {
    pieces: VecDeque<Bytes>,
    waiting_bytes: usize,
    taken_bytes: u64,
    flows: bool,
    complete: bool,
    closed: bool,
    failed: Option<Error>,
    connection: Option<Waker>,
}

impl BodyChannel {
    /// Creates a channel for `length` bytes, if the length is known; `pieces` are its first pieces.
    pub(super) fn new(length: Option<u64>, pieces: Vec<Bytes>) -> Self {
        let waiting_bytes = pieces.iter().map(Bytes::len).sum();
        let state = State { pieces: pieces.into(), waiting_bytes, ..State::default() };
        Self { length, state: Mutex::new(state), room: Notify::new(), started: Notify::new() }
    }

    /// Returns the length of the whole body in bytes, if it is known.
    pub(super) fn length(&self) -> Option<u64> {
        self.length
    }

    /// Adds a piece if there is space; returns whether it was added. Empty pieces are dropped.
    ///
    /// # Errors
    /// The error passed to [`Self::fail`].
    pub(super) fn offer(&self, piece: &Bytes) -> Result<bool> {
        let mut state = self.state();
        if let Some(error) = &state.failed {
            return Err(error.clone());
        }
        if !has_room(&state, piece.len()) {
            return Ok(false);
        }
        if !piece.is_empty() {
            state.waiting_bytes += piece.len();
            state.pieces.push_back(piece.clone());
        }
        wake(state);
        Ok(true)
    }

    /// Waits until there is space for a piece of `bytes`.
    pub(super) async fn room(&self, bytes: usize) {
        loop {
            let mut changed = std::pin::pin!(self.room.notified());
            changed.as_mut().enable();
            if self.may_take(bytes) {
                return;
            }
            changed.await;
        }
    }

    fn may_take(&self, bytes: usize) -> bool {
        let state = self.state();
        state.closed || state.failed.is_some() || has_room(&state, bytes)
    }

    /// Ends the body: the last piece may be sent.
    pub(super) fn complete(&self) {
        let mut state = self.state();
        state.complete = true;
        wake(state);
    }

    /// Closes the channel and wakes all writers. Returns the number of bytes that the connection has taken.
    pub(super) fn close(&self) -> u64 {
        let mut state = self.state();
        state.closed = true;
        let taken_bytes = state.taken_bytes;
        drop(state);
        self.room.notify_waiters();
        taken_bytes
    }

    /// Fails the channel: writes return `error`.
    pub(super) fn fail(&self, error: Error) {
        self.state().failed.get_or_insert(error);
        self.room.notify_waiters();
    }

    /// Starts the transfer of the body, because the server accepts it.
    pub(super) fn go(&self) {
        let mut state = self.state();
        state.flows = true;
        wake(state);
        self.started.notify_one();
    }

    /// Waits for [`Self::go`].
    pub(super) async fn started(&self) {
        if !self.state().flows {
            self.started.notified().await;
        }
    }

    /// Returns the number of bytes that the connection has taken.
    pub(super) fn taken_bytes(&self) -> u64 {
        self.state().taken_bytes
    }

    /// Returns whether the connection waits for the writer: it has taken all pieces that may be sent.
    pub(super) fn waits_for_writer(&self) -> bool {
        let state = self.state();
        !state.complete && state.pieces.len() <= 1
    }

    /// Returns whether the connection has taken the whole body.
    pub(super) fn is_drained(&self) -> bool {
        let state = self.state();
        state.complete && state.pieces.is_empty()
    }

    /// Polls for the next piece to send; `None` at the end.
    pub(super) fn poll_piece(&self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let mut state = self.state();
        let may_go = state.flows && !state.closed && (state.complete || state.pieces.len() > 1);
        if !may_go {
            state.connection = Some(context.waker().clone());
            return Poll::Pending;
        }
        let piece = state.pieces.pop_front();
        let bytes = piece.as_ref().map_or(0, Bytes::len);
        state.waiting_bytes -= bytes;
        state.taken_bytes += bytes as u64;
        drop(state);
        self.room.notify_waiters();
        Poll::Ready(piece)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn has_room(state: &State, bytes: usize) -> bool {
    // One piece is always held back: a writer must not wait for space that only its own next piece can free.
    state.pieces.len() <= 1 || state.waiting_bytes + bytes <= WAITING_BYTES
}

fn wake(mut state: MutexGuard<'_, State>) {
    let waker = state.connection.take();
    drop(state);
    if let Some(waker) = waker {
        waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use towpath_store::Fault;

    use super::*;

    fn piece(bytes: usize) -> Bytes {
        vec![7; bytes].into()
    }

    async fn next(body_channel: &BodyChannel) -> Option<Bytes> {
        std::future::poll_fn(|context| body_channel.poll_piece(context)).await
    }

    #[tokio::test]
    async fn the_last_piece_waits_for_the_end() {
        let body_channel = BodyChannel::new(None, vec![piece(1), piece(2)]);
        assert!(next(&body_channel).now_or_never().is_none(), "nothing flows before the server wants it");
        body_channel.go();
        assert_eq!(next(&body_channel).await, Some(piece(1)));
        assert!(next(&body_channel).now_or_never().is_none());
        assert!(body_channel.waits_for_writer());
        body_channel.complete();
        assert_eq!(next(&body_channel).await, Some(piece(2)));
        assert_eq!(next(&body_channel).await, None);
        assert_eq!(body_channel.taken_bytes(), 3);
    }

    #[tokio::test]
    async fn a_full_conduit_makes_the_writer_wait() {
        let body_channel = BodyChannel::new(None, vec![piece(WAITING_BYTES), piece(1)]);
        body_channel.go();
        assert!(!body_channel.offer(&piece(5)).unwrap());
        assert!(body_channel.room(5).now_or_never().is_none());
        next(&body_channel).await;
        body_channel.room(5).await;
        assert!(body_channel.offer(&piece(5)).unwrap());
    }

    #[tokio::test]
    async fn nobody_waits_for_room_in_what_is_closed() {
        let body_channel = BodyChannel::new(None, vec![piece(WAITING_BYTES), piece(1)]);
        let mut waits = std::pin::pin!(body_channel.room(5));
        assert!(waits.as_mut().now_or_never().is_none());
        body_channel.close();
        waits.now_or_never().expect("it is closed");
        body_channel.room(5).now_or_never().expect("it is closed");
    }

    #[tokio::test]
    async fn writers_hear_why_nothing_is_taken() {
        let body_channel = BodyChannel::new(None, vec![piece(WAITING_BYTES), piece(1)]);
        let waits = body_channel.room(5);
        body_channel.fail(Error::new(Fault::NoSpace, "full"));
        waits.await;
        assert_eq!(body_channel.offer(&piece(5)).unwrap_err().fault(), Fault::NoSpace);
    }
}
