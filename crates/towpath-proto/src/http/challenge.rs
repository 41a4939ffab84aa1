//! The reason for rejecting a bearer token, in `WWW-Authenticate` (RFC 6750 §3).

use std::fmt;

/// The `error` and `error_description` of a challenge of the scheme `Bearer`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BearerError {
    /// `invalid_request`, `invalid_token`, `insufficient_scope`, or a server-specific code.
    pub code: String,
    /// Description for people.
    pub description: Option<String>,
}

impl BearerError {
    /// The token is expired, revoked, malformed or otherwise not accepted: sent with 401.
    pub const INVALID_TOKEN: &'static str = "invalid_token";
    /// The token is valid, but does not permit this: sent with 403.
    pub const INSUFFICIENT_SCOPE: &'static str = "insufficient_scope";

    /// Parses the value of a `WWW-Authenticate` field, which may contain several challenges; `None` if it has no
    /// `Bearer` challenge with an `error`. Text that violates the grammar is skipped: the field only explains a
    /// rejection.
    pub fn parse(field: &str) -> Option<Self> {
        let (mut code, mut description) = (None, None);
        let mut is_bearer = false;
        let mut rest = field.trim_start_matches(SEPARATORS);
        while !rest.is_empty() {
            let (name, behind) = token(rest);
            match behind.trim_start_matches(BLANKS).strip_prefix('=') {
                Some(behind) => {
                    let (value, behind) = value(behind.trim_start_matches(BLANKS));
                    match name.to_ascii_lowercase().as_str() {
                        "error" if is_bearer => code = Some(value),
                        "error_description" if is_bearer => description = Some(value),
                        _ => {}
                    }
                    rest = behind;
                }
                None if name.is_empty() => rest = behind.get(1..).unwrap_or_default(),
                None => {
                    is_bearer = name.eq_ignore_ascii_case("bearer");
                    rest = behind;
                }
            }
            rest = rest.trim_start_matches(SEPARATORS);
        }
        Some(Self { code: code.filter(|code| !code.is_empty())?, description })
    }
}

impl fmt::Display for BearerError {
    /// Formats the challenge without the characters that RFC 6750 does not allow in it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bearer error=\"{}\"", quotable(&self.code))?;
        match &self.description {
            Some(description) => write!(f, ", error_description=\"{}\"", quotable(description)),
            None => Ok(()),
        }
    }
}

/// Returns `text` without the characters that a quoted string (RFC 9110 §5.6.4) must escape or cannot contain.
pub fn quotable(text: &str) -> String {
    text.chars().filter(|c| matches!(c, ' '..='~') && !"\"\\".contains(*c)).collect()
}

const BLANKS: [char; 2] = [' ', '\t'];

const SEPARATORS: [char; 3] = [' ', '\t', ','];

/// Splits `text` into the token (RFC 9110 §5.6.2) at its start, which may be empty, and the rest.
fn token(text: &str) -> (&str, &str) {
    let is_of_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    text.split_at(text.find(|c| !is_of_token(c)).unwrap_or(text.len()))
}

/// Splits `text` into the value at its start, quoted or not, and the rest.
fn value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let (value, rest) = text.split_at(text.find(SEPARATORS).unwrap_or(text.len()));
        return (value.to_owned(), rest);
    };
    let mut value = String::new();
    let mut characters = quoted.chars();
    while let Some(character) = characters.next() {
        match character {
            '"' => break,
            '\\' => value.extend(characters.next()),
            character => value.push(character),
        }
    }
    (value, characters.as_str())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn error(code: &str, description: Option<&str>) -> BearerError {
        BearerError { code: code.into(), description: description.map(str::to_owned) }
    }

    #[test]
    fn the_error_of_a_bearer_challenge_is_found() {
        for (field, found) in [
            (
                r#"Bearer realm="x", error="invalid_token", error_description="The access token \"a\" expired""#,
                error("invalid_token", Some("The access token \"a\" expired")),
            ),
            ("bearer error=insufficient_scope,scope=\"storage.read:/\"", error("insufficient_scope", None)),
            (
                r#"Negotiate abc==, Basic realm="error=\"x\"", Bearer error = "invalid_token""#,
                error("invalid_token", None),
            ),
            (r#"Bearer error="unclosed"#, error("unclosed", None)),
        ] {
            assert_eq!(BearerError::parse(field), Some(found), "{field}");
        }
        for field in ["Bearer", "", r#"Digest error="x""#, r#"Bearer realm="error=x""#, "=,=\"", r#"Bearer error="""#] {
            assert_eq!(BearerError::parse(field), None, "{field}");
        }
    }

    proptest! {
        #[test]
        fn anything_is_read_to_its_end(field in any::<String>()) {
            let _ = BearerError::parse(&field);
        }

        #[test]
        fn what_is_written_is_read(code in "[a-z_]{1,20}", description in proptest::option::of("[ a-zA-Z0-9.,=/']{1,40}")) {
            let error = BearerError { code, description };
            prop_assert_eq!(BearerError::parse(&error.to_string()), Some(error));
        }
    }
}
