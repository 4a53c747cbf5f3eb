//! The simulations' only source of chance: SplitMix64 from a seed. Same seed, same history on every machine.

/// A seeded sequence of numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// From a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let a = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let b = (a ^ (a >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        b ^ (b >> 31)
    }

    /// A number below `end`; 0 if that is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.bits().checked_rem(end).unwrap_or(0)
    }

    /// A number from `low` to `high`, both included.
    ///
    /// # Panics
    /// If `high` is below `low`.
    pub fn within(&mut self, low: u32, high: u32) -> u32 {
        low + u32::try_from(self.below(u64::from(high - low) + 1)).expect("below a u32")
    }

    /// True `percent` times in a hundred.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of these, if there is one.
    ///
    /// # Panics
    /// Never: an index below a length fits.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        from.get(usize::try_from(self.below(from.len() as u64)).expect("an index"))
    }

    /// Within 0..1, without the 1.
    ///
    /// # Panics
    /// Never: 32 bits fit.
    pub fn unit(&mut self) -> f64 {
        f64::from(u32::try_from(self.bits() >> 32).expect("32 bits")) / (f64::from(u32::MAX) + 1.0)
    }

    /// Evenly between the two.
    pub fn between(&mut self, [low, high]: [f64; 2]) -> f64 {
        low + (high - low) * self.unit()
    }

    /// Pareto with this shortest value and shape, cut at the longest.
    pub fn pareto(&mut self, shortest: f64, shape: f64, longest: f64) -> f64 {
        (shortest / (1.0 - self.unit()).powf(1.0 / shape)).min(longest)
    }
}
