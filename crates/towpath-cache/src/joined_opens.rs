//! Opens of the same target at the same time: one request to the origin, whose outcome all of them get.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::{
    FutureExt as _,
    future::{BoxFuture, Shared},
};
use tokio::sync::{Semaphore, oneshot};
use towpath_store::{Error, Fault, Result};

use crate::missing::PathKey;

type Outcome<T> = Shared<BoxFuture<'static, Result<T>>>;

/// Maximum number of opens at the same time. They continue without their clients, whose number is limited.
const MAX_OPENS: usize = 256;

/// The opens in progress.
#[derive(Debug)]
pub(crate) struct JoinedOpens<T> {
    opens: Arc<Mutex<HashMap<PathKey, Outcome<T>>>>,
    turns: Arc<Semaphore>,
}

impl<T> Clone for JoinedOpens<T> {
    fn clone(&self) -> Self {
        Self { opens: Arc::clone(&self.opens), turns: Arc::clone(&self.turns) }
    }
}

impl<T> Default for JoinedOpens<T> {
    fn default() -> Self {
        Self { opens: Arc::default(), turns: Arc::new(Semaphore::new(MAX_OPENS)) }
    }
}

/// Removes an open that has ended.
struct Registration<T> {
    opens: JoinedOpens<T>,
    key: PathKey,
}

impl<T> Drop for Registration<T> {
    fn drop(&mut self) {
        self.opens.lock().remove(&self.key);
    }
}

impl<T> JoinedOpens<T> {
    fn lock(&self) -> MutexGuard<'_, HashMap<PathKey, Outcome<T>>> {
        self.opens.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Clone + Send + Sync + 'static> JoinedOpens<T> {
    /// Returns the outcome of the open of `key` that is in progress, or else of `open`, and whether it is that of `open`.
    /// It continues if its caller leaves, because others may wait for it.
    ///
    /// # Errors
    /// Errors of the open; `Cancelled` if it was aborted.
    pub(crate) async fn join(
        &self,
        key: PathKey,
        open: impl Future<Output = Result<T>> + Send + 'static,
    ) -> (Result<T>, bool) {
        let (sender, receiver) = oneshot::channel();
        let outcome = {
            let mut opens = self.lock();
            match opens.get(&key) {
                Some(outcome) => Err(outcome.clone()),
                None => {
                    let aborted = || Err(Error::new(Fault::Cancelled, "the open was aborted"));
                    let outcome = receiver.map(move |outcome| outcome.unwrap_or_else(|_| aborted()));
                    let outcome = outcome.boxed().shared();
                    opens.insert(key, outcome.clone());
                    Ok(outcome)
                }
            }
        };
        match outcome {
            Err(other) => (other.await, false),
            Ok(outcome) => {
                let (registration, turns) = (Registration { opens: self.clone(), key }, Arc::clone(&self.turns));
                tokio::spawn(async move {
                    let _turn = turns.acquire().await;
                    let outcome = open.await;
                    // Later opens start a new one.
                    drop(registration);
                    let _ = sender.send(outcome);
                });
                (outcome.await, true)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use super::*;

    #[tokio::test]
    async fn opens_at_the_same_time_share_one_outcome_even_if_the_first_one_leaves() {
        let (opens, gate, calls) =
            (JoinedOpens::<u32>::default(), Arc::new(Semaphore::new(0)), Arc::new(AtomicU32::new(0)));
        let open = || {
            let (gate, calls) = (Arc::clone(&gate), Arc::clone(&calls));
            async move {
                let call = calls.fetch_add(1, Relaxed);
                let _permit = gate.acquire_owned().await;
                Ok(call)
            }
        };
        let key = [1; 16];
        assert!(opens.join(key, open()).now_or_never().is_none(), "it waits, and leaves");
        let both = async {
            let both = futures::join!(opens.join(key, open()), opens.join(key, open()), opens.join([2; 16], open()));
            [both.0, both.1, both.2].map(|(outcome, is_first)| (outcome.unwrap(), is_first))
        };
        let release = async {
            tokio::task::yield_now().await;
            gate.add_permits(2);
        };
        let (found, ()) = futures::join!(both, release);
        assert_eq!(found, [(0, false), (0, false), (1, true)]);
        assert!(opens.lock().is_empty());
        let later = opens.join(key, async { Err(Error::new(Fault::NotFound, "x")) }).await;
        assert!(later.0.is_err() && later.1);
    }
}
