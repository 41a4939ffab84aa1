//! The key of a resumable upload.

use std::{fmt, str::FromStr};

use towpath_proto::checksum::{Algorithm, Hasher};

/// Maximum number of extents returned by [`crate::WriteHandle::present`]: more than any realistic number of writers
/// leaves, and few enough for one response over a network.
pub const MAX_PRESENT_EXTENTS: usize = 2048;

/// Identifies a resumable upload. The caller derives it from one version of one source and from one destination, so
/// that a later run of the program finds the data of an earlier one. It prints as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ResumeKey([u8; Self::BYTES]);

/// The text does not have 32 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a resume key has 32 hexadecimal digits")]
pub struct InvalidResumeKey;

impl ResumeKey {
    /// Length of a key in bytes.
    pub const BYTES: usize = 16;

    /// Creates a key from its bytes.
    pub const fn new(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// Derives a key from `parts` that identify an upload, for instance the URL of the source, its size and version,
    /// and the URL of the destination: the first bytes of the SHA-256 of all parts, each preceded by its length (eight
    /// bytes, little-endian).
    pub fn of(parts: &[&[u8]]) -> Self {
        let mut hasher = Hasher::new([Algorithm::Sha256].into_iter().collect());
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        let digest = hasher.finish().get(Algorithm::Sha256);
        let first = digest.as_ref().and_then(|digest| digest.bytes().first_chunk());
        Self(*first.expect("a SHA-256 is longer than a key"))
    }

    /// Returns its bytes.
    pub const fn bytes(self) -> [u8; Self::BYTES] {
        self.0
    }
}

impl fmt::Display for ResumeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for ResumeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ResumeKey({self})")
    }
}

impl FromStr for ResumeKey {
    type Err = InvalidResumeKey;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_key = text.len() == 2 * Self::BYTES && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u128::from_str_radix(text, 16).ok().filter(|_| is_key).ok_or(InvalidResumeKey)?;
        Ok(Self(number.to_be_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_as_it_prints() {
        let key = ResumeKey::new([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255]);
        assert_eq!(key.to_string(), "000102030405060708090a0b0c0d0eff");
        assert_eq!(key.to_string().to_uppercase().parse(), Ok(key));
        for text in ["", "0", "+0102030405060708090a0b0c0d0e0f00", "000102030405060708090a0b0c0d0e0fff", "g"] {
            assert_eq!(text.parse::<ResumeKey>(), Err(InvalidResumeKey), "{text}");
        }
        assert_eq!("+00102030405060708090a0b0c0d0e0f".parse::<ResumeKey>(), Err(InvalidResumeKey));
    }

    #[test]
    fn every_part_and_its_length_count() {
        let keys = [
            ResumeKey::of(&[b"ab", b"c"]),
            ResumeKey::of(&[b"a", b"bc"]),
            ResumeKey::of(&[b"abc"]),
            ResumeKey::of(&[b"ab", b"c", b""]),
            ResumeKey::of(&[b"ab", b"d"]),
        ];
        for (index, key) in keys.iter().enumerate() {
            assert!(!keys[..index].contains(key), "{key}");
        }
        // printf '\x02\0\0\0\0\0\0\0ab\x01\0\0\0\0\0\0\0c' | sha256sum
        assert_eq!(keys[0].to_string(), "43ee655579de01ca739b3f95c1c2d3f4");
    }
}
