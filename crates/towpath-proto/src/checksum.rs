//! Checksums of files: their names and values, computation in one pass, and combination of checksums of parts.
//!
//! - [`Algorithm`] and the set [`Algorithms`]: the supported checksums, under XRootD's names.
//! - [`Digest`]: the value of one algorithm over some bytes; [`Digests`]: all known digests of one file.
//! - [`Hasher`]: computes several algorithms over sequential bytes in one pass over memory.
//! - [`ExtentDigests`]: checksums of bytes that several writers write in any order. It keeps one [`Extent`] per
//!   contiguous range, joins adjacent extents by arithmetic, and yields the checksum of the whole file without a
//!   second read.
//! - [`combine`]: that arithmetic. [`xattr`]: XRootD's format of checksums in extended attributes.
//!
//! The names are misleading: XRootD's `crc32` is the CRC of the POSIX `cksum` command, not the CRC-32 of zlib, gzip and
//! Ethernet, which XRootD calls `zcrc32` (both checked against a 5.5.3 server). Hence [`Algorithm::Cksum`] and
//! [`Algorithm::Crc32`]. HTTP headers use yet other names: see [`crate::http::digest`].
//!
//! Only SHA-256 protects against deliberate forgery.

pub(crate) mod combine;
mod extent;
mod hasher;
pub mod xattr;

use std::{fmt, str::FromStr};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};

pub use self::{
    extent::{CombineError, DEFAULT_EXTENT_LIMIT, Extent, ExtentDigests, Holes},
    hasher::Hasher,
};

/// Returns the CRC32C of bytes with the CRC32C `first` followed by `second_bytes` bytes with the CRC32C `second`.
#[must_use]
pub fn combine_crc32c(first: u32, second: u32, second_bytes: u64) -> u32 {
    combine::crc32c(first, second, second_bytes)
}

/// A checksum algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Algorithm {
    /// Adler-32 (RFC 1950 §8.2): the checksum that most grid storages keep.
    Adler32,
    /// CRC-32C, Castagnoli (RFC 9260 Appendix B; CRC-32/ISCSI in the CRC catalogue): XRootD's checksum of each page.
    Crc32c,
    /// The CRC of the POSIX `cksum` command: CRC-32/CKSUM with the length appended. XRootD calls it `crc32`.
    Cksum,
    /// CRC-32 of zlib, gzip and ZIP (CRC-32/ISO-HDLC). XRootD calls it `zcrc32`.
    Crc32,
    /// CRC-64/ECMA-182, not reflected, as EOS computes it. XRootD defines its name and length, but does not implement
    /// it.
    Crc64,
    /// MD5 (RFC 1321).
    Md5,
    /// SHA-256 (FIPS 180-4).
    Sha256,
    /// SHA-1 (FIPS 180-4). Detects damage, but not forgery.
    Sha1,
}

impl Algorithm {
    /// All algorithms, in their order.
    pub const ALL: [Algorithm; 8] =
        [Self::Adler32, Self::Crc32c, Self::Cksum, Self::Crc32, Self::Crc64, Self::Md5, Self::Sha256, Self::Sha1];

