//! The state of a pipe: the rate of its connections, and the limit above which they are contended.

use crate::period::{Decision, PipeMeasurement, Reason};

/// Number of periods in which a new pipe uses a part of its share.
const LEARNING_PERIODS: u32 = 2;

/// Maximum number of periods without contention whose mean is the rate of a connection.
const MAX_SAMPLES: u32 = 8;

/// Minimum efficiency, as a logarithm, of a period without contention.
const FREE: f64 = -0.07;

/// Addition to it after the first period without contention, whose rate may be too high by the error of the measurement;
/// after n of them, 1 / n of it.
const FIRST_FREE: f64 = -0.13;

/// Weight of the newest period in the recent rate of a connection. It is the maximum rate if it exceeds it so far that
/// the error of the measurement (a few percent) cannot be the reason: then the pipe had begun under contention.
const NEWEST: f64 = 0.2;
const EXCESS: f64 = 1.06;

/// Weight of the resource with the lowest efficiency beside that of the pipe. Its pipes together have a smaller error of
/// measurement, and also count if the rate of this pipe's connections is not known well.
const RESOURCE_WEIGHT: f64 = 0.5;

/// Cumulative sum test for contention (E. S. Page: "Continuous inspection schemes", Biometrika 41, 1954): the loss that is
/// permitted in each period, and the excess over it at which there is contention, as logarithms of the efficiency.
const PERMITTED_LOSS: f64 = 0.1;
const ALARM: f64 = 0.06;

/// Lowest efficiency that is believed in one period, as a logarithm: a tenth.
const LOWEST: f64 = -2.3;

/// Exponent of the efficiency in the factor of a decrease. 1 / (1 + d) leads to the knee in one step if
/// goodput falls as N to the power of −d.
const DECREASE: f64 = 0.5;

/// Connections that a pipe without contention may add in a period, for a mean backlog and a mean weight. One with a longer
/// backlog may add more, so that it is not the last one for long. Shares of unknown links tend to the weights.
const INCREASE: f64 = 1.5;
const LEAST_BACKLOG: f64 = 0.5;
const MOST_BACKLOG: f64 = 3.0;
const LEAST_WEIGHT: f64 = 0.25;
const MOST_WEIGHT: f64 = 4.0;

/// Above this multiple of the last knee, the limit grows by a factor: the knee has moved.
const MOVED: f64 = 1.5;
const MOVED_INCREASE: f64 = 1.3;

/// Part of its limit that a pipe must use before it may grow.
const USED: f64 = 0.93;

/// Maximum factor between two numbers of connections of a pipe whose path is not known completely.
const UNKNOWN_FACTOR: f64 = 2.0;

/// A period of a pipe.
#[derive(Debug, Clone, Copy)]
pub(super) struct Observation {
    pub(super) measured: PipeMeasurement,
    /// Its length in seconds.
    pub(super) length_s: f64,
    /// The lowest efficiency of a resource of the path; `None` without a known resource.
    pub(super) lowest_efficiency: Option<f64>,
    /// Whether a resource of the path has no free capacity, or the connections were halved.
    pub(super) is_full: bool,
    /// Remaining bytes / their mean over all pipes that have some.
    pub(super) backlog: f64,
    /// Its weight / the mean weight of these pipes.
    pub(super) weight: f64,
}

/// A pipe.
#[derive(Debug, Clone)]
pub(super) struct PipeState {
    /// Logarithm of the correction within its bottleneck, against unequal rates of connections.
    pub(super) trim: f64,
    /// Moving average of the rate of the pipe in bytes per second.
    pub(super) mean_rate: f64,
    /// Bytes per second of a connection without contention; 0 if unknown.
    connection_rate: f64,
    /// Number of periods whose mean it is.
    samples: u32,
    /// Files that were started, and the time at their start without bytes, in seconds.
    started_files: u64,
    startup_s: f64,
    /// Mean bytes of a file.
    file_bytes: f64,
    /// Moving average of the rate of a connection.
    recent_rate: f64,
    /// Decisions since the first measurement.
    periods: u32,
    /// Cumulative sum of the loss beyond the permitted one.
    loss: f64,
    /// Bytes per second that it may have; infinite if it was never contended.
    limit: f64,
    /// The limit when it was contended last.
    knee: f64,
}

impl Default for PipeState {
    fn default() -> Self {
        Self {
            trim: 0.0,
            mean_rate: 0.0,
            connection_rate: 0.0,
            samples: 0,
            started_files: 0,
            startup_s: 0.0,
            file_bytes: f64::INFINITY,
            recent_rate: 0.0,
            periods: 0,
            loss: 0.0,
            limit: f64::INFINITY,
            knee: f64::INFINITY,
        }
    }
}

impl PipeState {
    /// Returns the bytes per second of a connection without contention; 0 if unknown.
    pub(super) fn connection_rate(&self) -> f64 {
        self.connection_rate
    }

    /// Returns the rate that the pipe may have in bytes per second.
    pub(super) fn limit(&self) -> f64 {
        self.limit
    }

