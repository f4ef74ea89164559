//! Random numbers that a seed determines (splitmix64).

/// A sequence of random numbers.
#[derive(Debug)]
pub(super) struct Random(u64);

impl Random {
    /// The sequence number `stream` of a seed.
    pub(super) fn new(seed: u64, stream: u64) -> Self {
        let mut random = Self(seed);
        let mut mixed = Self(random.next_u64() ^ stream);
        Self(mixed.next_u64())
    }

    pub(super) fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in [0, 1).
    pub(super) fn unit(&mut self) -> f64 {
        // The 53 bits that a float holds.
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// True with this probability.
    pub(super) fn chance(&mut self, share: f64) -> bool {
        self.unit() < share
    }

    /// Uniform from `low` to `high`, both included.
    pub(super) fn between(&mut self, low: u32, high: u32) -> u32 {
        let span = u64::from(high.saturating_sub(low)) + 1;
        // The rest of so large a number is even enough.
        low + u32::try_from(self.next_u64() % span).unwrap_or(0)
    }

    /// One of these; `None` where there is none.
    pub(super) fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        let last = u32::try_from(items.len()).ok()?.checked_sub(1)?;
        items.get(self.between(0, last) as usize)
    }

    /// Seconds until the next of events that come at random, `rate` per second.
    pub(super) fn interval(&mut self, rate: f64) -> f64 {
        -(1.0 - self.unit()).ln() / rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_and_a_stream_determine_the_numbers() {
        let draw = |seed, stream| {
            let mut random = Random::new(seed, stream);
            [(); 4].map(|()| random.next_u64())
        };
        assert_eq!(draw(1, 2), draw(1, 2));
        assert_ne!(draw(1, 2), draw(1, 3));
        assert_ne!(draw(1, 2), draw(2, 2));
    }

    #[test]
    fn numbers_are_spread_as_they_should_be() {
        let mut random = Random::new(0, 0);
        let mut seen = [0_u32; 4];
        let (mut units, mut intervals) = (0.0, 0.0);
        for _ in 0..10_000 {
            seen[random.between(3, 6) as usize - 3] += 1;
            units += random.unit();
            intervals += random.interval(4.0);
        }
        assert!(seen.iter().all(|n| (2_300..2_700).contains(n)), "{seen:?}");
        assert!((4_900.0..5_100.0).contains(&units), "{units}");
        assert!((2_400.0..2_600.0).contains(&intervals), "{intervals}");
        assert_eq!(random.pick::<u8>(&[]), None);
        assert!(random.interval(f64::INFINITY) == 0.0);
    }
}
