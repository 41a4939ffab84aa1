//! Which of two candidates comes first, once their values are known.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use super::value::Value;

/// A candidate in its place, with what put it there.
#[derive(Debug, Clone, PartialEq)]
pub struct Ranked {
    /// Which of the candidates it is, from 0.
    pub index: usize,
    /// Its value for each key of the statement, and for its backup; none where it has none, and of the backup where a key is known.
    pub keys: Vec<Option<Value>>,
    /// Whether the condition is true of it; none if that is unknown. True if there is no condition.
    pub holds: Option<bool>,
}

/// Which values of a metric are the better ones. Written `min` and `max` in definitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// The least comes first: `ASC`.
    #[default]
    Min,
    /// The most comes first: `DESC`.
    Max,
}

/// What becomes of candidates of which the condition is not true: because it is false, or because it is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Where {
    /// They come behind all others, ordered among themselves by the keys.
    #[default]
    Demote,
    /// They are left out.
    Drop,
}

impl Ranked {
    /// Whether the condition is true of it.
    pub(super) fn is_wanted(&self) -> bool {
        self.holds == Some(true)
    }

    /// Which comes first; `directions` has one for each key. A total preorder.
    pub(super) fn compare(&self, other: &Self, directions: &[Direction]) -> Ordering {
        let keys = self.keys.iter().zip(&other.keys).zip(directions);
        let mut orderings = keys.map(|((one, other), direction)| {
            let (one, other) = (Place::of(one.as_ref()), Place::of(other.as_ref()));
            one.compare(other, *direction)
        });
        let by_keys = || orderings.find(|ordering| ordering.is_ne()).unwrap_or(Ordering::Equal);
        other.is_wanted().cmp(&self.is_wanted()).then_with(by_keys)
    }
}

/// Where a value stands among those of its key. Each has one place, whatever it is compared with, which makes the order a total one.
#[derive(Debug, Clone, Copy)]
enum Place<'a> {
    /// Never NaN.
    Number(f64),
    Text(&'a str),
    Last,
}

impl<'a> Place<'a> {
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

    /// Numbers, then texts, then what has no order, in either direction.
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
