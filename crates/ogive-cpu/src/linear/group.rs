//! Activations of sixteen tokens at a time, for kernels that multiply matrices in tiles.
//!
//! A tile takes 64 neighbouring codes of each of sixteen tokens; they lie together, and then the next 64 of each.

use super::quantise::{Quantised, block_len};

/// Tokens of a group. Where there are fewer, the others are zeros.
pub(crate) const GROUP: usize = 16;

/// Something of sixteen tokens that begins at a line of the cache.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Tokens<T>(pub(crate) [T; GROUP]);

/// Rows of activations.
#[derive(Clone, Debug, Default)]
pub(crate) struct Group {
    /// How many tokens there are.
    pub(crate) tokens: usize,
    /// 64 codes; behind the end of a row are zeros. `[k / 64]`
    pub(crate) codes: Vec<Tokens<[i8; 64]>>,
    /// The sums of two neighbouring groups of 16 codes. `[k / 32]`
    pub(crate) sixteens: Vec<Tokens<[i16; 2]>>,
    /// The same of two groups of 32; an odd last one is left out. `[k / 64]`
    pub(crate) pairs: Vec<Tokens<[i16; 2]>>,
    /// The sums of 32 codes. `[k / 32]`
    pub(crate) totals: Vec<Tokens<f32>>,
    /// One for each block. `[k / block]`
    pub(crate) scales: Vec<Tokens<f32>>,
}

impl Group {
    /// How many groups `n` tokens make.
    pub(crate) fn count(n: usize) -> usize {
        n.div_ceil(GROUP)
    }

    /// Lays up to sixteen rows of `k` together.
    pub(crate) fn fill(&mut self, rows: &[Quantised], k: usize) {
        self.tokens = rows.len();
        self.codes.resize(k.div_ceil(64), Tokens([[0; 64]; GROUP]));
        self.sixteens.resize(k / 32, Tokens([[0; 2]; GROUP]));
        self.pairs.resize(k / 64, Tokens([[0; 2]; GROUP]));
        self.totals.resize(k / 32, Tokens([0.0; GROUP]));
        self.scales.resize(k / block_len(k), Tokens([0.0; GROUP]));
        for (t, row) in rows.iter().enumerate() {
            let (whole, rest) = row.codes.as_chunks::<64>();
            self.codes.iter_mut().zip(whole).for_each(|(to, codes)| to.0[t] = *codes);
            if let Some(to) = self.codes.last_mut().filter(|_| !rest.is_empty()) {
                to.0[t][..rest.len()].copy_from_slice(rest);
            }
            let sums = row.sums.as_chunks::<2>().0;
            for ((to, total), sums) in self.sixteens.iter_mut().zip(&mut self.totals).zip(sums) {
                to.0[t] = *sums;
                total.0[t] = f32::from(sums[0] + sums[1]);
            }
            for (to, [a, b]) in self.pairs.iter_mut().zip(sums.as_chunks::<2>().0) {
                to.0[t] = [a[0] + a[1], b[0] + b[1]];
            }
            self.scales.iter_mut().zip(&row.scales).for_each(|(to, scale)| to.0[t] = *scale);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_has_what_its_rows_have() {
        for k in [32, 96, 256, 512 + 64] {
            let rows: Vec<_> = (0..3)
                .map(|t| {
                    let mut row = Quantised::with_len(k);
                    row.fill(&(0..k).map(|i| ((i * 7 + t) % 13) as f32 - 6.0).collect::<Vec<_>>());
                    row
                })
                .collect();
            let mut group = Group::default();
            group.fill(&rows, k);
            for t in 0..GROUP {
                let row = rows.get(t).cloned().unwrap_or_else(|| Quantised::with_len(k));
                let codes: Vec<i8> = group.codes.iter().flat_map(|c| c.0[t]).collect();
                assert_eq!(codes[..k], row.codes);
                assert!(codes[k..].iter().all(|c| *c == 0));
                let totals: Vec<f32> = group.totals.iter().map(|s| s.0[t]).collect();
                let want: Vec<f32> =
                    row.codes.chunks(32).map(|c| c.iter().map(|c| f32::from(*c)).sum()).collect();
                assert_eq!(totals, want);
                let sums: Vec<i16> = group.sixteens.iter().flat_map(|s| s.0[t]).collect();
                assert_eq!(sums, row.sums);
                let pairs: Vec<f32> = group.pairs.iter().flat_map(|s| s.0[t]).map(f32::from).collect();
                assert_eq!(pairs, totals[..k / 64 * 2]);
                let scales: Vec<f32> = group.scales.iter().map(|s| s.0[t]).collect();
                assert_eq!(scales, row.scales);
            }
        }
    }
}
