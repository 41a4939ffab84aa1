//! Checksums in header fields and properties, in all the forms that clients and storages use.
//!
//! | field | specification | form |
//! | --- | --- | --- |
//! | `Digest` | RFC 3230, obsolete, spoken by all grid clients | `adler32=091e01de,md5=JfnnlDI7RTiF9RgfG2JNCw==` |
//! | `Want-Digest` | RFC 3230 | `adler32;q=1, md5;q=0.5` |
//! | `Repr-Digest`, `Content-Digest` | RFC 9530 | `adler=:CR4B3g==:, sha-256=:...=:` |
//! | `Want-Repr-Digest`, `Want-Content-Digest` | RFC 9530 | `sha-256=9, adler=1` |
//! | `Content-MD5` | RFC 1864, dropped by RFC 7231, spoken by S3 | `JfnnlDI7RTiF9RgfG2JNCw==` |
//! | `OC-Checksum`, property `oc:checksums` | ownCloud | `ADLER32:091e01de MD5:25f9...` |
//!
//! The names differ from XRootD's and between the two RFCs; they are in one table. Algorithms that are not in it are
//! skipped. A value of a known algorithm that cannot be read is an error, so that a damaged digest of an upload is
//! noticed rather than taken for no digest at all.

use std::{fmt::Write as _, ops::RangeInclusive};

use crate::checksum::{Algorithm, Algorithms, Digest, Digests, InvalidDigest};

/// How RFC 3230 has the value of an algorithm written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Encoding {
    Hex,
    Base64,
    Decimal,
}

/// What an algorithm is called in header fields.
struct Name {
    algorithm: Algorithm,
    /// In `Digest` and `Want-Digest`; compared without regard to case (RFC 3230 §4.1.1).
    rfc3230: &'static str,
    encoding: Encoding,
    /// In the fields of RFC 9530 (IANA registry "Hash Algorithms for HTTP Digest Fields"); lower case.
    rfc9530: &'static str,
    /// In `OC-Checksum` and `oc:checksums`, if it occurs there.
    owncloud: Option<&'static str>,
}

/// Algorithms without a row have no name in HTTP. XRootD up to 5.5 answers `crc32` with a CRC-32C, so that name is not
/// here.
const NAMES: [Name; 5] = [
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

/// A field that names a known algorithm, but whose value for it cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the {algorithm} value in a digest field cannot be read")]
pub struct InvalidField {
    /// The algorithm.
    pub algorithm: Algorithm,
}

/// Reads a `Digest` field.
///
/// Checksums of 32 bits are read in hexadecimal and in base64, whatever the algorithm's own form: implementations
/// disagree (XRootD 5 writes CRC-32C in base64, XRootD 6 in hexadecimal).
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

/// Writes a `Digest` field with those digests that have a name there; `None` if none has.
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

/// Reads a `Repr-Digest` or `Content-Digest` field.
pub fn parse_repr_digest(value: &str) -> Result<Digests, InvalidField> {
    collect(value, |key, value| {
        let name = find(|known| known.rfc9530 == key)?;
        // An item may have parameters after it (RFC 8941 §3.1.2); none is defined here.
        let value = value.split(';').next().unwrap_or_default().trim_end();
        let base64 = value.strip_prefix(':').and_then(|value| value.strip_suffix(':'));
        Some((name.algorithm, base64.and_then(|base64| Digest::from_base64(name.algorithm, base64).ok())))
    })
}

/// Writes a `Repr-Digest` or `Content-Digest` field with those digests that have a name there; `None` if none has.
pub fn write_repr_digest(digests: &Digests) -> Option<String> {
    write(digests, ", ", |name, digest| Some(format!("{}=:{}:", name.rfc9530, digest.to_base64())))
}

/// Reads a `Content-MD5` field; [`Digest::to_base64`] writes it.
pub fn parse_content_md5(value: &str) -> Result<Digest, InvalidField> {
    Digest::from_base64(Algorithm::Md5, value.trim()).map_err(|_| InvalidField { algorithm: Algorithm::Md5 })
}

/// Reads an `OC-Checksum` field or the text of an `oc:checksum` element: `NAME:hex`, separated by blanks.
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

/// Writes the text of an `oc:checksum` element with those digests that have a name there; `None` if none has.
pub(crate) fn write_owncloud(digests: &Digests) -> Option<String> {
    write(digests, " ", |name, digest| Some(format!("{}:{digest}", name.owncloud?)))
}

/// Reads `name=value` elements, separated by commas; `read` returns `None` for names that it does not know.
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
    // The two cannot be mistaken for each other: base64 of 4 bytes ends in `==`, longer values differ in length.
    Digest::from_hex(algorithm, value).or_else(|_| Digest::from_base64(algorithm, value))
}

