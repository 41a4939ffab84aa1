//! Samples as they are gathered from a document, whatever its format.

use std::{collections::HashMap, fmt, hash::Hash, net::IpAddr};

use ipnet::IpNet;

use super::{Doubts, Measurements, values::Values};
use crate::sites::pid_name;
use towpath_alto::{
    cost::is_whole,
    names::{CostMetric, PidName},
};

/// The metrics of RFC 9439.
const METRICS: [&str; 8] =
    ["delay-ow", "delay-rt", "delay-variation", "lossrate", "hopcount", "tput", "bw-residual", "bw-available"];

/// Why something was skipped.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(super) enum Why {
    #[error("an end is missing")]
    NoEnd,
    #[error("'{0}' is no address, no prefix without bits behind its length, and no name")]
    End(String),
    #[error("one end is an address and the other a name")]
    MixedEnds,
    #[error("'{0}' is no metric of RFC 9439 without a statistic, and does not start with `priv:`")]
    Metric(String),
    #[error("there is no value")]
    NoValue,
    #[error("'{0}' is no number")]
    NoNumber(String),
    #[error("{0} is no value: a number of 0 or more, for `lossrate` at most 100, for `hopcount` a whole one")]
    Value(f64),
    #[error("{0} is no number of times that a value was seen")]
    Count(f64),
    #[error("this line does not fit the header")]
    Columns,
    #[error("this is no JSON: {0}")]
    Syntax(String),
    #[error("this is neither an object with src, dst, metric and value, nor of iperf3, perfSONAR or towpath probe")]
    Unknown,
    #[error("it has no event type")]
    NoEvent,
    #[error("this lists what an archive of perfSONAR has, and no values: name the pages at its base-uri")]
    Listing,
    #[error("perfSONAR's '{0}' is not read")]
    Event(String),
    #[error("nothing was measured: {0}")]
    Failed(String),
    #[error("towpath probe does not tell where it ran; name that place")]
    NoHere,
}

/// At most 64 characters of a text, for people.
pub(super) fn cut(text: &str) -> String {
    text.chars().take(64).collect()
}

/// Where in a document a sample is. The first one is 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Line(usize),
    Record(usize),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Line(number) => write!(f, "line {number}"),
            Place::Record(number) => write!(f, "record {number}"),
        }
    }
}

/// Two ends between which something was measured.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Pair {
    Prefixes(IpNet, IpNet),
    Pids(PidName, PidName),
}

impl Pair {
    fn new(src: &str, dst: &str) -> Result<Self, Why> {
        match (End::new(src)?, End::new(dst)?) {
            (End::Prefix(src), End::Prefix(dst)) => Ok(Pair::Prefixes(src, dst)),
            (End::Pid(src), End::Pid(dst)) => Ok(Pair::Pids(src, dst)),
            _ => Err(Why::MixedEnds),
        }
    }
}

enum End {
    Prefix(IpNet),
    Pid(PidName),
}

impl End {
    fn new(text: &str) -> Result<Self, Why> {
        let text = text.trim();
        if let Ok(address) = text.parse::<IpAddr>() {
            // Sockets of IPv6 print IPv4 as ::ffff:192.0.2.1.
            return Ok(End::Prefix(address.to_canonical().into()));
        }
        match text.parse::<IpNet>() {
            Ok(prefix) if prefix.trunc() == prefix => Ok(End::Prefix(prefix)),
            Err(_) if !is_like_address(text) => pid_name(text).map(End::Pid).ok_or(Why::NoEnd),
            _ => Err(Why::End(cut(text))),
        }
    }
}

/// Whether someone meant an address, which must not become a name.
fn is_like_address(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_hexdigit() || b".:/".contains(&byte);
    text.starts_with(|first: char| first.is_ascii_digit() || first == ':')
        && text.contains(['.', ':', '/'])
        && text.bytes().all(is_part)
}

/// The samples of one metric between two ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Series {
    /// The number of the pair.
    pub(super) pair: u32,
    /// The number of the metric.
    pub(super) metric: u32,
}

