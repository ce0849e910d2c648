//! Random numbers: xoshiro256**, seeded through SplitMix64.
//!
//! Why not the `rand` crate: its default generators may change between versions, and a sampler's
//! draws are part of what this crate promises. Both algorithms are in the public domain: David Blackman and
//! Sebastiano Vigna, "Scrambled linear pseudorandom number generators", ACM TOMS 47 (2021), and
//! <https://prng.di.unimi.it>, whose published outputs the tests repeat.

/// A generator of random numbers whose sequence depends on its seed alone. Not for cryptography.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// The generator for `seed`. Any seed is good, zero too.
    pub fn new(seed: u64) -> Self {
        let mut x = seed;
        // SplitMix64 is a bijection of a counter, so at most one of the four words is zero.
        Self { state: std::array::from_fn(|_| split_mix(&mut x)) }
    }

    /// Where it stands: what [`from_state`](Self::from_state) goes on from.
    pub fn state(&self) -> [u64; 4] {
        self.state
    }

    /// The generator that stands there; `None` for four zeros, from which nothing but zeros would come.
    pub fn from_state(state: [u64; 4]) -> Option<Self> {
        state.iter().any(|word| *word != 0).then_some(Self { state })
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let out = b.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let (c, d) = (c ^ a, d ^ b);
        self.state = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        out
    }

    /// A random number in `0..bound`; 0 for a bound of 0.
    ///
    /// It takes exactly one step of the generator, so that the n-th draw of a chain uses the n-th number
    /// whatever came before. No number's probability is off by more than 2^-64.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A random number in `[0, 1)`, a multiple of 2^-53.
    pub fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }
}

fn split_mix(x: &mut u64) -> u64 {
    *x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*x ^ (*x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xoshiro_gives_its_published_outputs() {
        let mut rng = Rng { state: [1, 2, 3, 4] };
        let first: Vec<_> = (0..6).map(|_| rng.next_u64()).collect();
        let published = [11520, 0, 1509978240, 1215971899390074240, 1216172134540287360, 607988272756665600];
        assert_eq!(first, published);
    }

    #[test]
    fn split_mix_gives_its_published_outputs() {
        let mut x = 1234567;
        let first: Vec<_> = (0..3).map(|_| split_mix(&mut x)).collect();
        assert_eq!(first, [6457827717110365317, 3203168211198807973, 9817491932198370423]);
    }

    #[test]
    fn below_and_uniform_stay_in_their_range() {
        let mut rng = Rng::new(0);
        assert_eq!(rng.below(0), 0);
        assert_eq!(rng.below(1), 0);
        let mut seen = [0u32; 7];
        for _ in 0..7000 {
            seen[rng.below(7) as usize] += 1;
            assert!((0.0..1.0).contains(&rng.uniform()));
        }
        assert!(seen.iter().all(|&n| (850..1150).contains(&n)), "{seen:?}");
    }
}