fn parse_decimal(algorithm: Algorithm, value: &str) -> Result<Digest, InvalidDigest> {
    // `cksum` prints the checksum and the length; only the checksum counts.
    let first = value.split_ascii_whitespace().next().unwrap_or_default();
    let integer: u32 = first.parse().map_err(|_| InvalidDigest::Hex)?;
    Ok(Digest::from_integer(algorithm, integer.into()))
}

/// The value of `Want-Digest` or `Want-Repr-Digest`: algorithms with their weights.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted(Vec<(Algorithm, u16)>);

/// RFC 9530 §4: integers from 0 (not acceptable) to 10.
const PREFERENCES: RangeInclusive<u16> = 0..=10;

impl Wanted {
    /// Reads a `Want-Digest` field: names with quality values from 0 (not acceptable) to 1 (RFC 9110 §12.4.2).
    ///
    /// Names that are not known, and those with a quality that cannot be read, are left out.
    pub fn parse_want_digest(value: &str) -> Self {
        Self::ordered(value.split(',').filter_map(|element| {
            let mut parts = element.split(';').map(str::trim);
            let name = parts.next()?;
            let algorithm = find(|known| known.rfc3230.eq_ignore_ascii_case(name))?.algorithm;
            let quality = parts.find_map(|parameter| parameter.strip_prefix("q=").or(parameter.strip_prefix("Q=")));
            Some((algorithm, quality.map_or(Some(1000), parse_quality)?))
        }))
    }

    /// Reads a `Want-Repr-Digest` or `Want-Content-Digest` field: names with preferences from 0 (not acceptable) to 10.
    ///
    /// Names that are not known, and those without a valid preference, are left out.
    pub fn parse_want_repr_digest(value: &str) -> Self {
        Self::ordered(value.split(',').filter_map(|element| {
            let (key, value) = element.split_once('=')?;
            let algorithm = find(|known| known.rfc9530 == key.trim())?.algorithm;
            let preference = value.split(';').next()?.trim().parse().ok()?;
            PREFERENCES.contains(&preference).then_some((algorithm, preference))
        }))
    }

    /// Best first; equals stay in the order of the field.
    fn ordered(list: impl Iterator<Item = (Algorithm, u16)>) -> Self {
        let mut wanted: Vec<_> = list.filter(|(_, preference)| *preference > 0).collect();
        wanted.sort_by_key(|(_, preference)| std::cmp::Reverse(*preference));
        Self(wanted)
    }

    /// The most wanted algorithm of those available.
    pub fn best(&self, available: Algorithms) -> Option<Algorithm> {
        self.iter().find(|algorithm| available.contains(*algorithm))
    }

    /// The wanted algorithms, best first.
    pub fn iter(&self) -> impl Iterator<Item = Algorithm> {
        self.0.iter().map(|(algorithm, _)| *algorithm)
    }

    /// Whether nothing that is known is wanted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// `0`, `1`, or either with at most three decimals, in thousandths.
fn parse_quality(text: &str) -> Option<u16> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    if whole.len() != 1 || decimals.len() > 3 || !text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return None;
    }
    let thousandths: u16 = format!("{whole}{decimals:0<3}").parse().ok()?;
    (thousandths <= 1000).then_some(thousandths)
}

/// Writes a `Want-Digest` field for those of `algorithms` that have a name there, best first.
pub fn write_want_digest(algorithms: &[Algorithm]) -> String {
    write_wanted(algorithms, |text, name, rank| {
        // Quality falls from 1 in steps of a tenth.
        match rank {
            0 => write!(text, "{}", name.rfc3230),
            _ => write!(text, "{};q=0.{}", name.rfc3230, 10_usize.saturating_sub(rank).max(1)),
        }
    })
}

/// Writes a `Want-Repr-Digest` field for those of `algorithms` that have a name there, best first.
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
