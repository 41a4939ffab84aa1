//! Cost calendars (RFC 8896): cost values per time interval, and the requests for them.
//!
//! [`Calendar`] defines the time intervals of a metric; agents publish it together with the costs
//! ([`crate::agent_state`]). [`RequestedCalendars`](crate::requested_calendars::RequestedCalendars) is the calendar
//! part of a request. Only numerical cost types have calendars: ordinal costs are ranks, which would differ in each
//! interval.
//!
//! Clients that do not request a calendar receive a single cost: that of the interval that contains the current time
//! ([`NetworkState::at`](crate::network_state::NetworkState::at)), "the current value of the metric" (RFC 8896 §3.3.2).
//! If that time is outside the calendar, or there is no current time, the cost is the mean over all intervals.
//! Constraints are tested against this cost even for pairs returned with calendars, so that all clients see the same
//! pairs filtered out.

use serde::{Deserialize, Serialize};
use towpath_proto::http::date;

use crate::names::ParseError;

/// Maximum number of intervals in a calendar: six weeks of hours.
pub(crate) const MAX_INTERVALS: usize = 1024;

/// Time intervals of the costs of a metric, and how often they repeat.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "CalendarInFile", into = "CalendarInFile")]
pub struct Calendar {
    /// Start of the first interval, in seconds since 1970. Agents are responsible for it not being in the future
    /// ([`crate::directory::DirectoryViolation`]).
    pub(crate) start_s: i64,
    /// Greater than 0.
    pub(crate) interval_s: f64,
    /// Between 1 and [`MAX_INTERVALS`].
    pub(crate) intervals: usize,
    /// At least 1.
    pub(crate) repeated: Option<u32>,
}

/// A calendar in the notation of agents.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct CalendarInFile {
    start: String,
    time_interval_size: f64,
    number_of_intervals: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    repeated: Option<u32>,
}

impl TryFrom<CalendarInFile> for Calendar {
    type Error = ParseError;

    fn try_from(written: CalendarInFile) -> Result<Self, ParseError> {
        let CalendarInFile { start, time_interval_size: interval_s, number_of_intervals: intervals, repeated } =
            written;
        let start_s = date::parse_rfc3339(&start).or_else(|| date::parse(&start));
        let start_s = start_s.ok_or_else(|| {
            ParseError::new("start", &start, "a time since 1970: 2026-01-05T00:00:00Z or Mon, 05 Jan 2026 00:00:00 GMT")
        })?;
        if !interval_s.is_finite() || interval_s <= 0.0 {
            return Err(ParseError::new("time-interval-size", &interval_s.to_string(), "seconds, greater than 0"));
        }
        if !(1..=MAX_INTERVALS).contains(&intervals) {
            return Err(ParseError::new("number-of-intervals", &intervals.to_string(), "1 to 1024"));
        }
        if repeated == Some(0) {
            return Err(ParseError::new("repeated", "0", "1 or more"));
        }
        Ok(Self { start_s, interval_s, intervals, repeated })
    }
}

impl From<Calendar> for CalendarInFile {
    fn from(calendar: Calendar) -> Self {
        let Calendar { start_s, interval_s, intervals, repeated } = calendar;
        let start = date::format_rfc3339(start_s);
        Self { start, time_interval_size: interval_s, number_of_intervals: intervals, repeated }
    }
}

impl Calendar {
    /// Returns the number of intervals, not counting repetitions.
    pub fn intervals(&self) -> usize {
        self.intervals
    }

    /// Returns the index of the interval that contains the given time (seconds since 1970), or `None` before the
    /// first interval and after the last repetition.
    pub fn interval_at(&self, unix_s: i64) -> Option<usize> {
        let elapsed_intervals = self.elapsed_intervals(unix_s);
        let is_told = elapsed_intervals >= 0.0 && elapsed_intervals < self.all();
        is_told.then(|| (elapsed_intervals % self.intervals as f64) as usize)
    }

