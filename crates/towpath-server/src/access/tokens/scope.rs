//! Converts scopes into grants (WLCG profile §2.2.1; SciTokens "Claims").

use percent_encoding::percent_decode;
use towpath_store::{PathError, StorePath};

use super::{
    claims::Profile,
    token_error::{TokenError, clip},
};
use crate::{access::Grant, config::Right};

/// Maximum number of scopes: each request is checked against all of them.
const MAX_SCOPES: usize = 256;

/// Rights by scope name. `stage` does not include `read`: versions of the WLCG profile disagree, and the narrower
/// meaning is safe.
const RIGHTS: [(Profile, &str, Right); 7] = [
    (Profile::Wlcg, "storage.read", Right::Read),
    (Profile::Wlcg, "storage.create", Right::Create),
    (Profile::Wlcg, "storage.modify", Right::Modify),
    (Profile::Wlcg, "storage.stage", Right::Stage),
    (Profile::Wlcg, "storage.poll", Right::Stat),
    (Profile::SciTokens, "read", Right::Read),
    (Profile::SciTokens, "write", Right::Modify),
];

/// Returns the grants of the space-separated `scopes` below `base`. Names outside the profile are ignored.
pub(super) fn grants(profile: Profile, scopes: &str, base: &StorePath) -> Result<Vec<Grant>, TokenError> {
    let mut grants = Vec::new();
    for (count, scope) in scopes.split(' ').filter(|scope| !scope.is_empty()).enumerate() {
        if count == MAX_SCOPES {
            return Err(TokenError::TooManyScopes(MAX_SCOPES));
        }
        let (name, path) = scope.split_once(':').unwrap_or((scope, ""));
        let Some((_, _, right)) = RIGHTS.iter().find(|(of, known, _)| *of == profile && *known == name) else {
            continue;
        };
        if path.is_empty() {
            return Err(TokenError::Pathless(clip(scope)));
        }
        let below = resolve(base, path.as_bytes()).map_err(|why| TokenError::ScopePath { scope: clip(scope), why })?;
        grants.push(Grant { right: *right, path: below, directory: path.ends_with('/') });
    }
    if grants.is_empty() { Err(TokenError::NoCapability(profile)) } else { Ok(grants) }
}

/// Joins `path` to `base`. Each component is percent-decoded once after splitting at slashes, so that an encoded
/// slash or `..` is detected and rejected.
fn resolve(base: &StorePath, path: &[u8]) -> Result<StorePath, &'static str> {
    let Some(relative) = path.strip_prefix(b"/") else { return Err("it does not start with /") };
    let mut resolved = base.clone();
    for component in relative.split(|b| *b == b'/') {
        let name = decode(component)?;
        if matches!(&*name, b"" | b".") {
            continue;
        }
        resolved = resolved.join(&name).map_err(|error| match error {
            PathError::Parent => "it has a `..` component",
            PathError::Relative => "it has an encoded slash",
            PathError::Nul => "it has a NUL byte",
            PathError::TooLong => "it is too long",
        })?;
    }
    Ok(resolved)
}

fn decode(component: &[u8]) -> Result<Vec<u8>, &'static str> {
    let mut rest = component;
    while let Some(percent) = rest.iter().position(|b| *b == b'%') {
        rest = &rest[percent + 1..];
        if !matches!(rest, [high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit()) {
            return Err("it has an invalid percent-encoding");
        }
    }
    Ok(percent_decode(component).collect())
}
