//! How much to keep in flight: twice what the path holds; and, where the xroot protocol is spoken, over how many connections ([`crate::tuner`]).
//!
//! A path holds its rate times its round trip. The rate is the best of the last rounds, each as long as the round trip; so a window that is too
//! small doubles with each round until the rate no longer grows, and one that is large enough stays so while the path has a bad moment. It is the law by
//! which BBR sets its window (draft-cardwell-iccrg-bbr-congestion-control, 4.6), one level up: over all connections, and with the destination's disk in it.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use towpath_client::{Client, Connection};
use towpath_store::sys::clock::{self, Instant};

use crate::{
    paths::Lesson,
    tuner::{Tuner, least_buffer},
    window::Window,
};

/// The least window: what keeps two disks and a processor's caches busy where there is no distance.
pub(crate) const MIN_BYTES: u64 = 16 << 20;

/// The least window on a long path, so that it is not the window that has to open first: 1 Gbit/s over 500 ms.
const MIN_LONG_BYTES: u64 = 64 << 20;

/// A round trip of this length or more makes a path long.
pub(crate) const LONG: Duration = Duration::from_millis(10);

/// The largest window: a rate of 5 Gbit/s over 200 ms, twice. It is also the most memory that data may take which the destination does not take.
pub const MAX_BYTES: u64 = 256 << 20;

/// Ratio of the window to the capacity of the path: one capacity is in transit, one is being written and requested.
const GAIN: f64 = 2.0;

/// Number of rounds whose maximum counts.
const ROUNDS: usize = 10;

/// The shortest round; below it rates are those of bursts.
const MIN_ROUND: Duration = Duration::from_millis(20);

/// Fits the window, and the number of connections, to the path.
#[derive(Debug)]
pub(crate) struct Pace {
    client: Option<Arc<Client>>,
    /// The largest window, in bytes.
    most: u64,
    round: Mutex<Round>,
}

#[derive(Debug)]
struct Round {
    started: Instant,
    /// What the window had moved by then.
    moved: u64,
    length: Duration,
    /// Bytes per second of the last rounds.
    rates: VecDeque<f64>,
    tuner: Tuner,
}

impl Pace {
    /// The path is the one that `client` has to its servers; without one there is no distance. The window never exceeds `most` bytes. A copy
    /// that is `nice` makes room for others, and so does its client from now on.
    pub(crate) fn new(client: Option<Arc<Client>>, most: u64, nice: bool) -> Self {
        if nice && let Some(client) = &client {
            client.be_nice();
        }
        let tuner = Tuner::new(client.as_ref().map_or(1, |client| client.lanes()), nice);
        let (started, rates) = (clock::now(), VecDeque::new());
        let round = Round { started, moved: 0, length: MIN_ROUND, rates, tuner };
        Self { client, most, round: Mutex::new(round) }
    }

    fn round(&self) -> MutexGuard<'_, Round> {
        self.round.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins where another copy over this path ended. To be called before anything was moved.
    pub(crate) fn begin_with(&self, lesson: Lesson) {
        let mut round = self.round();
        round.rates.push_back(lesson.bytes_per_s as f64);
        round.tuner.begin_with(lesson.lanes);
    }

    /// Returns the measured properties of the path; `None` if there was no time, or no number of connections to
    /// determine.
    pub(crate) fn lesson(&self) -> Option<Lesson> {
        let round = self.round();
        let lanes = round.tuner.found()?;
        Some(Lesson { lanes, bytes_per_s: round.best() as u64 })
    }

    /// Adapts the window at the end of a round. Must be called after every transfer of data; `ahead` is the number of
    /// remaining bytes, if known.
    pub(crate) fn adapt(&self, window: &Window, ahead: Option<u64>) {
        let now = clock::now();
        let mut round = self.round();
        if now - round.started < round.length {
            return;
        }
        let connections = self.client.as_ref().map(|client| client.connections()).unwrap_or_default();
        let round_trip = round_trip(&connections);
        let moved = window.moved();
        if let Some(bytes) = round.end(now, moved, round_trip) {
            window.set_limit(bytes.min(self.most));
        }
        // Without lanes the tuner does not control the number of connections and would draw wrong conclusions.
        let Some(client) = self.client.as_ref().filter(|client| client.uses_lanes()) else { return };
        round.tuner.suit_to(round_trip, least_buffer(connections.iter().map(|connection| &connection.info)));
        let in_use = connections.iter().filter(|connection| connection.has_work);
        in_use.for_each(|connection| round.tuner.look_at(&connection.info));
        client.set_lanes(round.tuner.observe(now, moved, round_trip, ahead));
    }
}

impl Round {
    /// The best rate of the last rounds, in bytes per second.
    fn best(&self) -> f64 {
        self.rates.iter().copied().fold(0.0, f64::max)
    }

    /// Ends a round, and begins the next one. Gives the size that the window should have; none if nothing has been moved yet.
    fn end(&mut self, now: Instant, moved: u64, round_trip: Duration) -> Option<u64> {
        let bytes = moved.saturating_sub(self.moved);
        let rate = bytes as f64 / (now - self.started).as_secs_f64();
        if self.rates.len() == ROUNDS {
            self.rates.pop_front();
        }
        self.rates.push_back(rate);
        (self.started, self.moved, self.length) = (now, moved, round_trip.max(MIN_ROUND));
        let best = self.best();
        let holds = best * round_trip.as_secs_f64();
        let least = if round_trip < LONG { MIN_BYTES } else { MIN_LONG_BYTES };
        (best > 0.0).then(|| ((GAIN * holds) as u64).clamp(least, MAX_BYTES))
    }
}

/// Returns the round trip between the ends of a copy: a byte in flight travels from one server and then to another.
/// With more than two servers, the two largest count.
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
        let (mut now, mut moved, mut window) = (clock::now(), 0, MIN_BYTES);
        let tuner = Tuner::new(1, false);
        let mut round = Round { started: now, moved, length: RTT, rates: VecDeque::new(), tuner };
        let mut windows = Vec::new();
        for rate in rates {
            now += RTT;
            moved += window.min(*rate);
            window = round.end(now, moved, round_trip).unwrap();
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

    /// Returns the lesson of a path after a minute, if the first sample showed a long path.
    async fn found_with(client: &Arc<Client>) -> Option<Lesson> {
        let pace = Pace::new(Some(Arc::clone(client)), MAX_BYTES, false);
        pace.round().tuner.observe(clock::now(), 0, RTT, None);
        let window = Window::new(MIN_BYTES);
        for _ in 0..600 {
            tokio::time::advance(RTT).await;
            pace.adapt(&window, None);
        }
        pace.lesson()
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_found_of_connections_that_there_are_none_of() {
        let client = Arc::new(Client::new(Arc::default()));
        let (store, path) = client.connect(&"root://127.0.0.1:1//file".parse().unwrap()).unwrap();
        assert_eq!(found_with(&client).await, None, "no xroot site has been asked anything");
        let caller = Caller::local();
        let asking = store.stat(&caller, &path);
        // Nobody is there.
        let _ = tokio::time::timeout(RTT, asking).await;
        assert!(found_with(&client).await.is_some());
    }
}
