//! A probe of the network to a towpath server (`towpath_proto::probe`): transfers bytes from memory to memory over its
//! own connections, and samples the kernel statistics of each connection at both ends.

use std::{
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use bytes::Bytes;
use futures::future::try_join_all;
use http::{Method, StatusCode, header};
use tokio::time::{MissedTickBehavior, interval, timeout, timeout_at};
use tokio_util::task::AbortOnDropHandle;
use towpath_proto::{
    probe::{
        Direction, Event, Frames, MAX_PROBE, PROBE_FIELD, PROBE_PREFIX, PROBE_TYPE, ProbeRequest, SAMPLING, Sample,
        noise,
    },
    tcp::TcpInfo,
    url::{Endpoint, Family, Url},
};
use towpath_store::{
    Blame, Caller, Error, Fault, Result, StorePath,
    sys::clock::{self, Instant},
};

use super::{
    body_channel::BodyChannel,
    payload::Payload,
    pool::Connection,
    refusal,
    request::Request,
    response::HttpResponse,
    retry_state::Failure,
    site::{Site, Sites},
    target::Target,
};
use crate::{MAX_CONNECTIONS, dial::ConnectionMonitor, passwords::Login};

/// Size in bytes of a piece that is offered to a connection.
const PIECE_BYTES: usize = 256 << 10;

/// Time for the last samples to arrive after the probe has ended; it does not affect the measurement.
const GRACE: Duration = Duration::from_secs(2);

/// The parameters of a probe.
#[derive(Debug, Clone, Copy)]
pub struct Probe {
    /// The direction of the transfer.
    pub direction: Direction,
    /// Number of concurrent connections, 1 to [`MAX_CONNECTIONS`].
    pub connections: usize,
    /// Duration of the probe, at most [`MAX_PROBE`].
    pub duration: Duration,
    /// Time between two samples of a connection, 10 ms to 1 s.
    pub interval: Duration,
}

/// One end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// This machine.
    Client,
    /// The server.
    Server,
}

/// The kernel statistics of a connection at one end, at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Trace {
    /// Index of the connection, from 0.
    pub connection: usize,
    /// The end of the connection.
    pub side: Side,
    /// Time since the connections were open and the probe was requested. A sample of the server is dated half a round
    /// trip later, when it would have been seen from this machine.
    pub at: Duration,
    /// The statistics.
    pub info: TcpInfo,
}

/// The result of a probe.
#[derive(Debug, Clone)]
pub struct ProbeResult {
    /// The name that the server reports.
    pub server: String,
    /// Time to connect: TCP, and TLS if used.
    pub connected: Duration,
    /// Start of the probe request.
    pub began: Instant,
    /// The samples, ordered by time.
    pub traces: Vec<Trace>,
}

/// The result of one connection.
struct ConnectionTraces {
    server: String,
    traces: Vec<Trace>,
}

impl Sites {
    /// Implements [`crate::Client::probe`].
    pub(crate) async fn probe(&self, url: &Url, probe: &Probe) -> Result<ProbeResult> {
        let probe = &Probe {
            connections: probe.connections.clamp(1, MAX_CONNECTIONS),
            duration: probe.duration.min(MAX_PROBE),
            interval: probe.interval.clamp(SAMPLING[0], SAMPLING[1]),
            ..*probe
        };
        let endpoint = Endpoint { family: Family::Http, ..url.endpoint() };
        let site = self.at(&endpoint, Login::of(url));
        let path = StorePath::parse(&[PROBE_PREFIX.as_bytes(), url.path()].concat())
            .map_err(|error| Error::new(Fault::InvalidArgument, format!("{endpoint}: {error}")))?;
        let target = Target::new(&endpoint, &path, url.query());
        let dialed = clock::now();
        let dialing = (0..probe.connections).map(|_| site.pools.dial(&endpoint));
        let connections = try_join_all(dialing).await.map_err(error_of)?;
        let began = clock::now();
        let traces = Arc::new(Mutex::new(Vec::new()));
        let taps = connections.iter().map(Connection::tap).collect();
        let looking = tokio::spawn(look(taps, began, probe.interval, Arc::clone(&traces)));
        let looking = AbortOnDropHandle::new(looking);
        let lines = connections.into_iter().enumerate().map(|(index, connection)| ProbeConnection {
            site: &site,
            target: &target,
            probe,
            began,
            index,
            connection,
        });
        let results = try_join_all(lines.map(ProbeConnection::run)).await?;
        drop(looking);
        let mut traces = std::mem::take(&mut *traces.lock().unwrap_or_else(PoisonError::into_inner));
        let server =
            results.iter().map(|result| result.server.clone()).find(|server| !server.is_empty()).unwrap_or_default();
        traces.extend(results.into_iter().flat_map(|result| result.traces));
        traces.sort_by_key(|trace| trace.at);
        Ok(ProbeResult { server, connected: began - dialed, began, traces })
    }
}

