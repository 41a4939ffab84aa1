//! A read of one piece from one source.

use std::{sync::Arc, time::Duration};

use tokio::sync::oneshot;
use towpath_store::{
    Blame, Error, Fault, Result,
    sys::clock::{self, Instant},
};

use super::{Handle, SourcePool, Standing};

/// A read of a piece from a source. Dropping it cancels the read.
#[derive(Debug)]
pub(in super::super) struct Attempt {
    pool: Arc<SourcePool>,
    source: usize,
    bytes: u64,
    started: Instant,
    handle: Handle,
    is_done: bool,
    /// Time after which the piece is late.
    pub(in super::super) late: Duration,
}

/// The offer of a piece in flight to an idle source.
#[derive(Debug)]
pub(in super::super) struct Ticket {
    pool: Arc<SourcePool>,
    number: u64,
    helper: oneshot::Receiver<Attempt>,
    is_used: bool,
}

impl Attempt {
    pub(super) fn new(pool: Arc<SourcePool>, source: usize, bytes: u64, handle: Handle, late: Duration) -> Self {
        Self { pool, source, bytes, started: clock::now(), handle, is_done: false, late }
    }

    /// Returns the index of the source.
    pub(in super::super) fn source(&self) -> usize {
        self.source
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn started(&self) -> Instant {
        self.started
    }

    /// Reads the piece. A source that fails is excluded.
    ///
    /// # Errors
    /// Errors of the source; `Truncated` for a short read.
    pub(in super::super) async fn read(mut self, offset: u64) -> Result<Vec<u8>> {
        let read = read_exactly(&self.handle, offset, self.bytes).await;
        self.is_done = true;
        let mut state = self.pool.state();
        let source = &mut state.sources[self.source];
        match &read {
            Ok(data) => {
                source.bytes += self.bytes;
                source.learn(self.started, clock::now(), self.bytes);
                if state.sources.len() > 1 {
                    state.evidence.note(self.source, offset, data);
                }
            }
            Err(error) => {
                source.standing = Standing::Out(error.clone());
                state.admit(&self.pool.known);
            }
        }
        drop(state);
        read
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let mut state = self.pool.state();
        let source = &mut state.sources[self.source];
        source.underway -= 1;
        source.underway_bytes -= self.bytes;
        // An overtaken source took at least this long.
        let now = clock::now();
        let is_slow = source.estimate.is_none_or(|estimate| (now - self.started).as_secs_f64() > estimate.seconds);
        if !self.is_done && is_slow {
            source.learn(self.started, now, self.bytes);
        }
        drop(state);
        self.pool.changed.notify_waiters();
        self.pool.help(self.source);
    }
}

impl Ticket {
    pub(super) fn new(pool: Arc<SourcePool>, number: u64, helper: oneshot::Receiver<Attempt>) -> Self {
        Self { pool, number, helper, is_used: false }
    }

    /// Waits for a source to take over the piece, and returns its attempt; `None` if the piece was removed without one.
    /// Later calls never complete.
    pub(in super::super) async fn helper(&mut self) -> Option<Attempt> {
        if self.is_used {
            return std::future::pending().await;
        }
        let attempt = (&mut self.helper).await.ok();
        self.is_used = true;
        attempt
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.pool.state().pieces.remove(&self.number);
    }
}

/// Reads `bytes` at `offset`.
///
/// # Errors
/// Errors of the source; `Truncated` for a short read.
pub(super) async fn read_exactly(handle: &Handle, offset: u64, bytes: u64) -> Result<Vec<u8>> {
    let length = usize::try_from(bytes).unwrap_or(usize::MAX);
    let data = handle.read_into(offset, length, Vec::with_capacity(length)).await?;
    if data.len() == length {
        return Ok(data);
    }
    let message = format!("it returned {} of {length} bytes at {offset}", data.len());
    Err(Error::new(Fault::Truncated, message).blamed_on(Blame::Storage))
}
