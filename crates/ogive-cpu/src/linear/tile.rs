//! Activations of a few tokens side by side, for kernels that have a panel of unpacked rows.
//!
//! A kernel reads four neighbouring codes of every token of a tile, then the next four: in this order a tile is one stream.
//! Codes are raised by 128 and unsigned, because the instruction multiplies unsigned by signed bytes: so all formats have
//! their weights signed, and what raising adds is a property of the weights alone.

use super::quantise::{Quantised, block_len};

/// Tokens of a tile at most: with two registers of rows, twelve sums and twelve parts of sums fit the registers.
pub(crate) const TOKENS: usize = 6;

/// What activations are raised by.
pub(crate) const RAISED: u8 = 128;

/// Up to [`TOKENS`] rows of activations; the places of tokens that are not there hold nothing of meaning.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tile {
    /// How many tokens there are.
    pub(crate) tokens: usize,
    /// Four raised codes of each token. `[k / 4]`
    pub(crate) codes: Vec<[[u8; 4]; TOKENS]>,
    /// The sums of two neighbouring groups of 16 codes, not raised. `[k / 32]`
    pub(crate) sixteens: Vec<[[i16; 2]; TOKENS]>,
    /// The same of two groups of 32. `[k / 64]`
    pub(crate) pairs: Vec<[[i16; 2]; TOKENS]>,
    /// The sums of 32 codes. `[k / 32]`
    pub(crate) totals: Vec<[f32; TOKENS]>,
    /// One for each block. `[k / block]`
    pub(crate) scales: Vec<[f32; TOKENS]>,
}

impl Tile {
    /// How many tiles `n` tokens make.
    pub(crate) fn count(n: usize) -> usize {
        n.div_ceil(TOKENS)
    }

    /// The tokens of tile `i` of so many: all tiles have the same number, or one less.
    pub(crate) fn tokens(n: usize, i: usize) -> std::ops::Range<usize> {
        let count = Self::count(n);
        i * n / count..(i + 1) * n / count
    }

    /// Lays rows of `k` side by side.
    pub(crate) fn fill(&mut self, rows: &[Quantised], k: usize) {
        self.tokens = rows.len();
        self.codes.resize(k / 4, [[0; 4]; TOKENS]);
        self.sixteens.resize(k / 32, [[0; 2]; TOKENS]);
        self.pairs.resize(k / 64, [[0; 2]; TOKENS]);
        self.totals.resize(k / 32, [0.0; TOKENS]);
        self.scales.resize(k / block_len(k), [0.0; TOKENS]);
        for (t, row) in rows.iter().enumerate() {
            for (to, from) in self.codes.iter_mut().zip(row.codes.as_chunks::<4>().0) {
                to[t] = from.map(|c| c.cast_unsigned() ^ RAISED);
            }
            let sums = row.sums.as_chunks::<2>().0;
            for (i, pair) in sums.iter().enumerate() {
                self.sixteens[i][t] = *pair;
                self.totals[i][t] = f32::from(pair[0] + pair[1]);
            }
            for (to, [a, b]) in self.pairs.iter_mut().zip(sums.as_chunks::<2>().0) {
                to[t] = [a[0] + a[1], b[0] + b[1]];
            }
            for (to, scale) in self.scales.iter_mut().zip(&row.scales) {
                to[t] = *scale;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_shared_out_evenly_and_in_order() {
        for n in 1..50 {
            let tiles: Vec<_> = (0..Tile::count(n)).map(|i| Tile::tokens(n, i)).collect();
            assert_eq!(tiles.iter().cloned().flatten().collect::<Vec<_>>(), (0..n).collect::<Vec<_>>());
            let sizes = || tiles.iter().map(std::ops::Range::len);
            assert!(sizes().max() <= Some(TOKENS) && sizes().max() <= sizes().min().map(|m| m + 1));
        }
    }

    #[test]
    fn a_tile_has_what_its_rows_have() {
        let k = 64;
        let rows: Vec<_> = (0..3)
            .map(|t| {
                let mut row = Quantised::with_len(k);
                row.fill(&(0..k).map(|i| ((i * 7 + t) % 13) as f32 - 6.0).collect::<Vec<_>>());
                row
            })
            .collect();
        let mut tile = Tile::default();
        tile.fill(&rows, k);
        for (t, row) in rows.iter().enumerate() {
            for (i, c) in row.codes.iter().enumerate() {
                assert_eq!(i16::from(tile.codes[i / 4][t][i % 4]) - 128, i16::from(*c));
            }
            for (i, s) in row.sums.iter().enumerate() {
                assert_eq!(tile.sixteens[i / 2][t][i % 2], *s);
            }
            let total: i16 = row.sums[2..4].iter().sum();
            assert_eq!((tile.totals[1][t], tile.pairs[0][t][1]), (f32::from(total), total));
            assert_eq!(tile.scales[0][t], row.scales[0]);
        }
    }
}
