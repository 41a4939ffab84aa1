//! Converts measurement results to costs between addresses or between PIDs.
//!
//! Supported formats are CSV, JSON objects with the same fields, `iperf3 -J`, perfSONAR messages and archive pages
//! (esmond), and `towpath probe --json`. [`Measurements::parse`] detects the format and reads each value as a sample in
//! the unit that RFC 9439 defines for its metric. [`Measurements::facts`] aggregates the samples: for several samples
//! of the same ends and metric it computes the statistics of RFC 9439 §3.3, each under its own name.
//!
//! An invalid sample is skipped and counted in [`SkippedSamples`]; the others are still used. A document of several
//! lines is parsed line by line if its first line is a complete JSON value, so that a truncated line counts as one
//! invalid sample.
//!
//! This module neither measures nor fetches anything, and keeps no state between documents. It does not resolve host
//! names: a name that is not an address is the name of a PID.

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
    json::RecordOptions,
    samples::{Pair, Sample, Samples},
};
use towpath_alto::{
    agent_state::{AgentState, Cost, Costs, Prefix},
    names::{CostMetric, PidName, ResourceId},
};

/// Maximum size of a document, in bytes.
pub const MAX_BYTES: usize = 256 << 20;

/// Maximum number of samples per document.
pub(crate) const MAX_SAMPLES: usize = 5_000_000;

/// Format of a measurement document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// A header line with `src`, `dst`, `metric`, `value` and optionally `time`, in any order and among other columns;
    /// then one line per sample. Fields are separated by commas and may be double-quoted; lines that start with `#` are
    /// comments.
    Csv,
    /// Objects with the same fields, in an array or concatenated. `value` may be a list, or any form that perfSONAR
    /// uses.
    Json,
    /// Output of `iperf3 -J` at the client, one or several runs.
    Iperf3,
    /// Objects with `source`, `destination`, `event_type` or `event-type`, also nested in `meta` or `headers`, and
    /// `value`: a number, a histogram (an object that maps each value to its count), or a list of `{ts, val}` with such
    /// values. Messages have `datapoints` instead, an object that maps each time to such a value. The value pages of an
    /// archive (at its `base-uri`) are bare lists of `{ts, val}`; [`MeasurementContext`] supplies their ends and event
    /// type.
    Perfsonar,
    /// Output of `towpath probe --json`, one or several runs.
    Probe,
}

/// Facts known to the caller but absent from the document.
#[derive(Debug, Clone, Copy, Default)]
pub struct MeasurementContext<'a> {
    /// The measuring end of measurements that name only the remote end: an address, a prefix, or a PID name.
    pub here: Option<&'a str>,
    /// Source of perfSONAR values that carry no metadata, in the same forms.
    pub source: Option<&'a str>,
    /// Destination of such values.
    pub destination: Option<&'a str>,
    /// Event type of such values, e.g. `throughput`.
    pub event: Option<&'a str>,
}

/// Samples of one document. Each sample takes 32 bytes, each pair of ends 150 bytes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Measurements {
    pairs: Vec<Pair>,
    metrics: Vec<CostMetric>,
    /// Grouped by pair and metric; samples of one series keep the order of the document.
    samples: Vec<Sample>,
    skipped_samples: SkippedSamples,
}

/// Samples that were skipped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SkippedSamples {
    /// Number of skipped samples. A record or line without any usable sample counts as one.
    pub skipped: u64,
    /// Why the first sample was skipped, with its line or record number.
    pub first: Option<String>,
}

impl SkippedSamples {
    fn add(&mut self, count: usize, reason: impl FnOnce() -> String) {
        self.skipped += count as u64;
        self.first.get_or_insert_with(reason);
    }
}

/// Why a document was rejected. The document or its configured location is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MeasurementError {
    /// The document is longer than [`MAX_BYTES`].
    #[error("the measurements have {0} bytes, more than the limit of {MAX_BYTES}: split them")]
    TooLarge(usize),
    /// The document has more than [`MAX_SAMPLES`] samples.
    #[error("there are more than {MAX_SAMPLES} samples: split them")]
    TooMany,
    /// The format is not recognized.
    #[error(
        "unrecognized measurement format; expected CSV with the header `src,dst,metric,value`, JSON with these \
         fields, iperf3 -J, perfSONAR, or towpath probe --json"
    )]
    Unknown,
    /// A table does not begin with its header.
    #[error("line {line} must be a header: src, dst, metric, value and optionally time, separated by commas")]
    Header {
        /// Line where the header is missing, from 1.
        line: usize,
    },
    /// The document is not valid JSON.
    #[error("the measurements are not valid JSON: {0}")]
    Invalid(String),
}

/// Size limits of a document.
#[derive(Debug, Clone, Copy)]
struct Limits {
    bytes: usize,
    samples: usize,
}

impl Measurements {
    /// Parses a document in `format`, or detects the format if it is `None`.
    ///
    /// An end (`src`, `dst`) is an address, a prefix, or the name of a PID; the name of a site is converted by
    /// [`crate::sites::pid_name`]. Both ends must be of the same kind. Accepted metrics are those of RFC 9439, without
    /// a statistic, and all that start with `priv:`. Times are seconds since 1970 or RFC 3339 strings.
    ///
    /// Values in CSV and JSON are in the units of RFC 9439: microseconds for delays, per cent for losses, bytes per
    /// second for throughput and bandwidth. Those of the other formats are converted:
    ///
    /// - iperf3: `tput` as sent (TCP), `delay-rt` (the mean of the first stream), `delay-variation` and `lossrate`
    ///   (UDP); with `-R` from the server to the client. The reverse direction of `--bidir` is ignored.
    /// - perfSONAR: `throughput` becomes `tput`, `packet-loss-rate` `lossrate`, `histogram-owdelay` `delay-ow`,
    ///   `histogram-rtt` `delay-rt`, and `packet-retransmits` `priv:retransmits` (segments of one test).
    /// - towpath probe: see [`Self::parse_in_context`].
    ///
    /// # Errors
    /// Returns [`MeasurementError`]. A document without usable samples is not an error; see [`Self::skipped_samples`].
    pub fn parse(document: &[u8], format: Option<Format>) -> Result<Self, MeasurementError> {
        Self::parse_in_context(document, format, MeasurementContext::default())
    }