/// One value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sample {
    pub(super) series: Series,
    /// How often it was seen; not 0.
    pub(super) weight: u32,
    /// In which reading; those of a histogram share one. Later ones have higher numbers.
    pub(super) reading: u32,
    /// Seconds since 1970; negative infinity if it is not told, so that those with a time are newer.
    pub(super) time: f64,
    /// In the unit of RFC 9439, finite and not negative.
    pub(super) value: f64,
}

/// The samples, as far as they were read.
pub(super) struct Samples {
    pairs: Numbered<Pair>,
    metrics: Numbered<CostMetric>,
    list: Vec<Sample>,
    readings: u32,
    doubts: Doubts,
    room: usize,
    is_full: bool,
    /// What is being read.
    pub(super) place: Place,
}

impl Samples {
    /// None, with room for so many.
    pub(super) fn with_room(room: usize) -> Self {
        Self {
            pairs: Numbered::default(),
            metrics: Numbered::default(),
            list: Vec::new(),
            readings: 0,
            doubts: Doubts::default(),
            room,
            is_full: false,
            place: Place::Record(1),
        }
    }

    /// Whether a sample found no room.
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Something is skipped.
    pub(super) fn doubt(&mut self, why: &Why) {
        let place = self.place;
        self.doubts.add(1, || format!("{place}: {why}"));
    }

    /// The series of that metric between these ends.
    pub(super) fn series(&mut self, src: &str, dst: &str, metric: &str) -> Result<Series, Why> {
        let pair = Pair::new(src, dst)?;
        let unknown = || Why::Metric(cut(metric));
        if !METRICS.contains(&metric) && !metric.starts_with("priv:") {
            return Err(unknown());
        }
        let metric = CostMetric::new(metric).map_err(|_| unknown())?;
        Ok(Series { pair: self.pairs.number(pair), metric: self.metrics.number(metric) })
    }

    /// Takes what was read at one time: values, and how often each was seen. What cannot be taken is skipped.
    pub(super) fn take(&mut self, series: Series, time: Option<f64>, values: impl IntoIterator<Item = (f64, f64)>) {
        self.readings = self.readings.wrapping_add(1);
        let time = time.unwrap_or(f64::NEG_INFINITY);
        for (value, count) in values {
            match self.weight(series, value, count) {
                Ok(0) => {}
                Ok(weight) => self.push(Sample { series, weight, reading: self.readings, time, value }),
                Err(why) => self.doubt(&why),
            }
        }
    }

    /// Takes all of a list, each times `factor`; those without a time are of that one.
    pub(super) fn take_all(
        &mut self,
        series: Series,
        time: Option<f64>,
        values: Values,
        factor: f64,
    ) -> Result<(), Why> {
        let buckets = values.into_buckets();
        if buckets.is_empty() {
            return Err(Why::NoValue);
        }
        for point in buckets.chunk_by(|one, other| one.point == other.point) {
            let scaled = point.iter().map(|bucket| (bucket.value * factor, bucket.count));
            self.take(series, point[0].time.or(time), scaled);
        }
        Ok(())
    }

    /// How often a value was seen that may be one.
    fn weight(&self, series: Series, value: f64, count: f64) -> Result<u32, Why> {
        let metric = self.metrics.list[series.metric as usize].as_str();
        let most = if metric == "lossrate" { 100.0 } else { f64::MAX };
        if !(0.0..=most).contains(&value) || is_whole(metric) && value.fract() != 0.0 {
            return Err(Why::Value(value));
        }
        let is_count = count.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&count);
        if is_count { Ok(count as u32) } else { Err(Why::Count(count)) }
    }

    fn push(&mut self, sample: Sample) {
        if self.list.len() < self.room {
            self.list.push(sample);
        } else {
            self.is_full = true;
        }
    }

    /// All of them, series by series.
    pub(super) fn finish(mut self) -> Measurements {
        // It is stable: those of a series stay in their order.
        self.list.sort_by_key(|sample| sample.series);
        Measurements { pairs: self.pairs.list, metrics: self.metrics.list, samples: self.list, doubts: self.doubts }
    }
}

/// Things by numbers, each once.
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
        let number = u32::try_from(self.list.len()).expect("a document has less than 2^32 of anything");
        self.list.push(thing.clone());
        self.numbers.insert(thing, number);
        number
    }
}
