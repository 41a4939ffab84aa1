use proptest::{collection::vec, prelude::*};

use super::*;

/// A digest of any algorithm, with any value.
pub(crate) fn any_digest() -> impl Strategy<Value = Digest> {
    (proptest::sample::select(Algorithm::ALL.to_vec()), any::<[u8; 32]>())
        .prop_map(|(algorithm, bytes)| Digest::new(algorithm, &bytes[..algorithm.digest_bytes()]).unwrap())
}

fn hex(algorithm: Algorithm, data: &[u8]) -> String {
    Hasher::digest_of(algorithm, data).to_string()
}

/// Values of the CRC catalogue, RFC 1321, FIPS 180-4, the `cksum` command, and an XRootD 5.5.3 server for the
/// algorithms that it supports.
#[test]
fn check_values() {
    for (algorithm, of_nothing, of_nine_digits) in [
        (Algorithm::Adler32, "00000001", "091e01de"),
        (Algorithm::Crc32c, "00000000", "e3069283"),
        (Algorithm::Cksum, "ffffffff", "377a6011"),
        (Algorithm::Crc32, "00000000", "cbf43926"),
        (Algorithm::Crc64, "0000000000000000", "6c40df5f0b497347"),
        (Algorithm::Md5, "d41d8cd98f00b204e9800998ecf8427e", "25f9e794323b453885f5181f1b624d0b"),
        (Algorithm::Sha1, "da39a3ee5e6b4b0d3255bfef95601890afd80709", "f7c3bc1d808e04732adf679965ccc34ca7ae3441"),
        (
            Algorithm::Sha256,
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225",
        ),
    ] {
        assert_eq!(hex(algorithm, b""), of_nothing, "{algorithm}");
        assert_eq!(hex(algorithm, b"123456789"), of_nine_digits, "{algorithm}");
    }
}

#[test]
fn names_are_read_in_any_case_and_unknown_ones_refused() {
    for algorithm in Algorithm::ALL {
        assert_eq!(algorithm.name().parse(), Ok(algorithm));
        assert_eq!(algorithm.name().to_uppercase().parse(), Ok(algorithm));
        assert!(algorithm.digest_bytes() <= Digest::MAX_BYTES);
    }
    for (name, algorithm) in [("sha-256", Algorithm::Sha256), ("SHA-1", Algorithm::Sha1), ("SHA256", Algorithm::Sha256)]
    {
        assert_eq!(name.parse(), Ok(algorithm));
    }
    assert_eq!("crc-32".parse::<Algorithm>(), Err(UnknownAlgorithm));
    assert_eq!("sha512".parse::<Algorithm>(), Err(UnknownAlgorithm));
    assert_eq!("".parse::<Algorithm>(), Err(UnknownAlgorithm));
}

#[test]
fn sets_hold_what_was_put_in() {
    let set = Algorithms::of(&[Algorithm::Sha256, Algorithm::Adler32]);
    assert_eq!(set.iter().collect::<Vec<_>>(), [Algorithm::Adler32, Algorithm::Sha256]);
    assert_eq!(set.combinable(), Algorithms::of(&[Algorithm::Adler32]));
    assert_eq!(set.intersection(Algorithms::DEFAULT), Algorithms::of(&[Algorithm::Adler32]));
    assert_eq!(set.union(Algorithms::DEFAULT).with(Algorithm::Md5).iter().count(), 4);
    assert!(Algorithms::NONE.is_empty() && !set.is_empty());
    assert!(!set.contains(Algorithm::Md5));
}

#[test]
fn digits_may_lack_leading_zeros_where_values_are_numbers() {
    let digest = |algorithm, text| Digest::from_hex(algorithm, text).map(|digest| digest.to_string());
    assert_eq!(digest(Algorithm::Adler32, "1").unwrap(), "00000001");
    assert_eq!(digest(Algorithm::Adler32, "91E01de").unwrap(), "091e01de");
    assert_eq!(digest(Algorithm::Adler32, "12345678g"), Err(length_error(Algorithm::Adler32, 5)));
    assert_eq!(digest(Algorithm::Adler32, "1234567g"), Err(InvalidDigest::Hex));
    assert_eq!(digest(Algorithm::Adler32, "+1"), Err(InvalidDigest::Hex));
    assert_eq!(digest(Algorithm::Adler32, ""), Err(length_error(Algorithm::Adler32, 0)));
    assert_eq!(digest(Algorithm::Md5, "1"), Err(length_error(Algorithm::Md5, 1)));
}

fn length_error(algorithm: Algorithm, actual: usize) -> InvalidDigest {
    InvalidDigest::Length { algorithm, expected: algorithm.digest_bytes(), actual }
}

#[test]
fn base64_is_read_only_in_its_full_length() {
    assert_eq!(Digest::from_base64(Algorithm::Adler32, "AAAAAQ==").unwrap().to_string(), "00000001");
    assert_eq!(Digest::from_base64(Algorithm::Adler32, "AAAB"), Err(length_error(Algorithm::Adler32, 3)));
    assert_eq!(Digest::from_base64(Algorithm::Adler32, "AAAAAQ"), Err(InvalidDigest::Base64));
    assert_eq!(Digest::from_base64(Algorithm::Adler32, &"A".repeat(4000)), Err(InvalidDigest::Base64));
}

