//! What is wrong with a request, as ALTO tells it (RFC 7285 §8.5).

use std::fmt::Display;

use serde_json::{Map, Value, json};

/// The kinds of errors that RFC 7285 §8.5.2 knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// The request is no JSON.
    Syntax,
    /// A field is missing.
    MissingField,
    /// A field has another JSON type than it must.
    InvalidFieldType,
    /// A field, or an element of it, has a value that it cannot have.
    InvalidFieldValue,
}

impl Code {
    /// Its name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Code::Syntax => "E_SYNTAX",
            Code::MissingField => "E_MISSING_FIELD",
            Code::InvalidFieldType => "E_INVALID_FIELD_TYPE",
            Code::InvalidFieldValue => "E_INVALID_FIELD_VALUE",
        }
    }
}

/// One error of a request; its client's fault. Answered with status 400 and the media type [`crate::media::ERROR`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{}: {reason}", code.name(), field.as_ref().map(|field| format!(" {field}")).unwrap_or_default())]
pub struct Problem {
    /// What kind.
    pub code: Code,
    /// The field, with those that it is in: `cost-type/cost-metric`.
    pub field: Option<String>,
    /// Its value as text. Only with a field.
    pub value: Option<String>,
    /// For people: what is wrong, and what to do. Of [`Code::Syntax`] it goes to the client as `syntax-error`.
    pub reason: String,
}

/// The longest value that an error repeats, in characters.
const VALUE_LENGTH: usize = 256;

impl Problem {
    /// The request is no JSON, for that reason and at that place.
    pub fn syntax(reason: &(impl Display + ?Sized)) -> Self {
        Self { code: Code::Syntax, field: None, value: None, reason: reason.to_string() }
    }

    /// The field is missing.
    pub fn missing(field: impl Into<String>) -> Self {
        let reason = "this field must be there".into();
        Self { code: Code::MissingField, field: Some(field.into()), value: None, reason }
    }

    /// The field is no `expected`.
    pub fn wrong_type(field: impl Into<String>, expected: &str) -> Self {
        let reason = format!("this must be {expected}");
        Self { code: Code::InvalidFieldType, field: Some(field.into()), value: None, reason }
    }

    /// The field, or an element of it, cannot have that value.
    pub fn bad_value(field: impl Into<String>, value: &str, reason: &(impl Display + ?Sized)) -> Self {
        let value = value.chars().take(VALUE_LENGTH).collect();
        let reason = reason.to_string();
        Self { code: Code::InvalidFieldValue, field: Some(field.into()), value: Some(value), reason }
    }

    /// The same error of what is within the field `parent`.
    pub fn within(mut self, parent: &str) -> Self {
        self.field = Some(self.field.map_or_else(|| parent.to_owned(), |field| format!("{parent}/{field}")));
        self
    }

    /// The document that tells the client. `description` is ours: RFC 7285 §8.3.7 has clients ignore what they do not know.
    pub fn document(&self) -> Value {
        let mut meta = Map::new();
        meta.insert("code".into(), self.code.name().into());
        if let Some(field) = &self.field {
            meta.insert("field".into(), field.as_str().into());
        }
        if let (Some(_), Some(value)) = (&self.field, &self.value) {
            meta.insert("value".into(), value.as_str().into());
        }
        let told = if self.code == Code::Syntax { "syntax-error" } else { "description" };
        meta.insert(told.into(), self.reason.as_str().into());
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
