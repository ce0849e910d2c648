//! Random numbers that are the same everywhere: SplitMix64.
//!
//! Every text is drawn from a generator of its own, seeded by the run's seed and the text's number, so training can stop and
//! go on, and a text does not depend on which thread made it.

/// A generator.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = Self(seed ^ 0x5851_f42d_4c95_7f2d);
        rng.bits();
        rng
    }

    /// One of many that have nothing to do with each other.
    pub(crate) fn of(seed: u64, stream: u64, number: u64) -> Self {
        let mut rng = Self::new(seed);
        for part in [stream, number] {
            rng.0 = rng.bits() ^ part.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        rng.bits();
        rng
    }

    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, which is not 0.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (((self.bits() >> 32) * n as u64) >> 32) as usize
    }

    /// True so many times in a hundred.
    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of some.
    pub(crate) fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    fn unit(&mut self) -> f64 {
        ((self.bits() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    /// A number of the standard normal distribution (Box and Muller 1958).
    pub(crate) fn normal(&mut self) -> f32 {
        let radius = (-2.0 * self.unit().ln()).sqrt();
        (radius * (std::f64::consts::TAU * self.unit()).cos()) as f32
    }
}
