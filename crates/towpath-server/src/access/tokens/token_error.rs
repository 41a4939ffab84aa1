//! Reasons for rejecting a token, worded for the client.

use std::time::{Duration, UNIX_EPOCH};

use towpath_store::{Error, Fault};

use super::{
    super::DenialReason,
    claims::Profile,
    jwt::{MAX_TOKEN_BYTES, NumericDate},
};

/// Maximum length of text from a token that a message repeats, in characters.
const MAX_CLIPPED_CHARS: usize = 120;

/// Why a token was rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum TokenError {
    #[error("it has more than {MAX_TOKEN_BYTES} bytes")]
    TooLong,
    #[error("it is malformed: {0}")]
    Malformed(String),
    #[error("its algorithm `{0}` is refused: only RS256 and ES256 are accepted")]
    Algorithm(String),
    #[error("its issuer `{name}` is not trusted by this server{}", twin_hint(.twin.as_deref()))]
    UnknownIssuer {
        name: String,
        /// A configured issuer that differs only by a trailing slash.
        twin: Option<String>,
    },
    #[error("its key {} is not among those of {issuer}", key_name(.id.as_deref()))]
    UnknownKey { id: Option<String>, issuer: String },
    #[error("its signature is forged or damaged: it was not made with the key of {0} that the token names")]
    Forged(String),
    #[error("it lacks the claim `{0}`")]
    Missing(&'static str),
    #[error("its version `{0}` is not supported: expected `wlcg.ver` 1.x or `ver` scitoken:2.0")]
    Version(String),
    #[error("it is a SciToken 1.0 (it has neither `wlcg.ver` nor `ver`), and those may not have the claim `{0}`")]
    UnknownClaim(String),
    #[error("it expired {} s ago, at {}", .now_s - .at.seconds(), date(*.at))]
    Expired { at: NumericDate, now_s: i64 },
    #[error("it is not valid before {}", date(*.0))]
    NotYetValid(NumericDate),
    #[error("its audience is {theirs}; this server accepts {ours}")]
    Audience { theirs: String, ours: String },
    #[error("its scope `{0}` lacks a path")]
    Pathless(String),
    #[error("its scope `{scope}` has an invalid path: {why}")]
    ScopePath { scope: String, why: &'static str },
    #[error("it has more than {0} scopes")]
    TooManyScopes(usize),
    #[error("it has no storage scope: it needs a scope such as `{}`; groups are not supported", .0.example_scope())]
    NoCapability(Profile),
}

impl TokenError {
    fn reason(&self) -> DenialReason {
        match self {
            Self::TooLong
            | Self::Malformed(_)
            | Self::Algorithm(_)
            | Self::Missing(_)
            | Self::Version(_)
            | Self::UnknownClaim(_) => DenialReason::TokenMalformed,
            Self::UnknownIssuer { .. } => DenialReason::TokenIssuer,
            Self::UnknownKey { .. } | Self::Forged(_) => DenialReason::TokenForged,
            Self::Expired { .. } => DenialReason::TokenExpired,
            Self::NotYetValid(_) => DenialReason::TokenNotYetValid,
            Self::Audience { .. } => DenialReason::TokenAudience,
            Self::Pathless(_) | Self::ScopePath { .. } | Self::TooManyScopes(_) | Self::NoCapability(_) => {
                DenialReason::TokenScope
            }
        }
    }
}

impl From<TokenError> for Error {
    fn from(error: TokenError) -> Self {
        let message = format!("the token is refused: {error}");
        Error::new(Fault::AuthenticationFailed, message).with_reason(error.reason().name())
    }
}

/// Sanitizes untrusted text for a message: short, and without control characters.
pub(super) fn clip(text: &str) -> String {
    let mut clipped: String = text.chars().take(MAX_CLIPPED_CHARS).collect::<String>().escape_debug().to_string();
    if clipped.len() < text.len() && text.chars().nth(MAX_CLIPPED_CHARS).is_some() {
        clipped.push_str("...");
    }
    clipped
}

fn twin_hint(twin: Option<&str>) -> String {
    twin.map_or_else(String::new, |twin| format!(" (`{twin}` is: the trailing slash is significant)"))
}

fn key_name(id: Option<&str>) -> String {
    id.map_or_else(|| "(it names none)".into(), |id| format!("`{id}`"))
}

fn date(at: NumericDate) -> String {
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(at.seconds().unsigned_abs()))
}
