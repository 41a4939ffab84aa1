//! Samples collected from a document, independent of its format.

use std::{collections::HashMap, fmt, hash::Hash, net::IpAddr};

use ipnet::IpNet;

use super::{Measurements, SkippedSamples, values::Values};
use crate::sites::pid_name;
use towpath_alto::{
    cost::is_whole,
    names::{CostMetric, PidName},
};

/// The metrics of RFC 9439.
const METRICS: [&str; 8] =
    ["delay-ow", "delay-rt", "delay-variation", "lossrate", "hopcount", "tput", "bw-residual", "bw-available"];

/// Why a sample was skipped.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(super) enum SampleError {
    #[error("an endpoint is missing")]
    NoEnd,
    #[error("'{0}' is neither an address, nor a prefix without host bits, nor a name")]
    End(String),
    #[error("one end is an address and the other a name")]
    MixedEnds,
    #[error("'{0}' is not a metric of RFC 9439 without a statistic, and does not start with `priv:`")]
    Metric(String),
    #[error("there is no value")]
    NoValue,
    #[error("'{0}' is not a number")]
    NoNumber(String),
    #[error(
        "{0} is not a valid value: expected a number of 0 or more, for `lossrate` at most 100, for `hopcount` an integer"
    )]
    Value(f64),
    #[error("{0} is not a valid count of a value")]
    Count(f64),
    #[error("this line does not fit the header")]
    Columns,
    #[error("this is not valid JSON: {0}")]
    Syntax(String),
    #[error("this is neither an object with src, dst, metric and value, nor of iperf3, perfSONAR or towpath probe")]
    Unknown,
    #[error("it has no event type")]
    NoEvent,
    #[error("this is the index of a perfSONAR archive, without values: name the pages at its base-uri")]
    Listing,
    #[error("perfSONAR's '{0}' is not supported")]
    Event(String),
    #[error("nothing was measured: {0}")]
    Failed(String),
    #[error("the output of towpath probe does not name its local end: set it with `here`")]
    NoHere,
}

/// Returns the first 64 characters of `text`, for use in messages.
pub(super) fn cut(text: &str) -> String {
    text.chars().take(64).collect()
}

/// Position of a sample in its document, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SamplePosition {
    Line(usize),
    Record(usize),
}

impl fmt::Display for SamplePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SamplePosition::Line(number) => write!(f, "line {number}"),
            SamplePosition::Record(number) => write!(f, "record {number}"),
        }
    }
}

/// The two ends of a measurement.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Pair {
    Prefixes(IpNet, IpNet),
    Pids(PidName, PidName),
}

impl Pair {
    fn new(src: &str, dst: &str) -> Result<Self, SampleError> {
        match (SampleEndpoint::new(src)?, SampleEndpoint::new(dst)?) {
            (SampleEndpoint::Prefix(src), SampleEndpoint::Prefix(dst)) => Ok(Pair::Prefixes(src, dst)),
            (SampleEndpoint::Pid(src), SampleEndpoint::Pid(dst)) => Ok(Pair::Pids(src, dst)),
            _ => Err(SampleError::MixedEnds),
        }
    }
}

enum SampleEndpoint {
    Prefix(IpNet),
    Pid(PidName),
}

impl SampleEndpoint {
    fn new(text: &str) -> Result<Self, SampleError> {
        let text = text.trim();
        if let Ok(address) = text.parse::<IpAddr>() {
            // IPv6 sockets print IPv4 addresses as ::ffff:192.0.2.1.
            return Ok(SampleEndpoint::Prefix(address.to_canonical().into()));
        }
        match text.parse::<IpNet>() {
            Ok(prefix) if prefix.trunc() == prefix => Ok(SampleEndpoint::Prefix(prefix)),
            Err(_) if !is_like_address(text) => pid_name(text).map(SampleEndpoint::Pid).ok_or(SampleError::NoEnd),
            _ => Err(SampleError::End(cut(text))),
        }
    }
}

/// Returns whether `text` looks like a mistyped address, which must not be taken for a name.
fn is_like_address(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_hexdigit() || b".:/".contains(&byte);
    text.starts_with(|first: char| first.is_ascii_digit() || first == ':')
        && text.contains(['.', ':', '/'])
        && text.bytes().all(is_part)
}

/// The samples of one metric between two ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Series {
    /// Index of the pair.
    pub(super) pair: u32,
    /// Index of the metric.
    pub(super) metric: u32,
}

/// One measured value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sample {
    pub(super) series: Series,
    /// Number of times the value was seen; at least 1.
    pub(super) weight: u32,
    /// Number of the reading, shared by all values of a histogram. Later readings have higher numbers.
    pub(super) reading: u32,
    /// Seconds since 1970; negative infinity if unknown, so that samples with a time count as newer.
    pub(super) time: f64,
    /// In the unit of RFC 9439, finite and not negative.
    pub(super) value: f64,
}

