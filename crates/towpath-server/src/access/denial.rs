//! Denials: their reasons in metrics and logs, and the log of the server.

use std::{
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use towpath_store::{
    Fault,
    sys::clock::{self, Instant},
};

use crate::access_log::Record;

/// Maximum number of denials logged per [`WINDOW`]. Scanners cause thousands per second.
const MAX_LOGGED: u64 = 20;
/// The window of [`MAX_LOGGED`].
const WINDOW: Duration = Duration::from_secs(60);

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

/// Logs denials, at most [`MAX_LOGGED`] per [`WINDOW`]. The metric counts all.
#[derive(Debug, Default)]
pub(crate) struct DenialLog(Mutex<Window>);

#[derive(Debug, Default)]
struct Window {
    since: Option<Instant>,
    /// Denials in this window.
    count: u64,
}

impl DenialLog {
    /// Logs the denial of the request in `record`.
    pub(crate) fn record(&self, record: &Record<'_>, denial: &Denial) {
        let Some(unlogged) = self.admit(clock::now()) else { return };
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

    /// Returns the number of denials since the last logged one if this one may be logged.
    fn admit(&self, now: Instant) -> Option<u64> {
        let mut window = self.window();
        let mut unlogged = 0;
        if window.since.is_none_or(|since| now.duration_since(since) >= WINDOW) {
            unlogged = window.count.saturating_sub(MAX_LOGGED);
            *window = Window { since: Some(now), count: 0 };
        }
        window.count += 1;
        (window.count <= MAX_LOGGED).then_some(unlogged)
    }

    fn window(&self) -> MutexGuard<'_, Window> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
    fn denials_beyond_the_maximum_are_counted_and_reported_in_the_next_window() {
        let log = DenialLog::default();
        let start = clock::now();
        let logged = (0..MAX_LOGGED + 7).filter(|_| log.admit(start) == Some(0)).count();
        assert_eq!(logged as u64, MAX_LOGGED);
        assert_eq!(log.admit(start + WINDOW / 2), None);
        assert_eq!(log.admit(start + WINDOW), Some(8));
        assert_eq!(log.admit(start + WINDOW), Some(0));
    }

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
