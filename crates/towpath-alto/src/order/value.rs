//! Values of candidates and path elements, and their comparison.

use std::{cmp::Ordering, fmt, sync::Arc};

/// Value of a metric or a property.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A number. NaN is treated as missing.
    Number(f64),
    /// A text.
    Text(Arc<str>),
    /// A boolean.
    Bool(bool),
    /// An ordered list, possibly nested.
    List(Vec<Value>),
}

/// Source of values for one candidate.
pub trait CandidateValues {
    /// Returns the value of `name`, which includes the prefix used in the statement, or `None` if unknown. May be
    /// called repeatedly.
    fn value(&self, name: &str) -> Option<Value>;
}

/// Returns the value of a candidate unless it is missing.
pub(super) fn look_up<L: CandidateValues>(candidate: &L, name: &str) -> Option<Value> {
    candidate.value(name).filter(|value| !value.is_missing())
}

impl Value {
    /// Converts a JSON value. Returns `None` for `null` and objects, and for a list that contains one, because the list
    /// would appear shorter than it is. Recurses as deep as lists are nested, which `serde_json` limits to 128 when
    /// parsing.
    pub fn from_json(json: &serde_json::Value) -> Option<Self> {
        use serde_json::Value as Json;
        match json {
            Json::Null | Json::Object(_) => None,
            Json::Bool(truth) => Some(Self::Bool(*truth)),
            Json::Number(number) => number.as_f64().map(Self::Number),
            Json::String(text) => Some(Self::Text(text.as_str().into())),
            Json::Array(elements) => elements.iter().map(Self::from_json).collect::<Option<_>>().map(Self::List),
        }
    }

    /// Returns whether the value is treated as missing.
    pub(super) fn is_missing(&self) -> bool {
        matches!(self, Self::Number(number) if number.is_nan())
    }

    /// Returns the value as a number; never NaN.
    pub(super) fn number(&self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(*number).filter(|number| !number.is_nan()),
            Self::Text(text) => parse_number(text),
            Self::Bool(truth) => Some(f64::from(*truth)),
            Self::List(_) => None,
        }
    }

    /// Compares two values in a condition; `None` if they are not comparable. Not transitive (`'10'` is less than
    /// `'9'`) and thus unsuitable for sorting.
    pub(super) fn compare(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Text(one), Self::Text(other)) => Some(one.cmp(other)),
            _ => self.number()?.partial_cmp(&other.number()?),
        }
    }
}

/// Parses a number: digits with a sign, a point, an exponent. Unlike the standard library it rejects `inf`, `nan` and
/// values too large to be finite.
pub(super) fn parse_number(text: &str) -> Option<f64> {
    let is_of_number = |byte: u8| byte.is_ascii_digit() || b".eE+-".contains(&byte);
    let number: f64 = text.bytes().all(is_of_number).then(|| text.parse().ok())??;
    number.is_finite().then_some(number)
}

/// Writes numbers in their shortest form, texts unquoted, lists in brackets.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // 1e300 would otherwise take 301 digits.
            Self::Number(number) if *number == 0.0 || (1e-5..1e16).contains(&number.abs()) => write!(f, "{number}"),
            Self::Number(number) => write!(f, "{number:e}"),
            Self::Text(text) => f.write_str(text),
            Self::Bool(truth) => write!(f, "{truth}"),
            Self::List(elements) => {
                for (position, element) in elements.iter().enumerate() {
                    let before = if position == 0 { "[" } else { ", " };
                    write!(f, "{before}{element}")?;
                }
                f.write_str(if elements.is_empty() { "[]" } else { "]" })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn value(json: impl Into<serde_json::Value>) -> Value {
        Value::from_json(&json.into()).unwrap()
    }

    #[test]
    fn json_becomes_values() {
        assert_eq!(value(json!(7)), Value::Number(7.0));
        assert_eq!(value(json!(true)), Value::Bool(true));
        assert_eq!(value(json!(["a", 1])), Value::List(vec![Value::Text("a".into()), Value::Number(1.0)]));
        for nothing in [json!(null), json!({"lat": 1}), json!([1, null]), json!([[{}]])] {
            assert_eq!(Value::from_json(&nothing), None, "{nothing}");
        }
    }

    #[test]
    fn values_compare_as_their_kinds_allow() {
        let compare = |one, other| value(one).compare(&value(other));
        assert_eq!(compare(json!(9), json!(10)), Some(Ordering::Less));
        assert_eq!(compare(json!("9"), json!("10")), Some(Ordering::Greater));
        assert_eq!(compare(json!("9"), json!(10)), Some(Ordering::Less));
        assert_eq!(compare(json!(true), json!(1)), Some(Ordering::Equal));
        for (one, other) in [(json!("x"), json!(1)), (json!("inf"), json!(1)), (json!(""), json!(0))] {
            assert_eq!(compare(one, other), None);
        }
        assert_eq!(compare(json!([1]), json!([1])), None);
        assert_eq!(Value::Number(f64::NAN).compare(&Value::Number(1.0)), None);
    }

    #[test]
    fn values_are_printed_short() {
        for (json, text) in [
            (json!(3.0), "3"),
            (json!(0.25), "0.25"),
            (json!(1e300), "1e300"),
            (json!(-1.5e-9), "-1.5e-9"),
            (json!(["a", [true], []]), "[a, [true], []]"),
        ] {
            assert_eq!(value(json).to_string(), text);
        }
    }
}
