//! The space of an export, queried without blocking on a file system that does not respond.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::{
    FutureExt as _,
    future::{BoxFuture, Shared},
};
use tokio::time::timeout;
use towpath_store::{
    Caller, Space, Store, StorePath,
    sys::clock::{self, Instant},
};

/// Maximum age of the reported space: the queries of several monitoring systems cost one call of the store.
const MAX_AGE: Duration = Duration::from_secs(5);
/// Maximum time that a request waits for the store. Prometheus waits 10 s for all metrics by default.
const TIMEOUT: Duration = Duration::from_secs(1);

type SpaceQuery = Shared<BoxFuture<'static, Option<Space>>>;

/// The last query of the space of an export, and when it began. At most one query is in flight.
#[derive(Debug)]
pub(crate) struct SpaceCache {
    /// The path of the export.
    pub(crate) prefix: StorePath,
    last: Mutex<Option<(Instant, SpaceQuery)>>,
}

impl SpaceCache {
    /// Creates a cache for the export at `prefix`.
    pub(crate) fn new(prefix: StorePath) -> Self {
        Self { prefix, last: Mutex::default() }
    }

    /// Returns the space of `store`; `None` if the store failed or does not respond.
    pub(crate) async fn get(&self, store: &Arc<dyn Store>) -> Option<Space> {
        timeout(TIMEOUT, self.query(store)).await.ok().flatten()
    }

    /// Returns the last query if it is in flight or recent, or else a new one.
    fn query(&self, store: &Arc<dyn Store>) -> SpaceQuery {
        let now = clock::now();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((began, query)) = &*last
            && (query.peek().is_none() || now.duration_since(*began) < MAX_AGE)
        {
            return query.clone();
        }
        let (store, prefix) = (Arc::clone(store), self.prefix.clone());
        // A task, so that it continues when the request is cancelled.
        let task = tokio::spawn(async move { store.space(&Caller::local(), &prefix).await.ok() });
        let query = task.map(|outcome| outcome.ok().flatten()).boxed().shared();
        *last = Some((now, query.clone()));
        query
    }
}