    /// Returns whether nothing was received yet.
    pub(super) fn is_new(&self) -> bool {
        self.samples == 0
    }

    /// Returns whether the rate of its connections is being learned.
    pub(super) fn is_learning(&self) -> bool {
        self.periods < LEARNING_PERIODS
    }

    /// Learns the rate of a connection from the first bytes, and what a file costs besides.
    pub(super) fn measure_first(&mut self, measured: &PipeMeasurement) {
        if self.is_new()
            && let Some(rate) = rate_of_connection(measured)
        {
            (self.connection_rate, self.recent_rate, self.samples) = (rate, rate, 1);
        }
        self.started_files += measured.started_files;
        self.startup_s += measured.connection_s - measured.receiving_s;
        let files = measured.queued_files + u64::from(measured.connections);
        if files > 0 {
            self.file_bytes = measured.remaining_bytes / files as f64;
        }
    }

    /// Returns the connections that a rate of one byte per second needs: the time to receive a byte, and its part of the
    /// time at the start of a file.
    pub(super) fn connections_per_rate(&self) -> f64 {
        let startup_s = self.startup_s / (self.started_files as f64).max(1.0);
        1.0 / self.connection_rate.max(1.0) + startup_s / self.file_bytes.max(1.0)
    }

    /// Returns the logarithm of the efficiency in a period; `None` if nothing was received.
    pub(super) fn efficiency(&self, measured: &PipeMeasurement) -> Option<f64> {
        rate_of_connection(measured).map(|rate| self.efficiency_at(rate))
    }

    fn efficiency_at(&self, rate: f64) -> f64 {
        (rate / self.connection_rate).ln()
    }

    /// Forgets the contention: its reason was found.
    pub(super) fn forget_contention(&mut self) {
        (self.limit, self.knee, self.loss) = (f64::INFINITY, f64::INFINITY, 0.0);
    }

    /// Learns from a period.
    pub(super) fn learn(&mut self, observation: &Observation) {
        let &Observation { measured, length_s, lowest_efficiency, is_full, backlog, weight } = observation;
        let Some(rate) = rate_of_connection(&measured) else { return };
        let newest = NEWEST.max(1.0 / f64::from(self.periods.max(1)));
        self.recent_rate += newest * (rate - self.recent_rate);
        let own = self.efficiency_at(rate);
        let of_resource = lowest_efficiency.map_or(own, |efficiency| efficiency.ln().min(0.0));
        let efficiency = ((1.0 - RESOURCE_WEIGHT) * own + RESOURCE_WEIGHT * of_resource).max(LOWEST);
        let free = FREE + FIRST_FREE / f64::from(self.samples.max(1));
        if self.samples < MAX_SAMPLES && efficiency > free && !is_full {
            self.samples += 1;
            self.connection_rate += (rate - self.connection_rate) / f64::from(self.samples);
        } else if self.recent_rate > EXCESS * self.connection_rate {
            self.connection_rate = self.recent_rate;
        }
        let offered = measured.receiving_s / length_s * self.connection_rate;
        self.loss = (self.loss - efficiency - PERMITTED_LOSS).max(0.0);
        if self.loss > ALARM && !is_full {
            self.limit = (offered * (DECREASE * efficiency).exp()).min(self.limit);
            (self.knee, self.loss) = (self.limit, 0.0);
        } else if offered > USED * self.limit {
            let factor = if self.limit > MOVED * self.knee { MOVED_INCREASE } else { 1.0 };
            let increase =
                INCREASE * backlog.clamp(LEAST_BACKLOG, MOST_BACKLOG) * weight.clamp(LEAST_WEIGHT, MOST_WEIGHT);
            self.limit = factor * self.limit + increase * self.connection_rate;
        }
    }

    /// Returns the connections for a rate in bytes per second, at least 1, after `granted` ones.
    pub(super) fn wanted(&self, rate: f64, granted: u32, is_path_complete: bool) -> f64 {
        let wanted = (rate * self.connections_per_rate()).max(1.0);
        match is_path_complete {
            true => wanted,
            false => wanted.min(UNKNOWN_FACTOR * f64::from(granted.max(1))),
        }
    }

    /// Returns the reason if the network sets no limit.
    pub(super) fn reason(&self) -> Reason {
        match self.limit.is_finite() {
            true => Reason::LimitedByContention { limit: self.limit },
            false => Reason::NotContended,
        }
    }

    /// Decides the number of connections.
    pub(super) fn set(&mut self, connections: u32, reason: Reason) -> Decision {
        if !self.is_new() {
            self.periods = self.periods.saturating_add(1);
        }
        Decision { connections, reason }
    }
}

/// Returns the mean rate of a connection in bytes per second, after the start of files; `None` if nothing was received.
fn rate_of_connection(measured: &PipeMeasurement) -> Option<f64> {
    (measured.receiving_s > 0.0 && measured.received_bytes > 0.0)
        .then(|| measured.received_bytes / measured.receiving_s)
}
