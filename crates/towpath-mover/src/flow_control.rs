//! Adapts the bytes in flight to twice the bandwidth-delay product of the path, and the number of connections
//! (streams, [`crate::tuner`]) where the xroot protocol is used; over HTTP the client limits requests in flight
//! (`towpath-client/src/http/concurrency.rs`).
//!
//! The bandwidth-delay product is the rate times the round trip. The rate is the maximum over the last rounds, each as
//! long as the round trip: a window that is too small doubles every round until the rate stops growing, and a window
//! that is large enough survives a temporary slowdown. BBR sets its window by the same rule
//! (draft-cardwell-iccrg-bbr-congestion-control, 4.6). Here it is applied one level up, to all connections together and
//! including the destination's disk.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use towpath_client::{Client, Connection};
use towpath_store::sys::clock::{self, Instant};

use crate::{
    paths::PathMetrics,
    tuner::{Tuner, least_buffer},
    window::Window,
};

/// Minimum window in bytes: enough to keep two disks and the CPU caches busy without network latency.
pub(crate) const MIN_BYTES: u64 = 16 << 20;

/// Minimum window on a long path in bytes, so that the window does not have to grow first: 1 Gbit/s over 500 ms.
const MIN_LONG_BYTES: u64 = 64 << 20;

/// Minimum round trip of a long path.
pub(crate) const LONG: Duration = Duration::from_millis(10);

/// Maximum window in bytes: twice the bandwidth-delay product of 5 Gbit/s and 200 ms. Also the maximum memory for data
/// that the destination does not accept.
pub const MAX_BYTES: u64 = 256 << 20;

/// Ratio of the window to the bandwidth-delay product: one part is in transit, the other is being written or requested.
const GAIN: f64 = 2.0;

/// Number of recent rounds over which the maximum rate is taken.
const ROUNDS: usize = 10;

/// Minimum length of a round; the rate of a shorter one is that of a burst.
const MIN_ROUND: Duration = Duration::from_millis(20);

/// Adapts the window and the number of connections to the path.
#[derive(Debug)]
pub(crate) struct FlowControl {
    client: Option<Arc<Client>>,
    /// Maximum window in bytes.
    most: u64,
    round: Mutex<Round>,
}

#[derive(Debug)]
struct Round {
    started: Instant,
    /// Bytes moved by the window at that time.
    transferred: u64,
    length: Duration,
    /// Rates of the last rounds in bytes per second.
    rates: VecDeque<f64>,
    tuner: Tuner,
}

impl FlowControl {
    /// Creates the adaptation for the paths between `client` and its servers; without a client, paths have no latency.
    /// The window never exceeds `most` bytes. A `nice` copy leaves capacity to others, and sets its client to do the
    /// same.
    pub(crate) fn new(client: Option<Arc<Client>>, most: u64, nice: bool) -> Self {
        if nice && let Some(client) = &client {
            client.be_nice();
        }
        let tuner = Tuner::new(client.as_ref().map_or(1, |client| client.connection_limit()), nice);
        let (started, rates) = (clock::now(), VecDeque::new());
        let round = Round { started, transferred: 0, length: MIN_ROUND, rates, tuner };
        Self { client, most, round: Mutex::new(round) }
    }

    fn round(&self) -> MutexGuard<'_, Round> {
        self.round.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts with the result of another copy over this path. Must be called before anything is moved.
    pub(crate) fn start_from(&self, metrics: PathMetrics) {
        let mut round = self.round();
        round.rates.push_back(metrics.bytes_per_s as f64);
        round.tuner.start_from(metrics.connections);
    }

    /// Returns the measured properties of the path; `None` if the copy was too short, or there was no number of
    /// connections to determine.
    pub(crate) fn path_metrics(&self) -> Option<PathMetrics> {
        let round = self.round();
        let connections = round.tuner.found()?;
        Some(PathMetrics { connections, bytes_per_s: round.best() as u64 })
    }

    /// Adapts the window at the end of a round. Must be called after every transfer; `ahead` is the number of remaining
    /// bytes, if known.
    pub(crate) fn adapt(&self, window: &Window, ahead: Option<u64>) {
        let now = clock::now();
        let mut round = self.round();
        if now - round.started < round.length {
            return;
        }
        let connections = self.client.as_ref().map(|client| client.connections()).unwrap_or_default();
        let round_trip = round_trip(&connections);
        let transferred = window.transferred();
        if let Some(bytes) = round.end(now, transferred, round_trip) {
            window.set_limit(bytes.min(self.most));
        }
        // Where the limit does not matter, the tuner would draw wrong conclusions.
        let Some(client) = self.client.as_ref().filter(|client| client.uses_connection_limit()) else { return };
        round.tuner.set_path(round_trip, least_buffer(connections.iter().map(|connection| &connection.info)));
        let in_use = connections.iter().filter(|connection| connection.has_work);
        in_use.for_each(|connection| round.tuner.sample(&connection.info));
        client.set_connection_limit(round.tuner.observe(now, transferred, round_trip, ahead));
    }
}

