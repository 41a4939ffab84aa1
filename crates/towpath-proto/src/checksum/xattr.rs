//! XRootD's storage of checksums with a file: one extended attribute per algorithm.
//!
//! The attribute `user.XrdCks.<name>` has 96 bytes; integers are big-endian on all machines (as stored by a 5.5.3
//! server):
//!
//! | offset | bytes | field |
//! | --- | --- | --- |
//! | 0 | 16 | name of the algorithm, NUL padded |
//! | 16 | 8 | mtime of the file when the checksum was computed, Unix seconds |
//! | 24 | 4 | seconds from that mtime to the computation |
//! | 28 | 3 | reserved, 0 |
//! | 31 | 1 | length of the value in bytes |
//! | 32 | 64 | the value, most significant byte first, zeros after it |
//!
//! A stored checksum is valid only while the file has the recorded mtime. XRootD compares seconds: the checksum of a
//! file that changes within the second of its computation still appears current. Therefore towpath stores the
//! nanoseconds of the mtime in the last 8 bytes, which no value reaches and XRootD does not read: `TPns` and 4 bytes. A
//! record without them, as written by XRootD, is valid only if it was computed after the second of the mtime had ended.

use super::{Algorithm, Digest, InvalidDigest};

/// Prefix of the names of these attributes; `user.` is the namespace required by Linux.
pub const NAME_PREFIX: &str = "user.XrdCks.";

/// Length of an attribute's value in bytes.
pub const ENCODED_BYTES: usize = 96;

/// Marker before the nanoseconds in an attribute's value.
const NANOSECONDS_MARK: [u8; 4] = *b"TPns";

/// Minimum number of seconds between a file's mtime and the computation of a checksum without nanoseconds: one to leave
/// that second, and one for clock differences.
const SETTLED_AFTER_S: i32 = 2;

/// A checksum stored with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredDigest {
    /// The checksum.
    pub digest: Digest,
    /// The file's mtime at the time of the computation, in Unix seconds, rounded down.
    pub file_mtime_s: i64,
    /// The nanoseconds of that mtime, at most 999,999,999; `None` for a checksum that XRootD stored.
    pub file_mtime_subsec_ns: Option<u32>,
    /// Seconds between that mtime and the computation.
    pub computed_after_s: i32,
}

/// Error for an attribute that is not a stored checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAttribute {
    /// The length is not [`ENCODED_BYTES`].
    #[error("a stored checksum has {ENCODED_BYTES} bytes, not {0}")]
    Length(usize),
    /// The algorithm in the value differs from that in the attribute's name.
    #[error("the algorithm of the stored checksum does not match its name")]
    Algorithm,
    /// The value does not fit the algorithm.
    #[error(transparent)]
    Value(#[from] InvalidDigest),
}

/// Returns the name of the extended attribute for an algorithm, such as `user.XrdCks.adler32`.
pub fn attribute_name(algorithm: Algorithm) -> String {
    format!("{NAME_PREFIX}{algorithm}")
}

/// Returns the algorithm of an extended attribute's name, if it is an [`Algorithm`].
pub fn algorithm_of(attribute_name: &str) -> Option<Algorithm> {
    attribute_name.strip_prefix(NAME_PREFIX)?.parse().ok()
}

impl StoredDigest {
    /// Creates a record of a checksum computed at `now_s` (Unix seconds) for a file with the given mtime (seconds and
    /// nanoseconds since the Unix epoch).
    pub fn new(digest: Digest, (file_mtime_s, subsec_ns): (i64, u32), now_s: i64) -> Self {
        let after = now_s.saturating_sub(file_mtime_s).clamp(i32::MIN.into(), i32::MAX.into());
        Self { digest, file_mtime_s, file_mtime_subsec_ns: Some(subsec_ns), computed_after_s: after as i32 }
    }

    /// Returns whether the checksum is still valid for a file with the given mtime (seconds and nanoseconds since the
    /// Unix epoch).
    pub fn is_current(&self, (mtime_s, subsec_ns): (i64, u32)) -> bool {
        let is_certain = match self.file_mtime_subsec_ns {
            Some(recorded_ns) => recorded_ns == subsec_ns,
            None => self.computed_after_s >= SETTLED_AFTER_S,
        };
        self.file_mtime_s == mtime_s && is_certain
    }

    /// Returns the attribute's value.
    pub fn encode(&self) -> [u8; ENCODED_BYTES] {
        let (name, value) = (self.digest.algorithm().name().as_bytes(), self.digest.bytes());
        let mut bytes = [0; ENCODED_BYTES];
        bytes[..name.len()].copy_from_slice(name);
        bytes[16..24].copy_from_slice(&self.file_mtime_s.to_be_bytes());
        bytes[24..28].copy_from_slice(&self.computed_after_s.to_be_bytes());
        bytes[31] = value.len() as u8;
        bytes[32..32 + value.len()].copy_from_slice(value);
        if let Some(subsec_ns) = self.file_mtime_subsec_ns {
            bytes[88..92].copy_from_slice(&NANOSECONDS_MARK);
            bytes[92..].copy_from_slice(&subsec_ns.to_be_bytes());
        }
        bytes
    }

