//! How many connections to use side by side, found out while copying.
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

use towpath_client::MAX_LANES;
use towpath_proto::tcp::TcpInfo;
use towpath_store::sys::clock::Instant;

use crate::pace::LONG;

/// What the connections that a copy begins with on a long path can carry together as far as their buffers permit, in bytes per second: a gigabit.
const FIRST_RATE: f64 = 125e6;

/// The most connections to begin with for that.
const FIRST_LANES: usize = 4;

/// What each further connection has to bring, as a factor of the rate.
const PRICE: f64 = 1.02;

/// The same of a copy that makes room for others.
const NICE_PRICE: f64 = 1.2;

/// By how much the rate must have grown to be more than noise.
const NOISE: f64 = 1.1;

/// Round trips that new connections get to open their windows before they are judged.
const OPENING: u32 = 10;

/// The shortest time over which a rate is measured, and how many round trips it lasts at least.
const MIN_MEASURE: Duration = Duration::from_millis(500);
const MEASURE: u32 = 5;

/// Minimum ratio of the remaining time, at the present rate, to the duration of a trial.
const WORTH: f64 = 3.0;

/// How long the search rests after it was in vain for the first time; twice as long each time after.
const FIRST_REST: Duration = Duration::from_secs(10);
const MAX_REST: Duration = Duration::from_secs(160);

/// Chooses the number of connections of one path.
#[derive(Debug)]
pub(crate) struct Tuner {
    lanes: usize,
    /// Connections to begin with on a long path, and the fewest that are tried.
    first: usize,
    /// The number to begin with in place of that, which was found by another copy.
    remembered: Option<usize>,
    nice: bool,
    phase: Phase,
    rest: Duration,
    /// Whether to try more connections, or fewer.
    direction: Direction,
    /// The number that the next one is compared with, and its rate.
    base: Option<(usize, f64)>,
    /// A search has ended.
    has_found: bool,
    /// Looks at connections since the present measurement began, and those at which something waited on the path.
    looks: u32,
    queues: u32,
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    /// Nothing is known of the path.
    Unknown,
    /// New connections open their windows.
    Opening { until: Instant },
    /// Measuring the rate: start of the measurement, and bytes moved by then.
    Measuring { since: Instant, moved: u64 },
    /// The best number found is used.
    Resting { until: Instant },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    More,
    Fewer,
}

impl Tuner {
    /// Nothing is known yet; `lanes` are in use. One that is `nice` takes no connection that does not bring much, and begins with none
    /// beside the first.
    pub(crate) fn new(lanes: usize, nice: bool) -> Self {
        let lanes = if nice { 1 } else { lanes };
        Self {
            lanes,
            first: lanes,
            remembered: None,
            nice,
            phase: Phase::Unknown,
            rest: FIRST_REST,
            direction: Direction::More,
            base: None,
            has_found: false,
            looks: 0,
            queues: 0,
        }
    }

    /// Starts with half of the number that another copy found best for the path; if it still is, the first trial shows
    /// it.
    pub(crate) fn begin_with(&mut self, lanes: usize) {
        self.remembered = Some((lanes / 2).clamp(1, MAX_LANES));
    }

    /// Sets the round trip, and the maximum buffer of one connection at either end in bytes. To be called before
    /// [`Self::observe`].
    pub(crate) fn suit_to(&mut self, round_trip: Duration, buffer: u64) {
        if matches!(self.phase, Phase::Unknown) && !self.nice {
            self.first = first_lanes(round_trip, buffer, self.lanes);
        }
    }

    /// Takes note of one of the connections in use. To be called before [`Self::observe`].
    pub(crate) fn look_at(&mut self, info: &TcpInfo) {
        self.looks += 1;
        self.queues += u32::from(info.has_queue());
    }

    /// The number that a search found to be the best; none if none has come to its end.
    pub(crate) fn found(&self) -> Option<usize> {
        self.has_found.then_some(self.base.map_or(self.lanes, |(lanes, _)| lanes))
    }

