//! Statistics over several samples (RFC 9439 §3.3).

use super::samples::Sample;
use towpath_alto::{agent_state::Cost, cost::is_whole, names::CostMetric};

/// Suffixes of a metric name for its statistics. The first two also exist for a single sample.
const SUFFIXES: [&str; 8] = ["", ":cur", ":min", ":max", ":median", ":mean", ":stddev", ":p95"];

/// Names of the statistics of one metric; `None` for a name that would be too long.
pub(super) struct StatisticNames {
    names: [Option<CostMetric>; 8],
    /// Whether the plain name holds the newest sample instead of the median (RFC 9439).
    is_current: bool,
    /// Whether values are integers (RFC 9439 §4.5.2): the median is then the lower of the middle two, and statistics
    /// that may have fractions are omitted.
    is_whole: bool,
}

/// Indices of the mean and the deviation in [`SUFFIXES`].
const WITH_FRACTIONS: [usize; 2] = [5, 6];

/// Returns the names of the statistics of `metric`.
pub(super) fn names(metric: &CostMetric) -> StatisticNames {
    let name = |suffix: &str| CostMetric::new(&format!("{metric}{suffix}")).ok();
    let (is_current, is_whole) = (metric.as_str().starts_with("bw-"), is_whole(metric.as_str()));
    let mut names = SUFFIXES.map(name);
    if is_whole {
        WITH_FRACTIONS.iter().for_each(|place| names[*place] = None);
    }
    StatisticNames { names, is_current, is_whole }
}

/// Returns the statistics of one series, which must have at least one sample.
pub(super) fn costs(series: &[Sample], names: &StatisticNames) -> Vec<(CostMetric, Cost)> {
    let figures = figures(series, names.is_current, names.is_whole);
    let pairs = names.names.iter().zip(figures);
    pairs.filter_map(|(name, figure)| Some((name.clone()?, Cost::new(figure?)?))).collect()
}

/// Computes the statistics in the order of [`SUFFIXES`].
fn figures(series: &[Sample], is_current: bool, is_whole: bool) -> [Option<f64>; 8] {
    let all = Distribution::of(series);
    let (median, current) = (all.median(is_whole), current(series, is_whole));
    let plain = if is_current { current } else { median };
    let [plain, current] = [Some(plain), Some(current)];
    if all.total == 1 {
        return [plain, current, None, None, None, None, None, None];
    }
    let [min, max] = [all.value_at_rank(1), all.value_at_rank(all.total)].map(Some);
    [plain, current, min, max, Some(median), Some(all.mean()), Some(all.deviation()), Some(all.percentile(95))]
}

/// Returns the newest sample, or the median of the newest histogram.
fn current(series: &[Sample], is_whole: bool) -> f64 {
    let age = |one: &&Sample, other: &&Sample| one.time.total_cmp(&other.time).then(one.reading.cmp(&other.reading));
    let newest = series.iter().max_by(age).map_or(0, |sample| sample.reading);
    // Samples of one reading are adjacent.
    let first = series.iter().position(|sample| sample.reading == newest).unwrap_or(0);
    let count = series[first..].iter().take_while(|sample| sample.reading == newest).count();
    Distribution::of(&series[first..first + count]).median(is_whole)
}

/// Values in ascending order, with their counts.
struct Distribution {
    values: Vec<(f64, u64)>,
    /// Number of samples.
    total: u64,
}

impl Distribution {
    fn of(samples: &[Sample]) -> Self {
        let mut values: Vec<_> = samples.iter().map(|sample| (sample.value, u64::from(sample.weight))).collect();
        values.sort_unstable_by(|one, other| one.0.total_cmp(&other.0));
        let total = values.iter().map(|(_, weight)| weight).sum();
        Self { values, total }
    }

    /// Returns the value of the given rank, from 1 for the smallest.
    fn value_at_rank(&self, rank: u64) -> f64 {
        let mut left = rank;
        for (value, weight) in &self.values {
            if left <= *weight {
                return *value;
            }
            left -= weight;
        }
        self.values.last().map_or(0.0, |(value, _)| *value)
    }

    /// Returns the median: the mean of the middle two values, or for integers the lower of them.
    fn median(&self, is_whole: bool) -> f64 {
        let [lower, upper] = [self.total.div_ceil(2), self.total / 2 + 1].map(|rank| self.value_at_rank(rank));
        if is_whole { lower } else { f64::midpoint(lower, upper) }
    }

    /// Returns the smallest value that at least `share` per cent of the samples do not exceed (nearest rank).
    fn percentile(&self, share: u64) -> f64 {
        self.value_at_rank((self.total * share).div_ceil(100))
    }

    /// Returns the mean, which may be infinite for values near `f64::MAX`.
    fn mean(&self) -> f64 {
        self.sum(|value| value) / self.total as f64
    }

    /// Returns the population deviation, not the sample estimate.
    fn deviation(&self) -> f64 {
        let mean = self.mean();
        (self.sum(|value| (value - mean).powi(2)) / self.total as f64).sqrt()
    }

