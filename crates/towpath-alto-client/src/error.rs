//! Errors of the client.

use std::fmt;

use serde_json::Value as Json;

use super::sse::EventTooLong;

/// Maximum number of characters repeated from server messages.
const MAX_SHOWN: usize = 200;

/// Reason why an ALTO server does not provide the values for a statement. [`Self::is_caller_error`] distinguishes
/// errors of the caller from errors of the server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// A document is malformed; the server's fault.
    #[error("{address} sent an invalid {what}: {problem}")]
    Malformed {
        /// The address that sent the document.
        address: String,
        /// The expected type of document.
        what: &'static str,
        /// Description of the defect.
        problem: String,
    },
    /// The server rejected a request.
    #[error("{address} rejected the request: {refusal}")]
    Refused {
        /// The address of the server.
        address: String,
        /// The error that it returned.
        refusal: ErrorResponse,
    },
    /// A cost map refers to another version of the network map than the one read before. Neither side
    /// is at fault.
    #[error("the network map {map} changed between requests: retry")]
    Changed {
        /// The network map.
        map: String,
    },
    /// A name in the statement is unknown; the author of the statement must fix it.
    #[error("`{name}` is neither a configured metric nor a cost metric or property of {directory}, which has {offers}")]
    Unknown {
        /// The name.
        name: String,
        /// The directory searched.
        directory: String,
        /// Some of the valid names.
        offers: String,
    },
    /// The directory has no resource for a metric; the fault of the configuration or of the choice of server.
    #[error("metric {name}: {directory} has no {kind}: configure another one, or use another server")]
    NoResource {
        /// The metric.
        name: String,
        /// The type of resource needed.
        kind: String,
        /// The directory searched.
        directory: String,
    },
    /// The directory has several resources for a metric; the configuration must choose one.
    #[error("metric {name}: there are several {kind}: name one of {ids} as its `resource-id`")]
    Ambiguous {
        /// The metric.
        name: String,
        /// The type of resource.
        kind: String,
        /// The ids of the resources.
        ids: String,
    },
    /// A configured resource has another type; the fault of the configuration.
    #[error(
        "metric {name}: the resource {id} of {directory} is not the required {kind}: configure another `resource-id`"
    )]
    OtherResource {
        /// The metric.
        name: String,
        /// The resource.
        id: String,
        /// The directory that has the resource.
        directory: String,
        /// The type of resource needed.
        kind: String,
    },
    /// The directory has no such resource; the caller's fault.
    #[error("{directory} has no resource {id}")]
    NoSuch {
        /// The resource.
        id: String,
        /// The directory searched.
        directory: String,
    },
    /// A request does not match the method of the resource; the caller's fault.
    #[error("the resource {id} {takes}")]
    Input {
        /// The resource.
        id: String,
        /// The input that it takes.
        takes: &'static str,
    },
    /// The server has no service that can follow all of these; the fault of the choice of service.
    #[error("{directory} has no {kind} for all requested resources: follow them by other means")]
    NoService {
        /// The type of service needed.
        kind: &'static str,
        /// The directory searched.
        directory: String,
    },
    /// The followed responses exceed the memory limit; the caller's fault.
    #[error("the followed responses exceed {most_bytes} bytes: follow fewer resources, or request parts of them")]
    TooMuch {
        /// The limit in bytes.
        most_bytes: usize,
    },
    /// A change of a followed response does not apply: the server's fault, or a change was missed. The response must
    /// be read again.
    #[error("the update of {name} does not apply to the previous version: {problem}")]
    Unfit {
        /// The name of the response.
        name: String,
        /// Description of the mismatch.
        problem: String,
    },
    /// The server stopped sending updates of a followed response.
    #[error("the server stopped sending updates of {name}: {reason}")]
    Stopped {
        /// The name of the response.
        name: String,
        /// The reason sent by the server.
        reason: String,
    },
    /// The client's own address is required.
    #[error("`{name}` depends on the client's address, which must be specified")]
    NeedsClient {
        /// The name in the statement.
        name: String,
    },
}

impl ClientError {
    /// Returns the error for a request that the server at `address` rejected with the given body.
    pub fn refused(address: &str, body: &[u8]) -> Self {
        Self::Refused { address: printable_address(address), refusal: ErrorResponse::parse(body) }
    }

    /// Returns the error for a response from `address` whose media type is not that of an event stream.
    pub(crate) fn no_events(address: &str, media_type: &str) -> Self {
        let problem = format!("it is {}", printable(media_type));
        Self::Malformed { address: printable_address(address), what: "event stream", problem }
    }

    /// Returns whether the caller is at fault: the statement, the configuration, or the choice of server. Otherwise
    /// the server is.
    pub fn is_caller_error(&self) -> bool {
        !matches!(
            self,
            Self::Malformed { .. }
                | Self::Refused { .. }
                | Self::Changed { .. }
                | Self::Unfit { .. }
                | Self::Stopped { .. }
        )
    }
}

/// A response is sent in one event.
impl From<EventTooLong> for ClientError {
    fn from(EventTooLong(most_bytes): EventTooLong) -> Self {
        Self::TooMuch { most_bytes }
    }
}

/// The error returned for a rejected request (RFC 7285 §8.5). Each text is cut to 200 characters on one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorResponse {
    /// The error code, such as `E_MISSING_FIELD`; empty if there is none.
    pub code: String,
    /// The path of the invalid field.
    pub field: Option<String>,
    /// The value of that field.
    pub value: Option<String>,
    /// Details: the syntax error, or a human-readable description.
    pub reason: Option<String>,
}

impl ErrorResponse {
    /// Parses an error response; without a code if the body is malformed.
    pub fn parse(body: &[u8]) -> Self {
        let document: Json = serde_json::from_slice(body).unwrap_or_default();
        let text = |name: &str| document.get("meta")?.get(name)?.as_str().map(printable);
        let reason = text("syntax-error").or_else(|| text("description"));
        Self { code: text("code").unwrap_or_default(), field: text("field"), value: text("value"), reason }
    }
}

impl fmt::Display for ErrorResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.code.is_empty() { "no reason given" } else { &self.code })?;
        if let Some(field) = &self.field {
            write!(f, " {field}")?;
        }
        if let Some(value) = &self.value {
            write!(f, " '{value}'")?;
        }
        match &self.reason {
            Some(reason) => write!(f, ": {reason}"),
            None => Ok(()),
        }
    }
}

/// Truncates foreign text and replaces control characters, which terminals could interpret.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { ' ' } else { character }).take(MAX_SHOWN).collect()
}

/// Returns an address without its query, which may contain a secret.
pub(super) fn printable_address(address: &str) -> String {
    printable(address.split('?').next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c2_a_refusal_tells_code_field_and_value() {
        let body = br#"{"meta": {"code": "E_INVALID_FIELD_VALUE", "field": "cost-type/cost-metric", "value": "x\n"}}"#;
        assert_eq!(ErrorResponse::parse(body).to_string(), "E_INVALID_FIELD_VALUE cost-type/cost-metric 'x '");
        let body = br#"{"meta": {"code": "E_SYNTAX", "syntax-error": "line 1"}}"#;
        assert_eq!(ErrorResponse::parse(body).to_string(), "E_SYNTAX: line 1");
        for other in [&b"<html>"[..], b"{\"meta\": 1}", b""] {
            assert_eq!(ErrorResponse::parse(other).to_string(), "no reason given");
        }
    }

    #[test]
    fn secrets_and_control_characters_are_not_repeated() {
        assert_eq!(printable_address("https://h/d?token=hush"), "https://h/d");
        assert_eq!(printable("a\x1b[31m"), "a [31m");
    }
}