/// The samples read so far.
pub(super) struct Samples {
    pairs: Numbered<Pair>,
    metrics: Numbered<CostMetric>,
    list: Vec<Sample>,
    readings: u32,
    skipped_samples: SkippedSamples,
    room: usize,
    is_full: bool,
    /// Position currently being read.
    pub(super) place: SamplePosition,
}

impl Samples {
    /// Creates an empty collection that holds up to `room` samples.
    pub(super) fn with_room(room: usize) -> Self {
        Self {
            pairs: Numbered::default(),
            metrics: Numbered::default(),
            list: Vec::new(),
            readings: 0,
            skipped_samples: SkippedSamples::default(),
            room,
            is_full: false,
            place: SamplePosition::Record(1),
        }
    }

    /// Returns whether a sample was dropped for lack of room.
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Records a skipped sample.
    pub(super) fn skip(&mut self, why: &SampleError) {
        let place = self.place;
        self.skipped_samples.add(1, || format!("{place}: {why}"));
    }

    /// Returns the series of `metric` between these ends.
    pub(super) fn series(&mut self, src: &str, dst: &str, metric: &str) -> Result<Series, SampleError> {
        let pair = Pair::new(src, dst)?;
        let unknown = || SampleError::Metric(cut(metric));
        if !METRICS.contains(&metric) && !metric.starts_with("priv:") {
            return Err(unknown());
        }
        let metric = CostMetric::new(metric).map_err(|_| unknown())?;
        Ok(Series { pair: self.pairs.number(pair), metric: self.metrics.number(metric) })
    }

    /// Adds the samples of one reading: values and their counts. Invalid ones are skipped.
    pub(super) fn take(&mut self, series: Series, time: Option<f64>, values: impl IntoIterator<Item = (f64, f64)>) {
        self.readings = self.readings.wrapping_add(1);
        let time = time.unwrap_or(f64::NEG_INFINITY);
        for (value, count) in values {
            match self.weight(series, value, count) {
                Ok(0) => {}
                Ok(weight) => self.push(Sample { series, weight, reading: self.readings, time, value }),
                Err(why) => self.skip(&why),
            }
        }
    }

    /// Adds all values of a list, each multiplied by `factor`. Values without a time of their own get `time`.
    pub(super) fn take_all(
        &mut self,
        series: Series,
        time: Option<f64>,
        values: Values,
        factor: f64,
    ) -> Result<(), SampleError> {
        let buckets = values.into_buckets();
        if buckets.is_empty() {
            return Err(SampleError::NoValue);
        }
        for point in buckets.chunk_by(|one, other| one.point == other.point) {
            let scaled = point.iter().map(|bucket| (bucket.value * factor, bucket.count));
            self.take(series, point[0].time.or(time), scaled);
        }
        Ok(())
    }

    /// Returns the weight of a value, or an error if the value or its count is invalid.
    fn weight(&self, series: Series, value: f64, count: f64) -> Result<u32, SampleError> {
        let metric = self.metrics.list[series.metric as usize].as_str();
        let most = if metric == "lossrate" { 100.0 } else { f64::MAX };
        if !(0.0..=most).contains(&value) || is_whole(metric) && value.fract() != 0.0 {
            return Err(SampleError::Value(value));
        }
        let is_count = count.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&count);
        if is_count { Ok(count as u32) } else { Err(SampleError::Count(count)) }
    }

    fn push(&mut self, sample: Sample) {
        if self.list.len() < self.room {
            self.list.push(sample);
        } else {
            self.is_full = true;
        }
    }

    /// Returns all samples, grouped by series.
    pub(super) fn finish(mut self) -> Measurements {
        // A stable sort keeps the order within a series.
        self.list.sort_by_key(|sample| sample.series);
        Measurements {
            pairs: self.pairs.list,
            metrics: self.metrics.list,
            samples: self.list,
            skipped_samples: self.skipped_samples,
        }
    }
}

/// Distinct items, each with an index.
struct Numbered<T> {
    numbers: HashMap<T, u32>,
    list: Vec<T>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self { numbers: HashMap::new(), list: Vec::new() }
    }
}

impl<T: Clone + Eq + Hash> Numbered<T> {
    fn number(&mut self, thing: T) -> u32 {
        if let Some(number) = self.numbers.get(&thing) {
            return *number;
        }
        let number = u32::try_from(self.list.len()).expect("a document has fewer than 2^32 items");
        self.list.push(thing.clone());
        self.numbers.insert(thing, number);
        number
    }
}
