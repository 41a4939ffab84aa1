//! Storages with the same tree: a request goes to the first one that can be reached.
//!
//! Only failures of a storage or its network make the next one serve a request. A file that the first one does not have
//! does not exist, and rights are those of the storage that responds.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use towpath_store::{Error, Fault, Result};

use crate::{
    breaker::is_unreachable,
    origin::{Origin, OriginOptions},
    rules::Rules,
};

/// A tree to be cached.
#[derive(Debug)]
pub struct TreeOptions {
    /// The storages that have this tree, in order of preference; at least one.
    pub origins: Vec<OriginOptions>,
    /// When the storages are queried for the version of a file.
    pub rules: Rules,
    /// Time without a response to a query, such as an open, after which the next origin gets it.
    pub deadline: Duration,
}

/// Storages with the same tree, in order of preference; at least one.
#[derive(Debug)]
pub(crate) struct Origins {
    list: Vec<Arc<Origin>>,
    /// Maximum duration of a request that another origin can serve.
    deadline: Duration,
}

/// Maximum durations of a request at one origin.
#[derive(Debug, Clone, Copy)]
struct Deadlines {
    /// If another origin is left.
    others: Option<Duration>,
    /// At the last origin.
    last: Option<Duration>,
}

impl Origins {
    /// Creates a list of origins.
    ///
    /// # Errors
    /// `InvalidArgument` if the list is empty.
    pub(crate) fn new(list: Vec<Origin>, deadline: Duration) -> Result<Self> {
        match list.is_empty() {
            true => Err(Error::new(Fault::InvalidArgument, "a cache needs an origin")),
            false => Ok(Self { list: list.into_iter().map(Arc::new).collect(), deadline }),
        }
    }

    /// Returns all origins, in order of preference.
    pub(crate) fn all(&self) -> &[Arc<Origin>] {
        &self.list
    }

    /// Returns the origin for requests that change something: the first.
    pub(crate) fn primary(&self) -> &Arc<Origin> {
        self.list.first().expect("the constructor refuses an empty list")
    }

    /// Calls `request` at the first origin that can be reached, and returns that origin with the result. An origin whose
    /// breaker is open is not called if another one is left; it is probed in the background.
    ///
    /// # Errors
    /// Errors of the origin; of several that cannot be reached, all.
    async fn call_within<'a, T>(
        &'a self,
        deadlines: Deadlines,
        request: impl Fn(&'a Arc<Origin>) -> BoxFuture<'a, Result<T>>,
    ) -> Result<(&'a Arc<Origin>, T)> {
        let (closed, open): (Vec<_>, Vec<_>) = self.list.iter().partition(|origin| origin.breaker.is_closed());
        let candidates = match closed.is_empty() {
            true => vec![self.primary()],
            false => closed,
        };
        open.into_iter().filter(|origin| !Arc::ptr_eq(origin, candidates[0])).for_each(Origin::probe);
        let mut failures = Vec::new();
        for (index, origin) in candidates.iter().enumerate() {
            let deadline = if index + 1 == candidates.len() { deadlines.last } else { deadlines.others };
            match origin.call(deadline, request(origin)).await {
                Err(error) if is_unreachable(&error) => failures.push(error),
                outcome => return outcome.map(|value| (*origin, value)),
            }
        }
        Err(combined(failures))
    }

    /// Calls `request` at the first origin that can be reached: see [`Self::call_within`]. If another origin is left, an
    /// origin that has not responded by its deadline counts as unreachable.
    ///
    /// # Errors
    /// Errors of the origin.
    pub(crate) async fn call<'a, T>(
        &'a self,
        request: impl Fn(&'a Arc<Origin>) -> BoxFuture<'a, Result<T>>,
    ) -> Result<(&'a Arc<Origin>, T)> {
        self.call_within(Deadlines { others: Some(self.deadline), last: None }, request).await
    }

    /// Like [`Self::call`], for a request whose response something else can replace: each origin has this deadline.
    ///
    /// # Errors
    /// Errors of the origin.
    pub(crate) async fn call_replaceable<'a, T>(
        &'a self,
        deadline: Duration,
        request: impl Fn(&'a Arc<Origin>) -> BoxFuture<'a, Result<T>>,
    ) -> Result<(&'a Arc<Origin>, T)> {
        self.call_within(Deadlines { others: Some(deadline), last: Some(deadline) }, request).await
    }

    /// Like [`Self::call`], for a request that may take long: without a deadline.
    ///
    /// # Errors
    /// Errors of the origin.
    pub(crate) async fn call_slow<'a, T>(
        &'a self,
        request: impl Fn(&'a Arc<Origin>) -> BoxFuture<'a, Result<T>>,
    ) -> Result<T> {
        self.call_within(Deadlines { others: None, last: None }, request).await.map(|(_, value)| value)
    }
}

/// Returns one error for the failures of all origins; that of the first one is the most important.
fn combined(failures: Vec<Error>) -> Error {
    let mut failures = failures.into_iter();
    let first = failures.next().unwrap_or_else(|| Error::new(Fault::Internal, "no origin was called"));
    let others: Vec<_> = failures.map(|error| error.to_string()).collect();
    match others.is_empty() {
        true => first,
        false => {
            let message = format!("{}; no other origin can be reached: {}", first.message(), others.join("; "));
            first.with_message(message)
        }
    }
}