    /// Takes note of how much has been `moved` in all by `now`, and gives the number of connections to use from now on.
    /// To be called about once for each round trip, as long as there is more to move than fits into the window. Nothing is tried out for the
    /// rest that is `ahead`, if that is known, unless it takes long enough to gain by it.
    pub(crate) fn observe(&mut self, now: Instant, moved: u64, round_trip: Duration, ahead: Option<u64>) -> usize {
        match self.phase {
            Phase::Unknown if round_trip < LONG => {}
            Phase::Unknown => self.try_out(self.remembered.unwrap_or(0).max(self.first), now, round_trip),
            Phase::Opening { until } if now < until => {}
            Phase::Opening { .. } => self.measure(now, moved),
            Phase::Measuring { since, .. } if now - since < MIN_MEASURE.max(MEASURE * round_trip) => {}
            Phase::Measuring { since, moved: before } => {
                let rate = moved.saturating_sub(before) as f64 / (now - since).as_secs_f64();
                let trial = OPENING * round_trip + MIN_MEASURE.max(MEASURE * round_trip);
                let is_worth_it = ahead.is_none_or(|ahead| ahead as f64 > rate * WORTH * trial.as_secs_f64());
                self.judge(rate, is_worth_it, now, round_trip);
            }
            Phase::Resting { until } if now < until => {}
            // The rate may have changed meanwhile: it is measured again before a trial.
            Phase::Resting { .. } => {
                self.base = None;
                self.measure(now, moved);
            }
        }
        self.lanes
    }

    fn measure(&mut self, since: Instant, moved: u64) {
        (self.looks, self.queues) = (0, 0);
        self.phase = Phase::Measuring { since, moved };
    }

    fn try_out(&mut self, lanes: usize, now: Instant, round_trip: Duration) {
        self.lanes = lanes;
        self.phase = Phase::Opening { until: now + OPENING * round_trip };
    }

    /// Decides what `rate`, in bytes per second, of the present number means.
    fn judge(&mut self, rate: f64, is_worth_it: bool, now: Instant, round_trip: Duration) {
        let tried = (self.lanes, rate);
        let is_kept = match (self.base, self.direction) {
            (None, _) => true,
            (Some(base), Direction::More) => self.is_better(tried, base),
            (Some(base), Direction::Fewer) => !self.is_better(base, tried),
        };
        let next = match self.direction {
            Direction::More if self.is_full() => self.lanes,
            Direction::More => (self.lanes * 2).min(MAX_LANES),
            Direction::Fewer => (self.lanes / 2).max(self.first),
        };
        if is_kept {
            self.base = Some(tried);
        }
        if is_kept && next != self.lanes && is_worth_it {
            return self.try_out(next, now, round_trip);
        }
        self.phase = Phase::Resting { until: now + self.rest };
        if is_kept && next != self.lanes {
            // It was only not worth while.
            return;
        }
        self.lanes = self.base.map_or(self.lanes, |(lanes, _)| lanes);
        self.has_found = true;
        self.rest = (self.rest * 2).min(MAX_REST);
        self.direction = match self.direction {
            Direction::More if self.lanes > self.first => Direction::Fewer,
            _ => Direction::More,
        };
    }

    /// Whether something waited on the path most of the time.
    fn is_full(&self) -> bool {
        self.queues * 2 > self.looks
    }

    /// Whether `more` connections, with their rate, have a better utility than `fewer`, by more than noise.
    fn is_better(&self, more: (usize, f64), fewer: (usize, f64)) -> bool {
        let price = if self.nice { NICE_PRICE } else { PRICE };
        utility(more.1, more.0.saturating_sub(fewer.0), price) > fewer.1 * NOISE
    }
}

/// Returns the utility of `rate` with `lanes` connections, each at a `price`.
fn utility(rate: f64, lanes: usize, price: f64) -> f64 {
    rate / price.powi(i32::try_from(lanes).unwrap_or(i32::MAX))
}

/// Returns the utility of `rate` with `lanes` connections for a copy.
pub(crate) fn worth(rate: f64, lanes: usize) -> f64 {
    utility(rate, lanes, PRICE)
}

/// Returns the initial number of lanes over a path with a known round trip and maximum buffer of one connection in
/// bytes (zero if unknown); `lanes` are in use. Half of a buffer is for the kernel's own bookkeeping.
pub(crate) fn first_lanes(round_trip: Duration, buffer: u64, lanes: usize) -> usize {
    if round_trip < LONG || buffer == 0 {
        return lanes;
    }
    let needed = (FIRST_RATE * round_trip.as_secs_f64() / (buffer as f64 / 2.0)).ceil();
    (needed as usize).clamp(1, FIRST_LANES).max(lanes)
}

/// The most that one of the connections may buffer, in bytes, to send or to receive, whichever is less: their other ends are mostly set up alike. Zero if it is not
/// known.
pub(crate) fn least_buffer<'a>(connections: impl Iterator<Item = &'a TcpInfo>) -> u64 {
    connections.map(|info| info.most_send_buffer.min(info.most_receive_buffer)).min().unwrap_or(0)
}

#[cfg(test)]
mod tests;