    /// Returns when the next interval begins or the last one ends after the given time, in whole seconds since 1970;
    /// `None` if the calendar has ended.
    pub(crate) fn next_after(&self, unix_s: i64) -> Option<i64> {
        let next = (self.elapsed_intervals(unix_s) + 1.0).max(0.0);
        (next <= self.all()).then(|| self.start_s.saturating_add((next * self.interval_s).ceil() as i64))
    }

    /// Returns the number of intervals that have elapsed since the first one began; negative before.
    fn elapsed_intervals(&self, unix_s: i64) -> f64 {
        (unix_s.saturating_sub(self.start_s) as f64 / self.interval_s).floor()
    }

    /// Returns the number of intervals, counting repetitions.
    fn all(&self) -> f64 {
        self.intervals as f64 * f64::from(self.repeated.unwrap_or(1))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::{Value, json};

    use super::*;

    pub(crate) fn read(changes: &Value) -> Result<Calendar, String> {
        let mut written = json!({
            "start": "2019-07-01T13:00:00Z", "time-interval-size": 7200, "number-of-intervals": 12,
        });
        written.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        serde_json::from_value(written).map_err(|error| error.to_string())
    }

    #[test]
    fn k1_a_start_is_written_in_two_ways() {
        let start = |text: &str| read(&json!({ "start": text })).unwrap();
        for text in ["2019-07-01T13:00:00Z", "2019-07-01T15:00:00+02:00", "Mon, 01 Jul 2019 13:00:00 GMT"] {
            assert_eq!(start(text), read(&json!({})).unwrap(), "{text}");
        }
    }

    #[test]
    fn k1_a_time_is_in_an_interval() {
        let start_s = read(&json!({})).unwrap().start_s;
        let calendar = |repeated: u32| read(&json!({ "number-of-intervals": 3, "repeated": repeated })).unwrap();
        for (repeated, passed_s, interval, next_s) in [
            (1, -1, None, Some(0)),
            (1, 0, Some(0), Some(7200)),
            (1, 7199, Some(0), Some(7200)),
            (1, 7200, Some(1), Some(14400)),
            (1, 21599, Some(2), Some(21600)),
            (1, 21600, None, None),
            (2, 21600, Some(0), Some(28800)),
            (2, 43199, Some(2), Some(43200)),
            (2, 43200, None, None),
        ] {
            let (calendar, at_s) = (calendar(repeated), start_s + passed_s);
            let expected = (interval, next_s.map(|next_s| start_s + next_s));
            assert_eq!((calendar.interval_at(at_s), calendar.next_after(at_s)), expected, "{repeated} {passed_s}");
        }
        let half = read(&json!({ "time-interval-size": 0.4 })).unwrap();
        assert_eq!((half.interval_at(start_s + 1), half.next_after(start_s + 1)), (Some(2), Some(start_s + 2)));
        let long = read(&json!({ "time-interval-size": 1e300 })).unwrap();
        assert_eq!((long.interval_at(i64::MAX), long.next_after(start_s)), (Some(0), Some(i64::MAX)));
    }

    #[test]
    fn k1_what_is_no_calendar_is_told() {
        for (changes, expected) in [
            (json!({ "start": "noon" }), "'noon' is not a valid start"),
            (json!({ "start": "1960-01-01T00:00:00Z" }), "since 1970"),
            (json!({ "time-interval-size": 0 }), "'0' is not a valid time-interval-size"),
            (json!({ "time-interval-size": -1.5 }), "'-1.5' is not a valid time-interval-size"),
            (json!({ "number-of-intervals": 0 }), "'0' is not a valid number-of-intervals"),
            (
                json!({ "number-of-intervals": MAX_INTERVALS + 1 }),
                "'1025' is not a valid number-of-intervals: expected 1 to 1024",
            ),
            (json!({ "number-of-intervals": 1.5 }), "invalid type"),
            (json!({ "repeated": 0 }), "'0' is not a valid repeated"),
            (json!({ "end": "noon" }), "unknown field `end`"),
        ] {
            let error = read(&changes).unwrap_err();
            assert!(error.contains(expected), "{changes}: {error}");
        }
    }
}
