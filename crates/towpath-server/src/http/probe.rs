//! Probes of the network (`towpath_proto::probe`, docs/probe.md): bytes from memory to a client, or from a client into the void.
//!
//! It is not for everybody: downwards for who may read the path that the probe names, upwards for who may write there. How long and how many at once is
//! bounded ([`ProbeConfig`]). A probe ends when the server stops.

use std::{
    collections::VecDeque,
    os::fd::RawFd,
    sync::{Arc, OnceLock},
    time::Duration,
};

use bytes::Bytes;
use futures::stream;
use http::{HeaderValue, Response, StatusCode, header};
use hyper::body::Incoming;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::{MissedTickBehavior, interval, timeout_at},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use towpath_proto::probe::{Ask, Direction, End, PROBE_FIELD, PROBE_PREFIX, PROBE_TYPE, Sample, data_frame};
use towpath_store::{
    StorePath,
    sys::{
        clock::{self, Instant},
        net,
    },
};

use super::{
    body::{Chunk, Content},
    exchange::Exchange,
    link::Reserved,
    refusal::Refusal,
    respond, upload,
    verb::Verb,
};
use crate::{access::Activity, config::ProbeConfig};

/// Data of one frame: what hyper takes for one connection at once is twice that.
const DATA_BYTES: usize = 256 << 10;

/// Samples that may wait for their way to the client; of more, the later ones are lost.
const WAITING_SAMPLES: usize = 1024;

/// What a sample takes, in bytes, about.
const SAMPLE_BYTES: usize = 512;

/// How much longer than asked for a probe may have its place, and upwards its connection: what fills the buffers on a slow path.
const GRACE: Duration = Duration::from_secs(10);

/// The probes of a server.
#[derive(Debug)]
pub(super) struct Probes {
    settings: ProbeConfig,
    places: Arc<Semaphore>,
}

impl Default for Probes {
    fn default() -> Self {
        Self::new(ProbeConfig::default())
    }
}

impl Probes {
    /// None under way.
    pub(super) fn new(settings: ProbeConfig) -> Self {
        let places = Arc::new(Semaphore::new(settings.connections.min(Semaphore::MAX_PERMITS)));
        Self { settings, places }
    }

    fn place(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        let most = self.settings.connections;
        Arc::clone(&self.places).try_acquire_owned().map_err(|_| {
            let text = format!("{most} connections are being probed already (probe.connections): come again later");
            Refusal::new(StatusCode::TOO_MANY_REQUESTS, text)
        })
    }
}

/// The path that a probe is about; none if the request is none, but about a file of that name.
pub(super) fn path(exchange: &Exchange) -> Option<StorePath> {
    exchange.custom_field(PROBE_FIELD)?;
    let path = exchange.path().as_bytes().strip_prefix(PROBE_PREFIX.as_bytes())?;
    StorePath::parse(if path.is_empty() { b"/" } else { path }).ok()
}

/// Answers a probe.
pub(super) async fn answer(
    exchange: &Exchange,
    path: &StorePath,
    body: Incoming,
) -> Result<Response<Content>, Refusal> {
    let (ask, place) = match admit(exchange, path) {
        Ok(admitted) => admitted,
        Err(refusal) => {
            upload::discard(&exchange.headers, body, &exchange.service.limits).await;
            return Err(refusal);
        }
    };
    let content = match ask.direction {
        Direction::Down => Content::Stream(Box::pin(down(exchange, &ask, place).await), None),
        Direction::Up => up(exchange, &ask, place, body).await?,
    };
    let mut response = respond::with_status(StatusCode::OK, content);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBE_TYPE));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// Whether this caller may have that probe now.
fn admit(exchange: &Exchange, path: &StorePath) -> Result<(Ask, OwnedSemaphorePermit), Refusal> {
    let probes = &exchange.service.http.probes;
    if !probes.settings.enabled {
        return Err(Refusal::new(StatusCode::FORBIDDEN, "this server answers no probes (probe.enabled)"));
    }
    let ask = exchange.custom_field(PROBE_FIELD).unwrap_or_default();
    let ask: Ask = ask.parse().map_err(|error| Refusal::bad_request(format!("{error}")))?;
    let activity = match (ask.direction, exchange.verb) {
        (Direction::Down, Verb::Get) => Activity::Read,
        (Direction::Up, Verb::Other) => Activity::Create,
        _ => return Err(Refusal::bad_request("a probe is a GET downwards, and a POST upwards")),
    };
    // The path may be that of a directory, of which some rights speak as of what is in it.
    let in_it = path.join(b"probe").unwrap_or_else(|_| path.clone());
    exchange
        .identity
        .check(activity, path)
        .or_else(|error| exchange.identity.check(activity, &in_it).map_err(|_| error))?;
    let longest = probes.settings.longest.0;
    if ask.duration > longest {
        let text = format!("no probe here takes longer than {} ms (probe.longest)", longest.as_millis());
        return Err(Refusal::bad_request(text));
    }
    Ok((ask, probes.place()?))
}

