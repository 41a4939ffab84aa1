//! Costs over time, as answers tell them (RFC 8896 §5): the one that holds at a given time.

use serde_json::Value as Json;
use towpath_proto::http::date;

use crate::order::Value;

/// When the intervals are in which the costs of an answer about one type are told.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Intervals {
    /// When the first one begins, in seconds since 1970.
    start_s: i64,
    length_s: f64,
    count: u64,
    /// How often all of them come.
    repeated: u64,
}

impl Intervals {
    /// Those that the `meta` of an answer tells; none if it tells none that make sense.
    pub(super) fn read(meta: &Json) -> Option<Self> {
        let told = meta.get("calendar-response-attributes")?.get(0)?;
        let start_s = date::parse(told.get("calendar-start-time")?.as_str()?)?;
        let length_s = told.get("time-interval-size")?.as_f64().filter(|length_s| *length_s > 0.0)?;
        let count = told.get("number-of-intervals")?.as_u64().filter(|count| *count > 0)?;
        let repeated = told.get("repeated").and_then(Json::as_u64).unwrap_or(1);
        Some(Self { start_s, length_s, count, repeated })
    }

    /// The cost in the interval of that time, in seconds since 1970, of a `cell` with one for each interval; none if it is not that. At a time of which nothing is told
    /// it is their mean.
    pub(super) fn cost(&self, cell: &Json, at_s: i64) -> Option<Value> {
        let costs: Vec<f64> = cell.as_array()?.iter().map(Json::as_f64).collect::<Option<_>>()?;
        if costs.len() as u64 != self.count {
            return None;
        }
        let passed = (at_s.saturating_sub(self.start_s) as f64 / self.length_s).floor();
        let is_told = passed >= 0.0 && passed < self.count as f64 * self.repeated as f64;
        let now = is_told.then(|| costs[(passed % self.count as f64) as usize]);
        Some(Value::Number(now.unwrap_or_else(|| costs.iter().sum::<f64>() / costs.len() as f64)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A Monday at midnight.
    const START_S: i64 = 1_793_577_600;

    fn meta(changes: &Json) -> Json {
        let mut told = json!({
            "calendar-start-time": "Mon, 02 Nov 2026 00:00:00 GMT", "time-interval-size": 3600, "number-of-intervals": 3,
        });
        told.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        json!({ "calendar-response-attributes": [told] })
    }

    #[test]
    fn k1_a_cost_is_that_of_its_interval() {
        let (once, twice) = (meta(&json!({})), meta(&json!({ "repeated": 2 })));
        for (meta, hours, cost) in [
            (&once, 0.0, 1.0),
            (&once, 0.99, 1.0),
            (&once, 1.0, 2.0),
            (&once, 2.5, 6.0),
            // Nobody knows what will be then, or has been before.
            (&once, 3.0, 3.0),
            (&once, -0.5, 3.0),
            (&twice, 3.0, 1.0),
            (&twice, 5.5, 6.0),
            (&twice, 6.0, 3.0),
        ] {
            let at_s = START_S + (hours * 3600.0) as i64;
            let found = Intervals::read(meta).unwrap().cost(&json!([1, 2, 6]), at_s);
            assert_eq!(found, Some(Value::Number(cost)), "{hours} hours later");
        }
    }

    #[test]
    fn k1_what_makes_no_sense_is_unknown() {
        for changes in [
            json!({ "calendar-start-time": "noon" }),
            json!({ "time-interval-size": 0 }),
            json!({ "time-interval-size": "1" }),
            json!({ "number-of-intervals": 0 }),
            json!({ "number-of-intervals": 1.5 }),
        ] {
            assert_eq!(Intervals::read(&meta(&changes)), None, "{changes}");
        }
        assert_eq!(Intervals::read(&json!({ "calendar-response-attributes": [] })), None);
        let intervals = Intervals::read(&meta(&json!({}))).unwrap();
        for cell in [json!(1), json!([1, 2]), json!([1, 2, "3"]), json!([1, 2, 3, 4]), json!(null)] {
            assert_eq!(intervals.cost(&cell, START_S), None, "{cell}");
        }
        let endless = meta(&json!({ "number-of-intervals": u64::MAX, "repeated": u64::MAX }));
        assert_eq!(Intervals::read(&endless).unwrap().cost(&json!([1]), i64::MIN), None);
    }
}
