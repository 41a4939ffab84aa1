//! Results of measurements, made costs between addresses or between PIDs.
//!
//! Known are lines of CSV, JSON objects of the same fields, `iperf3 -J`, what perfSONAR sends and pages of its archives
//! (esmond), and `towpath probe --json`. [`Measurements::parse`] finds out which of them a document is, and takes a sample of each value
//! in the unit that RFC 9439 has for its metric. [`Measurements::facts`] makes costs of them: of several samples of the
//! same ends and metric the statistics of RFC 9439 §3.3, each under its own name.
//!
//! What is wrong with single samples takes nothing else away: they are skipped, and [`Doubts`] counts them. A document of
//! several lines is read line by line if its first line is a whole JSON value, so that a line that was cut off is one of
//! these.
//!
//! Nothing is measured or fetched here, and nothing is kept from one document to the next. Names of hosts are not looked
//! up: what is no address is the name of a PID.

mod csv;
mod iperf3;
mod json;
mod leaves;
mod perfsonar;
mod probe;
mod samples;
mod statistics;
#[cfg(test)]
mod tests;
mod time;
mod values;

use std::collections::BTreeMap;

use self::{
    json::Manner,
    samples::{Pair, Sample, Samples},
};
use towpath_alto::{
    facts::{Cost, Costs, Facts, Prefix},
    names::{CostMetric, PidName, ResourceId},
};

/// The longest document that is read, in bytes.
pub const MAX_BYTES: usize = 256 << 20;

/// The most samples of one document.
pub const MAX_SAMPLES: usize = 5_000_000;

/// A form in which measurements are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// A header line with `src`, `dst`, `metric`, `value` and perhaps `time`, in any order and among others; then a line
    /// for each sample. Fields are parted by commas and may be in double quotes, lines that start with `#` are comments.
    Csv,
    /// Objects with the same fields: in an array, or one after the other. `value` may be a list, and what perfSONAR has.
    Json,
    /// What `iperf3 -J` prints at the client, once or several times.
    Iperf3,
    /// Objects with `source`, `destination`, `event_type` or `event-type`, also in their `meta` or `headers`, and `value`: a
    /// number, a histogram (an object with how often each value was seen), or a list of `{ts, val}` with such values; or
    /// `datapoints`, an object with such a value for each time, as messages have. The pages of an archive with values (at
    /// its `base-uri`) are lists of `{ts, val}` alone: [`Beside`] says of what.
    Perfsonar,
    /// What `towpath probe --json` prints, once or several times.
    Probe,
}

/// What a document does not say, but whoever reads it knows.
#[derive(Debug, Clone, Copy, Default)]
pub struct Beside<'a> {
    /// Where measurements were made that name only the far end: an address, a prefix, or the name of a PID.
    pub here: Option<&'a str>,
    /// The ends of perfSONAR's values that stand alone, in the same forms,
    pub source: Option<&'a str>,
    /// the other one,
    pub destination: Option<&'a str>,
    /// and the type of their events, as `throughput`.
    pub event: Option<&'a str>,
}

/// The samples of one document. Each takes 32 bytes, and each pair of ends 150.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Measurements {
    pairs: Vec<Pair>,
    metrics: Vec<CostMetric>,
    /// By pair and metric; those of one series in the order of the document.
    samples: Vec<Sample>,
    doubts: Doubts,
}

/// Samples that were skipped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Doubts {
    /// How many. A record or line of which nothing could be taken counts as one.
    pub skipped: u64,
    /// Why the first one was, with its line or its number.
    pub first: Option<String>,
}

impl Doubts {
    fn add(&mut self, count: usize, reason: impl FnOnce() -> String) {
        self.skipped += count as u64;
        self.first.get_or_insert_with(reason);
    }
}

/// Why a document is not read: the fault of what wrote it, or of who named it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MeasurementError {
    /// It is longer than [`MAX_BYTES`].
    #[error("these measurements have {0} bytes, and at most {MAX_BYTES} are read: split them")]
    TooLarge(usize),
    /// It has more than [`MAX_SAMPLES`].
    #[error("there are more than {MAX_SAMPLES} samples: split them")]
    TooMany,
    /// It is of no known form.
    #[error(
        "these are no measurements that are known here: CSV with the header `src,dst,metric,value`, JSON with these \
         fields, iperf3 -J, perfSONAR, or towpath probe --json"
    )]
    Unknown,
    /// A table begins with something else than its header.
    #[error(
        "line {line} must be a header: src, dst, metric and value with commas between them, and time if it is told"
    )]
    Header {
        /// Where the header should be; the first line is 1.
        line: usize,
    },
    /// It is no JSON.
    #[error("these measurements are no JSON: {0}")]
    Invalid(String),
}

/// How much of a document is read.
#[derive(Debug, Clone, Copy)]
struct Limits {
    bytes: usize,
    samples: usize,
}

impl Measurements {
    /// Reads a document of that format, or finds out which it has.
    ///
    /// An end (`src`, `dst`) is an address, a prefix, or the name of a PID; the name of a site becomes one as
    /// [`crate::sites::pid_name`] has it. Both ends are of one kind. Metrics are those of RFC 9439, without a
    /// statistic, and all that start with `priv:`. Times are seconds since 1970, or texts as RFC 3339 has them.
    ///
    /// Values of CSV and JSON are in the unit of RFC 9439: microseconds for delays, per cent for losses, bytes per second
    /// for throughput and bandwidth. Those of the other formats are converted:
    ///
    /// - iperf3: `tput` as it was sent (TCP), `delay-rt` (the mean of the first stream), `delay-variation` and `lossrate`
    ///   (UDP); from the server to the client with `-R`. What `--bidir` measured backwards is not read.
    /// - perfSONAR: `throughput` becomes `tput`, `packet-loss-rate` `lossrate`, `histogram-owdelay` `delay-ow`,
    ///   `histogram-rtt` `delay-rt`, and `packet-retransmits` `priv:retransmits` (segments of one test).
    /// - towpath probe: see [`Self::parse_beside`].
    ///
    /// # Errors
    /// [`MeasurementError`]. That no sample can be taken is none; [`Self::doubts`] tells.
    pub fn parse(document: &[u8], format: Option<Format>) -> Result<Self, MeasurementError> {
        Self::parse_beside(document, format, Beside::default())
    }

