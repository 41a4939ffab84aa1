//! Computes the checksum of a file from the checksums and lengths of its parts.
//!
//! A CRC is a remainder of polynomials over GF(2), so the CRC of `A` followed by `n` bytes `B` is `crc(A) * x^(8n) +
//! crc(B)` modulo the generator. `x^(8n)` is a product of powers `x^(2^k)`, which are tables computed at compile time;
//! a combination thus costs as many multiplications as `n` has one bits, plus one. Adler-32 is two sums modulo 65521
//! and combines with a multiplication.
//!
//! (crc-fast can combine too, by squaring bit matrices: measured at 9 to 31 µs each, compared with 0.04 to 0.6 µs here.
//! With a combination for each piece of 64 KiB that would cost more than the checksum itself.)

use super::Algorithm;

/// Returns the checksum of the bytes of `first` followed by `second_bytes` bytes with the checksum `second`.
///
/// Values are the integers of the digests; `None` for algorithms that cannot be combined.
pub(crate) fn combine(algorithm: Algorithm, first: u64, second: u64, second_bytes: u64) -> Option<u64> {
    match algorithm {
        Algorithm::Adler32 => Some(adler32(first, second, second_bytes)),
        Algorithm::Crc32c => Some(u64::from(crc32c(first as u32, second as u32, second_bytes))),
        // With equal initial value and final exclusive-or, both cancel out of the sum.
        Algorithm::Crc32 => Some(CRC32.shift(first, second_bytes) ^ second),
        // This CRC is not reflected, but the arithmetic here is: mirror input and output.
        Algorithm::Crc64 => Some(CRC64.shift(first.reverse_bits(), second_bytes).reverse_bits() ^ second),
        Algorithm::Cksum | Algorithm::Md5 | Algorithm::Sha1 | Algorithm::Sha256 => None,
    }
}

/// Like [`combine`], for CRC-32C.
pub(super) fn crc32c(first: u32, second: u32, second_bytes: u64) -> u32 {
    // With equal initial value and final exclusive-or, both cancel out of the sum.
    CRC32C.shift(u64::from(first), second_bytes) as u32 ^ second
}

/// Returns the checksum of `bytes` zero bytes; `None` for algorithms that cannot be combined.
pub(crate) fn of_zeros(algorithm: Algorithm, bytes: u64) -> Option<u64> {
    const ONES: u64 = 0xffff_ffff;
    match algorithm {
        Algorithm::Adler32 => Some((bytes % ADLER_MODULUS) << 16 | 1),
        Algorithm::Crc32c => Some(CRC32C.shift(ONES, bytes) ^ ONES),
        Algorithm::Crc32 => Some(CRC32.shift(ONES, bytes) ^ ONES),
        Algorithm::Crc64 => Some(0),
        Algorithm::Cksum | Algorithm::Md5 | Algorithm::Sha1 | Algorithm::Sha256 => None,
    }
}

/// The largest prime below 2^16 (RFC 1950 §8.2).
const ADLER_MODULUS: u64 = 65_521;

fn adler32(first: u64, second: u64, second_bytes: u64) -> u64 {
    let (a1, b1) = (first & 0xffff, first >> 16 & 0xffff);
    let (a2, b2) = (second & 0xffff, second >> 16 & 0xffff);
    // The sums of the second part start at a = 1; had they started at a1, each of its bytes would have added a1 - 1 to
    // b. `ADLER_MODULUS - 1` represents -1.
    let excess = a1 + ADLER_MODULUS - 1;
    let a = (excess + a2) % ADLER_MODULUS;
    let b = (b1 + b2 + excess % ADLER_MODULUS * (second_bytes % ADLER_MODULUS)) % ADLER_MODULUS;
    b << 16 | a
}

/// The generator of a CRC, with the powers of `x` needed to shift by a number of bytes.
///
/// Polynomials are reflected: the coefficient of `x^0` is the highest of `width` bits.
struct Generator {
    polynomial: u64,
    width: u32,
    /// `x^(2^k)` modulo the polynomial, for k = 0..=66: 8 times the longest length of 64 bits.
    powers: [u64; 67],
}

static CRC32C: Generator = Generator::new(0x82f6_3b78, 32);
static CRC32: Generator = Generator::new(0xedb8_8320, 32);
static CRC64: Generator = Generator::new(0x42f0_e1eb_a9ea_3693_u64.reverse_bits(), 64);

impl Generator {
    const fn new(polynomial: u64, width: u32) -> Self {
        let mut powers = [0; 67];
        powers[0] = 1 << (width - 2); // x^1
        let mut k = 1;
        while k < powers.len() {
            powers[k] = multiply(polynomial, width, powers[k - 1], powers[k - 1]);
            k += 1;
        }
        Self { polynomial, width, powers }
    }

    /// Returns `crc * x^(8 * bytes)`.
    fn shift(&self, mut crc: u64, mut bytes: u64) -> u64 {
        // 8 = 2^3: bit i of the length corresponds to x^(2^(i + 3)).
        for power in &self.powers[3..] {
            if bytes == 0 {
                break;
            }
            if bytes & 1 == 1 {
                crc = multiply(self.polynomial, self.width, *power, crc);
            }
            bytes >>= 1;
        }
        crc
    }
}

/// Returns the product of two reflected polynomials modulo a third.
const fn multiply(polynomial: u64, width: u32, left: u64, mut right: u64) -> u64 {
    let mut product = 0;
    let mut coefficient = 1 << (width - 1);
    while coefficient != 0 {
        // Masks instead of branches: the bits are random, so branches would be mispredicted half of the time.
        product ^= right & if left & coefficient != 0 { u64::MAX } else { 0 };
        right = right >> 1 ^ polynomial & (right & 1).wrapping_neg();
        coefficient >>= 1;
    }
    product
}
