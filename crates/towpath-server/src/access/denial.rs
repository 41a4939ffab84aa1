//! Denials: their reasons in metrics and logs, and the log of the server.

use std::fmt;

use towpath_store::Fault;

use crate::{access_log::Record, log_limit::LogLimit};

/// Why a request was denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DenialReason {
    /// The request has no credentials.
    Anonymous,
    /// The token does not grant the right.
    MissingScope,
    /// The user does not have the right.
    MissingRight,
    /// The export is read-only.
    ReadOnly,
    /// The request must use TLS.
    TlsRequired,
    /// The credentials are wrong or of an unknown kind: a name, a password, a security protocol.
    Credentials,
    TokenMalformed,
    /// The issuer is not trusted.
    TokenIssuer,
    /// The signature is wrong or was made with an unknown key.
    TokenForged,
    TokenExpired,
    TokenNotYetValid,
    TokenAudience,
    /// The scopes grant nothing.
    TokenScope,
    /// The keys of the token's issuer are unavailable.
    IssuerUnreachable,
    /// The file system denies the access.
    Storage,
}

impl DenialReason {
    /// Returns the name in metrics and logs.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Anonymous => "anonymous",
            Self::MissingScope => "missing_scope",
            Self::MissingRight => "missing_right",
            Self::ReadOnly => "read_only",
            Self::TlsRequired => "tls_required",
            Self::Credentials => "credentials",
            Self::TokenMalformed => "token_malformed",
            Self::TokenIssuer => "token_issuer",
            Self::TokenForged => "token_forged",
            Self::TokenExpired => "token_expired",
            Self::TokenNotYetValid => "token_not_yet_valid",
            Self::TokenAudience => "token_audience",
            Self::TokenScope => "token_scope",
            Self::IssuerUnreachable => "issuer_unreachable",
            Self::Storage => "storage",
        }
    }
}

/// The denial of one request.
#[derive(Debug, Clone)]
pub struct Denial {
    /// [`DenialReason::name`].
    pub reason: &'static str,
    /// What the client was told, in one line.
    pub message: String,
}

impl Denial {
    /// Returns the denial behind a failed request; `None` if it failed for another reason than missing rights.
    pub(crate) fn of(fault: Fault, reason: Option<&'static str>, message: &str) -> Option<Self> {
        let usual = match fault {
            Fault::AuthenticationFailed => Some(DenialReason::Credentials),
            Fault::PermissionDenied => Some(DenialReason::Storage),
            Fault::TlsRequired => Some(DenialReason::TlsRequired),
            _ => None,
        };
        let reason = reason.or(usual.map(DenialReason::name))?;
        Some(Self { reason, message: message.lines().next().unwrap_or_default().to_owned() })
    }
}

/// Logs denials, at a limited rate. The metric counts all.
#[derive(Debug, Default)]
pub(crate) struct DenialLog(LogLimit);

impl DenialLog {
    /// Logs the denial of the request in `record`.
    pub(crate) fn record(&self, record: &Record<'_>, denial: &Denial) {
        let Some(unlogged) = self.0.admit() else { return };
        if unlogged > 0 {
            tracing::warn!("{unlogged} denials were not logged; the metric towpath_denials counts all");
        }
        let caller = Caller { subject: record.subject, issuer: record.issuer };
        // The message names the path.
        tracing::warn!(
            "denied {face} {verb} to {caller} at {peer}: {message} ({reason})",
            face = record.face.name(),
            verb = record.verb,
            peer = record.peer,
            message = denial.message.escape_debug(),
            reason = denial.reason,
        );
    }
}

/// The caller in a log line.
struct Caller<'a> {
    subject: Option<&'a str>,
    issuer: Option<&'a str>,
}

impl fmt::Display for Caller<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.subject, self.issuer) {
            (Some(subject), Some(issuer)) => write!(f, "{} of {}", subject.escape_debug(), issuer.escape_debug()),
            (Some(name), None) | (None, Some(name)) => write!(f, "{}", name.escape_debug()),
            (None, None) => f.write_str("anonymous"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denial_without_a_reason_has_that_of_its_fault() {
        let reason = |fault, reason| Denial::of(fault, reason, "a\nb").map(|denial| denial.reason);
        assert_eq!(reason(Fault::PermissionDenied, None), Some("storage"));
        assert_eq!(reason(Fault::PermissionDenied, Some("missing_scope")), Some("missing_scope"));
        assert_eq!(reason(Fault::Unavailable, None), None);
        assert_eq!(reason(Fault::Unavailable, Some("issuer_unreachable")), Some("issuer_unreachable"));
        assert_eq!(Denial::of(Fault::TlsRequired, None, "a\nb").unwrap().message, "a");
    }
}
