//! Which steps of attention are split over chunks of the context, and in how many launches.
//!
//! Decided by what a step's key says, its rows and the bucket of its longest context, so that a recorded step is split as it
//! would be without a record, and its grid fits all of its kind. Bits do not hang on it: both kernels put chunks together alike. Where
//! the line is drawn has not been measured on a GPU.
//!
//! Parts that would take too much memory are made and put together slice after slice, of rows or of a row's heads, in one place. A slice
//! that fills that place has blocks enough for any device, so the launches cost little. To give a block several chunks instead would put
//! a row's chunks together in another order.

use crate::plan::TICKETS;
use ogive_backend::{AttnSpec, StepKey};

/// Tokens that a row sees, up to which its chunks are fine; tokens of a fine chunk, and of another: as in the kernels.
const SHORT: usize = 2048;
const FINE: usize = 64;
const COARSE: usize = 256;
/// Blocks a chunk, at most: with more, rows and heads alone fill a device. Each has a counter in the step.
const BLOCKS: usize = TICKETS;
/// The same where all chunks are fine: a block of one costs as much again as what it attends to.
const SHORT_BLOCKS: usize = TICKETS / 2;
/// Blocks of a grid's second extent, at most.
const CHUNKS: usize = 65_535;
/// Bytes of parts, at most, where those of one block's heads fit.
pub(crate) const PARTS: usize = 64 << 20;

/// How a step is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Split {
    /// Chunks that a row may see.
    pub(super) chunks: usize,
    /// Rows and tiles of heads of a launch, at most: all rows, or all tiles of some, or some tiles of one.
    pub(super) slice: [usize; 2],
}

impl Split {
    /// Of `n` rows of so many `tiles` of `heads` each, over contexts of at most `longest`, of which a row sees no more than `seen` tokens;
    /// parts take no more than `parts` bytes.
    pub(super) fn of(
        spec: &AttnSpec,
        seen: u32,
        [tiles, heads]: [usize; 2],
        n: usize,
        longest: usize,
        parts: usize,
    ) -> Option<Self> {
        let bucket = StepKey::bucket(longest);
        // Chunks of so many tokens that a row sees, which may begin and end within one.
        let of = |tokens: usize, chunk: usize| {
            bucket.div_ceil(chunk).min(tokens.div_ceil(chunk).saturating_add(1))
        };
        let most = bucket.min(seen as usize);
        let mut chunks = of(most.min(SHORT), FINE);
        if most > SHORT {
            chunks = chunks.max(of(most, COARSE));
        }
        let blocks = tiles.checked_mul(n)?;
        let limit = if bucket > SHORT { BLOCKS } else { SHORT_BLOCKS };
        let few = (1..=limit).contains(&blocks) && chunks <= CHUNKS;
        let of_block = heads.checked_mul(chunks)?.checked_mul(4 * (spec.v_dim + 2))?;
        let fit = (parts / of_block.max(1)).max(1);
        // Slices of one size, but for the last.
        let even = |all: usize, most: usize| all.div_ceil(all.div_ceil(most));
        few.then(|| Self {
            chunks,
            slice: if fit >= tiles { [even(n, fit / tiles), tiles] } else { [1, even(tiles, fit)] },
        })
    }

    /// Rows of parts: one for each block's chunks and heads.
    pub(super) fn parts(&self, heads: usize) -> usize {
        self.slice[0] * self.slice[1] * heads * self.chunks
    }

    /// The launches: the first row and tile of each, and how many.
    pub(super) fn slices(self, n: usize, tiles: usize) -> impl Iterator<Item = [[usize; 2]; 2]> {
        let [rows, of_row] = self.slice;
        let within = move |row: usize| {
            let first = (0..tiles).step_by(of_row);
            first.map(move |tile| [[row, tile], [rows.min(n - row), of_row.min(tiles - tile)]])
        };
        (0..n).step_by(rows).flat_map(within)
    }
}

#[cfg(test)]
#[path = "split_tests.rs"]
mod tests;
