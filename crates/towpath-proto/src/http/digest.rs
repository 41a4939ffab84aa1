//! Checksums in header fields and properties, in all forms used by clients and storages.
//!
//! | field | specification | form |
//! | --- | --- | --- |
//! | `Digest` | RFC 3230, obsolete, used by all grid clients | `adler32=091e01de,md5=JfnnlDI7RTiF9RgfG2JNCw==` |
//! | `Want-Digest` | RFC 3230 | `adler32;q=1, md5;q=0.5` |
//! | `Repr-Digest`, `Content-Digest` | RFC 9530 | `adler=:CR4B3g==:, sha-256=:...=:` |
//! | `Want-Repr-Digest`, `Want-Content-Digest` | RFC 9530 | `sha-256=9, adler=1` |
//! | `Content-MD5` | RFC 1864, dropped by RFC 7231, used by S3 | `JfnnlDI7RTiF9RgfG2JNCw==` |
//! | `OC-Checksum`, property `oc:checksums` | ownCloud | `ADLER32:091e01de MD5:25f9...` |
//!
//! The names differ from XRootD's and between the two RFCs; one table lists them. Algorithms that are not in it are
//! skipped. An invalid value of a known algorithm is an error, so that a damaged digest of an upload is not mistaken
//! for a missing one.

use std::{fmt::Write as _, ops::RangeInclusive};

use crate::checksum::{Algorithm, Algorithms, Digest, Digests, InvalidDigest};

/// Encoding of an algorithm's value in RFC 3230.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Encoding {
    Hex,
    Base64,
    Decimal,
}

/// Names of an algorithm in header fields.
struct Name {
    algorithm: Algorithm,
    /// Name in `Digest` and `Want-Digest`; compared case-insensitively (RFC 3230 §4.1.1).
    rfc3230: &'static str,
    encoding: Encoding,
    /// Name in the fields of RFC 9530 (IANA registry "Hash Algorithms for HTTP Digest Fields"); lower case.
    rfc9530: &'static str,
    /// Name in `OC-Checksum` and `oc:checksums`, if it occurs there.
    owncloud: Option<&'static str>,
}

/// Algorithms without a row have no name in HTTP. XRootD up to 5.5 responds to `crc32` with a CRC-32C, so that name is
/// omitted.
const NAMES: [Name; 6] = [
    Name {
        algorithm: Algorithm::Adler32,
        rfc3230: "adler32",
        encoding: Encoding::Hex,
        rfc9530: "adler",
        owncloud: Some("ADLER32"),
    },
    Name {
        algorithm: Algorithm::Crc32c,
        rfc3230: "crc32c",
        encoding: Encoding::Base64,
        rfc9530: "crc32c",
        owncloud: None,
    },
    Name {
        algorithm: Algorithm::Cksum,
        rfc3230: "UNIXcksum",
        encoding: Encoding::Decimal,
        rfc9530: "unixcksum",
        owncloud: None,
    },
    Name {
        algorithm: Algorithm::Md5,
        rfc3230: "md5",
        encoding: Encoding::Base64,
        rfc9530: "md5",
        owncloud: Some("MD5"),
    },
    Name {
        algorithm: Algorithm::Sha1,
        rfc3230: "sha",
        encoding: Encoding::Base64,
        rfc9530: "sha",
        owncloud: Some("SHA1"),
    },
    Name {
        algorithm: Algorithm::Sha256,
        rfc3230: "sha-256",
        encoding: Encoding::Base64,
        rfc9530: "sha-256",
        owncloud: Some("SHA256"),
    },
];

fn find(matches: impl Fn(&Name) -> bool) -> Option<&'static Name> {
    NAMES.iter().find(|name| matches(name))
}

/// Error for a field with a known algorithm whose value is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the {algorithm} value in a digest field is malformed")]
pub struct InvalidField {
    /// The algorithm.
    pub algorithm: Algorithm,
}

/// Parses a `Digest` field.
///
/// 32-bit checksums are accepted in hexadecimal and in base64, regardless of the algorithm's own form, because
/// implementations disagree (XRootD 5 writes CRC-32C in base64, XRootD 6 in hexadecimal).
pub fn parse_digest(value: &str) -> Result<Digests, InvalidField> {
    collect(value, |name, value| {
        let name = find(|known| known.rfc3230.eq_ignore_ascii_case(name))?;
        let digest = match name.encoding {
            Encoding::Decimal => parse_decimal(name.algorithm, value),
            Encoding::Hex | Encoding::Base64 => parse_hex_or_base64(name.algorithm, value),
        };
        Some((name.algorithm, digest.ok()))
    })
}