    /// Returns XRootD's name of the algorithm, as in `query checksum`, configuration, and extended attributes.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Adler32 => "adler32",
            Self::Crc32c => "crc32c",
            Self::Cksum => "crc32",
            Self::Crc32 => "zcrc32",
            Self::Crc64 => "crc64",
            Self::Md5 => "md5",
            Self::Sha256 => "sha256",
            Self::Sha1 => "sha1",
        }
    }

    /// Returns the length of a value in bytes, at most [`Digest::MAX_BYTES`].
    pub(crate) const fn digest_bytes(self) -> usize {
        match self {
            Self::Adler32 | Self::Crc32c | Self::Cksum | Self::Crc32 => 4,
            Self::Crc64 => 8,
            Self::Md5 => 16,
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }

    /// Returns whether the value of a file can be computed from the values and lengths of its parts ([`combine`]).
    ///
    /// False for [`Algorithm::Cksum`]: its values include the length, so a value alone is not sufficient.
    pub const fn is_combinable(self) -> bool {
        matches!(self, Self::Adler32 | Self::Crc32c | Self::Crc32 | Self::Crc64)
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Error for a checksum name that is not an [`Algorithm::name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown checksum algorithm; known are adler32, crc32c, crc32, zcrc32, crc64, md5, sha1, sha256")]
pub struct UnknownAlgorithm;

/// Other names: those of the hash function registry of IANA (RFC 9530, Metalink), and analogous ones. `crc-32` is not
/// among them, because XRootD and other software use it for different algorithms.
const ALIASES: [(&str, Algorithm); 4] = [
    ("sha-1", Algorithm::Sha1),
    ("sha-256", Algorithm::Sha256),
    ("adler-32", Algorithm::Adler32),
    ("crc-32c", Algorithm::Crc32c),
];

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    /// Parses an XRootD checksum name, or a hyphenated name in [`ALIASES`], case-insensitively.
    fn from_str(name: &str) -> Result<Self, UnknownAlgorithm> {
        let names = Self::ALL.into_iter().map(|known| (known.name(), known)).chain(ALIASES);
        names
            .into_iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, known)| known)
            .ok_or(UnknownAlgorithm)
    }
}

/// An unordered set of algorithms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Algorithms(u8);

impl Algorithms {
    /// The empty set.
    pub const NONE: Algorithms = Algorithms(0);

    /// Adler-32 and CRC-32C: combinable, fast, and every peer supports one of the two.
    pub const DEFAULT: Algorithms = Algorithms::of(&[Algorithm::Adler32, Algorithm::Crc32c]);

    /// Creates a set of the listed algorithms.
    pub const fn of(list: &[Algorithm]) -> Self {
        let mut bits = 0;
        let mut index = 0;
        while index < list.len() {
            bits |= 1 << list[index] as u8;
            index += 1;
        }
        Algorithms(bits)
    }

    /// Returns whether the set contains `algorithm`.
    pub const fn contains(self, algorithm: Algorithm) -> bool {
        self.0 & 1 << algorithm as u8 != 0
    }

    /// Returns whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the set with `algorithm` added.
    #[must_use]
    pub const fn with(self, algorithm: Algorithm) -> Self {
        Algorithms(self.0 | 1 << algorithm as u8)
    }

    /// Returns the union of both sets.
    #[must_use]
    pub const fn union(self, other: Algorithms) -> Self {
        Algorithms(self.0 | other.0)
    }

    /// Returns the intersection of both sets.
    #[must_use]
    pub const fn intersection(self, other: Algorithms) -> Self {
        Algorithms(self.0 & other.0)
    }

    /// Returns the combinable algorithms in the set.
    #[must_use]
    pub fn combinable(self) -> Self {
        self.iter().filter(|algorithm| algorithm.is_combinable()).collect()
    }

    /// Returns the algorithms in the set, in the order of [`Algorithm::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Algorithm> {
        Algorithm::ALL.into_iter().filter(move |algorithm| self.contains(*algorithm))
    }
}

impl FromIterator<Algorithm> for Algorithms {
    fn from_iter<I: IntoIterator<Item = Algorithm>>(list: I) -> Self {
        list.into_iter().fold(Algorithms::NONE, Algorithms::with)
    }
}

/// The value of one algorithm.
///
/// `Display` formats the bytes as lower-case hexadecimal, without the name; `{:#}` formats `name:hex`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest {
    algorithm: Algorithm,
    /// The value in the first `algorithm.digest_bytes()` bytes, followed by zeros.
    value: [u8; Digest::MAX_BYTES],
}

/// Error for text or bytes that are not a valid digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDigest {
    /// The number of bytes does not match the algorithm.
    #[error("a {algorithm} value has {expected} bytes, not {actual}")]
    Length {
        /// The algorithm.
        algorithm: Algorithm,
        /// Length of its values in bytes.
        expected: usize,
        /// Actual number of bytes.
        actual: usize,
    },
    /// The text contains a character that is not a hexadecimal digit.
    #[error("a checksum has a character that is not a hexadecimal digit")]
    Hex,
    /// The text is not base64 with padding.
    #[error("a checksum is not valid base64")]
    Base64,
}

impl Digest {
    /// Maximum length of a value in bytes.
    pub const MAX_BYTES: usize = 32;

    /// Creates a digest from its bytes, most significant first; their number must be that of the algorithm.
    pub fn new(algorithm: Algorithm, bytes: &[u8]) -> Result<Self, InvalidDigest> {
        let expected = algorithm.digest_bytes();
        let mut value = [0; Self::MAX_BYTES];
        match value.get_mut(..expected) {
            Some(start) if bytes.len() == expected => start.copy_from_slice(bytes),
            _ => return Err(InvalidDigest::Length { algorithm, expected, actual: bytes.len() }),
        }
        Ok(Self { algorithm, value })
    }

    /// Creates a digest from the low-order bytes of an integer, for the checksums whose values are integers.
    pub(crate) fn from_integer(algorithm: Algorithm, integer: u64) -> Self {
        let bytes = integer.to_be_bytes();
        let length = algorithm.digest_bytes().min(bytes.len());
        let mut value = [0; Self::MAX_BYTES];
        value[..length].copy_from_slice(&bytes[bytes.len() - length..]);
        Self { algorithm, value }
    }

