//! Checks a token's claims against its profile: version, dates, audiences.

use super::{
    jwt::{Claims, Jwt},
    token_error::{TokenError, clip},
};

/// Tolerated clock skew, in seconds, as recommended by WLCG profile §4.3.1. Applies only to the start of a token's
/// lifetime; the profile requires none at its end.
const CLOCK_SKEW_S: i64 = 60;
/// WLCG audience that matches every server.
const WLCG_ANY: &str = "https://wlcg.cern.ch/jwt/v1/any";
/// SciTokens audience that matches every server.
const SCITOKENS_ANY: &str = "ANY";

/// The token profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Profile {
    /// WLCG Common JWT Profiles 1.x.
    Wlcg,
    /// SciTokens 1.0 and 2.0.
    SciTokens,
}

impl Profile {
    /// Returns the audience that matches every server.
    fn any_audience(self) -> &'static str {
        match self {
            Profile::Wlcg => WLCG_ANY,
            Profile::SciTokens => SCITOKENS_ANY,
        }
    }

    /// Returns a scope that grants a right, for messages.
    pub(super) fn example_scope(self) -> &'static str {
        match self {
            Profile::Wlcg => "storage.read:/",
            Profile::SciTokens => "read:/",
        }
    }
}

/// Returns the profile of `jwt` after checking its requirements.
///
/// A token without a version is a SciToken 1.0, in which unknown claims are not allowed (SciTokens "Verification").
/// Unlike there, the audience is required: a token without an audience could be replayed by any server that receives
/// it.
pub(super) fn profile(jwt: &Jwt<'_>) -> Result<Profile, TokenError> {
    let claims = &jwt.claims;
    let profile = match (&claims.wlcg_version, claims.version.as_deref()) {
        (Some(version), _) => wlcg(jwt, version)?,
        (None, Some("scitoken:2.0" | "scitokens:2.0")) => Profile::SciTokens,
        (None, Some("scitoken:1.0" | "scitokens:1.0") | None) => scitoken_1(claims)?,
        (None, Some(other)) => return Err(TokenError::Version(clip(other))),
    };
    if claims.audience.is_none() {
        return Err(TokenError::Missing("aud"));
    }
    Ok(profile)
}

fn wlcg(jwt: &Jwt<'_>, version: &str) -> Result<Profile, TokenError> {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    // Minor versions add nothing that must be understood (WLCG profile §4.3.3).
    if !matches!(version.split_once('.'), Some(("1", minor)) if digits(minor)) {
        return Err(TokenError::Version(clip(version)));
    }
    let claims = &jwt.claims;
    let required = [("sub", claims.subject.is_some()), ("iat", claims.issued.is_some()), ("jti", claims.id.is_some())];
    match required.iter().find(|(_, there)| !there) {
        Some((name, _)) => Err(TokenError::Missing(name)),
        None if jwt.key_id.is_none() => Err(TokenError::Missing("kid (in its header)")),
        None => Ok(Profile::Wlcg),
    }
}

fn scitoken_1(claims: &Claims) -> Result<Profile, TokenError> {
    match claims.others.keys().next() {
        Some(unknown) => Err(TokenError::UnknownClaim(clip(unknown))),
        None => Ok(Profile::SciTokens),
    }
}

/// Returns the token's expiry, in seconds since the Unix epoch, if the token is valid at `now_s`.
pub(super) fn check_times(claims: &Claims, now_s: i64) -> Result<i64, TokenError> {
    let at = claims.expires.ok_or(TokenError::Missing("exp"))?;
    if now_s >= at.seconds() {
        return Err(TokenError::Expired { at, now_s });
    }
    // `nbf` may be before `iat` on purpose. Without `nbf` a token is not valid before it was issued.
    match claims.not_before.or(claims.issued) {
        Some(start) if start.seconds() > now_s + CLOCK_SKEW_S => Err(TokenError::NotYetValid(start)),
        _ => Ok(at.seconds()),
    }
}

/// The audiences of this server.
#[derive(Debug)]
pub(super) struct Audiences(Box<[String]>);

impl Audiences {
    pub(super) fn new(configured: &[String]) -> Self {
        Self(configured.into())
    }

    /// Checks that the token is for this server. Names are compared case-sensitively (RFC 7519 §4.1.3).
    pub(super) fn check(&self, profile: Profile, claims: &Claims) -> Result<(), TokenError> {
        let theirs = claims.audience.as_ref().map_or(&[][..], |audience| audience.names());
        let any = profile.any_audience();
        if theirs.iter().any(|name| name == any || self.0.contains(name)) {
            return Ok(());
        }
        let theirs = if theirs.is_empty() { "nobody".into() } else { clip(&quote(theirs)) };
        let ours = if self.0.is_empty() {
            format!("only `{any}`, as no audience is configured (access.audiences)")
        } else {
            format!("{}, `{any}`", quote(&self.0))
        };
        Err(TokenError::Audience { theirs, ours })
    }
}

fn quote(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
