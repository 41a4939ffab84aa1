//! What the profiles demand of a token's claims: versions, dates, audiences.

use super::{
    jwt::{Claims, Jwt},
    refusal::{Refusal, clip},
};

/// How far clocks may be apart: what WLCG profile §4.3.1 recommends. It holds for the beginning of a token's life only; at its
/// end the profile wants none.
const CLOCK_SKEW_S: i64 = 60;
/// The audience that names every server, in WLCG tokens.
const WLCG_ANY: &str = "https://wlcg.cern.ch/jwt/v1/any";
/// The same in SciTokens.
const SCITOKENS_ANY: &str = "ANY";

/// The rules by which a token is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Profile {
    /// WLCG Common JWT Profiles 1.x.
    Wlcg,
    /// SciTokens 1.0 and 2.0.
    SciTokens,
}

impl Profile {
    /// The audience that names every server.
    fn any_audience(self) -> &'static str {
        match self {
            Profile::Wlcg => WLCG_ANY,
            Profile::SciTokens => SCITOKENS_ANY,
        }
    }

    /// A scope that gives a right, for messages.
    pub(super) fn example_scope(self) -> &'static str {
        match self {
            Profile::Wlcg => "storage.read:/",
            Profile::SciTokens => "read:/",
        }
    }
}

/// The profile of `jwt`, whose demands it meets.
///
/// A token without a version is a SciToken 1.0, in which unknown claims are not allowed (SciTokens "Verification"). Unlike there,
/// the audience is required: a token for nobody in particular would be good at whoever gets hold of it.
pub(super) fn profile(jwt: &Jwt<'_>) -> Result<Profile, Refusal> {
    let claims = &jwt.claims;
    let profile = match (&claims.wlcg_version, claims.version.as_deref()) {
        (Some(version), _) => wlcg(jwt, version)?,
        (None, Some("scitoken:2.0" | "scitokens:2.0")) => Profile::SciTokens,
        (None, Some("scitoken:1.0" | "scitokens:1.0") | None) => scitoken_1(claims)?,
        (None, Some(other)) => return Err(Refusal::Version(clip(other))),
    };
    if claims.audience.is_none() {
        return Err(Refusal::Missing("aud"));
    }
    Ok(profile)
}

fn wlcg(jwt: &Jwt<'_>, version: &str) -> Result<Profile, Refusal> {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    // Minor versions add nothing that must be understood (WLCG profile §4.3.3).
    if !matches!(version.split_once('.'), Some(("1", minor)) if digits(minor)) {
        return Err(Refusal::Version(clip(version)));
    }
    let claims = &jwt.claims;
    let required = [("sub", claims.subject.is_some()), ("iat", claims.issued.is_some()), ("jti", claims.id.is_some())];
    match required.iter().find(|(_, there)| !there) {
        Some((name, _)) => Err(Refusal::Missing(name)),
        None if jwt.key_id.is_none() => Err(Refusal::Missing("kid (in its header)")),
        None => Ok(Profile::Wlcg),
    }
}

fn scitoken_1(claims: &Claims) -> Result<Profile, Refusal> {
    match claims.others.keys().next() {
        Some(unknown) => Err(Refusal::UnknownClaim(clip(unknown))),
        None => Ok(Profile::SciTokens),
    }
}

/// When the token expires, in seconds since the Unix epoch, provided that it is valid at `now_s`.
pub(super) fn check_times(claims: &Claims, now_s: i64) -> Result<i64, Refusal> {
    let at = claims.expires.ok_or(Refusal::Missing("exp"))?;
    if now_s >= at.seconds() {
        return Err(Refusal::Expired { at, now_s });
    }
    // `nbf` may be before `iat` on purpose; without it nothing makes a token good before it was issued.
    match claims.not_before.or(claims.issued) {
        Some(start) if start.seconds() > now_s + CLOCK_SKEW_S => Err(Refusal::NotYetValid(start)),
        _ => Ok(at.seconds()),
    }
}

/// The names of this server.
#[derive(Debug)]
pub(super) struct Audiences(Box<[String]>);

impl Audiences {
    pub(super) fn new(configured: &[String]) -> Self {
        Self(configured.into())
    }

    /// Whether the token is for this server. Names are compared as they are, with case (RFC 7519 §4.1.3).
    pub(super) fn check(&self, profile: Profile, claims: &Claims) -> Result<(), Refusal> {
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
        Err(Refusal::Audience { theirs, ours })
    }
}

fn quote(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
