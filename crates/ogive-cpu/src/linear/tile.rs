//! Activations of a few tokens side by side, for kernels with a lane for each row of the weight.
//!
//! A kernel reads four neighbouring codes of every token of a tile, then the next four: in this order a tile is one stream. For a
//! few tokens a tile has all columns; for more, whose activations no near cache holds, the columns are cut in slices.

use super::quantise::{Quantised, block_len};
use std::ops::Range;

/// Tokens of a tile at most: with two registers of rows, twelve sums and twelve parts of sums fit the registers.
const TOKENS: usize = 6;
/// Up to [`FEW`] tokens of a step kernels have one register of rows, and tiles may be so wide.
const WIDE: usize = 8;
/// As many tokens as four such tiles hold: a strip of some rows stays in the first cache while they pass.
pub(crate) const FEW: usize = 4 * WIDE;
/// Columns of a slice: so many of a panel of rows stay in the first cache while all tokens pass, and so many of some hundred
/// tokens in the second while panel after panel passes.
pub(crate) const SLICE: usize = 512;

/// Some rows of activations; each list has the values of all tokens at a place, then those at the next.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tile {
    /// How many tokens there are.
    pub(crate) tokens: usize,
    /// Four codes; of a slice they are raised by 128, and bytes without a sign. `[k / 4, tokens]`
    pub(crate) codes: Vec<[i8; 4]>,
    /// The sums of two neighbouring groups of 16 codes. `[k / 32, tokens]`
    pub(crate) sixteens: Vec<[i16; 2]>,
    /// The same of two groups of 32; an odd last one is left out. `[k / 64, tokens]`
    pub(crate) pairs: Vec<[i16; 2]>,
    /// The sums of 32 codes. `[k / 32, tokens]`
    pub(crate) totals: Vec<f32>,
    /// The same times -8, for what weights that are raised by a multiple of 8 add; none of a slice. `[k / 32, tokens]`
    pub(crate) eights: Vec<i32>,
    /// One for each block. `[k / block, tokens]`
    pub(crate) scales: Vec<f32>,
}

impl Tile {
    /// How many tiles `n` tokens make.
    pub(crate) fn count(n: usize) -> usize {
        n.div_ceil(if n <= FEW { WIDE } else { TOKENS })
    }

    /// The tokens of tile `i` of so many: all tiles have the same number, or one less.
    pub(crate) fn tokens(n: usize, i: usize) -> std::ops::Range<usize> {
        let count = Self::count(n);
        i * n / count..(i + 1) * n / count
    }

    /// Lays the columns `cols` of rows of `k` side by side: all of them, or those of a slice, which are `raised`.
    pub(crate) fn fill(&mut self, rows: &[Quantised], k: usize, cols: Range<usize>, raised: bool) {
        let (tokens, len, block) = (rows.len(), cols.len(), block_len(k));
        self.tokens = tokens;
        self.codes.resize(len / 4 * tokens, [0; 4]);
        self.sixteens.resize(len / 32 * tokens, [0; 2]);
        self.pairs.resize(len / 64 * tokens, [0; 2]);
        self.totals.resize(len / 32 * tokens, 0.0);
        self.eights.resize(if raised { 0 } else { len / 32 * tokens }, 0);
        self.scales.resize(len / block * tokens, 0.0);
        let sign = if raised { i8::MIN } else { 0 };
        // Loops that know how many tokens there are write a tile from its beginning to its end.
        match tokens {
            8 => self.lay::<8>(rows, cols, block, sign),
            7 => self.lay::<7>(rows, cols, block, sign),
            6 => self.lay::<6>(rows, cols, block, sign),
            5 => self.lay::<5>(rows, cols, block, sign),
            4 => self.lay::<4>(rows, cols, block, sign),
            3 => self.lay::<3>(rows, cols, block, sign),
            2 => self.lay::<2>(rows, cols, block, sign),
            1 => self.lay::<1>(rows, cols, block, sign),
            _ => assert_eq!(tokens, 0, "a tile is at most {WIDE} tokens wide"),
        }
    }

