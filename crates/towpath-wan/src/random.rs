//! Random numbers: a seeded generator, and the loss model of a link. Equal seeds produce equal losses.

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014): 64 bits of state,
/// sufficient for packet loss.
#[derive(Debug, Clone)]
pub(crate) struct SplitMix64(u64);

impl SplitMix64 {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from 0 (inclusive) to 1 (exclusive).
    pub(crate) fn unit(&mut self) -> f64 {
        // A double represents the upper 53 bits exactly.
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns true with the given probability; a probability of zero or less does not advance the generator.
    pub(crate) fn strikes(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.unit() < probability
    }

    /// Returns a number from 0 to `limit`, both inclusive.
    pub(crate) fn up_to(&mut self, limit: u64) -> u64 {
        if limit == 0 { 0 } else { (self.unit() * (limit as f64 + 1.0)) as u64 }
    }
}

/// Loss by a Markov chain of two states (Gilbert 1960): every segment is lost in the bad state, and none in the good
/// one.
///
/// The mean is the configured loss, and bursts have the configured mean length. Independent losses form bursts of 1/(1
/// − loss) on average: shorter ones are impossible, so any smaller length results in independent losses.
#[derive(Debug, Clone, Default)]
pub(crate) struct GilbertModel {
    enter_bad: f64,
    stay_bad: f64,
    is_bad: bool,
}

impl GilbertModel {
    /// Creates the model. `probability` is from 0 to 1; `burst` is the mean number of consecutive losses.
    pub(crate) fn new(probability: f64, burst: f64) -> Self {
        if probability <= 0.0 {
            return Self::default();
        }
        if probability >= 1.0 {
            return Self { enter_bad: 1.0, stay_bad: 1.0, is_bad: false };
        }
        let leave_bad = 1.0 / burst.max(1.0 / (1.0 - probability));
        // In equilibrium the transitions balance: p · leave = (1 − p) · enter.
        let enter_bad = leave_bad * probability / (1.0 - probability);
        Self { enter_bad, stay_bad: 1.0 - leave_bad, is_bad: false }
    }

    /// Returns whether the next segment is lost.
    pub(crate) fn strikes(&mut self, random: &mut SplitMix64) -> bool {
        self.is_bad = random.strikes(if self.is_bad { self.stay_bad } else { self.enter_bad });
        self.is_bad
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the loss rate and the mean burst length over a million segments.
    fn measure(probability: f64, burst: f64) -> (f64, f64) {
        const SEGMENTS: u32 = 1_000_000;
        let (mut random, mut loss) = (SplitMix64::new(7), GilbertModel::new(probability, burst));
        let (mut lost, mut rows, mut before) = (0_u32, 0_u32, false);
        for _ in 0..SEGMENTS {
            let now = loss.strikes(&mut random);
            lost += u32::from(now);
            rows += u32::from(now && !before);
            before = now;
        }
        (f64::from(lost) / f64::from(SEGMENTS), f64::from(lost) / f64::from(rows.max(1)))
    }

    #[test]
    fn independent_loss_keeps_its_mean_and_the_rows_that_follow_from_it() {
        let (share, row) = measure(0.02, 1.0);
        assert!((share - 0.02).abs() < 0.0007, "{share}");
        assert!((row - 1.0 / 0.98).abs() < 0.01, "{row}");
    }

    #[test]
    fn loss_in_bursts_keeps_mean_and_length() {
        let (share, row) = measure(0.01, 5.0);
        assert!((share - 0.01).abs() < 0.001, "{share}");
        assert!((row - 5.0).abs() < 0.25, "{row}");
    }

    #[test]
    fn none_and_all() {
        assert_eq!(measure(0.0, 1.0), (0.0, 0.0));
        assert_eq!(measure(1.0, 1.0).0, 1.0);
    }

    #[test]
    fn the_seed_decides() {
        let draw = |seed| (0..8).map(move |_| seed).scan(SplitMix64::new(seed), |random, _| Some(random.next()));
        assert!(draw(1).eq(draw(1)));
        assert!(draw(1).ne(draw(2)));
    }

    #[test]
    fn a_limit_is_reached_and_kept() {
        let mut random = SplitMix64::new(3);
        let drawn: Vec<u64> = (0..1000).map(|_| random.up_to(3)).collect();
        for wanted in 0..=3 {
            assert!(drawn.contains(&wanted), "{wanted} never came");
        }
        assert!(drawn.iter().all(|drawn| *drawn <= 3));
        assert_eq!(random.up_to(0), 0);
    }
}
