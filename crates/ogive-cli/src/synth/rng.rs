//! Random numbers by place: a stream belongs to a seed, a tensor's name and a chunk of it.
//!
//! So nothing depends on who makes a chunk or when, and every number of threads writes the same bytes. SplitMix64 (Steele,
//! Lea and Flood 2014): eight bytes in about a nanosecond, more than good enough for weights that mean nothing. All its
//! streams are parts of one sequence of 2^64; that two of a file's meet is as good as impossible, and would harm nothing.

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    /// The stream of chunk `chunk` of what is called `name`.
    pub(crate) fn new(seed: u64, name: &str, chunk: u64) -> Self {
        // FNV-1a, stirred once more: neighbouring names, seeds and chunks begin far apart.
        let hash = name
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325, |h: u64, b| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3));
        Self(stir(stir(stir(seed) ^ hash).wrapping_add(chunk)))
    }

    /// 64 random bits.
    #[inline]
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        stir(self.0)
    }

    /// Random bytes.
    #[inline]
    pub(crate) fn fill(&mut self, out: &mut [u8]) {
        for o in out.chunks_mut(8) {
            o.copy_from_slice(&self.bits().to_le_bytes()[..o.len()]);
        }
    }

    /// Nearly normal, with mean 0 and deviation 1, and never beyond 3.47: the sum of the four 16-bit parts of one draw.
    #[inline]
    pub(crate) fn normal(&mut self) -> f32 {
        // Each part has a variance of (2^32 - 1) / 12.
        const DEVIATION: f32 = 37_837.227;
        let b = self.bits();
        let sum = (b & 0xffff) + (b >> 16 & 0xffff) + (b >> 32 & 0xffff) + (b >> 48);
        (sum as f32 - 2.0 * 65_535.0) / DEVIATION
    }
}

fn stir(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_differ_and_repeat() {
        let draw = |seed, name, chunk| Rng::new(seed, name, chunk).bits();
        assert_eq!(draw(1, "a", 2), draw(1, "a", 2));
        let all = [draw(1, "a", 2), draw(2, "a", 2), draw(1, "b", 2), draw(1, "a", 3)];
        assert!((1..all.len()).all(|i| !all[..i].contains(&all[i])), "{all:x?}");
    }

    #[test]
    fn normal_numbers_have_mean_0_and_deviation_1() {
        let mut rng = Rng::new(7, "x", 0);
        let n = 200_000;
        let (mut sum, mut squares, mut most) = (0.0_f64, 0.0, 0.0_f64);
        for _ in 0..n {
            let v = f64::from(rng.normal());
            (sum, squares, most) = (sum + v, squares + v * v, most.max(v.abs()));
        }
        let (mean, deviation) = (sum / f64::from(n), (squares / f64::from(n)).sqrt());
        // Four and a half standard errors.
        assert!(mean.abs() < 0.01 && (deviation - 1.0).abs() < 0.01, "{mean} {deviation}");
        assert!(most > 3.0 && most < 3.47, "{most}");
    }
}