/// Samples the connections at regular intervals, until all are closed.
async fn look(taps: Vec<Weak<ConnectionMonitor>>, began: Instant, every: Duration, traces: Arc<Mutex<Vec<Trace>>>) {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        let seen = taps.iter().enumerate().filter_map(|(connection, tap)| {
            let info = tap.upgrade()?.look()?.info;
            Some(Trace { connection, side: Side::Client, at: clock::now() - began, info })
        });
        traces.lock().unwrap_or_else(PoisonError::into_inner).extend(seen);
    }
}

/// One connection of a probe.
struct ProbeConnection<'a> {
    site: &'a Site,
    target: &'a Target,
    probe: &'a Probe,
    began: Instant,
    index: usize,
    connection: Connection,
}

impl ProbeConnection<'_> {
    async fn run(mut self) -> Result<ConnectionTraces> {
        let Probe { direction, duration, interval, .. } = *self.probe;
        let body_channel = Arc::new(BodyChannel::new(None, Vec::new()));
        let (method, payload) = match direction {
            Direction::Down => (Method::GET, Payload::Empty),
            Direction::Up => (Method::POST, Payload::Stream(Arc::clone(&body_channel))),
        };
        let ask = ProbeRequest { direction, duration, interval };
        let request = Request { payload, ..Request::new(self.site, method.clone()) };
        let request = request.with(http::HeaderName::from_static(PROBE_FIELD), ask.to_string());
        let credentials = self.site.credentials(&Caller::local())?;
        let mut message = self.site.message(self.target, &request, &credentials)?;
        self.connection.address(&mut message, self.target)?;
        let sent = match direction {
            Direction::Down => {
                timeout(self.site.options.connect_timeout, self.connection.sender.send_request(message)).await.ok()
            }
            Direction::Up => {
                self.site.hear_continue(&mut message, &body_channel);
                let sending = self.connection.sender.send_request(message);
                // A server that does not send `100 Continue` is not a towpath server, and receives no data.
                tokio::select! {
                    sent = timeout(duration + GRACE, sending) => sent.ok(),
                    () = feed(&body_channel, self.began + duration) => unreachable!("it waits to be dropped"),
                }
            }
        };
        let response = match sent {
            Some(Ok(response)) => response,
            Some(Err(error)) => return Err(self.lost(&error.to_string())),
            // Buffers of a slow path take longer to fill; the measurement itself is complete.
            None if body_channel.taken_bytes() > 0 => {
                return Ok(ConnectionTraces { server: String::new(), traces: Vec::new() });
            }
            None => return Err(self.lost("no data received")),
        };
        let arrived = clock::now() - self.began;
        let round_trip = self.connection.look().map(|seen| seen.info.min_rtt).unwrap_or_default();
        let Self { target, began, index, connection, site, .. } = self;
        let answer = HttpResponse::new(response, target.clone(), (connection, None), None, &site.options);
        let server = answer.field(header::SERVER).unwrap_or_default().to_owned();
        if answer.status != StatusCode::OK || answer.field(header::CONTENT_TYPE) != Some(PROBE_TYPE) {
            return Err(match answer.status {
                StatusCode::BAD_REQUEST
                | StatusCode::UNAUTHORIZED
                | StatusCode::FORBIDDEN
                | StatusCode::TOO_MANY_REQUESTS
                | StatusCode::SERVICE_UNAVAILABLE
                | StatusCode::UPGRADE_REQUIRED => refusal::of(answer, &method, &credentials).await,
                status => foreign(target, &server, status),
            });
        }
        let most = most_samples(duration, interval);
        let samples = samples(answer, began + duration + GRACE, most).await?;
        // In the upload direction the response comes at the end, with the only sample.
        let zero = match (direction, samples.last()) {
            (Direction::Up, Some(last)) => arrived.saturating_sub(last.at),
            _ => arrived,
        };
        let zero = zero.saturating_sub(round_trip / 2);
        let trace =
            |sample: Sample| Trace { connection: index, side: Side::Server, at: zero + sample.at, info: sample.info };
        Ok(ConnectionTraces { server, traces: samples.into_iter().map(trace).collect() })
    }

    fn lost(&self, why: &str) -> Error {
        let message =
            format!("{} did not respond to a probe, which only towpath servers support: {why}", self.target.root());
        Error::new(Fault::Unavailable, message).blamed_on(Blame::Network)
    }
}

