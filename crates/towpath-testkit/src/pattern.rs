//! Content whose bytes depend on their offsets, so that misplaced or foreign bytes are detected.

use bytes::Bytes;

use crate::random::mix;

const WORD_BYTES: u64 = 8;

/// Endless content, different for each seed. Each eight bytes are a hash of seed and offset, so that no two offsets
/// look alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pattern(u64);

impl Pattern {
    /// The content of `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(mix(seed.wrapping_add(1)))
    }

    /// Fills `buffer` with what stands at `offset`.
    pub fn fill(self, offset: u64, buffer: &mut [u8]) {
        let skipped = (offset % WORD_BYTES) as usize;
        let mut index = offset / WORD_BYTES;
        let (head, rest) = buffer.split_at_mut(buffer.len().min((WORD_BYTES as usize - skipped) % WORD_BYTES as usize));
        if !head.is_empty() {
            head.copy_from_slice(&self.word(index)[skipped..skipped + head.len()]);
            index += 1;
        }
        for (place, index) in rest.chunks_mut(WORD_BYTES as usize).zip(index..) {
            place.copy_from_slice(&self.word(index)[..place.len()]);
        }
    }

    /// `length` bytes from `offset`.
    pub fn bytes(self, offset: u64, length: usize) -> Bytes {
        let mut buffer = vec![0; length];
        self.fill(offset, &mut buffer);
        buffer.into()
    }

    /// Panics with the first offset that is wrong, unless `data` is what stands at `offset`.
    #[track_caller]
    pub fn check(self, offset: u64, data: &[u8]) {
        if let Some(bad) = self.first_difference(offset, data) {
            panic!("{} bytes read at {offset}: the byte at {bad} is wrong", data.len());
        }
    }

    /// The first offset at which `data`, read at `offset`, is wrong.
    pub fn first_difference(self, offset: u64, data: &[u8]) -> Option<u64> {
        let mut expected = [0; 4096];
        for (part, at) in data.chunks(expected.len()).zip((offset..).step_by(expected.len())) {
            let expected = &mut expected[..part.len()];
            self.fill(at, expected);
            if let Some(index) = part.iter().zip(expected).position(|(got, wanted)| got != wanted) {
                return Some(at + index as u64);
            }
        }
        None
    }

    fn word(self, index: u64) -> [u8; WORD_BYTES as usize] {
        mix(self.0 ^ index).to_le_bytes()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_misplaced_byte_is_found() {
        let pattern = Pattern::new(1);
        let mut data = pattern.bytes(3, 10_000).to_vec();
        assert_eq!(pattern.first_difference(3, &data), None);
        data[7_000] ^= 1;
        assert_eq!(pattern.first_difference(3, &data), Some(7_003));
        assert_eq!(pattern.first_difference(11, &pattern.bytes(3, 100)), Some(11));
        assert!(Pattern::new(2).first_difference(0, &pattern.bytes(0, 100)).is_some());
    }

    proptest! {
        #[test]
        fn a_part_is_the_part_of_the_whole(start in 0..5000_usize, length in 0..5000_usize, base in 0..u64::MAX / 2) {
            let whole = Pattern::new(9).bytes(base, 10_000);
            prop_assert_eq!(Pattern::new(9).bytes(base + start as u64, length), whole.slice(start..start + length));
        }
    }
}
