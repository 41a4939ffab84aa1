//! Who waits for whom among the requests of one session: places handed out in the order of arrival.
//!
//! The protocol lets a server answer in any order, and clients count on little: reads and writes of one open file may
//! overtake each other, but not the `open` before them (its handle can be guessed: the first is 0) nor the `close` after them;
//! and a request about a path must see what earlier ones did to names. So there is an [`Order`] for each open file and one for names.
//! The reader of the connection takes a [`Turn`] for each request as it comes; the task that serves it waits for that turn.
//! Shared turns run together, an exclusive one waits for all before it and holds up all behind it.

use std::{pin::Pin, sync::Arc};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

/// More than all requests that can be under way in one connection.
const EVERYBODY: u32 = 1 << 20;

/// How a request stands to the others of its [`Order`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hold {
    /// Together with other shared ones.
    Shared,
    /// Alone.
    Exclusive,
}

/// A queue of requests about one thing.
#[derive(Debug)]
pub(super) struct Order {
    places: Arc<Semaphore>,
}

impl Default for Order {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(EVERYBODY as usize)) }
    }
}

/// A place in the queue.
pub(super) enum Turn {
    /// It has come.
    Now { _until_dropped: OwnedSemaphorePermit },
    /// It will come.
    Later(Pin<Box<dyn Future<Output = OwnedSemaphorePermit> + Send>>),
}

impl Order {
    /// A shared turn, if it has come already.
    pub(super) fn shared_now(&self) -> Option<SemaphorePermit<'_>> {
        self.places.try_acquire().ok()
    }

    /// An exclusive turn, if it has come already.
    pub(super) fn exclusive_now(&self) -> Option<SemaphorePermit<'_>> {
        self.places.try_acquire_many(EVERYBODY).ok()
    }

    /// A place behind all that were taken before. Does not wait.
    pub(super) async fn turn(&self, hold: Hold) -> Turn {
        let wanted = match hold {
            Hold::Shared => 1,
            Hold::Exclusive => EVERYBODY,
        };
        if let Ok(permit) = Arc::clone(&self.places).try_acquire_many_owned(wanted) {
            return Turn::Now { _until_dropped: permit };
        }
        let places = Arc::clone(&self.places);
        // Without a budget: else the scheduler could keep the first poll from taking the place.
        let mut queued: Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(tokio::task::unconstrained(async move {
            places.acquire_many_owned(wanted).await.expect("the semaphore is never closed")
        }));
        match futures::poll!(&mut queued) {
            std::task::Poll::Ready(permit) => Turn::Now { _until_dropped: permit },
            std::task::Poll::Pending => Turn::Later(queued),
        }
    }
}

impl Turn {
    /// Waits until it has come; then it lasts until the result is dropped.
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
        let order = Order::default();
        let (first, second) = (order.turn(Hold::Shared).await, order.turn(Hold::Shared).await);
        assert!(matches!((&first, &second), (Turn::Now { .. }, Turn::Now { .. })));
        let alone = order.turn(Hold::Exclusive).await;
        assert!(order.shared_now().is_none(), "nobody overtakes one who waits");
        let behind = order.turn(Hold::Shared).await;
        drop((first, second));
        let alone = alone.wait().await;
        assert!(futures::FutureExt::now_or_never(behind.wait()).is_none());
        drop(alone);
        assert!(order.shared_now().is_some());
    }
}
