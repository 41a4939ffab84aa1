//! Parses Digest credentials (RFC 7616 §3.4) and verifies them against a password hash.
//!
//! Only `algorithm=SHA-256` with `qop=auth` is requested and accepted: the older forms, without `qop` or with MD5,
//! are weaker.

use http::Uri;
use percent_encoding::percent_decode_str;

use super::{LoginError, are_equal, hash};

/// Maximum number of fields; more than any client sends.
const MAX_FIELDS: usize = 32;

const BLANKS: [char; 2] = [' ', '\t'];

/// The client's name and proof. Not `Debug`, because the proof of a weak password reveals it.
pub(super) struct Credentials {
    pub(super) username: String,
    pub(super) realm: String,
    pub(super) nonce: String,
    /// How often the client has used the nonce, including this request: at least 1.
    pub(super) count: u32,
    /// The same number as sent.
    nc: String,
    cnonce: String,
    uri: String,
    response: String,
}

impl Credentials {
    /// Parses the part after `Digest` in `Authorization`.
    ///
    /// # Errors
    /// [`LoginError`] if it does not respond to our challenge.
    pub(super) fn parse(text: &str) -> Result<Self, LoginError> {
        let mut fields = Fields::parse(text)?;
        // The default is MD5.
        let algorithm = fields.take("algorithm").unwrap_or_default();
        if !algorithm.eq_ignore_ascii_case("SHA-256") {
            return Err(LoginError::Unsuited("`algorithm` must be SHA-256"));
        }
        if !fields.needed("qop")?.eq_ignore_ascii_case("auth") {
            return Err(LoginError::Unsuited("`qop` must be auth"));
        }
        if fields.take("userhash").is_some_and(|hashed| !hashed.eq_ignore_ascii_case("false")) {
            return Err(LoginError::Unsuited("`userhash` must be false"));
        }
        let nc = fields.needed("nc")?;
        Ok(Self {
            username: fields.username()?,
            count: count(&nc).ok_or(LoginError::Malformed("`nc` is a number from 1 with 8 hexadecimal digits"))?,
            nc,
            realm: fields.needed("realm")?,
            nonce: fields.needed("nonce")?,
            cnonce: fields.needed("cnonce")?,
            uri: fields.needed("uri")?,
            response: fields.needed("response")?,
        })
    }

    /// Whether the credentials are for this target. Clients write the URI as in the request; with HTTP/2 it may
    /// include scheme and host.
    pub(super) fn is_about(&self, uri: &Uri) -> bool {
        let is_target = uri.path_and_query().is_some_and(|target| target.as_str() == self.uri);
        is_target || (uri.authority().is_some() && uri.to_string() == self.uri)
    }

    /// Whether they were computed for a request of this method with the password whose hash is `kept`.
    pub(super) fn is_of(&self, kept: &str, method: &str) -> bool {
        let asked = hash(&[method, &self.uri]);
        let proof = hash(&[kept, &self.nonce, &self.nc, &self.cnonce, "auth", &asked]);
        are_equal(&proof, &self.response)
    }
}

fn count(text: &str) -> Option<u32> {
    let is_hex = text.len() == 8 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    u32::from_str_radix(text, 16).ok().filter(|count| is_hex && *count > 0)
}

/// The fields of credentials, by lowercase name.
struct Fields(Vec<(String, String)>);

impl Fields {
    /// Parses a list of `name=value` (RFC 9110 §11.4) without duplicates.
    fn parse(text: &str) -> Result<Self, LoginError> {
        let mut fields: Vec<(String, String)> = Vec::new();
        let mut rest = text;
        loop {
            rest = rest.trim_start_matches([' ', '\t', ',']);
            if rest.is_empty() {
                return Ok(Self(fields));
            }
            let (name, value, behind) =
                field(rest).ok_or(LoginError::Malformed("they are not a list of NAME=VALUE"))?;
            if fields.len() == MAX_FIELDS {
                return Err(LoginError::Malformed("they have too many fields"));
            }
            let name = name.to_ascii_lowercase();
            if fields.iter().any(|(known, _)| *known == name) {
                return Err(LoginError::Malformed("a field is duplicated"));
            }
            fields.push((name, value));
            rest = behind;
        }
    }

    fn take(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(known, _)| known == name)?;
        Some(self.0.swap_remove(at).1)
    }

    fn needed(&mut self, name: &'static str) -> Result<String, LoginError> {
        self.take(name).ok_or(LoginError::Missing(name))
    }

    /// Takes the name in `username`, or in `username*`, which some clients use for non-ASCII names (RFC 7616 §3.4).
    fn username(&mut self) -> Result<String, LoginError> {
        match (self.take("username"), self.take("username*")) {
            (Some(name), None) => Ok(name),
            (None, Some(name)) => extended(&name).ok_or(LoginError::Malformed("`username*` is not UTF-8''NAME")),
            (None, None) => Err(LoginError::Missing("username")),
            (Some(_), Some(_)) => Err(LoginError::Malformed("`username` and `username*` exclude each other")),
        }
    }
}

/// Splits off the first field of a non-empty list. The rest is empty or starts with a comma.
fn field(text: &str) -> Option<(&str, String, &str)> {
    let (name, rest) = token(text)?;
    let rest = rest.trim_start_matches(BLANKS).strip_prefix('=')?.trim_start_matches(BLANKS);
    let (value, rest) = match rest.strip_prefix('"') {
        Some(rest) => quoted(rest)?,
        None => token(rest).map(|(value, rest)| (value.to_owned(), rest))?,
    };
    let rest = rest.trim_start_matches(BLANKS);
    (rest.is_empty() || rest.starts_with(',')).then_some((name, value, rest))
}

/// Splits off a token (RFC 9110 §5.6.2).
fn token(text: &str) -> Option<(&str, &str)> {
    let is_of_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let end = text.bytes().position(|byte| !is_of_token(byte)).unwrap_or(text.len());
    // All bytes before `end` are ASCII.
    (end > 0).then(|| text.split_at(end))
}

/// Parses a quoted string (RFC 9110 §5.6.4) without its opening quote, and returns its value and the rest.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.chars();
    loop {
        match characters.next()? {
            '"' => return Some((value, characters.as_str())),
            '\\' => value.push(characters.next()?),
            character => value.push(character),
        }
    }
}

/// Decodes an extended value (RFC 8187 §3.2) in UTF-8.
fn extended(value: &str) -> Option<String> {
    let (charset, rest) = value.split_once('\'')?;
    let (_language, encoded) = rest.split_once('\'')?;
    let text = percent_decode_str(encoded).decode_utf8().ok()?;
    charset.eq_ignore_ascii_case("UTF-8").then(|| text.into_owned())
}