    /// As [`Self::parse`], of a document that does not say all.
    ///
    /// What `towpath probe` prints tells only the far end, so that without `here` its samples are skipped. It gives `tput`,
    /// over the whole leg and all its connections, and `delay-rt`, the least one, for each direction.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub fn parse_beside(document: &[u8], format: Option<Format>, beside: Beside<'_>) -> Result<Self, MeasurementError> {
        let limits = Limits { bytes: MAX_BYTES, samples: MAX_SAMPLES };
        Self::parse_within(document, Manner { format, beside }, limits)
    }

    fn parse_within(document: &[u8], manner: Manner<'_>, limits: Limits) -> Result<Self, MeasurementError> {
        if document.len() > limits.bytes {
            return Err(MeasurementError::TooLarge(document.len()));
        }
        // A byte order mark is no part of any format.
        let document = document.strip_prefix(b"\xef\xbb\xbf").unwrap_or(document);
        let mut samples = Samples::with_room(limits.samples);
        let first = lines(document).next().map(|(_, line)| line);
        match (manner.format, first) {
            (Some(Format::Csv), _) => csv::read(document, &mut samples)?,
            (Some(_), _) => json::read(document, manner, &mut samples)?,
            (None, Some([b'{' | b'[', ..])) => json::read(document, manner, &mut samples)?,
            (None, Some(line)) if csv::is_header(line) => csv::read(document, &mut samples)?,
            (None, _) => return Err(MeasurementError::Unknown),
        }
        if samples.is_full() { Err(MeasurementError::TooMany) } else { Ok(samples.finish()) }
    }

    /// How many samples there are; a histogram has one for each of its values.
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// Whether no sample could be taken.
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// What was skipped.
    pub fn doubts(&self) -> &Doubts {
        &self.doubts
    }

    /// The costs that follow: between prefixes, and between PIDs of `map`. It must have all PIDs that are named, or it
    /// makes no world; see [`Self::facts_among`].
    ///
    /// Of a metric its plain name tells the median (of `bw-residual` and `bw-available` the newest sample, as RFC 9439
    /// has it), and `:cur` the newest: by its time, and of those without a time the last of the document. Of several
    /// samples there are also `:min`, `:max`, `:median`, `:mean`, `:stddev` and `:p95`. A name that would be longer than 32
    /// characters is left out.
    ///
    /// The median of an even number is the mean of the two in the middle, of `hopcount`, which has no `:mean` and no `:stddev`, the lower one; the 95th percentile is by nearest rank, so the
    /// least sample that is not below 95 % of them; the deviation is that of the samples themselves (divided by their
    /// number). A histogram counts as often as it says, and its median where it is the newest.
    pub fn facts(&self, map: &ResourceId) -> (Facts, Doubts) {
        self.facts_among(map, |_| true)
    }

    /// As [`Self::facts`], without the samples of PIDs that there are not: they are skipped.
    pub fn facts_among(&self, map: &ResourceId, is_pid: impl Fn(&PidName) -> bool) -> (Facts, Doubts) {
        let names: Vec<_> = self.metrics.iter().map(statistics::names).collect();
        let (mut facts, mut doubts) = (Facts::default(), self.doubts.clone());
        for samples in self.samples.chunk_by(|one, other| one.series.pair == other.series.pair) {
            let values = values(samples, &names);
            match &self.pairs[samples[0].series.pair as usize] {
                Pair::Prefixes(src, dst) => facts.costs.push(Costs { src: Prefix(*src), dst: Prefix(*dst), values }),
                Pair::Pids(src, dst) => match [src, dst].into_iter().find(|pid| !is_pid(pid)) {
                    Some(pid) => doubts.add(samples.len(), || format!("network map {map} has no PID {pid}")),
                    None => insert(&mut facts, map, [src, dst], values),
                },
            }
        }
        (facts, doubts)
    }
}

/// The costs that follow from the samples of one pair. `names` has those of each metric.
fn values(samples: &[Sample], names: &[statistics::Names]) -> BTreeMap<CostMetric, Cost> {
    let series = samples.chunk_by(|one, other| one.series == other.series);
    let costs = series.flat_map(|series| statistics::costs(series, &names[series[0].series.metric as usize]));
    costs.collect()
}

/// Adds costs between two PIDs.
fn insert(facts: &mut Facts, map: &ResourceId, [src, dst]: [&PidName; 2], values: BTreeMap<CostMetric, Cost>) {
    let costs = facts.cost_map.entry(map.clone()).or_default();
    for (metric, cost) in values {
        costs.entry(metric).or_default().entry(src.clone()).or_default().insert(dst.clone(), cost);
    }
}

/// The lines of a document that are neither blank nor comments, without blanks around them, with their numbers from 1.
fn lines(document: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let lines = document.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    (1..).zip(lines).filter(|(_, line)| !line.is_empty() && !line.starts_with(b"#"))
}
