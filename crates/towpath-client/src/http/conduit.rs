//! From a writer to the body of a PUT that is underway, with back-pressure.
//!
//! The last piece is held back until [`Conduit::complete`]: a server must not find the upload whole before the writer has
//! checked what was promised and commits. And nothing flows before [`Conduit::go`], because a server may refuse or redirect an
//! upload by its header alone (`Expect: 100-continue`).

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use tokio::sync::Notify;
use towpath_store::{Error, Result};

/// What may wait here for the connection: two pieces of a copier, so that one is sent while the next is checked. A piece that is
/// larger goes in when nothing else is here.
const WAITING_BYTES: usize = 4 << 20;

/// What flows from a writer to a connection.
#[derive(Debug)]
pub(super) struct Conduit {
    length: Option<u64>,
    state: Mutex<State>,
    /// Told when space is freed, and when nothing more is taken.
    room: Notify,
    /// The server wants the body.
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

impl Conduit {
    /// A conduit for `length` bytes, if that is known, which starts with `pieces`.
    pub(super) fn new(length: Option<u64>, pieces: Vec<Bytes>) -> Self {
        let waiting_bytes = pieces.iter().map(Bytes::len).sum();
        let state = State { pieces: pieces.into(), waiting_bytes, ..State::default() };
        Self { length, state: Mutex::new(state), room: Notify::new(), started: Notify::new() }
    }

    /// How long the whole body will be.
    pub(super) fn length(&self) -> Option<u64> {
        self.length
    }

    /// Puts a piece in, if there is room. Empty pieces vanish.
    ///
    /// # Errors
    /// Those of [`Self::fail`].
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

    /// Waits until a piece of `bytes` may fit.
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

    /// No more pieces will come; the last one may go.
    pub(super) fn complete(&self) {
        let mut state = self.state();
        state.complete = true;
        wake(state);
    }

    /// Nothing more flows, and nobody waits for room. The bytes that the connection has taken.
    pub(super) fn close(&self) -> u64 {
        let mut state = self.state();
        state.closed = true;
        let taken_bytes = state.taken_bytes;
        drop(state);
        self.room.notify_waiters();
        taken_bytes
    }

    /// The connection takes no more; writers hear why.
    pub(super) fn fail(&self, error: Error) {
        self.state().failed.get_or_insert(error);
        self.room.notify_waiters();
    }

    /// The server wants the body.
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

    /// Bytes that the connection has taken.
    pub(super) fn taken_bytes(&self) -> u64 {
        self.state().taken_bytes
    }

    /// Whether it is the writer's turn: the connection has taken all that it may.
    pub(super) fn waits_for_writer(&self) -> bool {
        let state = self.state();
        !state.complete && state.pieces.len() <= 1
    }

    /// Whether the connection has taken everything, to the end.
    pub(super) fn is_drained(&self) -> bool {
        let state = self.state();
        state.complete && state.pieces.is_empty()
    }

    /// The next piece for the connection; none at the end.
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
    // One piece is always held back: a writer must not wait for room that only its own next piece can make.
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

    async fn next(conduit: &Conduit) -> Option<Bytes> {
        std::future::poll_fn(|context| conduit.poll_piece(context)).await
    }

    #[tokio::test]
    async fn the_last_piece_waits_for_the_end() {
        let conduit = Conduit::new(None, vec![piece(1), piece(2)]);
        assert!(next(&conduit).now_or_never().is_none(), "nothing flows before the server wants it");
        conduit.go();
        assert_eq!(next(&conduit).await, Some(piece(1)));
        assert!(next(&conduit).now_or_never().is_none());
        assert!(conduit.waits_for_writer());
        conduit.complete();
        assert_eq!(next(&conduit).await, Some(piece(2)));
        assert_eq!(next(&conduit).await, None);
        assert_eq!(conduit.taken_bytes(), 3);
    }

    #[tokio::test]
    async fn a_full_conduit_makes_the_writer_wait() {
        let conduit = Conduit::new(None, vec![piece(WAITING_BYTES), piece(1)]);
        conduit.go();
        assert!(!conduit.offer(&piece(5)).unwrap());
        assert!(conduit.room(5).now_or_never().is_none());
        next(&conduit).await;
        conduit.room(5).await;
        assert!(conduit.offer(&piece(5)).unwrap());
    }

    #[tokio::test]
    async fn nobody_waits_for_room_in_what_is_closed() {
        let conduit = Conduit::new(None, vec![piece(WAITING_BYTES), piece(1)]);
        let mut waits = std::pin::pin!(conduit.room(5));
        assert!(waits.as_mut().now_or_never().is_none());
        conduit.close();
        waits.now_or_never().expect("it is closed");
        conduit.room(5).now_or_never().expect("it is closed");
    }

    #[tokio::test]
    async fn writers_hear_why_nothing_is_taken() {
        let conduit = Conduit::new(None, vec![piece(WAITING_BYTES), piece(1)]);
        let waits = conduit.room(5);
        conduit.fail(Error::new(Fault::NoSpace, "full"));
        waits.await;
        assert_eq!(conduit.offer(&piece(5)).unwrap_err().fault(), Fault::NoSpace);
    }
}
