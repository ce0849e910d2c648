//! Activations in bf16 for kernels that multiply matrices in tiles.
//!
//! A tile takes 32 neighbouring elements, a line of the cache, of each of up to sixteen tokens. Those of two tiles lie together, and then
//! the next 32 of each token.

use super::{columns::bf16_bits, dense::CHUNK, group::GROUP};

/// Tokens of a tile.
pub(crate) const TILED: usize = GROUP / 2;

/// 32 elements of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub(crate) struct Line(pub(crate) [u16; CHUNK]);

/// Rows of activations, at most [`GROUP`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Lines {
    /// How many tokens there are.
    pub(crate) tokens: usize,
    /// How many lines lie together: those of all tokens, and zeros for those that are missing in a tile.
    pub(crate) each: usize,
    /// Behind the end of a row are zeros. `[k / 32, each]`
    pub(crate) lines: Vec<Line>,
}

impl Lines {
    /// Lays rows of `k`, which is not 0. If they are `alone` and fewer than a tile has, none is made up.
    ///
    /// # Panics
    /// If they are more than a group has.
    #[inline(always)] // and compiled with the instructions of whoever calls it
    pub(crate) fn fill(&mut self, x: &[f32], k: usize, alone: bool) {
        self.tokens = x.len() / k;
        assert!(self.tokens <= GROUP);
        let each = match self.tokens {
            few if alone && few <= TILED => few,
            tokens => tokens.next_multiple_of(TILED),
        };
        self.each = each;
        // What no row fills is zeros, whatever stood there.
        if each != self.tokens || !k.is_multiple_of(CHUNK) {
            self.lines.clear();
        }
        self.lines.resize(k.div_ceil(CHUNK) * each, Line([0; CHUNK]));
        for (t, row) in x.chunks_exact(k).enumerate() {
            let (whole, rest) = row.as_chunks::<CHUNK>();
            let mut at = t;
            for from in whole {
                let Line(to) = &mut self.lines[at];
                for i in 0..CHUNK {
                    to[i] = (bf16_bits(from[i]) >> 16) as u16;
                }
                at += each;
            }
            for (i, from) in rest.iter().enumerate() {
                self.lines[at].0[i] = (bf16_bits(*from) >> 16) as u16;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::bf16;

    #[test]
    fn lines_have_what_rows_have() {
        let mut lines = Lines::default();
        // A used one is filled like a new one.
        for (n, k, alone, each) in [
            (1, 64, true, 1),
            (GROUP, 96, false, GROUP),
            (TILED, 32, true, TILED),
            (TILED + 1, 70, true, GROUP),
            (1, 64, false, TILED),
            (3, 33, true, 3),
        ] {
            let x: Vec<f32> = (0..n * k).map(|i| (i as f32 - 100.3) / 7.0).collect();
            lines.fill(&x, k, alone);
            assert_eq!((lines.tokens, lines.each), (n, each));
            assert_eq!(lines.lines.len(), k.div_ceil(CHUNK) * each);
            for (at, Line(line)) in lines.lines.iter().enumerate() {
                let (t, first) = (at % each, at / each * CHUNK);
                for (i, bits) in line.iter().enumerate() {
                    let there = t < n && first + i < k;
                    let want = if there { bf16::from_f32(x[t * k + first + i]).to_bits() } else { 0 };
                    assert_eq!(*bits, want, "{n} tokens of {k}: token {t}, element {}", first + i);
                }
            }
        }
    }
}
