//! ALTO error responses to invalid requests (RFC 7285 §8.5).

use std::fmt::Display;

use serde_json::{Map, Value, json};

/// Error codes of RFC 7285 §8.5.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// The request is not valid JSON.
    Syntax,
    /// A field is missing.
    MissingField,
    /// A field has the wrong JSON type.
    InvalidFieldType,
    /// A field or one of its elements has an invalid value.
    InvalidFieldValue,
}

impl Code {
    /// Returns the name used on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Code::Syntax => "E_SYNTAX",
            Code::MissingField => "E_MISSING_FIELD",
            Code::InvalidFieldType => "E_INVALID_FIELD_TYPE",
            Code::InvalidFieldValue => "E_INVALID_FIELD_VALUE",
        }
    }
}

/// An error in a client's request. Sent with status 400 and the media type [`crate::media::ERROR`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{}: {reason}", code.name(), field.as_ref().map(|field| format!(" {field}")).unwrap_or_default())]
pub struct Problem {
    /// Error code.
    pub code: Code,
    /// Path of the field: `cost-type/cost-metric`.
    pub field: Option<String>,
    /// Value of the field as text. Only with a field.
    pub value: Option<String>,
    /// Human-readable cause and remedy. For [`Code::Syntax`] it is sent as `syntax-error`.
    pub reason: String,
}

/// Maximum number of characters of a value repeated in an error.
const VALUE_LENGTH: usize = 256;

impl Problem {
    /// Creates the error for a request that is not valid JSON.
    pub fn syntax(reason: &(impl Display + ?Sized)) -> Self {
        Self { code: Code::Syntax, field: None, value: None, reason: reason.to_string() }
    }

    /// Creates the error for a missing field.
    pub fn missing(field: impl Into<String>) -> Self {
        let reason = "this field is required".into();
        Self { code: Code::MissingField, field: Some(field.into()), value: None, reason }
    }

    /// Creates the error for a field whose type is not `expected`.
    pub fn wrong_type(field: impl Into<String>, expected: &str) -> Self {
        let reason = format!("this must be {expected}");
        Self { code: Code::InvalidFieldType, field: Some(field.into()), value: None, reason }
    }

    /// Creates the error for an invalid value of a field or of one of its elements.
    pub fn bad_value(field: impl Into<String>, value: &str, reason: &(impl Display + ?Sized)) -> Self {
        let value = value.chars().take(VALUE_LENGTH).collect();
        let reason = reason.to_string();
        Self { code: Code::InvalidFieldValue, field: Some(field.into()), value: Some(value), reason }
    }

    /// Prefixes the field path with `parent`.
    pub fn within(mut self, parent: &str) -> Self {
        self.field = Some(self.field.map_or_else(|| parent.to_owned(), |field| format!("{parent}/{field}")));
        self
    }

    /// Returns the error document. `description` is our extension: RFC 7285 §8.3.7 requires clients to ignore unknown
    /// fields.
    pub fn document(&self) -> Value {
        let mut meta = Map::new();
        meta.insert("code".into(), self.code.name().into());
        if let Some(field) = &self.field {
            meta.insert("field".into(), field.as_str().into());
        }
        if let (Some(_), Some(value)) = (&self.field, &self.value) {
            meta.insert("value".into(), value.as_str().into());
        }
        let key = if self.code == Code::Syntax { "syntax-error" } else { "description" };
        meta.insert(key.into(), self.reason.as_str().into());
        json!({ "meta": meta })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c2_an_error_tells_field_and_value() {
        let problem = Problem::bad_value("cost-metric", "x", "no such metric").within("cost-type");
        let meta = json!({
            "code": "E_INVALID_FIELD_VALUE", "field": "cost-type/cost-metric", "value": "x", "description": "no such metric",
        });
        assert_eq!(problem.document(), json!({ "meta": meta }));
        assert_eq!(problem.to_string(), "E_INVALID_FIELD_VALUE cost-type/cost-metric: no such metric");
    }

    #[test]
    fn long_values_are_cut() {
        let problem = Problem::bad_value("x", &"ä".repeat(1000), "too long");
        assert_eq!(problem.value.unwrap().chars().count(), VALUE_LENGTH);
    }
}
