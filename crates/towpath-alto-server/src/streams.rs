//! Update streams (RFC 8895) of the server: their clients, followed responses and delivery.
//!
//! [`Streams::renew`] computes the changes of a new network state once, whatever the number of followers, and wakes all
//! streams if there are any. Each stream then produces one event at a time, as its connection accepts data, so that it
//! retains little content; a slow client receives missed changes later. A stream lives as long as its connection: it is
//! dropped with the response body.

use std::{
    collections::{HashMap, VecDeque},
    mem,
    net::IpAddr,
    sync::{
        Arc, LazyLock, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use crate::updates::{Event, EventChunk, FollowedResponses, KEEP_ALIVE, KEEP_ALIVE_INTERVAL, Stream, UpdateError};
use bytes::Bytes;
use futures::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use serde_json::Value;
use tokio::{
    sync::{Notify, RwLock, RwLockReadGuard, watch},
    time::timeout,
};
use towpath_store::sys::{
    clock::{self, Instant},
    random,
};

use super::service::Snapshot;

/// Maximum number of streams, or of views, in total and per client. Each stream occupies a connection or part of one.
const MOST: usize = 1000;
pub(super) const MAX_OF_ONE: usize = MOST / 10;

/// Maximum size of a piece of an event; connections limit their buffers by the number of pieces.
const PIECE_BYTES: usize = 256 << 10;

/// The streams of all clients.
#[derive(Debug)]
pub(super) struct Streams {
    /// Followed responses. Locked while responses are computed, so that only threads that may block wait for it. Must
    /// be locked before a stream.
    followed: RwLock<FollowedResponses>,
    open: Mutex<HashMap<Key, Arc<StreamState>>>,
    /// Whether a new network state is being processed, which may take long.
    is_renewing: AtomicBool,
    /// Whether a stream found `followed` locked and must be woken when it is released.
    is_waited_for: Mutex<bool>,
    /// Wakes all streams.
    news: watch::Sender<()>,
}

/// An unguessable key that authorizes control of a stream or access to a view.
pub(super) type Key = String;

/// The stream of one client.
#[derive(Debug)]
struct StreamState {
    client: IpAddr,
    stream: Mutex<Stream>,
    /// Wakes this stream.
    news: Notify,
}

/// The consumer of a stream, which writes to the client.
struct EventWriter {
    streams: Arc<Streams>,
    key: Key,
    opened: Arc<StreamState>,
    news: watch::Receiver<()>,
    /// Remaining pieces of the current event.
    pieces: VecDeque<Bytes>,
    /// Whether the stream is closed and has been sent completely.
    is_over: bool,
}

impl Streams {
    /// Creates an empty set.
    pub(super) fn new() -> Arc<Self> {
        let (news, _) = watch::channel(());
        Arc::new(Self {
            followed: RwLock::new(FollowedResponses::default().with_clock(uptime)),
            open: Mutex::default(),
            is_renewing: AtomicBool::new(false),
            is_waited_for: Mutex::default(),
            news,
        })
    }

    /// Processes a new network state. `swap` makes it current; no stream is opened meanwhile. May block.
    pub(super) fn renew(&self, snapshot: &Snapshot, swap: impl FnOnce()) {
        let renewing = RenewalGuard::begin(&self.is_renewing);
        let is_news = self.work(|followed| {
            // Reset before streams are woken, whose clients may then send requests.
            let _renewing = renewing;
            swap();
            followed.advance(snapshot.present())
        });
        if is_news {
            self.news.send_replace(());
        }
    }

    /// Opens a stream for a client at `client` (RFC 8895 §6.5) and returns its bytes; it lives as long as they are
    /// read. `snapshot` returns the current network state, and `control_uri` the control URI for a key. May block.
    ///
    /// # Errors
    /// As [`Stream::open`]; [`UpdateError::TooMany`], and [`UpdateError::Busy`] while a new network state is processed.
    pub(super) fn open(
        self: &Arc<Self>,
        request: &Value,
        client: IpAddr,
        snapshot: impl FnOnce() -> Arc<Snapshot>,
        control_uri: impl FnOnce(&str) -> String,
    ) -> Result<BoxStream<'static, Bytes>, UpdateError> {
        let tail = self.begin(request, client, snapshot, control_uri)?;
        let bytes = stream::unfold(tail, |mut tail| async move {
            let piece = tail.next(KEEP_ALIVE_INTERVAL).await?;
            Some((piece, tail))
        });
        Ok(bytes.boxed())
    }

    fn begin(
        self: &Arc<Self>,
        request: &Value,
        client: IpAddr,
        snapshot: impl FnOnce() -> Arc<Snapshot>,
        control_uri: impl FnOnce(&str) -> String,
    ) -> Result<EventWriter, UpdateError> {
        let key = random::key();
        let control_uri = control_uri(&key);
        self.check_time()?;
        self.work(|followed| {
            if !has_room_for(client, self.all().values().map(|opened| opened.client)) {
                return Err(UpdateError::TooMany);
            }
            let stream = Stream::open(request, Some(&control_uri), client, snapshot().present(), followed)?;
            let opened = Arc::new(StreamState { client, stream: Mutex::new(stream), news: Notify::new() });
            self.all().insert(key.clone(), Arc::clone(&opened));
            let (streams, news) = (Arc::clone(self), self.news.subscribe());
            Ok(EventWriter { streams, key, opened, news, pieces: VecDeque::new(), is_over: false })
        })
    }

    /// Processes a control request for the stream with this key (RFC 8895 §7). May block.
    ///
    /// # Errors
    /// As [`Stream::control`]; [`UpdateError::Unknown`] if there is no such stream, [`UpdateError::Busy`] while a new
    /// network state is processed.
    pub(super) fn control(
        &self,
        key: &str,
        request: &Value,
        snapshot: impl FnOnce() -> Arc<Snapshot>,
    ) -> Result<(), UpdateError> {
        let opened = self.all().get(key).map(Arc::clone).ok_or(UpdateError::Unknown)?;
        self.check_time()?;
        self.work(|followed| lock(&opened.stream).control(request, snapshot().present(), followed))?;
        opened.news.notify_one();
        Ok(())
    }

    /// Fails while a new network state is processed, because a waiting request would block other responses.
    pub(super) fn check_time(&self) -> Result<(), UpdateError> {
        if self.is_renewing.load(Ordering::Relaxed) { Err(UpdateError::Busy) } else { Ok(()) }
    }

    /// Runs `work` on the followed responses, and afterwards wakes all streams if any found them locked.
    pub(super) fn work<T>(&self, work: impl FnOnce(&mut FollowedResponses) -> T) -> T {
        let mut followed = self.followed.blocking_write();
        let outcome = work(&mut followed);
        drop(followed);
        if mem::take(&mut *lock(&self.is_waited_for)) {
            self.news.send_replace(());
        }
        outcome
    }

    /// Returns the followed responses unless locked; then all streams are woken when the lock is released. Never
    /// blocks.
    fn look(&self) -> Option<RwLockReadGuard<'_, FollowedResponses>> {
        if let Ok(followed) = self.followed.try_read() {
            return Some(followed);
        }
        let mut is_waited_for = lock(&self.is_waited_for);
        // Try again: the lock may have been released before `is_waited_for` was locked.
        let followed = self.followed.try_read().ok();
        *is_waited_for |= followed.is_none();
        followed
    }

    /// Returns the followed responses.
    pub(super) fn followed(&self) -> &RwLock<FollowedResponses> {
        &self.followed
    }

    /// Returns a receiver for all future changes.
    pub(super) fn news(&self) -> watch::Receiver<()> {
        self.news.subscribe()
    }

    /// Returns the number of open streams.
    pub(super) fn count(&self) -> usize {
        self.all().len()
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Key, Arc<StreamState>>> {
        lock(&self.open)
    }
}

impl EventWriter {
    /// Returns the next bytes: an event, a piece of one, or a keep-alive comment after `silence`. Returns `None` at the
    /// end of the stream.
    async fn next(&mut self, silence: Duration) -> Option<Bytes> {
        if self.pieces.is_empty() {
            match timeout(silence, self.event()).await {
                Ok(event) => self.pieces = serialize(&event?),
                Err(_) => return Some(Bytes::from_static(KEEP_ALIVE)),
            }
        }
        self.pieces.pop_front()
    }

    /// Waits for the next event. Cancel-safe.
    async fn event(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.look() {
                return Some(event);
            }
            if self.is_over {
                return None;
            }
            tokio::select! {
                changed = self.news.changed() => changed.ok()?,
                () = self.opened.news.notified() => {}
            }
        }
    }

    /// Takes the next event unless the followed responses are locked; the stream is then woken later. Never blocks,
    /// because the thread also serves other connections.
    fn look(&mut self) -> Option<Event> {
        let followed = self.streams.look()?;
        let mut stream = lock(&self.opened.stream);
        let event = stream.next(&followed);
        self.is_over = event.is_none() && stream.is_closed();
        event
    }
}