    /// Lays the columns of `T` rows side by side where there is room for them. `sign` is what the codes are changed by.
    fn lay<const T: usize>(&mut self, rows: &[Quantised], cols: Range<usize>, block: usize, sign: i8) {
        let codes: [_; T] = std::array::from_fn(|t| rows[t].codes[cols.clone()].as_chunks::<4>().0);
        // Four at once: one by one they would be twelve instructions.
        let signs = i32::from_ne_bytes([sign.cast_unsigned(); 4]);
        let change = |codes: &[i8; 4]| i32::from_ne_bytes(codes.map(i8::cast_unsigned)) ^ signs;
        side_by_side(&mut self.codes, codes, |codes| change(codes).to_ne_bytes().map(u8::cast_signed));
        let sums: [_; T] =
            std::array::from_fn(|t| rows[t].sums[cols.start / 16..cols.end / 16].as_chunks::<2>().0);
        side_by_side(&mut self.sixteens, sums, |two| *two);
        side_by_side(&mut self.totals, sums, |[a, b]| f32::from(a + b));
        side_by_side(&mut self.eights, sums, |[a, b]| -8 * i32::from(a + b));
        let pairs = sums.map(|sums| sums.as_chunks::<2>().0);
        side_by_side(&mut self.pairs, pairs, |[a, b]| [a[0] + a[1], b[0] + b[1]]);
        let scales: [_; T] = std::array::from_fn(|t| &rows[t].scales[cols.start / block..cols.end / block]);
        side_by_side(&mut self.scales, scales, |scale| *scale);
    }
}

/// Puts the first value of each row in their order, then the second.
fn side_by_side<V, U, const T: usize>(to: &mut [U], rows: [&[V]; T], value: impl Fn(&V) -> U) {
    let to = to.as_chunks_mut::<T>().0;
    let rows = rows.map(|row| &row[..to.len()]);
    for (i, to) in to.iter_mut().enumerate() {
        for t in 0..T {
            to[t] = value(&rows[t][i]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::quantise::some_rows, *};

    #[test]
    fn tokens_are_shared_out_evenly_and_in_order() {
        for n in 1..50 {
            let tiles: Vec<_> = (0..Tile::count(n)).map(|i| Tile::tokens(n, i)).collect();
            assert_eq!(tiles.iter().cloned().flatten().collect::<Vec<_>>(), (0..n).collect::<Vec<_>>());
            let sizes = || tiles.iter().map(std::ops::Range::len);
            assert!(sizes().max() <= Some(if n <= FEW { WIDE } else { TOKENS }));
            assert!(sizes().max() <= sizes().min().map(|m| m + 1));
        }
    }

    #[test]
    fn a_tile_has_what_its_rows_have() {
        let k = 192;
        let rows = some_rows(3, k);
        for first in [0, 64] {
            let mut tile = Tile::default();
            tile.fill(&rows, k, first..k, false);
            for (t, row) in rows.iter().enumerate() {
                for (i, c) in row.codes[first..].iter().enumerate() {
                    assert_eq!(tile.codes[i / 4 * 3 + t][i % 4], *c);
                }
                let sums = &row.sums[first / 16..];
                for (i, s) in sums.iter().enumerate() {
                    assert_eq!(tile.sixteens[i / 2 * 3 + t][i % 2], *s);
                }
                let total: i16 = sums[2..4].iter().sum();
                assert_eq!((tile.totals[3 + t], tile.pairs[t][1]), (f32::from(total), total));
                assert_eq!(tile.eights[3 + t], -8 * i32::from(total));
                assert_eq!(tile.scales[t], row.scales[first / 64]);
            }
        }
    }

    #[test]
    fn a_used_tile_is_filled_like_a_new_one() {
        let mut used = Tile::default();
        for (n, k, cols) in [(6, 512, 0..512), (3, 96, 0..96), (5, 1024, 512..1024), (1, 32, 0..32)] {
            let (rows, mut new) = (some_rows(n, k), Tile::default());
            used.fill(&rows, k, cols.clone(), n == 3);
            new.fill(&rows, k, cols, n == 3);
            assert_eq!(format!("{used:?}"), format!("{new:?}"));
        }
    }
}