impl Round {
    /// Returns the maximum rate of the last rounds in bytes per second.
    fn best(&self) -> f64 {
        self.rates.iter().copied().fold(0.0, f64::max)
    }

    /// Ends a round and begins the next one. Returns the new window size; `None` if nothing has been moved yet.
    fn end(&mut self, now: Instant, transferred: u64, round_trip: Duration) -> Option<u64> {
        let bytes = transferred.saturating_sub(self.transferred);
        let rate = bytes as f64 / (now - self.started).as_secs_f64();
        if self.rates.len() == ROUNDS {
            self.rates.pop_front();
        }
        self.rates.push_back(rate);
        (self.started, self.transferred, self.length) = (now, transferred, round_trip.max(MIN_ROUND));
        let best = self.best();
        let holds = best * round_trip.as_secs_f64();
        let least = if round_trip < LONG { MIN_BYTES } else { MIN_LONG_BYTES };
        (best > 0.0).then(|| ((GAIN * holds) as u64).clamp(least, MAX_BYTES))
    }
}

/// Returns the round trip between the ends of a copy: a byte travels from one server to this machine and on to the
/// other server. With more than two servers, the two largest round trips count.
fn round_trip(connections: &[Connection]) -> Duration {
    let mut nearest: BTreeMap<_, Duration> = BTreeMap::new();
    for Connection { host, port, info, .. } in
        connections.iter().filter(|connection| !connection.info.min_rtt.is_zero())
    {
        let least = nearest.entry((host, port)).or_insert(info.min_rtt);
        *least = info.min_rtt.min(*least);
    }
    let mut servers: Vec<_> = nearest.into_values().collect();
    servers.sort_unstable_by(|a, b| b.cmp(a));
    servers.iter().take(2).sum()
}

#[cfg(test)]
mod tests {
    use towpath_store::Caller;

    use super::*;

    const RTT: Duration = Duration::from_millis(100);

    /// Returns the windows after several rounds, each of which moves as much as the last window and the path's rate
    /// (in bytes per round) permit.
    fn windows(round_trip: Duration, rates: &[u64]) -> Vec<u64> {
        let (mut now, mut transferred, mut window) = (clock::now(), 0, MIN_BYTES);
        let tuner = Tuner::new(1, false);
        let mut round = Round { started: now, transferred, length: RTT, rates: VecDeque::new(), tuner };
        let mut windows = Vec::new();
        for rate in rates {
            now += RTT;
            transferred += window.min(*rate);
            window = round.end(now, transferred, round_trip).unwrap();
            windows.push(window);
        }
        windows
    }

    #[test]
    fn the_window_doubles_until_it_is_twice_what_the_path_holds() {
        let mib = |windows: Vec<u64>| windows.iter().map(|bytes| bytes >> 20).collect::<Vec<_>>();
        assert_eq!(mib(windows(RTT, &[100 << 20; 5])), [64, 128, 200, 200, 200]);
        assert_eq!(mib(windows(RTT, &[1 << 30; 6])), [64, 128, 256, 256, 256, 256], "but no more than the most");
    }

    #[test]
    fn a_bad_moment_does_not_shrink_it_but_a_worse_path_does() {
        let mut rates = vec![100 << 20; 5];
        rates.extend([1 << 20; 12]);
        let windows = windows(RTT, &rates);
        assert_eq!((windows[5], windows[12]), (200 << 20, 200 << 20));
        assert_eq!(windows[16], MIN_LONG_BYTES);
    }

    #[test]
    fn where_there_is_no_distance_it_stays_small() {
        assert_eq!(windows(Duration::from_micros(50), &[1 << 30; 3]), [MIN_BYTES; 3]);
    }

    /// Returns the metrics of a path after a minute, if the first sample showed a long path.
    async fn found_with(client: &Arc<Client>) -> Option<PathMetrics> {
        let flow_control = FlowControl::new(Some(Arc::clone(client)), MAX_BYTES, false);
        flow_control.round().tuner.observe(clock::now(), 0, RTT, None);
        let window = Window::new(MIN_BYTES);
        for _ in 0..600 {
            tokio::time::advance(RTT).await;
            flow_control.adapt(&window, None);
        }
        flow_control.path_metrics()
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_found_of_connections_that_there_are_none_of() {
        let client = Arc::new(Client::new(Arc::default()));
        let (store, path) = client.connect(&"root://127.0.0.1:1//file".parse().unwrap()).unwrap();
        assert_eq!(found_with(&client).await, None, "no xroot site has been asked anything");
        let caller = Caller::local();
        let asking = store.stat(&caller, &path);
        // No server responds.
        let _ = tokio::time::timeout(RTT, asking).await;
        assert!(found_with(&client).await.is_some());
    }
}
