//! The credentials of Digest (RFC 7616 §3.4): taken apart, and compared with what is kept of a password.
//!
//! What is asked for is `algorithm=SHA-256` and `qop=auth`, and nothing else is taken: the older forms, without `qop` or with MD5, prove less.

use http::Uri;
use percent_encoding::percent_decode_str;

use super::{Denial, are_equal, hash};

/// More fields than any client sends.
const MAX_FIELDS: usize = 32;

const BLANKS: [char; 2] = [' ', '\t'];

/// Who asks, and what proves it. (It cannot be printed: with a weak password a proof is as good as that.)
pub(super) struct Credentials {
    pub(super) username: String,
    pub(super) realm: String,
    pub(super) nonce: String,
    /// How often the client has used the nonce, with this time: at least 1.
    pub(super) count: u32,
    /// The same as it was written.
    nc: String,
    cnonce: String,
    uri: String,
    response: String,
}

impl Credentials {
    /// What is behind `Digest` in `Authorization`.
    ///
    /// # Errors
    /// [`Denial`], if it is no answer to our challenge at all.
    pub(super) fn parse(text: &str) -> Result<Self, Denial> {
        let mut fields = Fields::parse(text)?;
        // Without one it is MD5.
        let algorithm = fields.take("algorithm").unwrap_or_default();
        if !algorithm.eq_ignore_ascii_case("SHA-256") {
            return Err(Denial::Unsuited("`algorithm` must be SHA-256"));
        }
        if !fields.needed("qop")?.eq_ignore_ascii_case("auth") {
            return Err(Denial::Unsuited("`qop` must be auth"));
        }
        if fields.take("userhash").is_some_and(|hashed| !hashed.eq_ignore_ascii_case("false")) {
            return Err(Denial::Unsuited("`userhash` must be false"));
        }
        let nc = fields.needed("nc")?;
        Ok(Self {
            username: fields.username()?,
            count: count(&nc).ok_or(Denial::Malformed("`nc` is a number from 1 with 8 hexadecimal digits"))?,
            nc,
            realm: fields.needed("realm")?,
            nonce: fields.needed("nonce")?,
            cnonce: fields.needed("cnonce")?,
            uri: fields.needed("uri")?,
            response: fields.needed("response")?,
        })
    }

    /// Whether they are for this target. Clients write it as they write the request; HTTP/2 also has the scheme and the host.
    pub(super) fn is_about(&self, uri: &Uri) -> bool {
        let is_target = uri.path_and_query().is_some_and(|target| target.as_str() == self.uri);
        is_target || (uri.authority().is_some() && uri.to_string() == self.uri)
    }

    /// Whether they were made by somebody who knows the password of which `kept` is the hash, for a request of this method.
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

/// The fields of credentials, by their names in lower case.
struct Fields(Vec<(String, String)>);

impl Fields {
    /// A list of `name=value` (RFC 9110 §11.4), each there once.
    fn parse(text: &str) -> Result<Self, Denial> {
        let mut fields: Vec<(String, String)> = Vec::new();
        let mut rest = text;
        loop {
            rest = rest.trim_start_matches([' ', '\t', ',']);
            if rest.is_empty() {
                return Ok(Self(fields));
            }
            let (name, value, behind) = field(rest).ok_or(Denial::Malformed("they are no list of NAME=VALUE"))?;
            if fields.len() == MAX_FIELDS {
                return Err(Denial::Malformed("they have too many fields"));
            }
            let name = name.to_ascii_lowercase();
            if fields.iter().any(|(known, _)| *known == name) {
                return Err(Denial::Malformed("a field is there twice"));
            }
            fields.push((name, value));
            rest = behind;
        }
    }

    fn take(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(known, _)| known == name)?;
        Some(self.0.swap_remove(at).1)
    }

    fn needed(&mut self, name: &'static str) -> Result<String, Denial> {
        self.take(name).ok_or(Denial::Missing(name))
    }

    /// The name in `username`, or that in `username*`, which some clients write if it is not ASCII (RFC 7616 §3.4).
    fn username(&mut self) -> Result<String, Denial> {
        match (self.take("username"), self.take("username*")) {
            (Some(name), None) => Ok(name),
            (None, Some(name)) => extended(&name).ok_or(Denial::Malformed("`username*` is not UTF-8''NAME")),
            (None, None) => Err(Denial::Missing("username")),
            (Some(_), Some(_)) => Err(Denial::Malformed("`username` and `username*` are both there")),
        }
    }
}

/// The first field of a list, which is not empty, and what comes behind it: a comma or nothing.
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

/// A token (RFC 9110 §5.6.2) and what comes behind it.
fn token(text: &str) -> Option<(&str, &str)> {
    let is_of_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let end = text.bytes().position(|byte| !is_of_token(byte)).unwrap_or(text.len());
    // All that is before is ASCII.
    (end > 0).then(|| text.split_at(end))
}

/// What is in quotes (RFC 9110 §5.6.4), of which the first is gone, and what comes behind them.
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

/// The text of an extended value (RFC 8187 §3.2) in UTF-8.
fn extended(value: &str) -> Option<String> {
    let (charset, rest) = value.split_once('\'')?;
    let (_language, encoded) = rest.split_once('\'')?;
    let text = percent_decode_str(encoded).decode_utf8().ok()?;
    charset.eq_ignore_ascii_case("UTF-8").then(|| text.into_owned())
}
