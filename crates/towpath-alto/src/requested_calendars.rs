//! Calendars in requests and answers (RFC 8896 §4, §5): which costs a client wants over time, and how calendars are
//! described.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use towpath_proto::http::date;

use crate::{
    calendar::Calendar,
    cost::{CostQuery, CostType, Number},
    fields::Fields,
    network_state::NetworkState,
    problem::Problem,
};

/// Maximum number of interval costs in one response; same as the limit for path elements.
const MAX_VALUES: usize = 5_000_000;

/// The request field for calendars.
const FIELD: &str = "calendared";

impl Calendar {
    /// Returns the calendar attributes for directories and responses (RFC 8896 §4.1).
    fn attributes(&self) -> Map<String, Value> {
        Map::from_iter([
            ("time-interval-size".to_owned(), json!(Number(self.interval_s))),
            ("number-of-intervals".to_owned(), json!(self.intervals)),
        ])
    }

    /// Returns the calendar attributes for responses (RFC 8896 §5.1).
    fn response_attributes(&self) -> Map<String, Value> {
        let mut attributes = self.attributes();
        attributes.insert("calendar-start-time".into(), date::format(self.start_s).into());
        attributes.extend(self.repeated.map(|times| ("repeated".to_owned(), json!(times))));
        attributes
    }
}

/// Returns the calendar capabilities of these cost types for a directory, one entry per type (`calendar-attributes`,
/// RFC 8896 §4.1).
pub(crate) fn capabilities(network_state: &NetworkState, types: &[CostType]) -> Vec<Value> {
    let calendars =
        types.iter().filter_map(|kind| Some(with_type_name(kind, network_state.calendar(kind)?.attributes())));
    calendars.collect()
}

/// Adds the cost type name to calendar attributes.
fn with_type_name(kind: &CostType, mut attributes: Map<String, Value>) -> Value {
    attributes.insert("cost-type-names".into(), json!([kind.to_string()]));
    attributes.into()
}

/// Calendars requested for the cost types of a query.
#[derive(Debug, Default)]
pub struct RequestedCalendars<'a> {
    /// One entry per cost type in query order, or empty.
    of_types: Vec<Option<&'a Calendar>>,
}

impl<'a> RequestedCalendars<'a> {
    /// Reads the `calendared` field of a request for the costs of `pairs` pairs: one boolean per cost type in
    /// `query`. It is ignored for types without a calendar. If absent, no calendars are returned (RFC 8896 §5.1).
    ///
    /// # Errors
    /// [`Problem`] if the field is malformed, has the wrong length, or requests too many costs.
    pub fn read(
        fields: Fields<'_>,
        query: &CostQuery,
        network_state: &'a NetworkState,
        pairs: usize,
    ) -> Result<Self, Problem> {
        let truth = |element: &Value| element.as_bool().ok_or("each of these must be true or false");
        let Some(requested) = fields.list(FIELD, truth)? else { return Ok(Self::default()) };
        let types = query.types.len();
        if requested.len() != types {
            let expected = format!("this must have one element per requested cost type: {types}");
            return Err(fields.refuse_present(FIELD, &expected));
        }
        let calendars = query
            .types
            .iter()
            .zip(requested)
            .map(|(kind, requested)| network_state.calendar(kind).filter(|_| requested));
        let of_types: Vec<Option<&Calendar>> = calendars.collect();
        let intervals: usize = of_types.iter().flatten().map(|calendar| calendar.intervals).sum();
        let values = pairs.saturating_mul(intervals);
        if values > MAX_VALUES {
            let most = format!(
                "at most {MAX_VALUES} interval costs can be requested at once, not {values}: request fewer pairs"
            );
            return Err(fields.refuse_present(FIELD, &most));
        }
        Ok(Self { of_types })
    }

    /// Returns the calendar requested for the cost type at the given position.
    pub fn of(&self, position: usize) -> Option<&'a Calendar> {
        self.of_types.get(position).copied().flatten()
    }

    /// Returns the response metadata for the requested calendars; `None` if there are none
    /// (`calendar-response-attributes`, RFC 8896 §5.1).
    pub(crate) fn meta(&self, query: &CostQuery) -> Option<(String, Value)> {
        let mut names = BTreeSet::new();
        let calendars =
            query.types.iter().zip(&self.of_types).filter_map(|(kind, calendar)| Some((kind, (*calendar)?)));
        // A type requested twice is described once.
        let calendars =
            calendars.filter(|(kind, _)| names.insert(*kind)).map(|(kind, calendar)| match query.is_multi {
                true => with_type_name(kind, calendar.response_attributes()),
                // A single cost type needs no name here: it is the cost type of the response.
                false => calendar.response_attributes().into(),
            });
        let calendars: Vec<Value> = calendars.collect();
        (!calendars.is_empty()).then(|| ("calendar-response-attributes".to_owned(), calendars.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calendar::tests::read;

    #[test]
    fn k1_a_calendar_is_told_as_in_rfc_8896() {
        let calendar = read(&json!({})).unwrap();
        let mut expected = json!({ "time-interval-size": 7200, "number-of-intervals": 12 });
        assert_eq!(Value::Object(calendar.attributes()), expected);
        // The RFC has the wrong weekday (Tuesday) and omits a digit.
        expected["calendar-start-time"] = "Mon, 01 Jul 2019 13:00:00 GMT".into();
        assert_eq!(Value::Object(calendar.response_attributes()), expected);
        let repeated = read(&json!({ "repeated": 4 })).unwrap().response_attributes();
        assert_eq!(repeated["repeated"], 4);
        let half = read(&json!({ "time-interval-size": 0.5 })).unwrap().attributes();
        assert_eq!(half["time-interval-size"], 0.5);
    }
}
