//! Compares candidates by their values.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use super::value::Value;

/// A candidate in the result order, with the values that determined its rank.
#[derive(Debug, Clone, PartialEq)]
pub struct RankedCandidate {
    /// Index of the candidate, from 0.
    pub index: usize,
    /// Its value for each key of the statement and for the backup; `None` where it is unknown, and for the backup if a
    /// key is known.
    pub keys: Vec<Option<Value>>,
    /// Result of the condition; `None` if unknown, true if there is no condition.
    pub holds: Option<bool>,
}

/// Which values of a metric are better. Written `min` and `max` in definitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Smallest first: `ASC`.
    #[default]
    Min,
    /// Largest first: `DESC`.
    Max,
}

/// Handling of candidates that do not satisfy the condition, because it is false or unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FilterMode {
    /// They follow all others, ordered among themselves by the keys.
    #[default]
    Demote,
    /// They are dropped.
    Drop,
}

impl RankedCandidate {
    /// Returns whether the candidate satisfies the condition.
    pub(super) fn is_wanted(&self) -> bool {
        self.holds == Some(true)
    }

    /// Compares two candidates; `directions` has one entry per key. A total preorder.
    pub(super) fn compare(&self, other: &Self, directions: &[Direction]) -> Ordering {
        let keys = self.keys.iter().zip(&other.keys).zip(directions);
        let mut orderings = keys.map(|((one, other), direction)| {
            let (one, other) = (SortPosition::of(one.as_ref()), SortPosition::of(other.as_ref()));
            one.compare(other, *direction)
        });
        let by_keys = || orderings.find(|ordering| ordering.is_ne()).unwrap_or(Ordering::Equal);
        other.is_wanted().cmp(&self.is_wanted()).then_with(by_keys)
    }
}

/// Sort position of a value within its key. It does not depend on the other value, which makes the order total.
#[derive(Debug, Clone, Copy)]
enum SortPosition<'a> {
    /// Never NaN.
    Number(f64),
    Text(&'a str),
    Last,
}

impl<'a> SortPosition<'a> {
    fn of(value: Option<&'a Value>) -> Self {
        match (value.and_then(Value::number), value) {
            (Some(number), _) => Self::Number(number),
            (None, Some(Value::Text(text))) => Self::Text(text),
            _ => Self::Last,
        }
    }

    fn compare(self, other: Self, direction: Direction) -> Ordering {
        match (self, other) {
            (Self::Number(one), Self::Number(other)) => {
                direction.of(one.partial_cmp(&other).unwrap_or(Ordering::Equal))
            }
            (Self::Text(one), Self::Text(other)) => direction.of(one.cmp(other)),
            _ => self.group().cmp(&other.group()),
        }
    }

    /// Returns the sort group: numbers, then texts, then values without an order, in either direction.
    fn group(self) -> u8 {
        match self {
            Self::Number(_) => 0,
            Self::Text(_) => 1,
            Self::Last => 2,
        }
    }
}

impl Direction {
    fn of(self, ordering: Ordering) -> Ordering {
        match self {
            Self::Min => ordering,
            Self::Max => ordering.reverse(),
        }
    }
}