    fn sum(&self, term: impl Fn(f64) -> f64) -> f64 {
        self.values.iter().map(|(value, weight)| term(*value) * *weight as f64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurements::samples::Series;

    fn sample(reading: u32, time: Option<f64>, value: f64, weight: u32) -> Sample {
        let series = Series { pair: 0, metric: 0 };
        Sample { series, weight, reading, time: time.unwrap_or(f64::NEG_INFINITY), value }
    }

    /// One sample per value, with ascending reading numbers.
    fn samples(values: &[f64]) -> Vec<Sample> {
        (1..).zip(values).map(|(reading, value)| sample(reading, None, *value, 1)).collect()
    }

    #[test]
    fn medians_are_in_the_middle() {
        let median = |values: &[f64]| Distribution::of(&samples(values)).median(false);
        assert_eq!(median(&[7.0]), 7.0);
        assert_eq!(median(&[9.0, 1.0, 5.0]), 5.0);
        assert_eq!(median(&[9.0, 1.0, 5.0, 6.0]), 5.5);
        assert_eq!(median(&[f64::MAX, f64::MAX]), f64::MAX);
        assert_eq!(Distribution::of(&samples(&[3.0, 4.0])).median(true), 3.0);
    }

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let of = |count: u32| Distribution::of(&samples(&(1..=count).map(f64::from).collect::<Vec<_>>()));
        for (count, expected) in [(1, 1.0), (2, 2.0), (19, 19.0), (20, 19.0), (21, 20.0), (100, 95.0), (101, 96.0)] {
            assert_eq!(of(count).percentile(95), expected, "of {count}");
        }
    }

    #[test]
    fn several_samples_have_statistics() {
        let of = |values: &[f64], is_current: bool| figures(&samples(values), is_current, false).map(Option::unwrap);
        let figures = of(&[4.0, 2.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0], false);
        assert_eq!(figures, [4.5, 9.0, 2.0, 9.0, 4.5, 5.0, 2.0, 9.0]);
        assert_eq!(of(&[3.0, 1.0, 2.0], true)[..2], [2.0, 2.0]);
        assert_eq!(of(&[3.0, 2.0, 1.0], true)[..2], [1.0, 1.0]);
    }

    #[test]
    fn one_sample_has_none() {
        let none = [None; 6];
        let figures = figures(&samples(&[3.0]), false, false);
        assert_eq!(figures[..2], [Some(3.0), Some(3.0)]);
        assert_eq!(figures[2..], none);
    }

    #[test]
    fn a_histogram_counts_as_often_as_it_says() {
        let histogram = [sample(1, None, 10.0, 3), sample(1, None, 30.0, 1), sample(1, None, 20.0, 2)];
        let all = Distribution::of(&histogram);
        assert_eq!((all.total, all.median(false), all.value_at_rank(6), all.percentile(95)), (6, 15.0, 30.0, 30.0));
        assert_eq!(all.mean(), 100.0 / 6.0);
        assert_eq!(current(&histogram, false), 15.0);
    }

    #[test]
    fn the_newest_is_the_one_with_the_latest_time() {
        let value = |samples: &[Sample]| current(samples, false);
        assert_eq!(value(&[sample(1, Some(20.0), 1.0, 1), sample(2, Some(10.0), 2.0, 1)]), 1.0);
        assert_eq!(value(&[sample(1, Some(10.0), 1.0, 1), sample(2, Some(10.0), 2.0, 1)]), 2.0);
        assert_eq!(value(&[sample(1, Some(10.0), 1.0, 1), sample(2, None, 2.0, 1)]), 1.0);
        assert_eq!(value(&[sample(1, None, 1.0, 1), sample(2, None, 2.0, 1)]), 2.0);
    }

    #[test]
    fn q1_statistics_of_hops_are_whole_numbers() {
        let names = names(&CostMetric::new("hopcount").unwrap());
        let texts = costs(&samples(&[3.0, 4.0]), &names);
        let texts: Vec<String> = texts.iter().map(|(name, cost)| format!("{name} {}", cost.value())).collect();
        let expected = ["", ":cur", ":min", ":max", ":median", ":p95"].into_iter().zip([3, 4, 3, 4, 3, 4]);
        assert_eq!(texts, expected.map(|(suffix, value)| format!("hopcount{suffix} {value}")).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_too_large_or_too_long_is_left_out() {
        let names = names(&CostMetric::new(&format!("priv:{}", "x".repeat(22))).unwrap());
        let texts: Vec<String> =
            costs(&samples(&[1.0, 2.0]), &names).iter().map(|(name, _)| name.to_string()).collect();
        let suffixes: Vec<&str> = texts.iter().map(|name| &name[27..]).collect();
        assert_eq!(suffixes, ["", ":cur", ":min", ":max", ":mean", ":p95"]);
        let huge = figures(&samples(&[f64::MAX, f64::MAX, 0.0]), false, false);
        assert!(huge[5].is_some_and(f64::is_infinite));
        let names = super::names(&CostMetric::new("tput").unwrap());
        assert_eq!(costs(&samples(&[f64::MAX, f64::MAX, 0.0]), &names).len(), 6);
    }
}
