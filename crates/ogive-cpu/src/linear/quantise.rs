//! Activations rounded to 8 bits, for products with packed weights.
//!
//! One scale serves a block of the largest of 256, 128, 64 and 32 elements that divides the row, whatever the weight's
//! format: weights of several formats that meet on one input share one rounding. Codes stay within ±127, so that products
//! of two of them with 8-bit weights fit the 16-bit sums of AVX2.

/// A row of activations as codes, their sums, and scales.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Quantised {
    /// `[k]`
    pub(crate) codes: Vec<i8>,
    /// The sum of each 16 codes. `[k / 16]`
    pub(crate) sums: Vec<i16>,
    /// One for each block. `[k / block]`
    pub(crate) scales: Vec<f32>,
}

/// A block whose largest element is below this (2^-120) counts as zeros: the inverse of its scale would overflow.
pub(crate) const TINY: f32 = f32::from_bits(7 << 23);

/// Elements that share a scale in rows of `k`, a multiple of 32.
pub(crate) fn block_len(k: usize) -> usize {
    [256, 128, 64].into_iter().find(|b| k.is_multiple_of(*b)).unwrap_or(32)
}

impl Quantised {
    /// Room for `k` elements, a multiple of 32.
    #[cfg(test)]
    pub(crate) fn with_len(k: usize) -> Self {
        let mut row = Self::default();
        row.set_len(k);
        row
    }

    /// Makes room for `k` elements, a multiple of 32; what they are until they are written means nothing.
    pub(crate) fn set_len(&mut self, k: usize) {
        self.codes.resize(k, 0);
        self.sums.resize(k / 16, 0);
        self.scales.resize(k / block_len(k), 0.0);
    }

    /// Rounds `x` of as many elements: to nearest, ties to even. A block with an element that is not finite gets codes of
    /// 0 and a scale that is not a number, so that every product that reads it is not a number either.
    pub(crate) fn fill(&mut self, x: &[f32]) {
        let len = block_len(x.len());
        let blocks = x.chunks_exact(len).zip(self.codes.chunks_exact_mut(len));
        for ((x, codes), scale) in blocks.zip(&mut self.scales) {
            let max = x.iter().fold(0, |m, v| m.max(v.to_bits() & 0x7fff_ffff));
            let (inverse, s) = factors(f32::from_bits(max));
            *scale = s;
            match inverse {
                Some(inverse) => {
                    codes.iter_mut().zip(x).for_each(|(c, v)| *c = (v * inverse).round_ties_even() as i8);
                }
                None => codes.fill(0),
            }
        }
        for (sum, codes) in self.sums.iter_mut().zip(self.codes.chunks_exact(16)) {
            *sum = codes.iter().map(|&c| i16::from(c)).sum();
        }
    }
}

/// What a block whose largest magnitude is `max` is multiplied with, unless its codes are zeros; and its scale.
pub(crate) fn factors(max: f32) -> (Option<f32>, f32) {
    if !max.is_finite() {
        (None, f32::NAN)
    } else if max < TINY {
        (None, 0.0)
    } else {
        (Some(127.0 / max), max / 127.0)
    }
}

/// So many rows of `k` for tests, no two of them the same.
#[cfg(test)]
pub(crate) fn some_rows(n: usize, k: usize) -> Vec<Quantised> {
    let row = |t| {
        let mut row = Quantised::with_len(k);
        row.fill(&(0..k).map(|i| ((i * 7 + t) % 13) as f32 - 6.0).collect::<Vec<_>>());
        row
    };
    (0..n).map(row).collect()
}
