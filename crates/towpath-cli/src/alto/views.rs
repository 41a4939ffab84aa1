//! TIPS views (RFC 9569) as the server keeps them: clients fetch each change of an answer by number, and wait for the next one.
//!
//! What is followed is shared with update streams ([`Streams`]). A view has no connection of its own: it is closed by its client, or for another one's sake when nobody asked for it for an hour.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use towpath_alto::updates::{Content, Edge, Refusal, View};
use towpath_store::sys::clock::{self, Instant};

use super::{
    answers::Served,
    streams::{Key, Streams, key},
};

/// Views at once.
const MOST_VIEWS: usize = 1000;

/// Requests that wait for a change at once. Each holds a connection, or a part of one.
const MOST_WAITING: usize = 1000;

/// A view that was not asked for so long gives way to a new one.
const IDLE: Duration = Duration::from_secs(60 * 60);

/// The views of all clients.
#[derive(Debug)]
pub(super) struct Views {
    streams: Arc<Streams>,
    open: Mutex<HashMap<Key, Opened>>,
    waiting: Arc<Semaphore>,
}

/// One view.
#[derive(Debug)]
struct Opened {
    view: Arc<View>,
    used: Instant,
}

/// A change that may have to be waited for.
pub(super) struct Awaited {
    streams: Arc<Streams>,
    view: Arc<View>,
    edge: (u64, u64),
    _place: OwnedSemaphorePermit,
}

impl Views {
    /// No views, of what `streams` follow too.
    pub(super) fn new(streams: Arc<Streams>) -> Self {
        Self { streams, open: Mutex::default(), waiting: Arc::new(Semaphore::new(MOST_WAITING)) }
    }

    /// Opens the view that `request` asks for, for a client at `client` (RFC 9569 §6): the document that tells it. `served` tells the present world, and `uri` where the view of a
    /// key is. To be called by a thread that may take its time.
    ///
    /// # Errors
    /// Those of [`View::open`]; [`Refusal::TooMany`], and [`Refusal::Busy`] while a new world is looked at.
    pub(super) fn open(
        &self,
        request: &Value,
        client: IpAddr,
        served: impl FnOnce() -> Arc<Served>,
        uri: impl FnOnce(&str) -> String,
    ) -> Result<Value, Refusal> {
        let key = key();
        let uri = uri(&key);
        self.streams.check_time()?;
        self.streams.work(|followed| {
            let mut open = self.all();
            if open.len() >= MOST_VIEWS {
                let now = clock::now();
                open.retain(|_, opened| now.saturating_duration_since(opened.used) < IDLE);
            }
            if open.len() >= MOST_VIEWS {
                return Err(Refusal::TooMany);
            }
            let (view, told) = View::open(request, &uri, client, served().present(), followed)?;
            open.insert(key, Opened { view: Arc::new(view), used: clock::now() });
            Ok(told)
        })
    }

    /// The change from one version to another in the view of that key.
    ///
    /// # Errors
    /// [`Refusal::Unknown`] if there is no such view, [`Refusal::TooMany`] if too many wait.
    pub(super) fn edge(&self, key: &str, edge: (u64, u64)) -> Result<Awaited, Refusal> {
        let view = self.view(key)?;
        let place = Arc::clone(&self.waiting).try_acquire_owned().map_err(|_| Refusal::TooMany)?;
        Ok(Awaited { streams: Arc::clone(&self.streams), view, edge, _place: place })
    }

    /// Which change to take next: the answer to a POST of `request` (RFC 9569 §7.4). To be called by a thread that may take its time.
    ///
    /// # Errors
    /// Those of [`View::recommend`]; [`Refusal::Busy`] while a new world is looked at.
    pub(super) fn recommend(&self, key: &str, request: &Value) -> Result<Content, Refusal> {
        let view = self.view(key)?;
        self.streams.check_time()?;
        view.recommend(request, &self.streams.followed().blocking_read())
    }

    /// Closes the view of that key. Who waits for a change of it still gets it.
    ///
    /// # Errors
    /// [`Refusal::Unknown`] if there is no such view.
    pub(super) fn close(&self, key: &str) -> Result<(), Refusal> {
        self.all().remove(key).map(drop).ok_or(Refusal::Unknown)
    }

    fn view(&self, key: &str) -> Result<Arc<View>, Refusal> {
        let mut open = self.all();
        let opened = open.get_mut(key).ok_or(Refusal::Unknown)?;
        opened.used = clock::now();
        Ok(Arc::clone(&opened.view))
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Key, Opened>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Awaited {
    /// The change, once it is there, if `accepts` says so of its media type.
    ///
    /// # Errors
    /// Those of [`View::edge`].
    pub(super) async fn content(self, accepts: impl Fn(&str) -> bool) -> Result<Content, Refusal> {
        // Before the first look, so that no change goes by between that and the waiting.
        let mut news = self.streams.news();
        let (from, to) = self.edge;
        loop {
            let edge = self.view.edge(from, to, &accepts, &*self.streams.followed().read().await)?;
            match edge {
                Edge::Document(content) => return Ok(content),
                Edge::NotYet => news.changed().await.map_err(|_| Refusal::Unknown)?,
            }
        }
    }
}
