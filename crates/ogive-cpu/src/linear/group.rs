//! Activations of thirty-two tokens at a time, for kernels that multiply matrices in tiles.
//!
//! A tile takes 64 neighbouring codes of each of sixteen tokens, a line of the cache. Those of two tiles lie together, and then the next 64
//! of each token; of fewer tokens than a tile has, nothing else.

use super::quantise::{Quantised, block_len};

/// Tokens of a group. Where there are fewer, the others are zeros.
pub(crate) const GROUP: usize = 32;

/// A line of the cache of one token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub(crate) struct Codes(pub(crate) [i8; 64]);

/// The sums of each 16 of 256 codes, as two bf16 whose sum they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub(crate) struct Sums(pub(crate) [[u16; 2]; 16]);

/// Something of each token that begins at a line of the cache.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Tokens<T>(pub(crate) [T; GROUP]);

/// Rows of activations.
#[derive(Clone, Debug, Default)]
pub(crate) struct Group {
    /// How many tokens there are.
    pub(crate) tokens: usize,
    /// How many lines lie together: those of all tokens, and zeros for those that are missing.
    pub(crate) each: usize,
    /// Behind the end of a row are zeros. `[k / 64, each]`
    pub(crate) codes: Vec<Codes>,
    /// What makes no 256 is left out. `[k / 256, each]`
    pub(crate) sums: Vec<Sums>,
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

    /// Lays rows of `k` together. If they are `alone` and fewer than a tile has, no line is made up.
    ///
    /// # Panics
    /// If they are more than a group has.
    pub(crate) fn fill(&mut self, rows: &[Quantised], k: usize, alone: bool) {
        assert!(rows.len() <= GROUP);
        self.tokens = rows.len();
        let each = if alone && rows.len() <= GROUP / 2 { rows.len() } else { GROUP };
        self.each = each;
        // What no row fills is zeros, whatever stood there.
        self.codes.clear();
        self.sums.clear();
        self.totals.clear();
        self.scales.clear();
        self.codes.resize(k.div_ceil(64) * each, Codes([0; 64]));
        self.sums.resize(k / 256 * each, Sums([[0; 2]; 16]));
        self.totals.resize(k / 32, Tokens([0.0; GROUP]));
        self.scales.resize(k / block_len(k), Tokens([0.0; GROUP]));
        for (t, row) in rows.iter().enumerate() {
            let (whole, rest) = row.codes.as_chunks::<64>();
            let lines = self.codes.iter_mut().skip(t).step_by(each);
            lines.zip(whole).for_each(|(to, codes)| to.0 = *codes);
            if let Some(to) = self.codes.get_mut(whole.len() * each + t) {
                to.0[..rest.len()].copy_from_slice(rest);
            }
            let lines = self.sums.iter_mut().skip(t).step_by(each);
            lines.zip(row.sums.as_chunks::<16>().0).for_each(|(to, sums)| to.0 = sums.map(two_bf16));
            for (to, [a, b]) in self.totals.iter_mut().zip(row.sums.as_chunks::<2>().0) {
                to.0[t] = f32::from(a + b);
            }
            self.scales.iter_mut().zip(&row.scales).for_each(|(to, scale)| to.0[t] = *scale);
        }
    }
}

/// `v` as the sum of a multiple of 128 and the rest: bf16 has eight bits and holds either.
fn two_bf16(v: i16) -> [u16; 2] {
    let low = v & 127;
    [v - low, low].map(|v| (f32::from(v).to_bits() >> 16) as u16)
}

#[cfg(test)]
mod tests {
    use super::{super::quantise::some_rows, *};

    fn value(bf16: u16) -> f32 {
        f32::from_bits(u32::from(bf16) << 16)
    }

    #[test]
    fn every_sum_is_two_bf16() {
        for v in -16 * 127..=16 * 127 {
            let [high, low] = two_bf16(v);
            assert_eq!(value(high) + value(low), f32::from(v));
        }
    }

    #[test]
    fn a_group_has_what_its_rows_have() {
        for (n, k, alone) in
            [(3, 32, false), (3, 96, true), (16, 256, true), (17, 512 + 64, true), (1, 512, false)]
        {
            let rows = some_rows(n, k);
            let mut group = Group::default();
            group.fill(&rows, k, alone);
            assert_eq!(group.each, if alone && n <= 16 { n } else { GROUP });
            for t in 0..group.each {
                let row = rows.get(t).cloned().unwrap_or_else(|| Quantised::with_len(k));
                let lines = group.codes.iter().skip(t).step_by(group.each);
                let codes: Vec<i8> = lines.flat_map(|c| c.0).collect();
                assert_eq!(codes[..k], row.codes);
                assert!(codes[k..].iter().all(|c| *c == 0));
                let totals: Vec<f32> = group.totals.iter().map(|s| s.0[t]).collect();
                let want: Vec<f32> =
                    row.codes.chunks(32).map(|c| c.iter().map(|c| f32::from(*c)).sum()).collect();
                assert_eq!(totals, want);
                let lines = group.sums.iter().skip(t).step_by(group.each);
                let sums = lines.flat_map(|s| s.0).map(|[a, b]| value(a) + value(b));
                let want = row.sums.iter().map(|s| f32::from(*s)).take(k / 256 * 16);
                assert!(sums.eq(want));
                let scales: Vec<f32> = group.scales.iter().map(|s| s.0[t]).collect();
                assert_eq!(scales, row.scales);
            }
        }
    }

    #[test]
    fn a_used_group_is_filled_like_a_new_one() {
        let mut used = Group::default();
        for (n, k, alone) in [(GROUP, 512, true), (3, 96, true), (5, 256, false), (1, 32, true)] {
            let (rows, mut new) = (some_rows(n, k), Group::default());
            used.fill(&rows, k, alone);
            new.fill(&rows, k, alone);
            assert_eq!(format!("{used:?}"), format!("{new:?}"));
        }
    }
}
