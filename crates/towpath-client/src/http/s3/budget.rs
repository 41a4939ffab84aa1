//! The memory limit for all uploads of one client: a part is held until it has been sent, because it may have to be
//! sent again.
//!
//! A part waits until there is memory for it. Since a mover waits for permits of its own at the same time, two of its
//! files could deadlock: one has memory here and waits for a permit, the other the reverse. Therefore, when nothing
//! has moved for a while and nothing is being sent, one waiting part is admitted beyond the limit.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, time::timeout};

/// Time without progress after which a waiting part is admitted beyond the limit.
const STILL: Duration = Duration::from_millis(250);

/// A limit on the bytes of parts in memory.
#[derive(Debug)]
pub(super) struct Budget {
    limit: u64,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    used: u64,
    sending: usize,
    /// Counts progress events.
    moves: u64,
}

/// Reserved bytes, released when dropped.
#[derive(Debug)]
pub(super) struct BudgetReservation {
    budget: Arc<Budget>,
    bytes: u64,
}

/// Marks a transfer in progress until it is dropped.
#[derive(Debug)]
pub(super) struct TransferGuard(Arc<Budget>);

impl Budget {
    /// Creates a budget of `limit` bytes; a larger part is admitted alone.
    pub(super) fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self { limit, state: Mutex::default(), changed: Notify::new() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `bytes` are available, and reserves them.
    pub(super) async fn reserve(self: &Arc<Self>, bytes: u64) -> BudgetReservation {
        let mut seen = None;
        loop {
            let changed = self.changed.notified();
            {
                let mut state = self.state();
                let fits = state.used == 0 || state.used.saturating_add(bytes) <= self.limit;
                let is_still = state.sending == 0 && seen == Some(state.moves);
                if fits || is_still {
                    state.used = state.used.saturating_add(bytes);
                    state.moves += 1;
                    return BudgetReservation { budget: Arc::clone(self), bytes };
                }
                seen = Some(state.moves);
            }
            let _ = timeout(STILL, changed).await;
        }
    }

    /// Records progress, so that no waiting part is admitted beyond the limit.
    pub(super) fn record_progress(&self) {
        self.state().moves += 1;
    }

    /// Records the start of a transfer.
    pub(super) fn sending(self: &Arc<Self>) -> TransferGuard {
        let mut state = self.state();
        state.sending += 1;
        state.moves += 1;
        TransferGuard(Arc::clone(self))
    }
}

impl BudgetReservation {
    /// Splits off `bytes`, or all if fewer are left.
    pub(super) fn split(&mut self, bytes: u64) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Self { budget: Arc::clone(&self.budget), bytes }
    }
}

impl Drop for BudgetReservation {
    fn drop(&mut self) {
        let mut state = self.budget.state();
        state.used = state.used.saturating_sub(self.bytes);
        state.moves += 1;
        drop(state);
        self.budget.changed.notify_waiters();
    }
}

impl Drop for TransferGuard {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.sending = state.sending.saturating_sub(1);
        state.moves += 1;
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn room_is_bounded_and_comes_back() {
        let budget = Budget::new(100);
        let mut first = budget.reserve(60).now_or_never().unwrap();
        let _sending = budget.sending();
        let mut second = Box::pin(budget.reserve(60));
        assert!((&mut second).now_or_never().is_none());
        drop(first.split(20));
        second.now_or_never().unwrap();
        drop(first);
        budget.reserve(1000).now_or_never().expect("what is larger goes alone");
    }

    #[tokio::test(start_paused = true)]
    async fn only_where_everything_stands_still_one_is_let_in() {
        let budget = Budget::new(100);
        let _first = budget.reserve(100).await;
        let sending = budget.sending();
        let mut waiting = Box::pin(budget.reserve(1));
        assert!(timeout(10 * STILL, &mut waiting).await.is_err(), "what is sent will make room");
        drop(sending);
        timeout(10 * STILL, waiting).await.expect("nobody else can make room");
    }
}