/// Formats a `Digest` field with the digests that have a name there; `None` if there are none.
pub fn write_digest(digests: &Digests) -> Option<String> {
    write(digests, ",", |name, digest| {
        let value = match name.encoding {
            Encoding::Hex => digest.to_string(),
            Encoding::Base64 => digest.to_base64(),
            Encoding::Decimal => digest.to_integer().to_string(),
        };
        Some(format!("{}={value}", name.rfc3230))
    })
}

/// Parses a `Repr-Digest` or `Content-Digest` field.
pub fn parse_repr_digest(value: &str) -> Result<Digests, InvalidField> {
    collect(value, |key, value| {
        let name = find(|known| known.rfc9530 == key)?;
        // An item may be followed by parameters (RFC 8941 §3.1.2); none is defined here.
        let value = value.split(';').next().unwrap_or_default().trim_end();
        let base64 = value.strip_prefix(':').and_then(|value| value.strip_suffix(':'));
        Some((name.algorithm, base64.and_then(|base64| Digest::from_base64(name.algorithm, base64).ok())))
    })
}

/// Formats a `Repr-Digest` or `Content-Digest` field with the digests that have a name there; `None` if there are none.
pub fn write_repr_digest(digests: &Digests) -> Option<String> {
    write(digests, ", ", |name, digest| Some(format!("{}=:{}:", name.rfc9530, digest.to_base64())))
}

/// Parses a `Content-MD5` field; [`Digest::to_base64`] formats it.
pub fn parse_content_md5(value: &str) -> Result<Digest, InvalidField> {
    Digest::from_base64(Algorithm::Md5, value.trim()).map_err(|_| InvalidField { algorithm: Algorithm::Md5 })
}

/// Parses an `OC-Checksum` field or the text of an `oc:checksum` element: `NAME:hex`, separated by whitespace.
pub fn parse_owncloud(value: &str) -> Result<Digests, InvalidField> {
    let mut digests = Digests::new();
    for (name, hex) in value.split_ascii_whitespace().filter_map(|item| item.split_once(':')) {
        let known = find(|known| known.owncloud.is_some_and(|owncloud| owncloud.eq_ignore_ascii_case(name)));
        if let Some(Name { algorithm, .. }) = known {
            digests.insert(Digest::from_hex(*algorithm, hex).map_err(|_| InvalidField { algorithm: *algorithm })?);
        }
    }
    Ok(digests)
}

/// Formats the text of an `oc:checksum` element with the digests that have a name there; `None` if there are none.
pub(crate) fn write_owncloud(digests: &Digests) -> Option<String> {
    write(digests, " ", |name, digest| Some(format!("{}:{digest}", name.owncloud?)))
}

/// Parses comma-separated `name=value` elements; `read` returns `None` for unknown names.
fn collect(
    value: &str,
    read: impl Fn(&str, &str) -> Option<(Algorithm, Option<Digest>)>,
) -> Result<Digests, InvalidField> {
    let mut digests = Digests::new();
    for (name, value) in value.split(',').filter_map(|element| element.split_once('=')) {
        if let Some((algorithm, digest)) = read(name.trim(), value.trim()) {
            digests.insert(digest.ok_or(InvalidField { algorithm })?);
        }
    }
    Ok(digests)
}

fn write(digests: &Digests, separator: &str, element: impl Fn(&Name, &Digest) -> Option<String>) -> Option<String> {
    let name_of = |digest: &Digest| find(|name| name.algorithm == digest.algorithm());
    let elements: Vec<_> =
        digests.iter().filter_map(|digest| name_of(digest).and_then(|name| element(name, digest))).collect();
    (!elements.is_empty()).then(|| elements.join(separator))
}

fn parse_hex_or_base64(algorithm: Algorithm, value: &str) -> Result<Digest, InvalidDigest> {
    // The two forms are distinguishable: base64 of 4 bytes ends with `==`, and longer values differ in length.
    Digest::from_hex(algorithm, value).or_else(|_| Digest::from_base64(algorithm, value))
}

fn parse_decimal(algorithm: Algorithm, value: &str) -> Result<Digest, InvalidDigest> {
    // `cksum` prints the checksum and the length; only the checksum is used.
    let first = value.split_ascii_whitespace().next().unwrap_or_default();
    let integer: u32 = first.parse().map_err(|_| InvalidDigest::Hex)?;
    Ok(Digest::from_integer(algorithm, integer.into()))
}