#[test]
fn comparison_needs_something_in_common() {
    let of = |data: &[u8], list| Hasher::digest(Algorithms::of(list), data);
    let adler = of(b"a", &[Algorithm::Adler32]);
    assert_eq!(adler.compare(&of(b"a", &[Algorithm::Adler32, Algorithm::Md5])), Agreement::Same);
    assert_eq!(adler.compare(&of(b"b", &[Algorithm::Adler32])), Agreement::Different(Algorithm::Adler32));
    assert_eq!(adler.compare(&of(b"a", &[Algorithm::Md5])), Agreement::Incomparable);
    assert_eq!(Digests::new().compare(&Digests::new()), Agreement::Incomparable);
}

#[test]
fn the_alternate_form_names_the_algorithm() {
    let digest = Hasher::digest_of(Algorithm::Cksum, b"");
    assert_eq!(format!("{digest} {digest:#} {digest:?}"), "ffffffff crc32:ffffffff crc32:ffffffff");
}

#[test]
fn rewriting_makes_the_whole_unknown() {
    let mut file = ExtentDigests::new(Algorithms::DEFAULT);
    file.add(0, b"0123456789");
    file.add(20, b"0123456789");
    for (offset, data, shared) in [(9, "x", 9), (5, "abcdefgh", 5), (15, "abcdef", 20), (0, "0123456789", 0)] {
        let mut rewritten = file.clone();
        rewritten.add(offset, data.as_bytes());
        assert_eq!(rewritten.finish(30, Holes::AreZeros), Err(CombineError::Rewritten { offset: shared }));
        assert_eq!(rewritten.extents().count(), 0, "memory is given back");
        rewritten.add(100, b"more");
        assert_eq!(rewritten.finish(30, Holes::AreZeros), Err(CombineError::Rewritten { offset: shared }));
    }
}

#[test]
fn what_was_not_written_is_a_hole() {
    let mut file = ExtentDigests::new(Algorithms::DEFAULT);
    assert_eq!(file.finish(0, Holes::Refuse).unwrap(), Hasher::digest(Algorithms::DEFAULT, b""));
    assert_eq!(file.finish(5, Holes::Refuse), Err(CombineError::Hole { offset: 0, bytes: 5 }));
    file.add(2, b"ab");
    assert_eq!(file.finish(4, Holes::Refuse), Err(CombineError::Hole { offset: 0, bytes: 2 }));
    assert_eq!(file.finish(3, Holes::AreZeros), Err(CombineError::BeyondEnd { end: 4, size: 3 }));
    assert_eq!(file.finish(6, Holes::AreZeros).unwrap(), Hasher::digest(Algorithms::DEFAULT, b"\0\0ab\0\0"));
    file.add(0, b"xy");
    assert_eq!(file.finish(5, Holes::Refuse), Err(CombineError::Hole { offset: 4, bytes: 1 }));
    assert_eq!(file.finish(4, Holes::Refuse).unwrap(), Hasher::digest(Algorithms::DEFAULT, b"xyab"));
}

#[test]
fn an_algorithm_that_one_extent_lacks_is_unknown_for_the_whole() {
    let mut file = ExtentDigests::new(Algorithms::DEFAULT);
    let crc32c = Algorithms::of(&[Algorithm::Crc32c]);
    file.add(0, b"1234");
    file.insert(Extent::of(crc32c, 4, b"56789").unwrap());
    assert_eq!(file.finish(9, Holes::Refuse), Ok(Hasher::digest(crc32c, b"123456789")));
}

#[test]
fn memory_is_bounded_by_the_limit() {
    let mut file = ExtentDigests::with_limit(Algorithms::DEFAULT, 2);
    file.add(0, b"a");
    file.add(2, b"c");
    file.add(1, b"b");
    file.add(4, b"e");
    assert_eq!(file.extents().count(), 2);
    file.add(6, b"g");
    assert_eq!(file.finish(7, Holes::AreZeros), Err(CombineError::TooFragmented { limit: 2 }));
}

#[test]
fn the_end_of_the_offset_range_is_handled() {
    let mut file = ExtentDigests::new(Algorithms::DEFAULT);
    file.add(u64::MAX - 1, b"a");
    assert!(file.finish(u64::MAX, Holes::AreZeros).is_ok());
    assert!(Extent::of(Algorithms::DEFAULT, u64::MAX, b"a").is_none());
    file.add(u64::MAX - 1, b"ab");
    assert!(file.finish(u64::MAX, Holes::AreZeros).is_err());
}

/// Data split at random places, and the pieces in random order.
fn pieces() -> impl Strategy<Value = (Vec<u8>, Vec<(usize, usize)>)> {
    (vec(any::<u8>(), 0..3000), vec(any::<prop::sample::Index>(), 0..24)).prop_flat_map(|(data, cuts)| {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(data.len() + 1)).collect();
        cuts.extend([0, data.len()]);
        cuts.sort_unstable();
        let ranges: Vec<_> = cuts.windows(2).map(|pair| (pair[0], pair[1])).collect();
        (Just(data), Just(ranges).prop_shuffle())
    })
}