/// Marks that a new network state is being processed.
struct RenewalGuard<'a>(&'a AtomicBool);

impl<'a> RenewalGuard<'a> {
    fn begin(is_renewing: &'a AtomicBool) -> Self {
        is_renewing.store(true, Ordering::Relaxed);
        Self(is_renewing)
    }
}

impl Drop for RenewalGuard<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl Drop for EventWriter {
    fn drop(&mut self) {
        self.streams.all().remove(&self.key);
    }
}

/// Serializes an event into one piece, or several of at most [`PIECE_BYTES`] that share the document with all its
/// recipients.
fn serialize(event: &Event) -> VecDeque<Bytes> {
    let document = Bytes::from_owner(event.document().clone());
    let mut pieces: VecDeque<Bytes> = VecDeque::new();
    for piece in event.pieces() {
        let mut piece = match piece {
            EventChunk::Words(words) => words.into(),
            EventChunk::Document(range) => document.slice(range),
        };
        while piece.len() > PIECE_BYTES {
            pieces.push_back(piece.split_to(PIECE_BYTES));
        }
        pieces.push_back(piece);
    }
    let is_short = pieces.iter().map(Bytes::len).sum::<usize>() <= PIECE_BYTES;
    if is_short { VecDeque::from([pieces.iter().flatten().copied().collect()]) } else { pieces }
}

