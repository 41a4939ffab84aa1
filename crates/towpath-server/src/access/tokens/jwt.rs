//! A JWT in compact form (RFC 7515 §7.1, RFC 7519), parsed but not yet verified.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::Algorithm;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error as _, IgnoredAny},
};

use super::token_error::{TokenError, clip};

/// Maximum length of a token, in bytes. HTTP servers rarely accept headers over 8 KiB; this leaves room for XRootD's.
pub(crate) const MAX_TOKEN_BYTES: usize = 16 << 10;
/// Maximum length of a subject, in bytes (WLCG profile §2.1.1).
const MAX_SUBJECT_BYTES: usize = 255;
/// Maximum length of a key identifier, in bytes; no standard limits it, and real ones are below 100.
const MAX_KEY_ID_BYTES: usize = 256;
/// The end of the year 9999, in seconds since the Unix epoch: later dates cannot be formatted in messages.
const MAX_DATE_S: i64 = 253_402_300_799;

/// A parsed token.
#[derive(Debug)]
pub(super) struct Jwt<'a> {
    pub(super) algorithm: Algorithm,
    /// `kid`, the claimed signing key.
    pub(super) key_id: Option<String>,
    pub(super) claims: Claims,
    /// The signed bytes.
    pub(super) signed: &'a [u8],
    /// The signature, in base64url.
    pub(super) signature: &'a str,
}

/// The relevant fields of a token's header. Embedded keys and key URLs (`jwk`, `jku`, `x5c`, `x5u`) are ignored.
#[derive(Deserialize)]
struct Header {
    alg: String,
    typ: Option<String>,
    kid: Option<String>,
    crit: Option<IgnoredAny>,
}

/// The claims of a token.
#[derive(Debug, Deserialize)]
pub(super) struct Claims {
    #[serde(rename = "iss")]
    pub(super) issuer: String,
    #[serde(rename = "sub")]
    pub(super) subject: Option<String>,
    #[serde(rename = "aud")]
    pub(super) audience: Option<Audience>,
    #[serde(rename = "exp")]
    pub(super) expires: Option<NumericDate>,
    #[serde(rename = "nbf")]
    pub(super) not_before: Option<NumericDate>,
    #[serde(rename = "iat")]
    pub(super) issued: Option<NumericDate>,
    #[serde(rename = "jti")]
    pub(super) id: Option<String>,
    #[serde(rename = "wlcg.ver")]
    pub(super) wlcg_version: Option<String>,
    #[serde(rename = "ver")]
    pub(super) version: Option<String>,
    pub(super) scope: Option<String>,
    /// The names of all other claims.
    #[serde(flatten)]
    pub(super) others: BTreeMap<String, IgnoredAny>,
}

/// One or several audiences.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Audience {
    One(String),
    Several(Vec<String>),
}

impl Audience {
    pub(super) fn names(&self) -> &[String] {
        match self {
            Audience::One(name) => std::slice::from_ref(name),
            Audience::Several(names) => names,
        }
    }
}

/// Seconds since the Unix epoch, from 1970 to 9999. Fractions, which RFC 7519 §2 allows, are truncated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NumericDate(i64);

impl NumericDate {
    pub(super) fn seconds(self) -> i64 {
        self.0
    }
}

impl<'de> Deserialize<'de> for NumericDate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = serde_json::Number::deserialize(deserializer)?;
        // The cast saturates.
        let seconds = number.as_i64().or_else(|| number.as_f64().map(|seconds| seconds.floor() as i64));
        match seconds {
            Some(seconds @ 0..=MAX_DATE_S) => Ok(Self(seconds)),
            _ => Err(D::Error::custom("a date is outside the years 1970 to 9999")),
        }
    }
}

/// Returns `token` unless it is too long.
pub(super) fn bounded(token: &str) -> Result<&str, TokenError> {
    if token.len() > MAX_TOKEN_BYTES { Err(TokenError::TooLong) } else { Ok(token) }
}

impl<'a> Jwt<'a> {
    /// Parses `token`.
    pub(super) fn parse(token: &'a str) -> Result<Self, TokenError> {
        let not_three = || malformed("it does not have three parts separated by dots");
        let (signed, signature) = token.rsplit_once('.').ok_or_else(not_three)?;
        let (header, claims) = signed.split_once('.').ok_or_else(not_three)?;
        if claims.contains('.') {
            return Err(not_three());
        }
        let header: Header = decode(header, "header")?;
        let algorithm = header.check()?;
        let claims: Claims = decode(claims, "claims")?;
        claims.check()?;
        Ok(Self { algorithm, key_id: header.kid, claims, signed: signed.as_bytes(), signature })
    }
}

impl Header {
    fn check(&self) -> Result<Algorithm, TokenError> {
        let algorithm = match self.alg.as_str() {
            "RS256" => Algorithm::RS256,
            "ES256" => Algorithm::ES256,
            other => return Err(TokenError::Algorithm(clip(other))),
        };
        // RFC 7515 §4.1.11: a recipient must reject critical extensions that it does not understand.
        if self.crit.is_some() {
            return Err(malformed("its header has critical extensions, which are not supported"));
        }
        if let Some(typ) = &self.typ {
            check_type(typ)?;
        }
        if self.kid.as_ref().is_some_and(|id| id.len() > MAX_KEY_ID_BYTES) {
            return Err(malformed("its key identifier is too long"));
        }
        Ok(algorithm)
    }
}

/// Other kinds of JWT (logout tokens, proofs of possession) are signed with the same keys and must be rejected (RFC
/// 8725 §3.11).
fn check_type(typ: &str) -> Result<(), TokenError> {
    let lower = typ.to_ascii_lowercase();
    match lower.strip_prefix("application/").unwrap_or(&lower) {
        "jwt" | "at+jwt" => Ok(()),
        _ => Err(malformed(format!("its type `{}` is not that of an access token", clip(typ)))),
    }
}

impl Claims {
    fn check(&self) -> Result<(), TokenError> {
        match &self.subject {
            Some(subject) if subject.len() > MAX_SUBJECT_BYTES => {
                Err(malformed("its subject has more than 255 characters"))
            }
            // The subject is written to logs.
            Some(subject) if subject.is_empty() || subject.chars().any(char::is_control) => {
                Err(malformed("its subject is empty or has control characters"))
            }
            _ => Ok(()),
        }
    }
}

fn decode<T: DeserializeOwned>(part: &str, name: &str) -> Result<T, TokenError> {
    let json = URL_SAFE_NO_PAD.decode(part).map_err(|_| malformed(format!("its {name} is not base64url")))?;
    serde_json::from_slice(&json)
        .map_err(|error| malformed(format!("its {name} cannot be parsed: {}", clip(&error.to_string()))))
}

pub(super) fn malformed(why: impl Into<String>) -> TokenError {
    TokenError::Malformed(why.into())
}