    /// Returns the first eight bytes as an integer: the whole value of a 32- or 64-bit checksum.
    pub fn to_integer(self) -> u64 {
        self.bytes().iter().take(8).fold(0, |integer, byte| integer << 8 | u64::from(*byte))
    }

    /// Parses hexadecimal digits in either case.
    ///
    /// Values of the 32- and 64-bit checksums may lack leading zeros, because some servers print them as numbers.
    pub fn from_hex(algorithm: Algorithm, text: &str) -> Result<Self, InvalidDigest> {
        let expected = algorithm.digest_bytes();
        let short_is_allowed = expected <= 8 && !text.is_empty();
        if text.len() > 2 * expected || (text.len() < 2 * expected && !short_is_allowed) {
            return Err(InvalidDigest::Length { algorithm, expected, actual: text.len().div_ceil(2) });
        }
        let mut value = [0; Self::MAX_BYTES];
        // From the last digit backwards, so that missing digits are leading zeros.
        for (index, character) in text.bytes().rev().enumerate() {
            let digit = char::from(character).to_digit(16).ok_or(InvalidDigest::Hex)? as u8;
            value[expected - 1 - index / 2] |= digit << (4 * (index % 2));
        }
        Ok(Self { algorithm, value })
    }

    /// Parses standard base64 with padding (RFC 4648 §4).
    pub(crate) fn from_base64(algorithm: Algorithm, text: &str) -> Result<Self, InvalidDigest> {
        // One group more than the longest value, so that an overlong value is distinguishable from invalid text.
        let mut bytes = [0; Self::MAX_BYTES + 4];
        let length = BASE64.decode_slice(text, &mut bytes).map_err(|_| InvalidDigest::Base64)?;
        Self::new(algorithm, bytes.get(..length).unwrap_or_default())
    }

    /// Returns the algorithm.
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Returns the value, most significant byte first.
    pub fn bytes(&self) -> &[u8] {
        &self.value[..self.algorithm.digest_bytes()]
    }

    /// Returns the value in standard base64 with padding.
    pub fn to_base64(&self) -> String {
        BASE64.encode(self.bytes())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() {
            write!(f, "{}:", self.algorithm)?;
        }
        self.bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:#}")
    }
}

/// The known digests of one file: at most one per algorithm.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Digests(Vec<Digest>);

/// Result of comparing two sets of digests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// The sets have at least one algorithm in common, and all common values are equal.
    Same,
    /// The values of this algorithm differ, so the bytes differ.
    Different(Algorithm),
    /// The sets have no algorithm in common, so nothing is known.
    Incomparable,
}

impl Digests {
    /// Creates an empty set.
    pub const fn new() -> Self {
        Digests(Vec::new())
    }

    /// Adds a digest, replacing that of the same algorithm.
    pub fn insert(&mut self, digest: Digest) {
        match self.0.binary_search_by_key(&digest.algorithm, |known| known.algorithm) {
            Ok(index) => self.0[index] = digest,
            Err(index) => self.0.insert(index, digest),
        }
    }

    /// Returns the digest of one algorithm, if it is known.
    pub fn get(&self, algorithm: Algorithm) -> Option<Digest> {
        self.0.iter().find(|digest| digest.algorithm == algorithm).copied()
    }

    /// Returns the algorithms with known digests.
    pub fn algorithms(&self) -> Algorithms {
        self.iter().map(Digest::algorithm).collect()
    }

    /// Returns the digests in the order of [`Algorithm::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = &Digest> {
        self.0.iter()
    }

    /// Returns whether no digest is known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the digests that the other set contains with the same value.
    pub fn shared_with(&self, other: &Digests) -> Digests {
        self.iter().filter(|digest| other.get(digest.algorithm) == Some(**digest)).copied().collect()
    }

    /// Compares the digests of algorithms that both sets contain.
    pub fn compare(&self, other: &Digests) -> Agreement {
        let mut agreement = Agreement::Incomparable;
        for digest in self.iter() {
            match other.get(digest.algorithm) {
                Some(theirs) if theirs == *digest => agreement = Agreement::Same,
                Some(_) => return Agreement::Different(digest.algorithm),
                None => {}
            }
        }
        agreement
    }
}

impl FromIterator<Digest> for Digests {
    fn from_iter<I: IntoIterator<Item = Digest>>(list: I) -> Self {
        let mut digests = Digests::new();
        list.into_iter().for_each(|digest| digests.insert(digest));
        digests
    }
}

impl From<Digest> for Digests {
    fn from(digest: Digest) -> Self {
        Digests(vec![digest])
    }
}

#[cfg(test)]
pub(crate) mod tests;