/// Returns whether a client at `client` may open another stream or view, given the clients of all open ones.
pub(super) fn has_room_for(client: IpAddr, open: impl Iterator<Item = IpAddr>) -> bool {
    let (all, own) = open.fold((0, 0), |(all, own), other| (all + 1, own + usize::from(other == client)));
    all < MOST && own < MAX_OF_ONE
}

/// Returns the time since the first call.
fn uptime() -> Duration {
    static BEGIN: LazyLock<Instant> = LazyLock::new(clock::now);
    clock::now().saturating_duration_since(*BEGIN)
}

/// Locks a mutex, ignoring poisoning: no update under these locks can be left half done.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
pub(super) mod tests {
    use std::{
        iter,
        panic::{AssertUnwindSafe, catch_unwind},
    };

    use serde_json::json;
    use tokio::task::{block_in_place, yield_now};
    use towpath_alto::agent_state::AgentState;

    use super::*;
    use crate::settings::DirectoryOptions;

    const SHORT: Duration = Duration::from_millis(10);
    const LONG: Duration = Duration::from_secs(60);

    /// Returns a network state with this as the only cost.
    pub(crate) fn network_state(cost: u8) -> Arc<Snapshot> {
        let facts = format!(
            "[network-map.default]\nPID1 = [\"0.0.0.0/0\"]\n[cost-map.default.routingcost.PID1]\nPID1 = {cost}\n"
        );
        let facts = [AgentState::parse(&facts).unwrap()];
        Arc::new(Snapshot::of(facts.iter(), std::iter::empty(), &DirectoryOptions::default()).unwrap())
    }

    /// Opens a stream of the costs.
    fn begin(streams: &Arc<Streams>) -> Result<EventWriter, UpdateError> {
        begin_at(streams, [192, 0, 2, 1].into())
    }

    fn begin_at(streams: &Arc<Streams>, client: IpAddr) -> Result<EventWriter, UpdateError> {
        let request = json!({ "add": { "costs": { "resource-id": "default-routingcost" } } });
        streams.begin(&request, client, || network_state(1), str::to_owned)
    }