    /// Decodes the value of the attribute for `algorithm`.
    pub fn decode(algorithm: Algorithm, bytes: &[u8]) -> Result<Self, InvalidAttribute> {
        let bytes: &[u8; ENCODED_BYTES] = bytes.try_into().map_err(|_| InvalidAttribute::Length(bytes.len()))?;
        let (name, rest) = bytes.split_at(16);
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        if !name.eq_ignore_ascii_case(algorithm.name().as_bytes()) {
            return Err(InvalidAttribute::Algorithm);
        }
        let [m0, m1, m2, m3, m4, m5, m6, m7, a0, a1, a2, a3, _, _, _, length, value @ ..] = rest else {
            return Err(InvalidAttribute::Length(bytes.len()));
        };
        let length = usize::from(*length);
        let subsec_ns = match value {
            [.., m0, m1, m2, m3, n0, n1, n2, n3] if [*m0, *m1, *m2, *m3] == NANOSECONDS_MARK => {
                Some(u32::from_be_bytes([*n0, *n1, *n2, *n3]))
            }
            _ => None,
        };
        let actual = InvalidDigest::Length { algorithm, expected: algorithm.digest_bytes(), actual: length };
        Ok(Self {
            digest: Digest::new(algorithm, value.get(..length).ok_or(actual)?)?,
            file_mtime_subsec_ns: subsec_ns,
            file_mtime_s: i64::from_be_bytes([*m0, *m1, *m2, *m3, *m4, *m5, *m6, *m7]),
            computed_after_s: i32::from_be_bytes([*a0, *a1, *a2, *a3]),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Attributes written by an XRootD 5.5.3 server for a file with the bytes `123456789` and mtime 1614834367, without
    /// the trailing zeros (the value is the last field).
    const GOLDEN: [(Algorithm, &str); 4] = [
        (Algorithm::Adler32, "61646c657233320000000000000000000000000060406abf0ac1978d00000004091e01de"),
        (Algorithm::Cksum, "637263333200000000000000000000000000000060406abf0ac1978d00000004377a6011"),
        (Algorithm::Crc32c, "637263333263000000000000000000000000000060406abf0ac1978d00000004e3069283"),
        (
            Algorithm::Md5,
            "6d6435000000000000000000000000000000000060406abf0ac1978d00000010\
             25f9e794323b453885f5181f1b624d0b",
        ),
    ];

    fn golden_bytes(hex: &str) -> [u8; ENCODED_BYTES] {
        let mut bytes = [0; ENCODED_BYTES];
        for (index, pair) in hex.as_bytes().chunks(2).enumerate() {
            bytes[index] = u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        }
        bytes
    }

    #[test]
    fn what_xrootd_stored_is_read_and_written_byte_for_byte() {
        for (algorithm, hex) in GOLDEN {
            let bytes = golden_bytes(hex);
            let stored = StoredDigest::decode(algorithm, &bytes).unwrap();
            assert_eq!(stored.digest, crate::checksum::Hasher::digest_of(algorithm, b"123456789"));
            assert_eq!(stored.file_mtime_s, 1_614_834_367);
            assert_eq!(stored.computed_after_s, 180_459_405);
            assert_eq!(stored.encode(), bytes);
            assert!(stored.is_current((1_614_834_367, 5)));
            assert!(!stored.is_current((1_614_834_368, 5)));
            let in_that_second = StoredDigest { computed_after_s: 1, ..stored };
            assert!(!in_that_second.is_current((1_614_834_367, 5)), "the file may have been changed after it");
        }
    }

    #[test]
    fn a_value_that_does_not_fit_its_name_or_length_is_refused() {
        let good = golden_bytes(GOLDEN[0].1);
        let decode = |bytes: &[u8]| StoredDigest::decode(Algorithm::Adler32, bytes);
        assert_eq!(decode(&good[..95]), Err(InvalidAttribute::Length(95)));
        assert_eq!(decode(&[]), Err(InvalidAttribute::Length(0)));
        assert_eq!(StoredDigest::decode(Algorithm::Md5, &good), Err(InvalidAttribute::Algorithm));
        for length in [0, 3, 5, 64, 65, 255] {
            let mut bad = good;
            bad[31] = length;
            assert!(matches!(decode(&bad), Err(InvalidAttribute::Value(InvalidDigest::Length { .. }))), "{length}");
        }
    }

    #[test]
    fn attribute_names_are_those_of_xrootd() {
        assert_eq!(attribute_name(Algorithm::Cksum), "user.XrdCks.crc32");
        for algorithm in Algorithm::ALL {
            assert_eq!(algorithm_of(&attribute_name(algorithm)), Some(algorithm));
        }
        assert_eq!(algorithm_of("user.XrdCks."), None);
        assert_eq!(algorithm_of("user.XrdCks.sha512"), None);
        assert_eq!(algorithm_of("adler32"), None);
    }

    proptest! {
        #[test]
        fn stored_digests_round_trip(
            digest in crate::checksum::tests::any_digest(),
            file_mtime_s: i64,
            file_mtime_subsec_ns: Option<u32>,
            computed_after_s: i32,
        ) {
            let stored = StoredDigest { digest, file_mtime_s, file_mtime_subsec_ns, computed_after_s };
            prop_assert_eq!(StoredDigest::decode(digest.algorithm(), &stored.encode()), Ok(stored));
        }

        #[test]
        fn damaged_bytes_never_panic(at in 0..ENCODED_BYTES, byte: u8, cut in 0..=ENCODED_BYTES) {
            let mut bytes = golden_bytes(GOLDEN[3].1);
            bytes[at] = byte;
            let _ = StoredDigest::decode(Algorithm::Md5, &bytes[..cut]);
            if let Ok(stored) = StoredDigest::decode(Algorithm::Md5, &bytes) {
                prop_assert!((stored.digest.bytes().len()) == 16);
            }
        }

        #[test]
        fn any_times_are_accepted(mtime_s: i64, subsec_ns: u32, now: i64) {
            let digest = Digest::new(Algorithm::Adler32, &[0, 0, 0, 1]).unwrap();
            let stored = StoredDigest::new(digest, (mtime_s, subsec_ns), now);
            prop_assert!(stored.is_current((mtime_s, subsec_ns)));
            prop_assert!(!stored.is_current((mtime_s, subsec_ns ^ 1)), "it was changed in that second");
        }
    }
}