/// The value of `Want-Digest` or `Want-Repr-Digest`: algorithms with their weights.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DigestPreferences(Vec<(Algorithm, u16)>);

/// RFC 9530 §4: integers from 0 (not acceptable) to 10.
const PREFERENCES: RangeInclusive<u16> = 0..=10;

impl DigestPreferences {
    /// Parses a `Want-Digest` field: names with quality values from 0 (not acceptable) to 1 (RFC 9110 §12.4.2).
    ///
    /// Unknown names, and names with an invalid quality, are omitted.
    pub fn parse_want_digest(value: &str) -> Self {
        Self::ordered(value.split(',').filter_map(|element| {
            let mut parts = element.split(';').map(str::trim);
            let name = parts.next()?;
            let algorithm = find(|known| known.rfc3230.eq_ignore_ascii_case(name))?.algorithm;
            let quality = parts.find_map(|parameter| parameter.strip_prefix("q=").or(parameter.strip_prefix("Q=")));
            Some((algorithm, quality.map_or(Some(1000), parse_quality)?))
        }))
    }

    /// Parses a `Want-Repr-Digest` or `Want-Content-Digest` field: names with preferences from 0 (not acceptable) to
    /// 10.
    ///
    /// Unknown names, and names without a valid preference, are omitted.
    pub fn parse_want_repr_digest(value: &str) -> Self {
        Self::ordered(value.split(',').filter_map(|element| {
            let (key, value) = element.split_once('=')?;
            let algorithm = find(|known| known.rfc9530 == key.trim())?.algorithm;
            let preference = value.split(';').next()?.trim().parse().ok()?;
            PREFERENCES.contains(&preference).then_some((algorithm, preference))
        }))
    }

    /// Sorts by descending weight; equal weights keep the order of the field.
    fn ordered(list: impl Iterator<Item = (Algorithm, u16)>) -> Self {
        let mut wanted: Vec<_> = list.filter(|(_, preference)| *preference > 0).collect();
        wanted.sort_by_key(|(_, preference)| std::cmp::Reverse(*preference));
        Self(wanted)
    }

    /// Returns the most preferred of the available algorithms.
    pub fn best(&self, available: Algorithms) -> Option<Algorithm> {
        self.iter().find(|algorithm| available.contains(*algorithm))
    }

    /// Returns the requested algorithms, most preferred first.
    pub fn iter(&self) -> impl Iterator<Item = Algorithm> {
        self.0.iter().map(|(algorithm, _)| *algorithm)
    }

    /// Returns whether no known algorithm is requested.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Parses `0`, `1`, or either with at most three decimals; returns thousandths.
fn parse_quality(text: &str) -> Option<u16> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    if whole.len() != 1 || decimals.len() > 3 || !text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return None;
    }
    let thousandths: u16 = format!("{whole}{decimals:0<3}").parse().ok()?;
    (thousandths <= 1000).then_some(thousandths)
}

/// Formats a `Want-Digest` field for those of `algorithms` that have a name there, most preferred first.
pub fn write_want_digest(algorithms: &[Algorithm]) -> String {
    write_wanted(algorithms, |text, name, rank| {
        // The quality decreases from 1 in steps of a tenth.
        match rank {
            0 => write!(text, "{}", name.rfc3230),
            _ => write!(text, "{};q=0.{}", name.rfc3230, 10_usize.saturating_sub(rank).max(1)),
        }
    })
}

/// Formats a `Want-Repr-Digest` field for those of `algorithms` that have a name there, most preferred first.
pub fn write_want_repr_digest(algorithms: &[Algorithm]) -> String {
    write_wanted(algorithms, |text, name, rank| {
        write!(text, "{}={}", name.rfc9530, 10_usize.saturating_sub(rank).max(1))
    })
}

fn write_wanted(algorithms: &[Algorithm], element: impl Fn(&mut String, &Name, usize) -> std::fmt::Result) -> String {
    let mut text = String::new();
    let names = algorithms.iter().filter_map(|algorithm| find(|name| name.algorithm == *algorithm));
    for (rank, name) in names.enumerate() {
        if rank > 0 {
            text.push_str(", ");
        }
        element(&mut text, name, rank).expect("writing to a String cannot fail");
    }
    text
}

#[cfg(test)]
mod tests;
