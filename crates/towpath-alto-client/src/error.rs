//! Why replicas cannot be ordered by what a server tells.

use std::fmt;

use serde_json::Value as Json;

use super::sse::TooLong;

/// The most characters that are repeated of what a server says.
const MAX_SHOWN: usize = 200;

/// Why an ALTO server does not tell what a statement asks for. [`Self::is_askers`] says whose fault it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// A document is not what it should be; the server's fault.
    #[error("{address} sent what is no {what}: {problem}")]
    Malformed {
        /// Where it came from.
        address: String,
        /// What it should be.
        what: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// The server refuses a question.
    #[error("{address} refuses the question: {refusal}")]
    Refused {
        /// Who.
        address: String,
        /// What it says.
        refusal: Refusal,
    },
    /// A cost map is of another version of its network map than the one that was read; nobody's fault.
    #[error("the network map {map} changed while it was asked for: ask again")]
    Changed {
        /// The network map.
        map: String,
    },
    /// A name in the statement means nothing; the fault of who wrote it.
    #[error("`{name}` is no configured metric, and no cost metric or property of {directory}, which has {offers}")]
    Unknown {
        /// The name.
        name: String,
        /// Whose directory it was looked for in.
        directory: String,
        /// Some of the names that would mean something.
        offers: String,
    },
    /// The directory has nothing by which a metric could be asked for; the fault of who configured it, or of who chose the server.
    #[error("metric {name}: {directory} has no {wanted}: configure another one, or ask another server")]
    NoResource {
        /// The metric.
        name: String,
        /// What there should be.
        wanted: String,
        /// Whose directory it was looked for in.
        directory: String,
    },
    /// The directory has several resources by which a metric could be asked for; the configuration has to choose.
    #[error("metric {name}: there are several {wanted}: name one of {ids} as its `resource-id`")]
    Ambiguous {
        /// The metric.
        name: String,
        /// What there are several of.
        wanted: String,
        /// Their names.
        ids: String,
    },
    /// A resource that the configuration names is not that; the fault of who configured it.
    #[error("metric {name}: the resource {id} of {directory} is no {wanted}: configure another `resource-id`")]
    OtherResource {
        /// The metric.
        name: String,
        /// The resource.
        id: String,
        /// Whose directory has it.
        directory: String,
        /// What it should be.
        wanted: String,
    },
    /// The directory has no such resource; the fault of who asks for it.
    #[error("{directory} has no resource {id}")]
    NoSuch {
        /// The resource.
        id: String,
        /// Whose directory it was looked for in.
        directory: String,
    },
    /// A resource is asked otherwise; the fault of who asks.
    #[error("the resource {id} {takes}")]
    Input {
        /// The resource.
        id: String,
        /// What input it takes.
        takes: &'static str,
    },
    /// The server has no service by which all of that could be followed; the fault of who chose the service.
    #[error("{directory} has no {wanted} for all that is to be followed: follow it by other means")]
    NoService {
        /// What there should be.
        wanted: &'static str,
        /// Whose directory it was looked for in.
        directory: String,
    },
    /// More is followed than there is memory for; the fault of who follows it.
    #[error("what is followed has more than {most_bytes} bytes: follow fewer answers, or ask for parts of them")]
    TooMuch {
        /// The most that there may be.
        most_bytes: usize,
    },
    /// A change of an answer that is followed cannot be applied: the server's fault, or one was missed. The answer has to be read anew.
    #[error("what came of {name} does not fit what it was before: {problem}")]
    Unfit {
        /// What the answer is called.
        name: String,
        /// What does not fit.
        problem: String,
    },
    /// The server no longer tells of an answer that is followed.
    #[error("the server no longer tells of {name}: {reason}")]
    Stopped {
        /// What the answer is called.
        name: String,
        /// What the server says of it.
        reason: String,
    },
    /// The address of the client has to be known.
    #[error("`{name}` follows from the client's own address, which has to be named")]
    NeedsClient {
        /// The name in the statement.
        name: String,
    },
}

impl ClientError {
    /// That the server at `address` refuses a question with that document.
    pub fn refused(address: &str, body: &[u8]) -> Self {
        Self::Refused { address: shown(address), refusal: Refusal::parse(body) }
    }

    /// That the stream of events from `address` is something else, of this media type.
    pub fn no_events(address: &str, media_type: &str) -> Self {
        let problem = format!("it is {}", printable(media_type));
        Self::Malformed { address: shown(address), what: "stream of events", problem }
    }

    /// Whether the one who asks is to blame: the statement, the configuration, or the choice of the server. Else the server is.
    pub fn is_askers(&self) -> bool {
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

/// An answer is told in one event.
impl From<TooLong> for ClientError {
    fn from(TooLong(most_bytes): TooLong) -> Self {
        Self::TooMuch { most_bytes }
    }
}

/// What a server says of a question that it refuses (RFC 7285 §8.5). All of it is cut to 200 characters in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The code, such as `E_MISSING_FIELD`; empty if there is none.
    pub code: String,
    /// The field that is wrong, with those that it is in.
    pub field: Option<String>,
    /// The value of that field.
    pub value: Option<String>,
    /// What else is said: where the syntax is wrong, or for people.
    pub reason: Option<String>,
}

impl Refusal {
    /// The refusal that `body` is; without a code if it is none.
    pub fn parse(body: &[u8]) -> Self {
        let document: Json = serde_json::from_slice(body).unwrap_or_default();
        let told = |name: &str| document.get("meta")?.get(name)?.as_str().map(printable);
        let reason = told("syntax-error").or_else(|| told("description"));
        Self { code: told("code").unwrap_or_default(), field: told("field"), value: told("value"), reason }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.code.is_empty() { "it does not say why" } else { &self.code })?;
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

/// What somebody else wrote, cut and without what terminals obey.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { ' ' } else { character }).take(MAX_SHOWN).collect()
}

/// An address as it may be printed: what stands behind `?` may be a secret.
pub(super) fn shown(address: &str) -> String {
    printable(address.split('?').next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c2_a_refusal_tells_code_field_and_value() {
        let body = br#"{"meta": {"code": "E_INVALID_FIELD_VALUE", "field": "cost-type/cost-metric", "value": "x\n"}}"#;
        assert_eq!(Refusal::parse(body).to_string(), "E_INVALID_FIELD_VALUE cost-type/cost-metric 'x '");
        let body = br#"{"meta": {"code": "E_SYNTAX", "syntax-error": "line 1"}}"#;
        assert_eq!(Refusal::parse(body).to_string(), "E_SYNTAX: line 1");
        for other in [&b"<html>"[..], b"{\"meta\": 1}", b""] {
            assert_eq!(Refusal::parse(other).to_string(), "it does not say why");
        }
    }

    #[test]
    fn secrets_and_control_characters_are_not_repeated() {
        assert_eq!(shown("https://h/d?token=hush"), "https://h/d");
        assert_eq!(printable("a\x1b[31m"), "a [31m");
    }
}
