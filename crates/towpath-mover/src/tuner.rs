//! Determines the number of connections to use in parallel, by experiments during the copy.
//!
//! One connection is sufficient where its window opens far enough, which depends on the sender's buffer, losses, and
//! slow start. The number is therefore determined by experiment. The search maximizes the utility `U(n) = R(n) /
//! PRICE^n` (Falcon, SC 2021: R is the rate, and each connection has a price, which keeps several movers on one link
//! fair and stops the search where more connections do not help).
//!
//! The search doubles `n` as long as U grows by more than the measurement noise, and returns to the best `n`
//! otherwise; then it rests, twice as long each time. While the path has a queue it is full, and no more connections
//! are tried: they could gain a share only by losses of all. Every other search halves `n` instead, as long as U does
//! not fall by more than the noise, but not below the initial number of a copy, so that the result of a bad day is not
//! permanent. In both directions a doubling is kept if it gains as much. For a path whose rate saturates, U has one
//! maximum, so that a search ends within a factor of two of it after at most log2(64) trials.

use std::time::Duration;

use towpath_client::MAX_CONNECTIONS;
use towpath_proto::tcp::TcpInfo;
use towpath_store::sys::clock::Instant;

use crate::flow_control::LONG;

/// Rate in bytes per second that the initial connections should reach on a long path as far as their buffers permit: 1
/// Gbit/s.
const FIRST_RATE: f64 = 125e6;

/// Maximum number of initial connections chosen for that rate.
const FIRST_CONNECTIONS: usize = 4;

/// Minimum gain per additional connection, as a factor of the rate.
const PRICE: f64 = 1.02;

/// The same for a copy that leaves capacity to others.
const NICE_PRICE: f64 = 1.2;

/// Factor by which the rate must grow to exceed measurement noise.
const NOISE: f64 = 1.1;

/// Round trips for the windows of new connections to grow before the rate is measured.
const OPENING: u32 = 10;

/// Minimum duration of a measurement, in time and in round trips.
const MIN_MEASURE: Duration = Duration::from_millis(500);
const MEASURE: u32 = 5;

/// Minimum remaining time for a trial to start, at the present rate, as a multiple of the duration of a trial.
const MIN_REMAINING_TRIALS: f64 = 3.0;

/// Pause after the first unsuccessful search; doubled after each further one.
const FIRST_REST: Duration = Duration::from_secs(10);
const MAX_REST: Duration = Duration::from_secs(160);

/// Adapts the number of connections of one path.
#[derive(Debug)]
pub(crate) struct Tuner {
    connections: usize,
    /// Initial and minimum number of connections on a long path.
    initial: usize,
    /// Initial number found by another copy, used instead.
    remembered: Option<usize>,
    nice: bool,
    phase: Phase,
    rest: Duration,
    /// Whether to try more or fewer connections.
    direction: Direction,
    /// The number of connections, and its rate, that the next trial is compared with.
    base: Option<(usize, f64)>,
    /// Whether a search has ended.
    has_found: bool,
    /// Number of samples of connections since the measurement began, and of those with a queue on the path.
    samples: u32,
    queued_samples: u32,
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    /// The path is unknown.
    Unknown,
    /// The windows of new connections are growing.
    Opening { until: Instant },
    /// Measuring the rate: start of the measurement, and bytes moved by then.
    Measuring { since: Instant, transferred: u64 },
    /// The best number found is used.
    Resting { until: Instant },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    More,
    Fewer,
}

impl Tuner {
    /// Starts with `connections` connections in use. With `nice`, a connection is kept only for a large gain, and the
    /// copy starts with one.
    pub(crate) fn new(connections: usize, nice: bool) -> Self {
        let connections = if nice { 1 } else { connections };
        Self {
            connections,
            initial: connections,
            remembered: None,
            nice,
            phase: Phase::Unknown,
            rest: FIRST_REST,
            direction: Direction::More,
            base: None,
            has_found: false,
            samples: 0,
            queued_samples: 0,
        }
    }

    /// Starts with half of the number that another copy found best for the path; the first trial shows whether it still
    /// is.
    pub(crate) fn start_from(&mut self, connections: usize) {
        self.remembered = Some((connections / 2).clamp(1, MAX_CONNECTIONS));
    }

    /// Sets the round trip, and the maximum buffer of one connection at either end in bytes. To be called before
    /// [`Self::observe`].
    pub(crate) fn set_path(&mut self, round_trip: Duration, buffer: u64) {
        if matches!(self.phase, Phase::Unknown) && !self.nice {
            self.initial = first_connections(round_trip, buffer, self.connections);
        }
    }

    /// Samples one of the connections in use. Must be called before [`Self::observe`].
    pub(crate) fn sample(&mut self, info: &TcpInfo) {
        self.samples += 1;
        self.queued_samples += u32::from(info.has_queue());
    }

    /// Returns the best number that a search found; `None` if no search has ended.
    pub(crate) fn found(&self) -> Option<usize> {
        self.has_found.then_some(self.base.map_or(self.connections, |(connections, _)| connections))
    }

