//! JSON values of arbitrary structure from external input, with a nesting limit that protects the stack of later
//! readers and writers. The formats have their own limits, but TOML's dotted keys multiply them.

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};

/// Maximum nesting of arrays and objects: about half of the limit of JSON parsers, which leaves room for the enclosing
/// document.
pub const MAX_LEVELS: usize = 64;

/// Deserializes a value.
///
/// # Errors
/// Returns an error for more than [`MAX_LEVELS`].
pub fn value<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
    Levels(MAX_LEVELS).deserialize(deserializer)
}

/// Deserializes an object of such values.
///
/// # Errors
/// Returns an error if one has more than [`MAX_LEVELS`].
pub fn values<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Map<String, Value>, D::Error> {
    let values = BTreeMap::<String, Nested>::deserialize(deserializer)?;
    Ok(values.into_iter().map(|(name, Nested(value))| (name, value)).collect())
}

/// Deserializes properties by their owner.
///
/// # Errors
/// Returns an error if one has more than [`MAX_LEVELS`].
pub fn properties<'de, D, T, N>(deserializer: D) -> Result<BTreeMap<T, BTreeMap<N, Value>>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Ord,
    N: Deserialize<'de> + Ord,
{
    let things = BTreeMap::<T, BTreeMap<N, Nested>>::deserialize(deserializer)?;
    let values = |named: BTreeMap<N, Nested>| named.into_iter().map(|(name, Nested(value))| (name, value)).collect();
    Ok(things.into_iter().map(|(thing, named)| (thing, values(named))).collect())
}

/// A value of at most [`MAX_LEVELS`].
struct Nested(Value);

impl<'de> Deserialize<'de> for Nested {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        value(deserializer).map(Self)
    }
}

/// Deserializer seed for a value of at most this many levels.
#[derive(Clone, Copy)]
struct Levels(usize);

impl Levels {
    /// Returns the seed for nested values.
    fn within<E: Error>(self) -> Result<Self, E> {
        let within = self.0.checked_sub(1).map(Self);
        within
            .ok_or_else(|| E::custom(format!("a value is nested deeper than {MAX_LEVELS} levels: reduce the nesting")))
    }
}

impl<'de> DeserializeSeed<'de> for Levels {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Levels {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let (within, mut values) = (self.within()?, Vec::new());
        while let Some(value) = elements.next_element_seed(within)? {
            values.push(value);
        }
        Ok(values.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let (within, mut values) = (self.within()?, Map::new());
        while let Some(name) = members.next_key::<String>()? {
            values.insert(name, members.next_value_seed(within)?);
        }
        Ok(values.into())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Result<Value, String> {
        value(&mut serde_json::Deserializer::from_str(text)).map_err(|error| error.to_string())
    }

    #[test]
    fn values_are_read_as_they_are() {
        let text = r#"[null, true, -1, 18446744073709551615, 0.1, "x", {"a": [{}], "b": {"c": []}}]"#;
        assert_eq!(read(text), Ok(serde_json::from_str(text).unwrap()));
    }

    #[test]
    fn so_many_levels_and_no_more() {
        for [open, close] in [["[0, ", "]"], [r#"{"a": 0, "b": "#, "}"]] {
            let nested = |levels: usize| format!("{}[]{}", open.repeat(levels - 1), close.repeat(levels - 1));
            assert!(read(&nested(MAX_LEVELS)).is_ok());
            assert!(read(&nested(MAX_LEVELS + 1)).unwrap_err().contains("deeper than 64 levels"));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_is_not_deep_is_read_as_by_others(numbers in prop::collection::vec(any::<f64>(), 0..4), text: String) {
            let written = json!({ &text: numbers, "b": [text, numbers] }).to_string();
            prop_assert_eq!(read(&written), Ok(serde_json::from_str(&written).unwrap()));
        }
    }
}
