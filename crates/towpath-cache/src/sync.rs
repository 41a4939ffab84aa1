//! The locks and signals of the state that readers share in [`crate::flights`] and [`crate::entry`]. In unit tests they
//! are those of shuttle, which runs a test under many schedules.

#[cfg(not(test))]
pub(crate) use std::sync::{Mutex, MutexGuard};

#[cfg(not(test))]
pub(crate) use tokio::sync::Notify;

#[cfg(test)]
pub(crate) use self::scheduled::Notify;
#[cfg(test)]
pub(crate) use shuttle::sync::{Mutex, MutexGuard};

#[cfg(test)]
mod scheduled {
    use shuttle::sync::atomic::{AtomicU64, Ordering::SeqCst};
    use tokio::sync::futures::Notified;

    /// The signal of tokio. Other tasks may run before each call.
    #[derive(Debug)]
    pub(crate) struct Notify {
        signal: tokio::sync::Notify,
        calls: AtomicU64,
    }

    impl Notify {
        pub(crate) fn new() -> Self {
            Self { signal: tokio::sync::Notify::new(), calls: AtomicU64::new(0) }
        }

        pub(crate) fn notified(&self) -> Notified<'_> {
            self.calls.fetch_add(1, SeqCst);
            self.signal.notified()
        }

        pub(crate) fn notify_waiters(&self) {
            self.calls.fetch_add(1, SeqCst);
            self.signal.notify_waiters();
        }
    }
}
