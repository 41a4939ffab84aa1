//! TIPS views (RFC 9569) of the server: clients fetch each change of a response by number, and wait for the next one.
//!
//! Followed responses are shared with update streams ([`Streams`]). A view has no connection of its own: it is closed
//! by its client, or after an hour without requests, including waiting ones.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use crate::updates::{Content, Edge, UpdateError, View};
use futures::future::{BoxFuture, FutureExt as _};
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use towpath_store::sys::{
    clock::{self, Instant},
    random,
};

use super::{
    service::Snapshot,
    streams::{Key, Streams, has_room_for, lock},
};

/// Maximum number of requests waiting for a change. Each occupies a connection or part of one.
const MAX_WAITING: usize = 1000;

/// Idle time after which a view is closed.
const IDLE: Duration = Duration::from_secs(60 * 60);

/// The views of all clients.
#[derive(Debug)]
pub(super) struct Views {
    streams: Arc<Streams>,
    open: Mutex<HashMap<Key, Arc<ViewState>>>,
    waiting: Arc<Semaphore>,
}

/// One view.
#[derive(Debug)]
struct ViewState {
    view: View,
    client: IpAddr,
    used: Mutex<Instant>,
    /// Cancels requests waiting for its changes.
    closed: CancellationToken,
}

/// Result of looking up an edge in the version graph of a response.
pub(super) enum EdgeResult {
    /// Content of the edge.
    Now(Content),
    /// Not available yet; retry when this future completes.
    Later(BoxFuture<'static, ()>),
}

/// A request waiting for a change of a view, which keeps the view in use.
struct PendingRequest {
    opened: Arc<ViewState>,
    _place: OwnedSemaphorePermit,
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        self.opened.touch();
    }
}

impl ViewState {
    fn touch(&self) {
        *lock(&self.used) = clock::now();
    }
}

impl Views {
    /// Creates an empty set that shares the responses followed by `streams`.
    pub(super) fn new(streams: Arc<Streams>) -> Self {
        Self { streams, open: Mutex::default(), waiting: Arc::new(Semaphore::new(MAX_WAITING)) }
    }

    /// Opens a view for a client at `client` (RFC 9569 §6) and returns the response document. `snapshot` returns the
    /// current network state, and `uri` the URI of the view with a key. May block.
    ///
    /// # Errors
    /// As [`View::open`]; [`UpdateError::TooMany`], and [`UpdateError::Busy`] while a new network state is processed.
    pub(super) fn open(
        &self,
        request: &Value,
        client: IpAddr,
        snapshot: impl FnOnce() -> Arc<Snapshot>,
        uri: impl FnOnce(&str) -> String,
    ) -> Result<Value, UpdateError> {
        let key = random::key();
        let uri = uri(&key);
        self.streams.check_time()?;
        // Opened one at a time, so that the count cannot exceed the limit.
        self.streams.work(|followed| {
            self.forget_idle();
            if !has_room_for(client, self.all().values().map(|opened| opened.client)) {
                return Err(UpdateError::TooMany);
            }
            let (view, answer) = View::open(request, &uri, client, snapshot().present(), followed)?;
            self.all().insert(
                key,
                Arc::new(ViewState { view, client, used: Mutex::new(clock::now()), closed: CancellationToken::new() }),
            );
            Ok(answer)
        })
    }

    /// Returns the number of open views.
    pub(super) fn count(&self) -> usize {
        self.all().len()
    }

    /// Closes views that are idle: their responses take memory, and time for each new network state.
    pub(super) fn forget_idle(&self) {
        self.close_idle(IDLE);
    }

    fn close_idle(&self, idle: Duration) {
        let now = clock::now();
        let is_used = |opened: &Arc<ViewState>| {
            Arc::strong_count(opened) > 1 || now.saturating_duration_since(*lock(&opened.used)) < idle
        };
        self.all().retain(|_, opened| is_used(opened));
    }

    /// Returns the edge between two versions in the view with this key, if `accepts` accepts its media type.
    ///
    /// # Errors
    /// As [`View::edge`]; [`UpdateError::Unknown`] if there is no such view, [`UpdateError::TooMany`] if too many
    /// requests wait.
    pub(super) fn edge(
        &self,
        key: &str,
        edge: (u64, u64),
        accepts: impl Fn(&str) -> bool,
    ) -> Result<EdgeResult, UpdateError> {
        let opened = self.find_open(key)?;
        let streams = Arc::clone(&self.streams);
        let Ok(followed) = self.streams.followed().try_read() else {
            // The lock may be held for long, but is always released, so that this needs no permit for waiting requests.
            return Ok(EdgeResult::Later(async move { drop(streams.followed().read().await) }.boxed()));
        };
        if let Edge::Document(content) = opened.view.edge(edge.0, edge.1, accepts, &followed)? {
            return Ok(EdgeResult::Now(content));
        }
        let place = Arc::clone(&self.waiting).try_acquire_owned().map_err(|_| UpdateError::TooMany)?;
        let waiting = PendingRequest { opened, _place: place };
        Ok(EdgeResult::Later(wait(streams, waiting, edge).boxed()))
    }

    /// Returns the recommended next edge in response to a POST of `request` (RFC 9569 §7.4).
    ///
    /// # Errors
    /// As [`View::recommend`]; [`UpdateError::Unknown`] if there is no such view, [`UpdateError::Busy`] while the
    /// followed responses are locked.
    pub(super) fn recommend(&self, key: &str, request: &Value) -> Result<Content, UpdateError> {
        let opened = self.find_open(key)?;
        let followed = self.streams.followed().try_read().map_err(|_| UpdateError::Busy)?;
        opened.view.recommend(request, &followed)
    }

