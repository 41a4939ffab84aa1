//! Typed access to the JSON fields of a request. Errors become a [`Problem`] that names the field.

use std::fmt::Display;

use serde_json::{Map, Value};

use crate::problem::Problem;

/// A JSON object in a request. Unknown fields are ignored (RFC 7285 §8.3.7).
#[derive(Debug, Clone, Copy)]
pub struct Fields<'a> {
    members: &'a Map<String, Value>,
    /// The field that contains the object; empty for the request itself.
    parent: &'a str,
}

/// Parses the body of a request.
///
/// # Errors
/// [`Problem`] with `E_SYNTAX` if it is not JSON (serde_json limits its depth to 128).
pub fn parse(body: &[u8]) -> Result<Value, Problem> {
    serde_json::from_slice(body).map_err(|error| Problem::syntax(&error))
}

impl<'a> Fields<'a> {
    /// Returns the fields of the request itself.
    ///
    /// # Errors
    /// If the request is not an object.
    pub fn of(request: &'a Value) -> Result<Self, Problem> {
        match request {
            Value::Object(members) => Ok(Self { members, parent: "" }),
            _ => Err(Problem::syntax("the request must be a JSON object")),
        }
    }

    fn name(&self, field: &str) -> String {
        if self.parent.is_empty() { field.to_owned() } else { format!("{}/{field}", self.parent) }
    }

    /// Returns the error for an invalid value of a field.
    pub fn refuse(&self, field: &str, value: &str, reason: &(impl Display + ?Sized)) -> Problem {
        Problem::bad_value(self.name(field), value, reason)
    }

    /// Returns the error for the present value of a field as a whole.
    pub fn refuse_present(&self, field: &str, reason: &(impl Display + ?Sized)) -> Problem {
        self.refuse(field, &self.members.get(field).map(plain).unwrap_or_default(), reason)
    }

    /// Returns the error for a missing required field.
    pub fn missing(&self, field: &str) -> Problem {
        Problem::missing(self.name(field))
    }

    fn get<T>(
        &self,
        field: &str,
        expected: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, Problem> {
        let Some(value) = self.members.get(field) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| Problem::wrong_type(self.name(field), expected))
    }

    /// Reads an object; `field` becomes the prefix of its field names in errors.
    ///
    /// # Errors
    /// If the field has another type.
    pub fn object(&self, field: &'a str) -> Result<Option<Fields<'a>>, Problem> {
        debug_assert!(self.parent.is_empty(), "no request has objects in objects");
        self.get(field, "an object", |value| Some(Fields { members: value.as_object()?, parent: field }))
    }

    /// Reads a string.
    ///
    /// # Errors
    /// If the field has another type.
    pub fn text(&self, field: &str) -> Result<Option<&'a str>, Problem> {
        self.get(field, "a string", Value::as_str)
    }

    /// Reads a boolean.
    ///
    /// # Errors
    /// If the field has another type.
    pub fn truth(&self, field: &str) -> Result<Option<bool>, Problem> {
        self.get(field, "true or false", Value::as_bool)
    }

    /// Reads a list, converting each element with `read`.
    ///
    /// # Errors
    /// If the field is not a list. An invalid element is an `E_INVALID_FIELD_VALUE` of the list (RFC 7285 §8.5.2).
    pub fn list<T, E: Display>(
        &self,
        field: &str,
        read: impl Fn(&'a Value) -> Result<T, E>,
    ) -> Result<Option<Vec<T>>, Problem> {
        let Some(elements) = self.get(field, "an array", Value::as_array)? else { return Ok(None) };
        let read = |element| read(element).map_err(|reason| self.refuse(field, &plain(element), &reason));
        elements.iter().map(read).collect::<Result<_, _>>().map(Some)
    }

    /// Reads a list of strings, converting each with `read`.
    ///
    /// # Errors
    /// As for [`Self::list`].
    pub fn texts<T, E: Display>(
        &self,
        field: &str,
        read: impl Fn(&'a str) -> Result<T, E>,
    ) -> Result<Option<Vec<T>>, Problem> {
        self.list(field, |element| {
            let text = element.as_str().ok_or_else(|| "this must be a string".to_owned())?;
            read(text).map_err(|reason| reason.to_string())
        })
    }
}

/// Formats a value for error messages: strings without quotes.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{names::PidName, problem::Code};

    #[test]
    fn what_is_wrong_is_named() {
        let request = json!({ "pids": { "srcs": ["PID1", 2], "dsts": "x" }, "flag": 1, "texts": ["a b"] });
        let fields = Fields::of(&request).unwrap();
        let pids = fields.object("pids").unwrap().unwrap();
        let summary = |problem: Problem| (problem.code, problem.field.unwrap_or_default(), problem.value);
        let of = |field| summary(pids.texts(field, PidName::new).unwrap_err());
        assert_eq!(of("srcs"), (Code::InvalidFieldValue, "pids/srcs".into(), Some("2".into())));
        assert_eq!(of("dsts"), (Code::InvalidFieldType, "pids/dsts".into(), None));
        assert_eq!(summary(fields.truth("flag").unwrap_err()), (Code::InvalidFieldType, "flag".into(), None));
        let element = summary(fields.texts("texts", PidName::new).unwrap_err());
        assert_eq!(element, (Code::InvalidFieldValue, "texts".into(), Some("a b".into())));
        assert!(fields.text("other").unwrap().is_none());
    }

    #[test]
    fn what_is_no_json_is_told_with_its_place() {
        let problem = parse(b"{\"a\": }").unwrap_err();
        assert_eq!(problem.code, Code::Syntax);
        assert!(problem.reason.contains("line 1 column 7"), "{problem}");
        assert_eq!(Fields::of(&json!([])).unwrap_err().code, Code::Syntax);
        assert_eq!(parse("[".repeat(1000).as_bytes()).unwrap_err().code, Code::Syntax);
    }
}
