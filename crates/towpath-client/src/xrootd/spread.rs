//! Chooses the session for the next bulk request: the one that is expected to complete it first.

use std::time::Duration;

use towpath_store::sys::clock::Instant;

/// Number of bytes in flight from which a session is busy; the next bulk request then uses another session.
pub(super) const BUSY_BYTES: usize = 1 << 20;

/// Maximum load in bytes of a session that has carried no data. Its window has yet to open, and data assigned meanwhile
/// are not available to other sessions; but its server should not have to wait for the next request either.
const FIRST_BYTES: usize = 6 << 20;

/// Maximum load per carried byte, until the site's window is the limit. An opening window doubles with each round
/// trip, and the load has to last for two.
const FURTHER: usize = 4;

/// Minimum time over which a rate is measured.
const MEASURE: Duration = Duration::from_millis(200);

/// The load and the throughput of a session.
#[derive(Debug, Clone, Copy)]
pub(super) struct SessionLoad {
    /// Bytes of file data in flight.
    pub load: usize,
    /// Bytes that are no longer in flight.
    pub carried: usize,
    /// Recent bytes per second while it had work; `None` if unknown.
    pub rate: Option<f64>,
}

impl SessionLoad {
    /// The load of a session that has not started.
    pub(super) const NEW: Self = Self { load: 0, carried: 0, rate: None };

    fn may_take_more(&self) -> bool {
        self.load < FIRST_BYTES.saturating_add(self.carried.saturating_mul(FURTHER))
    }
}

/// Returns the number of the session, out of `count`, for the next bulk request; `known` holds the first sessions. The
/// first session carries all requests until it is busy.
pub(super) fn choose(known: &[SessionLoad], count: usize) -> usize {
    if known.first().is_none_or(|first| first.load < BUSY_BYTES) {
        return 0;
    }
    let rates: Vec<f64> = known.iter().filter_map(|session| session.rate).collect();
    // A session without a rate counts like the average of the others.
    let usual = if rates.is_empty() { 1.0 } else { rates.iter().sum::<f64>() / rates.len() as f64 };
    let wait = |session: &SessionLoad| (session.load + BUSY_BYTES) as f64 / session.rate.unwrap_or(usual).max(1.0);
    let all = known.iter().chain(std::iter::repeat(&SessionLoad::NEW)).take(count).enumerate();
    let order = |a: &SessionLoad, b: &SessionLoad| {
        b.may_take_more().cmp(&a.may_take_more()).then_with(|| wait(a).total_cmp(&wait(b)))
    };
    all.min_by(|(_, a), (_, b)| order(a, b)).map_or(0, |(number, _)| number)
}

/// Measures the throughput of a session.
#[derive(Debug)]
pub(super) struct Meter {
    carried: usize,
    rate: Option<f64>,
    /// Mean rate since work resumed, the last time that there was much of it.
    busy_rate: Option<f64>,
    /// When work resumed, and bytes carried by then.
    resumed: (Instant, usize),
    /// Start of the current measurement, and bytes carried by then.
    began: (Instant, usize),
}

impl Meter {
    /// Creates a meter of a session that has carried no data.
    pub(super) fn new(now: Instant) -> Self {
        Self { carried: 0, rate: None, busy_rate: None, resumed: (now, 0), began: (now, 0) }
    }

    /// Restarts the measurement when work resumes, so that the pause is excluded.
    pub(super) fn begins(&mut self, now: Instant) {
        (self.began, self.resumed) = ((now, self.carried), (now, self.carried));
    }

    /// Records `bytes` that are no longer in flight.
    pub(super) fn carries(&mut self, bytes: usize, now: Instant) {
        self.carried = self.carried.saturating_add(bytes);
        let (since, before) = self.resumed;
        let (busy, carried) = (now.saturating_duration_since(since), self.carried.saturating_sub(before));
        if busy >= MEASURE && carried >= BUSY_BYTES {
            self.busy_rate = Some(carried as f64 / busy.as_secs_f64());
        }
        let (since, before) = self.began;
        let time = now.saturating_duration_since(since);
        if time >= MEASURE {
            self.rate = Some(self.carried.saturating_sub(before) as f64 / time.as_secs_f64());
            self.began = (now, self.carried);
        }
    }

