//! Probes of the network (`towpath_proto::probe`, docs/guides/probe.md): bytes from memory to a client, or from a client into the void.
//!
//! It is not for everybody: downwards for who may read the path that the probe names, upwards for who may write there. How long and how many at once is
//! bounded ([`ProbeConfig`]), and so is their memory, which goes with the place: it is none of that for answers. A probe ends when the server stops.

use std::{
    collections::VecDeque,
    os::fd::RawFd,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use futures::stream;
use http::{HeaderValue, Response, StatusCode, header};
use hyper::body::Incoming;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
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
    refusal::Refusal,
    respond, upload,
    verb::Verb,
};
use crate::{access::Activity, config::ProbeConfig};

/// Data of one frame: what hyper takes for one connection at once is twice that.
const DATA_BYTES: usize = 256 << 10;

/// Samples that may wait for their way to the client; of more, the later ones are lost. They take at most 256 KiB.
const WAITING_SAMPLES: usize = 1024;

const _: () = assert!(WAITING_SAMPLES * size_of::<Sample>() <= 256 << 10);

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
        Direction::Down => Content::Stream(Box::pin(down(exchange, &ask, place)), None),
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
        (Direction::Up, Verb::Post) => Activity::Create,
        _ => return Err(Refusal::bad_request("a probe is a GET downwards, and a POST upwards")),
    };
    // The path may be that of a directory, of which some rights speak as of what is in it.
    let in_it = path.join(b"probe").unwrap_or_else(|_| path.clone());
    exchange.identity.check(activity, path).or_else(|error| exchange.may_at(activity, &in_it).map_err(|_| error))?;
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
    waiting: Arc<Waiting>,
    bytes: u64,
    /// The last frames, once it has ended.
    last: Option<VecDeque<Vec<u8>>>,
    _looking: AbortOnDropHandle<()>,
}

fn down(
    exchange: &Exchange,
    ask: &Ask,
    place: OwnedSemaphorePermit,
) -> impl futures::Stream<Item = towpath_store::Result<Chunk>> + use<> {
    let (began, socket, waiting) = (clock::now(), exchange.link.socket, Arc::<Waiting>::default());
    let ends = began + ask.duration;
    let look = Look { socket, began, every: ask.interval, waiting: Arc::clone(&waiting), _place: place };
    let probe = Down {
        began,
        ends,
        socket,
        stopping: exchange.service.stopping.clone(),
        waiting,
        bytes: 0,
        last: None,
        _looking: AbortOnDropHandle::new(tokio::spawn(look.until(ends + GRACE))),
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
        let sample = self.waiting.samples().pop_front();
        if let Some(sample) = sample {
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

/// Samples on their way to the client.
#[derive(Debug, Default)]
struct Waiting(Mutex<VecDeque<Sample>>);

impl Waiting {
    fn samples(&self) -> MutexGuard<'_, VecDeque<Sample>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, sample: Sample) {
        let mut samples = self.samples();
        if samples.len() < WAITING_SAMPLES {
            samples.push_back(sample);
        }
    }
}

/// Looks at the connection of a probe, and has the probe's place for as long.
struct Look {
    socket: RawFd,
    began: Instant,
    every: Duration,
    waiting: Arc<Waiting>,
    _place: OwnedSemaphorePermit,
}

impl Look {
    async fn until(self, end: Instant) {
        let _ = timeout_at(end, self.at_regular_times()).await;
        // Who takes what is left byte by byte has the connection for longer, but neither the place nor memory.
        *self.waiting.samples() = VecDeque::new();
    }

    /// Also while the connection takes nothing. Once the answer has ended nobody gets to see what it finds, so it does not matter if the socket's number
    /// has become another one's by then.
    async fn at_regular_times(&self) {
        let mut ticks = interval(self.every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            ticks.tick().await;
            let Some(sample) = sample(self.socket, self.began) else { return };
            self.waiting.add(sample);
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

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn samples_that_nobody_takes_go_with_the_place() {
        let listener = net::listen(([127, 0, 0, 1], 0).into()).unwrap();
        let stream = net::connect(listener.local_addr().unwrap()).await.unwrap();
        let (places, waiting) = (Arc::new(Semaphore::new(1)), Arc::<Waiting>::default());
        let began = clock::now();
        let look = Look {
            socket: stream.as_raw_fd(),
            began,
            every: Duration::from_millis(10),
            waiting: Arc::clone(&waiting),
            _place: Arc::clone(&places).try_acquire_owned().unwrap(),
        };
        let looking = tokio::spawn(look.until(began + Duration::from_secs(60)));
        tokio::time::sleep(Duration::from_secs(59)).await;
        assert_eq!((waiting.samples().len(), places.available_permits()), (WAITING_SAMPLES, 0));
        looking.await.unwrap();
        assert_eq!((waiting.samples().capacity(), places.available_permits()), (0, 1));
    }
}
