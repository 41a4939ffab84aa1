//! Opens of the same target at the same time: one request to the origin, whose outcome all of them get.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::{
    FutureExt as _,
    future::{BoxFuture, Shared},
};
use towpath_store::{Error, Fault, Result};

use crate::missing::PathKey;

type Outcome<T> = Shared<BoxFuture<'static, Result<T>>>;

/// The opens in progress.
#[derive(Debug)]
pub(crate) struct JoinedOpens<T>(Arc<Mutex<HashMap<PathKey, Outcome<T>>>>);

impl<T> Clone for JoinedOpens<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Default for JoinedOpens<T> {
    fn default() -> Self {
        Self(Arc::default())
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
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Clone + Send + Sync + 'static> JoinedOpens<T> {
    /// Returns the outcome of the open of `key` that is in progress, or else of `open`, and whether it is that of `open`.
    /// It continues if its caller leaves, because others may wait for it.
    ///
    /// # Errors
    /// Errors of the open; `Internal` if it panicked.
    pub(crate) async fn join(
        &self,
        key: PathKey,
        open: impl Future<Output = Result<T>> + Send + 'static,
    ) -> (Result<T>, bool) {
        let (outcome, is_first) = {
            let mut opens = self.lock();
            match opens.get(&key) {
                Some(outcome) => (outcome.clone(), false),
                None => {
                    let registration = Registration { opens: self.clone(), key };
                    let task = tokio::spawn(async move {
                        let _registration = registration;
                        open.await
                    });
                    let outcome = task.map(|ended| {
                        ended.unwrap_or_else(|error| {
                            Err(Error::new(Fault::Internal, format!("an open failed: {error}")))
                        })
                    });
                    let outcome = outcome.boxed().shared();
                    opens.insert(key, outcome.clone());
                    (outcome, true)
                }
            }
        };
        (outcome.await, is_first)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use tokio::sync::Semaphore;

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
