//! Random inputs that are the same on every platform: SplitMix64 and the Box-Muller transform, so that a seed in a
//! report finds the same failure elsewhere without a dependency.

use ogive_backend::tensor::{FEW_BITS, Format, HostWeight, Result};
use std::f64::consts::TAU;

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// The stream of `name` under `seed`: a case's inputs do not depend on which cases ran before it.
    pub(crate) fn new(seed: u64, name: &str) -> Self {
        // FNV-1a.
        let hash = name
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
        Self(hash ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A whole number below `n`.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    /// From 0 to 1, 1 excluded.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// From `low` to `high`.
    pub(crate) fn between(&mut self, low: f32, high: f32) -> f32 {
        low + (high - low) * self.unit() as f32
    }

    /// `n` numbers of the standard normal distribution.
    pub(crate) fn normal(&mut self, n: usize) -> Vec<f32> {
        (0..n)
            .map(|_| ((-2.0 * (1.0 - self.unit()).ln()).sqrt() * (TAU * self.unit()).cos()) as f32)
            .collect()
    }

    /// `n` token ids below `vocab`.
    pub(crate) fn ids(&mut self, n: usize, vocab: usize) -> Vec<u32> {
        (0..n).map(|_| self.below(vocab) as u32).collect()
    }

    /// The numbers below `n` in some order.
    pub(crate) fn order(&mut self, n: usize) -> Vec<u32> {
        let mut order: Vec<u32> = (0..n as u32).collect();
        (1..n).rev().for_each(|i| order.swap(i, self.below(i + 1)));
        order
    }

    /// A weight of normal numbers in `format`, or of arbitrary bytes where that cannot be written or has few bits, which have so many more patterns. Blocks are drawn from
    /// a few dozen that were encoded: the better encoders search, and would take all of the suite's time.
    pub(crate) fn weight(&mut self, shape: [usize; 3], format: &'static Format) -> Result<HostWeight> {
        let [experts, rows, cols] = shape;
        let (blocks, scale) = (experts * rows * cols / format.block_len, (cols as f32).powf(-0.5));
        if format.encode.is_none() || FEW_BITS.contains(&format) {
            return self.weight_of_any_bytes(shape, format);
        }
        let distinct = if format.block_len == 1 { blocks } else { blocks.min(48) };
        let mut pool = vec![0; distinct * format.block_bytes];
        for block in pool.chunks_mut(format.block_bytes) {
            let values: Vec<f32> = self.normal(format.block_len).iter().map(|v| v * scale).collect();
            format.encode_row(&values, block)?;
        }
        let bytes: Vec<u8> = (0..blocks)
            .flat_map(|i| {
                let i = if distinct == blocks { i } else { self.below(distinct) };
                pool[i * format.block_bytes..][..format.block_bytes].to_vec()
            })
            .collect();
        HostWeight::new(format!("random {}", format.name), shape, format, bytes.into())
    }

    /// A weight of random bytes, but for blocks that decode to nothing usable: an encoder leaves many patterns out.
    pub(crate) fn weight_of_any_bytes(
        &mut self,
        shape: [usize; 3],
        format: &'static Format,
    ) -> Result<HostWeight> {
        let [experts, rows, cols] = shape;
        let mut bytes = vec![0; experts * rows * format.row_bytes(cols)];
        let mut values = vec![0.0; format.block_len];
        for block in bytes.chunks_mut(format.block_bytes) {
            // One in a few hundred is fit in the worst format; should ever none be, a block of zeros stays.
            for _ in 0..100_000 {
                block.iter_mut().for_each(|b| *b = self.next() as u8);
                (format.decode)(block, &mut values);
                let largest =
                    values.iter().fold(0f32, |m, v| if v.is_finite() { m.max(v.abs()) } else { f32::NAN });
                if (0.05..5.0).contains(&largest) {
                    break;
                }
                block.fill(0);
            }
        }
        HostWeight::new(format!("any {}", format.name), shape, format, bytes.into())
    }
}

/// The size of a weight's products with normal numbers: the root mean square of a row's length.
pub(crate) fn gain(w: &HostWeight) -> f64 {
    let squares: f64 = w.to_vec().iter().map(|&v| f64::from(v).powi(2)).sum();
    (squares / (w.shape[0] * w.shape[1]).max(1) as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ogive_backend::tensor::FORMATS;

    #[test]
    fn any_bytes_are_usable_weights() {
        for format in FORMATS {
            let w = Random::new(1, format.name).weight_of_any_bytes([1, 4, 512], format).unwrap();
            let values = w.to_vec();
            assert!(values.iter().all(|v| v.abs() < 5.0), "{format:?}");
            assert!(values.iter().filter(|v| **v != 0.0).count() > 1024, "{format:?}");
        }
    }

    #[test]
    fn normal_numbers_are_normal() {
        let x = Random::new(1, "").normal(100_000);
        let mean = x.iter().sum::<f32>() / 1e5;
        let variance = x.iter().map(|v| v * v).sum::<f32>() / 1e5;
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.02, "{mean} {variance}");
    }
}