    /// Returns the number of connections to use, given that `transferred` bytes in total were transferred by `now`. To
    /// be called about once per round trip while more data are pending than fit into the window. If the remaining bytes
    /// are known (`ahead`), a trial starts only if they take long enough to benefit from it.
    pub(crate) fn observe(
        &mut self,
        now: Instant,
        transferred: u64,
        round_trip: Duration,
        ahead: Option<u64>,
    ) -> usize {
        match self.phase {
            Phase::Unknown if round_trip < LONG => {}
            Phase::Unknown => self.begin_trial(self.remembered.unwrap_or(0).max(self.initial), now, round_trip),
            Phase::Opening { until } if now < until => {}
            Phase::Opening { .. } => self.measure(now, transferred),
            Phase::Measuring { since, .. } if now - since < MIN_MEASURE.max(MEASURE * round_trip) => {}
            Phase::Measuring { since, transferred: before } => {
                let rate = transferred.saturating_sub(before) as f64 / (now - since).as_secs_f64();
                let trial = OPENING * round_trip + MIN_MEASURE.max(MEASURE * round_trip);
                let is_worth_it =
                    ahead.is_none_or(|ahead| ahead as f64 > rate * MIN_REMAINING_TRIALS * trial.as_secs_f64());
                self.evaluate(rate, is_worth_it, now, round_trip);
            }
            Phase::Resting { until } if now < until => {}
            // The rate may have changed in the meantime: measure it again before a trial.
            Phase::Resting { .. } => {
                self.base = None;
                self.measure(now, transferred);
            }
        }
        self.connections
    }

    fn measure(&mut self, since: Instant, transferred: u64) {
        (self.samples, self.queued_samples) = (0, 0);
        self.phase = Phase::Measuring { since, transferred };
    }

    fn begin_trial(&mut self, connections: usize, now: Instant, round_trip: Duration) {
        self.connections = connections;
        self.phase = Phase::Opening { until: now + OPENING * round_trip };
    }

    /// Evaluates the measured `rate` of the current number of connections, in bytes per second.
    fn evaluate(&mut self, rate: f64, is_worth_it: bool, now: Instant, round_trip: Duration) {
        let tried = (self.connections, rate);
        let is_accepted = match (self.base, self.direction) {
            (None, _) => true,
            (Some(base), Direction::More) => self.is_better(tried, base),
            (Some(base), Direction::Fewer) => !self.is_better(base, tried),
        };
        let next = match self.direction {
            Direction::More if self.is_full() => self.connections,
            Direction::More => (self.connections * 2).min(MAX_CONNECTIONS),
            Direction::Fewer => (self.connections / 2).max(self.initial),
        };
        if is_accepted {
            self.base = Some(tried);
        }
        if is_accepted && next != self.connections && is_worth_it {
            return self.begin_trial(next, now, round_trip);
        }
        self.phase = Phase::Resting { until: now + self.rest };
        if is_accepted && next != self.connections {
            // Only the remaining time was too short; the search is not complete.
            return;
        }
        self.connections = self.base.map_or(self.connections, |(connections, _)| connections);
        self.has_found = true;
        self.rest = (self.rest * 2).min(MAX_REST);
        self.direction = match self.direction {
            Direction::More if self.connections > self.initial => Direction::Fewer,
            _ => Direction::More,
        };
    }

    /// Returns whether there was a queue on the path most of the time.
    fn is_full(&self) -> bool {
        self.queued_samples * 2 > self.samples
    }

    /// Returns whether the utility of `more` connections exceeds that of `fewer` by more than noise.
    fn is_better(&self, more: (usize, f64), fewer: (usize, f64)) -> bool {
        let price = if self.nice { NICE_PRICE } else { PRICE };
        utility_at_price(more.1, more.0.saturating_sub(fewer.0), price) > fewer.1 * NOISE
    }
}

/// Returns the utility of `rate` with `connections` connections, each at a `price`.
fn utility_at_price(rate: f64, connections: usize, price: f64) -> f64 {
    rate / price.powi(i32::try_from(connections).unwrap_or(i32::MAX))
}

/// Returns the utility of `rate` with `connections` connections at the usual price.
pub(crate) fn utility(rate: f64, connections: usize) -> f64 {
    utility_at_price(rate, connections, PRICE)
}

/// Returns the initial number of connections over a path with a known round trip and maximum buffer of one connection
/// in bytes (zero if unknown); `connections` are in use. Half of a buffer is for the kernel's own bookkeeping.
pub(crate) fn first_connections(round_trip: Duration, buffer: u64, connections: usize) -> usize {
    if round_trip < LONG || buffer == 0 {
        return connections;
    }
    let needed = (FIRST_RATE * round_trip.as_secs_f64() / (buffer as f64 / 2.0)).ceil();
    (needed as usize).clamp(1, FIRST_CONNECTIONS).max(connections)
}

/// Returns the smallest send or receive buffer limit among the connections in bytes, assuming that their peers are
/// configured alike. Zero if unknown.
pub(crate) fn least_buffer<'a>(connections: impl Iterator<Item = &'a TcpInfo>) -> u64 {
    connections.map(|info| info.most_send_buffer.min(info.most_receive_buffer)).min().unwrap_or(0)
}

#[cfg(test)]
mod tests;
