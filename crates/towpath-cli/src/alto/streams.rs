//! Update streams (RFC 8895) as the server keeps them: who follows which answers, and where each is told what is new.
//!
//! [`Streams::renew`] looks once what a new world changes, however many follow it, and wakes all streams. Each then writes what is new for its client when the client's connection can take it;
//! who is slow is told later what it missed. A stream lives as long as its connection: it is dropped with the body of its answer.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use futures::{
    StreamExt as _,
    future::ready,
    stream::{self, BoxStream},
};
use serde_json::Value;
use tokio::{sync::watch, time::timeout};
use towpath_alto::updates::{Event, Followed, KEEP_ALIVE, KEEP_ALIVE_INTERVAL, Refusal, Stream};
use towpath_store::sys::random;

use super::answers::Served;

/// Clients that follow at once. Each holds a connection, or a part of one.
const MOST_STREAMS: usize = 1000;

/// The streams of all clients.
#[derive(Debug)]
pub(super) struct Streams {
    /// What is followed. Whoever needs a stream's state too takes this first.
    followed: tokio::sync::Mutex<Followed>,
    open: Mutex<HashMap<Key, Arc<Mutex<Follower>>>>,
    /// Wakes those that wait for something new.
    news: watch::Sender<()>,
}

/// What nobody can guess: whoever knows it controls the stream.
type Key = String;

/// One client's stream.
#[derive(Debug)]
struct Follower {
    stream: Stream,
    /// Events that its client caused, to be sent next.
    caused: Vec<Event>,
}

/// The far end of a stream, which writes to the client.
struct Tail {
    streams: Arc<Streams>,
    key: Key,
    follower: Arc<Mutex<Follower>>,
    news: watch::Receiver<()>,
}

impl Streams {
    /// Nobody follows anything.
    pub(super) fn new() -> Arc<Self> {
        let (news, _) = watch::channel(());
        Arc::new(Self { followed: tokio::sync::Mutex::default(), open: Mutex::default(), news })
    }

    /// Takes a new world. `swap` makes it the present one, and meanwhile no stream begins. To be called by a thread that may take its time.
    pub(super) fn renew(&self, served: &Served, swap: impl FnOnce()) {
        let mut followed = self.followed.blocking_lock();
        swap();
        if followed.advance(served.present()) {
            self.news.send_replace(());
        }
    }

    /// Opens the stream that `request` asks for, for a client at `client` (RFC 8895 §6.5); its bytes, as long as they are read. `served` tells the present world, and
    /// `control_uri` where the stream of a key is controlled. To be called by a thread that may take its time.
    ///
    /// # Errors
    /// Those of [`Stream::open`], and [`Refusal::TooMany`].
    pub(super) fn open(
        self: &Arc<Self>,
        request: &Value,
        client: IpAddr,
        served: impl FnOnce() -> Arc<Served>,
        control_uri: impl FnOnce(&str) -> String,
    ) -> Result<BoxStream<'static, Bytes>, Refusal> {
        let key: Key = random::bytes::<16>().iter().map(|byte| format!("{byte:02x}")).collect();
        let mut followed = self.followed.blocking_lock();
        if self.all().len() >= MOST_STREAMS {
            return Err(Refusal::TooMany);
        }
        let (served, control_uri) = (served(), control_uri(&key));
        let (stream, events) = Stream::open(request, Some(&control_uri), client, served.present(), &mut followed)?;
        let follower = Arc::new(Mutex::new(Follower { stream, caused: Vec::new() }));
        self.all().insert(key.clone(), Arc::clone(&follower));
        let tail = Tail { streams: Arc::clone(self), key, follower, news: self.news.subscribe() };
        let later = stream::unfold(tail, |mut tail| async move { Some((tail.next().await?, tail)) });
        Ok(stream::once(ready(written(&events))).chain(later).boxed())
    }

    /// Does what the client of the stream with that key asks for (RFC 8895 §7). To be called by a thread that may take its time.
    ///
    /// # Errors
    /// Those of [`Stream::control`]; [`Refusal::Unknown`] if there is no such stream.
    pub(super) fn control(
        &self,
        key: &str,
        request: &Value,
        served: impl FnOnce() -> Arc<Served>,
    ) -> Result<(), Refusal> {
        let follower = self.all().get(key).map(Arc::clone).ok_or(Refusal::Unknown)?;
        let mut followed = self.followed.blocking_lock();
        let mut follower = lock(&follower);
        let events = follower.stream.control(request, served().present(), &mut followed)?;
        follower.caused.extend(events);
        self.news.send_replace(());
        Ok(())
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Key, Arc<Mutex<Follower>>>> {
        lock(&self.open)
    }
}

impl Tail {
    /// What is to be sent next; none if the client closed the stream.
    async fn next(&mut self) -> Option<Bytes> {
        while !self.is_over() {
            match timeout(KEEP_ALIVE_INTERVAL, self.news.changed()).await {
                Ok(told) => told.ok()?,
                Err(_) => return Some(Bytes::from_static(KEEP_ALIVE)),
            }
            let followed = self.streams.followed.lock().await;
            let mut follower = lock(&self.follower);
            let mut events = std::mem::take(&mut follower.caused);
            if !follower.stream.is_closed() {
                events.extend(follower.stream.advance(&followed));
            }
            if !events.is_empty() {
                return Some(written(&events));
            }
        }
        None
    }

    /// Whether the client closed the stream, and was told so.
    fn is_over(&self) -> bool {
        let follower = lock(&self.follower);
        follower.stream.is_closed() && follower.caused.is_empty()
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        self.streams.all().remove(&self.key);
    }
}

fn written(events: &[Event]) -> Bytes {
    let mut text = Vec::new();
    events.iter().for_each(|event| event.write_to(&mut text));
    text.into()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
