//! Chance that can be repeated: a small generator with one 64-bit seed (SplitMix64; Steele, Lea, Flood: "Fast
//! splittable pseudorandom number generators", 2014).

/// A sequence of numbers that follows from its seed.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The sequence of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `limit`, 0 if that is 0. (The bias of the remainder does not matter for tests.)
    pub fn below(&mut self, limit: u64) -> u64 {
        self.number().checked_rem(limit).unwrap_or(0)
    }

    /// True `per_mille` times in a thousand.
    pub fn chance(&mut self, per_mille: u32) -> bool {
        self.below(1000) < u64::from(per_mille)
    }
}

/// Mixes `number`: every bit of the result depends on every bit of the input.
pub(crate) const fn mix(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_that_of_the_paper() {
        // The first values of the published reference implementation for this seed.
        let mut random = Random::new(1_234_567);
        assert_eq!(random.number(), 6_457_827_717_110_365_317);
        assert_eq!(random.number(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn chances_are_about_right() {
        let mut random = Random::new(7);
        assert_eq!((0..1000).filter(|_| random.chance(0)).count(), 0);
        assert_eq!((0..1000).filter(|_| random.chance(1000)).count(), 1000);
        assert!((400..600).contains(&(0..1000).filter(|_| random.chance(500)).count()));
    }
}
