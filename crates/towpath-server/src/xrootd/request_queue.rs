//! Orders the requests of one session.
//!
//! The protocol lets a server answer in any order, and clients rely on little: reads and writes of one open file may
//! overtake each other, but not the `open` before them (its handle is predictable: the first is 0) nor the `close`
//! after them; and a request with a path must see the effects of earlier ones on names. So there is an [`RequestQueue`]
//! for each open file and one for names. The connection's reader takes a [`QueuePosition`] for each request as it
//! arrives; the task that serves it waits for that turn. Shared turns run concurrently; an exclusive one waits for all
//! earlier ones and delays all later ones.

use std::{pin::Pin, sync::Arc};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

/// More permits than requests that can be in flight on one connection.
const ALL_PERMITS: u32 = 1 << 20;

/// How a request is ordered relative to others of its [`RequestQueue`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LockMode {
    /// Runs concurrently with other shared ones.
    Shared,
    /// Runs alone.
    Exclusive,
}

/// A FIFO queue of requests for one object.
#[derive(Debug)]
pub(super) struct RequestQueue {
    permits: Arc<Semaphore>,
}

impl Default for RequestQueue {
    fn default() -> Self {
        Self { permits: Arc::new(Semaphore::new(ALL_PERMITS as usize)) }
    }
}

/// A position in the queue.
pub(super) enum QueuePosition {
    /// The request may run.
    Now { _until_dropped: OwnedSemaphorePermit },
    /// The request must wait.
    Later(Pin<Box<dyn Future<Output = OwnedSemaphorePermit> + Send>>),
}

impl RequestQueue {
    /// Takes a shared turn if it is available immediately.
    pub(super) fn try_shared(&self) -> Option<SemaphorePermit<'_>> {
        self.permits.try_acquire().ok()
    }

    /// Takes an exclusive turn if it is available immediately.
    pub(super) fn try_exclusive(&self) -> Option<SemaphorePermit<'_>> {
        self.permits.try_acquire_many(ALL_PERMITS).ok()
    }

    /// Enqueues a turn behind all earlier ones. Does not wait.
    pub(super) async fn enqueue(&self, hold: LockMode) -> QueuePosition {
        let wanted = match hold {
            LockMode::Shared => 1,
            LockMode::Exclusive => ALL_PERMITS,
        };
        if let Ok(permit) = Arc::clone(&self.permits).try_acquire_many_owned(wanted) {
            return QueuePosition::Now { _until_dropped: permit };
        }
        let permits = Arc::clone(&self.permits);
        // Unconstrained, because an exhausted coop budget would keep the first poll from enqueueing.
        let mut queued: Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(tokio::task::unconstrained(async move {
            permits.acquire_many_owned(wanted).await.expect("the semaphore is never closed")
        }));
        match futures::poll!(&mut queued) {
            std::task::Poll::Ready(permit) => QueuePosition::Now { _until_dropped: permit },
            std::task::Poll::Pending => QueuePosition::Later(queued),
        }
    }
}

impl QueuePosition {
    /// Waits for the turn, which lasts until the result is dropped.
    pub(super) async fn wait(self) -> Self {
        match self {
            Self::Now { .. } => self,
            Self::Later(queued) => Self::Now { _until_dropped: queued.await },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn shared_together_exclusive_alone_in_the_order_of_arrival() {
        let queue = RequestQueue::default();
        let (first, second) = (queue.enqueue(LockMode::Shared).await, queue.enqueue(LockMode::Shared).await);
        assert!(matches!((&first, &second), (QueuePosition::Now { .. }, QueuePosition::Now { .. })));
        let alone = queue.enqueue(LockMode::Exclusive).await;
        assert!(queue.try_shared().is_none(), "nobody overtakes one who waits");
        let behind = queue.enqueue(LockMode::Shared).await;
        drop((first, second));
        let alone = alone.wait().await;
        assert!(futures::FutureExt::now_or_never(behind.wait()).is_none());
        drop(alone);
        assert!(queue.try_shared().is_some());
    }
}
