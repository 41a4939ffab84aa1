//! Extracts bearer tokens from requests.

use percent_encoding::percent_decode;
use towpath_store::Secret;

/// Returns the token in `Bearer TOKEN` (RFC 6750 §2.1), with a case-insensitive scheme; `None` for another scheme.
pub(crate) fn in_credentials(credentials: &str) -> Option<Secret> {
    let (scheme, token) = credentials.trim().split_once(' ')?;
    token_of(scheme.eq_ignore_ascii_case("Bearer").then_some(token)?)
}

/// Returns the token in the percent-encoded value of `authz`: `Bearer%20TOKEN`, as XRootD clients send it, or the
/// bare token.
pub(crate) fn in_authz(value: &[u8]) -> Option<Secret> {
    let text = percent_decode(value).decode_utf8().ok()?;
    if text.trim().contains(' ') { in_credentials(&text) } else { token_of(&text) }
}

fn token_of(text: &str) -> Option<Secret> {
    let token = text.trim();
    (!token.is_empty()).then(|| Secret::new(token))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bearer_tokens_count() {
        for (text, token) in [
            ("Bearer abc", Some("abc")),
            ("bearer  abc ", Some("abc")),
            ("Basic abc", None),
            ("Bearer ", None),
            ("abc", None),
        ] {
            assert_eq!(in_credentials(text).as_ref().map(Secret::expose), token, "{text}");
        }
    }

    #[test]
    fn authz_takes_a_token_alone() {
        for (value, token) in [
            ("Bearer%20abc.d", Some("abc.d")),
            ("bearer%20abc", Some("abc")),
            ("abc", Some("abc")),
            ("Basic%20abc", None),
            ("", None),
            ("%ff", None),
        ] {
            assert_eq!(in_authz(value.as_bytes()).as_ref().map(Secret::expose), token, "{value}");
        }
    }
}