/// Sends bytes as fast as the server accepts them, until `until`; then it waits forever.
async fn feed(body_channel: &BodyChannel, until: Instant) {
    let piece = Bytes::from(noise(PIECE_BYTES));
    let feeding = async {
        while clock::now() < until && body_channel.offer(&piece).is_ok() {
            body_channel.room(PIECE_BYTES).await;
        }
    };
    let _ = timeout_at(until, feeding).await;
    body_channel.complete();
    std::future::pending::<()>().await;
}

/// Returns the maximum number of samples that a server may send: about twice the requested number.
fn most_samples(duration: Duration, interval: Duration) -> usize {
    (2 * duration.as_millis() / interval.as_millis().max(1)) as usize + 16
}

/// Receives the samples of a response that arrive by `until`.
///
/// # Errors
/// Those of the network; `Protocol` for an invalid response, or more than `most` samples.
async fn samples(mut answer: HttpResponse, until: Instant, most: usize) -> Result<Vec<Sample>> {
    let (mut frames, mut samples, mut ended) = (Frames::default(), Vec::new(), false);
    while !ended && let Ok(next) = timeout_at(until, answer.next()).await {
        let Some(bytes) = next.map_err(error_of)? else { break };
        let taken = frames.take(&bytes, |event| match event {
            Event::Data(_) => {}
            Event::Sample(sample) => samples.push(sample),
            Event::End(_) => ended = true,
        });
        let wrong = match taken {
            Err(error) => error.to_string(),
            Ok(()) if samples.len() > most => format!("the probe response has more than {most} samples"),
            Ok(()) => continue,
        };
        let message = format!("{}: {wrong}", answer.target.root());
        return Err(Error::new(Fault::Protocol, message).blamed_on(Blame::Storage));
    }
    Ok(samples)
}

fn foreign(target: &Target, server: &str, status: StatusCode) -> Error {
    let who = if server.is_empty() { String::new() } else { format!(" ({server})") };
    let message = format!(
        "{}{who} answered {}: not a towpath server, or one without probe support",
        target.root(),
        status.as_u16()
    );
    Error::new(Fault::Unsupported, message).blamed_on(Blame::Storage)
}

fn error_of(failure: Failure) -> Error {
    match failure {
        Failure::NotSent(error) | Failure::Lost(error) | Failure::Later(error, _) | Failure::Fatal(error) => error,
        Failure::Redirect(target) => foreign(&target, "", StatusCode::FOUND),
    }
}