    async fn next(tail: &mut EventWriter) -> String {
        String::from_utf8(tail.next(LONG).await.unwrap().to_vec()).unwrap()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn s4_who_is_told_nothing_hears_that_it_is_connected_whatever_others_do() {
        let streams = Streams::new();
        let mut tail = block_in_place(|| begin(&streams)).unwrap();
        assert!(next(&mut tail).await.contains("control-uri"));
        assert!(next(&mut tail).await.contains(",costs\n"));
        let end = clock::now() + LONG;
        let others = async {
            while clock::now() < end {
                streams.news.send_replace(());
                yield_now().await;
            }
        };
        let chunk = tokio::select! {
            chunk = tail.next(SHORT) => chunk,
            () = others => None,
        };
        assert_eq!(chunk.as_deref(), Some(KEEP_ALIVE));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn s4_while_answers_are_made_connections_live_and_what_is_new_comes_then() {
        let streams = Streams::new();
        let mut tail = block_in_place(|| begin(&streams)).unwrap();
        assert!(next(&mut tail).await.contains("control-uri"));
        assert!(next(&mut tail).await.contains(",costs\n"));
        let making = streams.followed.write().await;
        assert_eq!(tail.next(SHORT).await.as_deref(), Some(KEEP_ALIVE));
        drop(making);
        let swap = || assert!(streams.followed.try_read().is_err(), "no stream begins meanwhile");
        block_in_place(|| streams.renew(&network_state(2), swap));
        assert!(next(&mut tail).await.contains(",costs\n"));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn streams_are_woken_by_what_is_new_and_after_they_were_turned_away() {
        let streams = Streams::new();
        let mut tail = block_in_place(|| begin(&streams)).unwrap();
        assert!(next(&mut tail).await.contains("control-uri"));
        assert!(next(&mut tail).await.contains(",costs\n"));
        let mut other = block_in_place(|| begin(&streams)).unwrap();
        let add = json!({ "add": { "map": { "resource-id": "default" } } });
        block_in_place(|| streams.control(&other.key, &add, || network_state(1))).unwrap();
        block_in_place(|| streams.renew(&network_state(1), || ()));
        assert!(!tail.news.has_changed().unwrap(), "none of this is new for it");
        assert!(next(&mut other).await.contains("control-uri"));
        assert!(next(&mut other).await.contains("started"));
        block_in_place(|| streams.work(|_| assert_eq!(tail.look(), None)));
        assert!(tail.news.has_changed().unwrap(), "it was turned away");
    }

    #[test]
    fn a_world_that_cannot_be_looked_at_keeps_nobody_from_coming() {
        let streams = Streams::new();
        let failed = catch_unwind(AssertUnwindSafe(|| streams.renew(&network_state(1), || panic!("it has no world"))));
        assert!(failed.is_err());
        assert!(begin(&streams).is_ok());
    }

    #[test]
    fn a_stream_can_be_controlled_until_its_connection_ends() {
        let streams = Streams::new();
        let mut tail = begin(&streams).unwrap();
        let key = tail.key.clone();
        let control = |request: Value| streams.control(&key, &request, || network_state(1));
        assert_eq!(control(json!({ "add": { "map": { "resource-id": "default" } } })), Ok(()));
        let events = iter::from_fn(|| tail.look()).map(|event| event.pieces()[0].clone());
        let names = events.map(|piece| match piece {
            EventChunk::Words(words) => words.rsplit([',', ' ']).next().unwrap_or_default().to_owned(),
            EventChunk::Document(_) => panic!("a name comes first"),
        });
        let control_type = "application/alto-updatestreamcontrol+json";
        assert_eq!(names.collect::<Vec<_>>(), [control_type, control_type, "map", "costs"]);
        drop(tail);
        assert_eq!(control(json!({ "remove": [] })), Err(UpdateError::Unknown));
    }

    #[test]
    fn who_comes_while_a_world_is_looked_at_is_told_to_come_again() {
        let streams = Streams::new();
        let refused = || assert_eq!(begin(&streams).err(), Some(UpdateError::Busy));
        streams.renew(&network_state(1), refused);
        assert!(begin(&streams).is_ok());
    }

    #[test]
    fn long_events_go_in_pieces() {
        let prefixes: Vec<String> =
            (0..30_000).map(|number| format!("10.{}.{}.0/24", number >> 8, number & 255)).collect();
        let facts = json!({ "network-map": { "default": { "PID1": ["0.0.0.0/0"], "PID2": prefixes } } });
        let facts = [AgentState::parse(&facts.to_string()).unwrap()];
        let snapshot = Snapshot::of(facts.iter(), std::iter::empty(), &DirectoryOptions::default()).unwrap();
        let request = json!({ "add": { "map": { "resource-id": "default" } } });
        let streams = Streams::new();
        let mut tail = streams.begin(&request, [192, 0, 2, 1].into(), || Arc::new(snapshot), str::to_owned).unwrap();
        let counts = iter::from_fn(|| tail.look()).map(|event| {
            let text: String = event.pieces().iter().map(|piece| shown(&event, piece)).collect();
            let pieces = serialize(&event);
            assert!(pieces.iter().all(|piece| piece.len() <= PIECE_BYTES));
            assert_eq!(pieces.iter().flatten().copied().collect::<Vec<u8>>(), text.as_bytes());
            pieces.len()
        });
        assert_eq!(counts.collect::<Vec<_>>(), [1, 5], "the map has more than 256 KiB, and less than 512");
    }

    fn shown(event: &Event, piece: &EventChunk) -> String {
        match piece {
            EventChunk::Words(words) => words.clone(),
            EventChunk::Document(range) => String::from_utf8(event.document()[range.clone()].to_vec()).unwrap(),
        }
    }

    #[test]
    fn so_many_may_follow_at_once() {
        let streams = Streams::new();
        let client = |number: usize| IpAddr::from([192, 0, 2, u8::try_from(number / MAX_OF_ONE).unwrap()]);
        let mut tails: Vec<EventWriter> = (0..MOST).map(|number| begin_at(&streams, client(number)).unwrap()).collect();
        assert_eq!(begin_at(&streams, client(MOST)).err(), Some(UpdateError::TooMany));
        drop(tails.pop());
        assert_eq!(begin_at(&streams, client(0)).err(), Some(UpdateError::TooMany), "it has what one may have");
        assert!(begin_at(&streams, client(MOST)).is_ok());
        drop(tails);
        assert!(streams.all().is_empty());
    }
}