/// A probe downwards, as its answer is taken.
struct Down {
    began: Instant,
    ends: Instant,
    socket: RawFd,
    stopping: CancellationToken,
    samples: mpsc::Receiver<Sample>,
    bytes: u64,
    /// The last frames, once it has ended.
    last: Option<VecDeque<Vec<u8>>>,
    _looking: AbortOnDropHandle<()>,
    _reserved: Reserved,
}

async fn down(
    exchange: &Exchange,
    ask: &Ask,
    place: OwnedSemaphorePermit,
) -> impl futures::Stream<Item = towpath_store::Result<Chunk>> + use<> {
    let reserved = exchange.link.reserve(WAITING_SAMPLES * SAMPLE_BYTES).await;
    let (sender, samples) = mpsc::channel(WAITING_SAMPLES);
    let (began, socket) = (clock::now(), exchange.link.socket);
    let (ends, looking) = (began + ask.duration, look(socket, began, ask.interval, sender));
    // Who takes what is left byte by byte has the connection for longer, but not the place.
    let looking = async move {
        let _place = place;
        let _ = timeout_at(ends + GRACE, looking).await;
    };
    let probe = Down {
        began,
        ends,
        socket,
        stopping: exchange.service.stopping.clone(),
        samples,
        bytes: 0,
        last: None,
        _looking: AbortOnDropHandle::new(tokio::spawn(looking)),
        _reserved: reserved,
    };
    stream::unfold(probe, |mut probe| async move {
        let frame = probe.next()?;
        Some((Ok(Chunk::Bytes(frame, None)), probe))
    })
}

impl Down {
    /// The next frame: samples first, then data, until time is up.
    fn next(&mut self) -> Option<Bytes> {
        if let Some(last) = &mut self.last {
            return last.pop_front().map(Bytes::from);
        }
        if let Ok(sample) = self.samples.try_recv() {
            return Some(sample.frame().into());
        }
        if clock::now() < self.ends && !self.stopping.is_cancelled() {
            self.bytes += DATA_BYTES as u64;
            return Some(data());
        }
        self.last = Some(last_frames(self.socket, self.began, self.bytes).into());
        self.next()
    }
}

/// A frame of data; all share its memory.
fn data() -> Bytes {
    static DATA: OnceLock<Bytes> = OnceLock::new();
    DATA.get_or_init(|| data_frame(DATA_BYTES).into()).clone()
}

fn sample(socket: RawFd, began: Instant) -> Option<Sample> {
    let info = net::tcp_info(&socket).ok()?;
    Some(Sample { at: clock::now() - began, info })
}

/// Looks at the connection at regular times, also while it takes nothing. Once the answer has ended nobody gets to see what it finds, so it does not
/// matter if the socket's number has become another one's by then.
async fn look(socket: RawFd, began: Instant, every: Duration, to: mpsc::Sender<Sample>) {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        let Some(sample) = sample(socket, began) else { return };
        if let Err(mpsc::error::TrySendError::Closed(_)) = to.try_send(sample) {
            return;
        }
    }
}

fn last_frames(socket: RawFd, began: Instant, bytes: u64) -> Vec<Vec<u8>> {
    let sample = sample(socket, began).map(|sample| sample.frame());
    let end = End { at: clock::now() - began, bytes }.frame();
    sample.into_iter().chain([end]).collect()
}

/// Takes a body and throws it away, to its end or until time is up; what the client then still sends is its connection's end.
async fn up(
    exchange: &Exchange,
    ask: &Ask,
    _place: OwnedSemaphorePermit,
    mut body: Incoming,
) -> Result<Content, Refusal> {
    let (service, began) = (&exchange.service, clock::now());
    let mut bytes = 0;
    let taking = async {
        while let Some(piece) = upload::next(&mut body, &service.limits).await? {
            bytes += piece.len() as u64;
            exchange.received(piece.len() as u64);
        }
        Ok::<_, Refusal>(())
    };
    let in_time = timeout_at(began + ask.duration + GRACE, taking);
    if let Some(Ok(broken)) = service.stopping.run_until_cancelled(in_time).await {
        broken?;
    }
    Ok(Content::Whole(last_frames(exchange.link.socket, began, bytes).concat().into()))
}