fn combinable() -> Algorithms {
    Algorithm::ALL.into_iter().collect::<Algorithms>().combinable()
}

proptest! {
    #[test]
    fn any_partition_in_any_order_gives_the_digest_of_the_whole((data, ranges) in pieces()) {
        let mut file = ExtentDigests::new(combinable());
        for (start, end) in ranges {
            file.add(start as u64, &data[start..end]);
        }
        prop_assert!(file.extents().count() <= 1);
        let whole = file.finish(data.len() as u64, Holes::Refuse);
        prop_assert_eq!(whole, Ok(Hasher::digest(combinable(), &data)));
    }

    #[test]
    fn missing_pieces_are_zeros_in_a_sparse_file((mut data, ranges) in pieces(), keep in vec(any::<bool>(), 32)) {
        let mut file = ExtentDigests::new(combinable());
        for ((start, end), keep) in ranges.into_iter().zip(keep) {
            if keep {
                file.add(start as u64, &data[start..end]);
            } else {
                data[start..end].fill(0);
            }
        }
        let whole = file.finish(data.len() as u64, Holes::AreZeros);
        prop_assert_eq!(whole, Ok(Hasher::digest(combinable(), &data)));
    }

    #[test]
    fn an_extent_survives_its_digests((data, _) in pieces(), offset in 0..u64::MAX / 2) {
        let extent = Extent::of(combinable(), offset, &data).unwrap();
        let again = Extent::from_digests(offset, data.len() as u64, &extent.digests());
        prop_assert_eq!(again, Some(extent));
    }

    #[test]
    fn pieces_of_any_length_give_the_same_digests(
        seed in vec(any::<u8>(), 1..64), length in 0..80_000_usize, step in 1..40_000_usize,
    ) {
        let data: Vec<u8> = seed.iter().copied().cycle().take(length).collect();
        let all: Algorithms = Algorithm::ALL.into_iter().collect();
        let mut hasher = Hasher::new(all);
        data.chunks(step).for_each(|piece| hasher.update(piece));
        prop_assert_eq!(hasher.bytes(), length as u64);
        prop_assert_eq!(hasher.finish(), Hasher::digest(all, &data));
    }

    #[test]
    fn combination_is_concatenation(first in vec(any::<u8>(), 0..500), second in vec(any::<u8>(), 0..500)) {
        let whole = [first.clone(), second.clone()].concat();
        for algorithm in Algorithm::ALL {
            let value = |bytes: &[u8]| Hasher::digest_of(algorithm, bytes).to_integer();
            let combined = combine::combine(algorithm, value(&first), value(&second), second.len() as u64);
            let expected = algorithm.is_combinable().then(|| value(&whole));
            prop_assert_eq!(combined, expected);
        }
    }

    /// Lengths too large to hash: combination must be associative for them too.
    #[test]
    fn combination_is_associative(values: [u32; 3], second_bytes in 0..u64::MAX / 2, third_bytes in 0..u64::MAX / 2) {
        for algorithm in combinable().iter() {
            let [a, b, c] = values.map(u64::from).map(|value| match algorithm {
                // Both sums are below 65521.
                Algorithm::Adler32 => (((value >> 16) % 65521) << 16) | ((value & 0xffff) % 65521),
                _ => value,
            });
            let join = |x, y, bytes| combine::combine(algorithm, x, y, bytes).unwrap();
            let left = join(join(a, b, second_bytes), c, third_bytes);
            let right = join(a, join(b, c, third_bytes), second_bytes + third_bytes);
            prop_assert_eq!(left, right);
        }
    }

    #[test]
    fn zeros_are_counted_without_being_read(bytes in 0..20_000_u64) {
        for algorithm in combinable().iter() {
            let digest = Hasher::digest_of(algorithm, &vec![0; bytes as usize]);
            prop_assert_eq!(combine::of_zeros(algorithm, bytes), Some(digest.to_integer()));
        }
    }

    #[test]
    fn text_forms_round_trip(digest in any_digest()) {
        let algorithm = digest.algorithm();
        prop_assert_eq!(Digest::from_hex(algorithm, &digest.to_string()), Ok(digest));
        prop_assert_eq!(Digest::from_hex(algorithm, &digest.to_string().to_uppercase()), Ok(digest));
        prop_assert_eq!(Digest::from_base64(algorithm, &digest.to_base64()), Ok(digest));
        prop_assert_eq!(Digest::from_integer(algorithm, digest.to_integer()) == digest, algorithm.digest_bytes() <= 8);
    }

    #[test]
    fn no_text_panics(text in "\\PC{0,80}") {
        for algorithm in Algorithm::ALL {
            let _ = Digest::from_hex(algorithm, &text);
            let _ = Digest::from_base64(algorithm, &text);
        }
    }
}