    /// Closes the view with this key and cancels its waiting requests (RFC 9569 §4.1).
    ///
    /// # Errors
    /// [`UpdateError::Unknown`] if there is no such view.
    pub(super) fn close(&self, key: &str) -> Result<(), UpdateError> {
        let opened = self.all().remove(key).ok_or(UpdateError::Unknown)?;
        opened.closed.cancel();
        Ok(())
    }

    fn find_open(&self, key: &str) -> Result<Arc<ViewState>, UpdateError> {
        let opened = self.all().get(key).map(Arc::clone).ok_or(UpdateError::Unknown)?;
        opened.touch();
        Ok(opened)
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Key, Arc<ViewState>>> {
        lock(&self.open)
    }
}

/// Waits until an edge has content or can never have any.
async fn wait(streams: Arc<Streams>, waiting: PendingRequest, (from, to): (u64, u64)) {
    // Subscribe before the first look, so that no change is missed.
    let mut news = streams.news();
    loop {
        let edge = waiting.opened.view.edge(from, to, |_| true, &*streams.followed().read().await);
        if !matches!(edge, Ok(Edge::NotYet)) {
            return;
        }
        tokio::select! {
            changed = news.changed() => changed.expect("`streams` owns the sender"),
            () = waiting.opened.closed.cancelled() => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::task::block_in_place;

    use super::*;
    use crate::streams::{MAX_OF_ONE, tests::network_state};

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    fn views() -> Views {
        Views::new(Streams::new())
    }

    /// Opens a view of the costs and returns its key.
    fn open(views: &Views, client: IpAddr) -> Result<Key, UpdateError> {
        let request = json!({ "resource-id": "default-routingcost" });
        let answer = views.open(&request, client, || network_state(1), str::to_owned)?;
        Ok(answer["tips-view-uri"].as_str().unwrap().to_owned())
    }

    fn later(views: &Views, key: &str) -> BoxFuture<'static, ()> {
        match views.edge(key, (1, 2), |_| true) {
            Ok(EdgeResult::Later(waiting)) => waiting,
            Ok(EdgeResult::Now(content)) => panic!("{content:?}"),
            Err(refusal) => panic!("{refusal}"),
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn t3_the_next_change_is_waited_for() {
        let views = views();
        let key = block_in_place(|| open(&views, CLIENT)).unwrap();
        let mut waiting = later(&views, &key);
        assert!((&mut waiting).now_or_never().is_none());
        block_in_place(|| views.streams.renew(&network_state(1), || ()));
        assert!((&mut waiting).now_or_never().is_none(), "the same costs are no change");
        block_in_place(|| views.streams.renew(&network_state(2), || ()));
        waiting.await;
        let Ok(EdgeResult::Now(content)) = views.edge(&key, (1, 2), |_| true) else { panic!("it was waited for") };
        assert_eq!(&*content.body, br#"{"cost-map":{"PID1":{"PID1":2}}}"#);
        assert_eq!(views.waiting.available_permits(), MAX_WAITING);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn t6_who_waits_for_a_change_of_a_view_is_told_when_it_is_closed() {
        let views = views();
        let key = block_in_place(|| open(&views, CLIENT)).unwrap();
        let mut waiting = later(&views, &key);
        assert!((&mut waiting).now_or_never().is_none());
        views.close(&key).unwrap();
        waiting.await;
        assert_eq!(views.edge(&key, (1, 2), |_| true).err(), Some(UpdateError::Unknown));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn t3_a_change_that_is_there_is_told_also_when_nobody_else_may_wait() {
        let views = views();
        let key = block_in_place(|| open(&views, CLIENT)).unwrap();
        let _waiting: Vec<_> = (0..MAX_WAITING).map(|_| later(&views, &key)).collect();
        assert_eq!(views.edge(&key, (1, 2), |_| true).err(), Some(UpdateError::TooMany));
        let making = views.streams.followed().write().await;
        let Ok(EdgeResult::Later(made)) = views.edge(&key, (0, 1), |_| true) else { panic!("it is not looked at now") };
        drop(making);
        made.await;
        assert!(matches!(views.edge(&key, (0, 1), |_| true), Ok(EdgeResult::Now(_))));
    }

    #[test]
    fn a_view_that_nobody_asks_for_is_closed_and_one_that_is_waited_for_is_not() {
        let views = views();
        let [waited_for, idle] = [open(&views, CLIENT).unwrap(), open(&views, CLIENT).unwrap()];
        let waiting = later(&views, &waited_for);
        views.close_idle(Duration::ZERO);
        assert_eq!(views.recommend(&idle, &json!({})).err(), Some(UpdateError::Unknown));
        drop(waiting);
        views.forget_idle();
        assert!(views.find_open(&waited_for).is_ok(), "its client has an hour from now");
        views.close_idle(Duration::ZERO);
        assert_eq!(views.close(&waited_for), Err(UpdateError::Unknown));
    }

    #[test]
    fn nobody_takes_all_the_views() {
        let views = views();
        for _ in 0..MAX_OF_ONE {
            open(&views, CLIENT).unwrap();
        }
        assert_eq!(open(&views, CLIENT).err(), Some(UpdateError::TooMany));
        assert!(open(&views, [192, 0, 2, 2].into()).is_ok());
    }
}