    /// Like [`Self::parse`], with facts that the document lacks.
    ///
    /// Output of `towpath probe` names only the remote end; without `here` its samples are skipped. For each direction
    /// it yields `tput`, over the whole leg and all its connections, and the minimum `delay-rt`.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub(crate) fn parse_in_context(
        document: &[u8],
        format: Option<Format>,
        context: MeasurementContext<'_>,
    ) -> Result<Self, MeasurementError> {
        let limits = Limits { bytes: MAX_BYTES, samples: MAX_SAMPLES };
        Self::parse_within(document, RecordOptions { format, context }, limits)
    }

    fn parse_within(document: &[u8], options: RecordOptions<'_>, limits: Limits) -> Result<Self, MeasurementError> {
        if document.len() > limits.bytes {
            return Err(MeasurementError::TooLarge(document.len()));
        }
        // No format includes a byte order mark.
        let document = document.strip_prefix(b"\xef\xbb\xbf").unwrap_or(document);
        let mut samples = Samples::with_room(limits.samples);
        let first = lines(document).next().map(|(_, line)| line);
        match (options.format, first) {
            (Some(Format::Csv), _) => csv::read(document, &mut samples)?,
            (Some(_), _) => json::read(document, options, &mut samples)?,
            (None, Some([b'{' | b'[', ..])) => json::read(document, options, &mut samples)?,
            (None, Some(line)) if csv::is_header(line) => csv::read(document, &mut samples)?,
            (None, _) => return Err(MeasurementError::Unknown),
        }
        if samples.is_full() { Err(MeasurementError::TooMany) } else { Ok(samples.finish()) }
    }

    /// Returns the number of samples; each value of a histogram counts as one sample.
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// Returns whether the document has no usable sample.
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// Returns the skipped samples.
    pub(crate) fn skipped_samples(&self) -> &SkippedSamples {
        &self.skipped_samples
    }

    /// Returns the resulting costs between prefixes, and between PIDs of `map`. `map` must have all named PIDs, or
    /// building the network state fails; see [`Self::facts_among`].
    ///
    /// The plain name of a metric holds the median (for `bw-residual` and `bw-available` the newest sample, as in RFC
    /// 9439), and `:cur` the newest sample: by time, or the last of the document among samples without a time. Several
    /// samples also yield `:min`, `:max`, `:median`, `:mean`, `:stddev` and `:p95`. Names longer than 32 characters are
    /// omitted.
    ///
    /// The median of an even number of samples is the mean of the middle two, but for `hopcount`, which has no `:mean`
    /// and no `:stddev`, the lower of them. The 95th percentile uses the nearest rank: the smallest sample not below 95
    /// % of all. The deviation is the population deviation (divided by the number of samples). A histogram value has
    /// the weight of its count; the newest sample of a histogram is its median.
    pub fn facts(&self, map: &ResourceId) -> (AgentState, SkippedSamples) {
        self.facts_among(map, |_| true)
    }

    /// Like [`Self::facts`], but skips samples whose PIDs do not exist.
    pub(crate) fn facts_among(
        &self,
        map: &ResourceId,
        is_pid: impl Fn(&PidName) -> bool,
    ) -> (AgentState, SkippedSamples) {
        let names: Vec<_> = self.metrics.iter().map(statistics::names).collect();
        let (mut facts, mut skipped_samples) = (AgentState::default(), self.skipped_samples.clone());
        for samples in self.samples.chunk_by(|one, other| one.series.pair == other.series.pair) {
            let values = values(samples, &names);
            match &self.pairs[samples[0].series.pair as usize] {
                Pair::Prefixes(src, dst) => facts.costs.push(Costs { src: Prefix(*src), dst: Prefix(*dst), values }),
                Pair::Pids(src, dst) => match [src, dst].into_iter().find(|pid| !is_pid(pid)) {
                    Some(pid) => skipped_samples.add(samples.len(), || format!("network map {map} has no PID {pid}")),
                    None => insert(&mut facts, map, [src, dst], values),
                },
            }
        }
        (facts, skipped_samples)
    }
}

/// Returns the costs computed from the samples of one pair. `names` holds the names for each metric.
fn values(samples: &[Sample], names: &[statistics::StatisticNames]) -> BTreeMap<CostMetric, Cost> {
    let series = samples.chunk_by(|one, other| one.series == other.series);
    let costs = series.flat_map(|series| statistics::costs(series, &names[series[0].series.metric as usize]));
    costs.collect()
}

/// Inserts costs between two PIDs.
fn insert(facts: &mut AgentState, map: &ResourceId, [src, dst]: [&PidName; 2], values: BTreeMap<CostMetric, Cost>) {
    let costs = facts.cost_map.entry(map.clone()).or_default();
    for (metric, cost) in values {
        costs.entry(metric).or_default().entry(src.clone()).or_default().insert(dst.clone(), cost);
    }
}

/// Returns the trimmed lines of a document that are neither blank nor comments, with line numbers from 1.
fn lines(document: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let lines = document.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    (1..).zip(lines).filter(|(_, line)| !line.is_empty() && !line.starts_with(b"#"))
}