    /// Returns the state of the session, with `load` in flight.
    pub(super) fn session_load(&self, load: usize) -> SessionLoad {
        SessionLoad { load, carried: self.carried, rate: self.rate }
    }

    /// Returns how long `load` takes at the last rate of much data; `None` if there was none. One of few data says little.
    pub(super) fn duration(&self, load: usize) -> Option<Duration> {
        Duration::try_from_secs_f64(load as f64 / self.busy_rate?.max(1.0)).ok()
    }
}

#[cfg(test)]
mod tests {
    use towpath_store::sys::clock;

    use super::*;

    const PIECE: usize = 2 << 20;

    fn session_load(load: usize, carried: usize, rate: Option<f64>) -> SessionLoad {
        SessionLoad { load, carried, rate }
    }

    /// Returns the bytes in flight of each of `count` sessions after `pieces` have been assigned.
    fn spread(mut known: Vec<SessionLoad>, count: usize, pieces: usize) -> Vec<usize> {
        for _ in 0..pieces {
            let number = choose(&known, count);
            known.resize(known.len().max(number + 1), SessionLoad::NEW);
            known[number].load += PIECE;
        }
        known.iter().map(|session| session.load / PIECE).collect()
    }

    #[test]
    fn the_first_session_does_everything_until_it_is_busy() {
        assert_eq!(choose(&[], 4), 0);
        assert_eq!(choose(&[session_load(BUSY_BYTES - 1, 0, None)], 4), 0);
        assert_eq!(choose(&[session_load(BUSY_BYTES, 0, None)], 4), 1);
        assert_eq!(choose(&[session_load(BUSY_BYTES, 0, None); 4], 1), 0, "of those that may be used");
    }

    #[test]
    fn sessions_that_have_carried_nothing_share_alike_and_get_little() {
        assert_eq!(spread(Vec::new(), 4, 8), [2, 2, 2, 2]);
        let carries = session_load(0, 100 << 20, Some(1e8));
        assert_eq!(spread(vec![carries], 4, 32), [23, 3, 3, 3]);
    }

    #[test]
    fn each_gets_what_it_carries_in_the_same_time() {
        let known = [4e7, 1e7, 2e7].map(|rate| session_load(0, 100 << 20, Some(rate)));
        let loads = spread(known.to_vec(), 3, 70);
        assert!(loads.iter().zip([40, 10, 20]).all(|(load, share)| load.abs_diff(share) <= 1), "{loads:?}");
    }

    #[test]
    fn one_that_stands_still_gets_no_more() {
        let stuck = session_load(8 * PIECE, 100 << 20, Some(1e7));
        let moves = session_load(0, 100 << 20, Some(1e7));
        assert_eq!(spread(vec![stuck, moves], 2, 8), [8, 8]);
    }

    #[test]
    fn pauses_do_not_count() {
        let start = clock::now();
        let mut meter = Meter::new(start);
        meter.carries(PIECE, start + MEASURE / 2);
        assert_eq!(meter.session_load(0).rate, None);
        let later = start + Duration::from_secs(60);
        meter.begins(later);
        meter.carries(PIECE, later + MEASURE);
        let rate = meter.session_load(0).rate.unwrap();
        assert!((rate - PIECE as f64 / MEASURE.as_secs_f64()).abs() < 1.0, "{rate}");
    }

    #[test]
    fn a_queue_is_measured_by_the_last_rate_of_much_data() {
        let (start, mut meter) = (clock::now(), Meter::new(clock::now()));
        assert_eq!(meter.duration(PIECE), None);
        // Few bytes first, and most of them at once.
        meter.begins(start);
        meter.carries(1000, start + MEASURE);
        meter.carries(PIECE - 1000, start + MEASURE);
        assert_eq!(meter.duration(10 * PIECE), Some(10 * MEASURE));
        // A request for few bytes says little about the rate.
        let later = start + Duration::from_secs(60);
        meter.begins(later);
        meter.carries(1000, later + MEASURE);
        assert_eq!(meter.duration(10 * PIECE), Some(10 * MEASURE));
    }
}
