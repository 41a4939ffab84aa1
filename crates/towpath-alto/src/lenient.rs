//! Lenient JSON deserialization: known parts are read, and everything else is skipped, whatever its form.
//!
//! [`PartialJsonSeed`] reads one value into a [`PartialJson`], which receives the value and can read nested values in
//! turn. Only values that are taken use memory. `serde_json` limits the depth to 128; skipped values use no stack.
//!
//! Invalid JSON is an error for the whole document.

use std::{borrow::Cow, fmt};

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// A receiver of a JSON value. The default methods ignore the value.
pub trait PartialJson {
    /// Receives a string.
    fn text(&mut self, _text: &str) {}

    /// Receives a number.
    fn number(&mut self, _number: f64) {}

    /// Receives the name of the next member of an object. The value must be read from `members` or skipped.
    fn member<'de, A: MapAccess<'de>>(&mut self, _name: &str, members: &mut A) -> Result<(), A::Error> {
        pass_over(members)
    }

    /// Receives an array. All elements must be read or skipped.
    fn elements<'de, A: SeqAccess<'de>>(&mut self, elements: &mut A) -> Result<(), A::Error> {
        while elements.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }
}

/// Skips the value of a member.
pub fn pass_over<'de, A: MapAccess<'de>>(members: &mut A) -> Result<(), A::Error> {
    members.next_value::<IgnoredAny>().map(drop)
}

/// Reads the value of a member.
pub fn take<'de, T: PartialJson + Default, A: MapAccess<'de>>(members: &mut A) -> Result<T, A::Error> {
    let mut taken = T::default();
    members.next_value_seed(PartialJsonSeed(&mut taken))?;
    Ok(taken)
}

/// Reads one value of any type.
pub struct PartialJsonSeed<'a, T>(pub &'a mut T);

impl<'de, T: PartialJson> DeserializeSeed<'de> for PartialJsonSeed<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, T: PartialJson> Visitor<'de> for PartialJsonSeed<'_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<(), E> {
        self.visit_f64(number as f64)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<(), E> {
        self.visit_f64(number as f64)
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<(), E> {
        self.0.number(number);
        Ok(())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.0.text(text);
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        while let Some(name) = members.next_key::<String>()? {
            self.0.member(&name, &mut members)?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        self.0.elements(&mut elements)
    }
}

/// A number or a string. Booleans, objects, arrays, `null` and blank strings are `Nothing`.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Scalar {
    /// Neither a number nor a text.
    #[default]
    Nothing,
    /// A number.
    Number(f64),
    /// Trimmed.
    Text(String),
}

impl Scalar {
    /// Whether it is neither a number nor a text.
    pub fn is_nothing(&self) -> bool {
        *self == Scalar::Nothing
    }

    /// Returns the number, or the text parsed as one. Text can be `NaN` or `inf`.
    pub fn as_number(&self) -> Option<f64> {
        match self {
            Scalar::Nothing => None,
            Scalar::Number(number) => Some(*number),
            Scalar::Text(text) => text.parse().ok(),
        }
    }

    /// Returns the text, or the number formatted as text.
    pub fn as_text(&self) -> Option<Cow<'_, str>> {
        match self {
            Scalar::Nothing => None,
            Scalar::Number(number) => Some(number.to_string().into()),
            Scalar::Text(text) => Some(text.as_str().into()),
        }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.as_text().unwrap_or("nothing".into()))
    }
}

impl PartialJson for Scalar {
    fn text(&mut self, text: &str) {
        let text = text.trim();
        *self = if text.is_empty() { Scalar::Nothing } else { Scalar::Text(text.to_owned()) };
    }

    fn number(&mut self, number: f64) {
        *self = Scalar::Number(number);
    }
}
