//! Factors beside packed elements.
//!
//! They stay in tiles as long as what is made of a weight has whole ones: parts, other orders of rows, columns for rows, stacks. Where a tile would be
//! cut, each row gets factors of its own, the same numbers, so that nothing has to be decoded for a cut.

use std::{ops::Range, sync::Arc};

/// Factors beside the packed elements, each for a tile of rows and columns. FP8 files have one for 128 by 128, for a row or for all.
#[derive(Clone, Debug)]
pub struct Scale {
    /// The factors, row-major over the tiles of one expert, expert after expert.
    pub values: Arc<[f32]>,
    /// Rows and columns that one factor covers; neither may be 0.
    pub tile: [usize; 2],
}

impl Scale {
    /// Whether there is one factor for each tile of a weight of this shape, and tiles are not empty.
    pub fn covers(&self, [experts, rows, cols]: [usize; 3]) -> bool {
        let [tr, tc] = self.tile;
        let count = || experts.checked_mul(rows.div_ceil(tr))?.checked_mul(cols.div_ceil(tc));
        tr > 0 && tc > 0 && count() == Some(self.values.len())
    }

    /// The factors of row `row`, counted through all experts of a weight of this shape: one for each of the tile's columns.
    ///
    /// # Panics
    /// If they do not [cover](Self::covers) it, or there is no such row.
    pub fn of_row(&self, [_, rows, cols]: [usize; 3], row: usize) -> &[f32] {
        let [tr, tc] = self.tile;
        let wide = cols.div_ceil(tc);
        let line = row / rows * rows.div_ceil(tr) + row % rows / tr;
        &self.values[line * wide..][..wide]
    }

    /// Those of some rows, counted through all experts, each with factors of its own.
    fn by_row(&self, shape: [usize; 3], rows: Range<usize>) -> Self {
        // Without columns there are no factors, and nothing bounds the rows.
        let rows = if shape[2] == 0 { 0..0 } else { rows };
        let values = rows.flat_map(|row| self.of_row(shape, row)).copied().collect();
        Self { values, tile: [1, self.tile[1]] }
    }

    /// Those of some rows of one expert.
    pub(crate) fn rows(&self, shape @ [_, _, cols]: [usize; 3], range: Range<usize>) -> Self {
        let tr = self.tile[0];
        let wide = cols.div_ceil(self.tile[1]);
        let is_within_one = range.start / tr == range.end.saturating_sub(1) / tr;
        if !range.start.is_multiple_of(tr) && !is_within_one && !range.is_empty() {
            return self.by_row(shape, range);
        }
        let tiles = if range.is_empty() { 0..0 } else { range.start / tr..range.end.div_ceil(tr) };
        Self { values: self.values[tiles.start * wide..tiles.end * wide].into(), tile: self.tile }
    }

    /// Those of the rows of one expert in another order.
    pub(crate) fn reordered(&self, shape: [usize; 3], order: &[usize]) -> Self {
        // Rows that share a factor before and behind: tiles that move as they are.
        let tr = self.tile[0];
        let whole = order.chunks(tr).all(|tile| tile.iter().all(|row| row / tr == tile[0] / tr));
        let firsts: Vec<usize> = order.iter().copied().step_by(if whole { tr } else { 1 }).collect();
        let rows = if shape[2] == 0 { &[] } else { &firsts[..] };
        let values = rows.iter().flat_map(|row| self.of_row(shape, *row)).copied().collect();
        Self { values, tile: [if whole { tr } else { 1 }, self.tile[1]] }
    }

    /// Those of columns as rows.
    pub(crate) fn transposed(&self, [experts, rows, cols]: [usize; 3]) -> Self {
        let [tr, tc] = self.tile;
        let (high, wide) = (rows.div_ceil(tr), cols.div_ceil(tc));
        let place =
            |i: usize| self.values[i / (high * wide) * high * wide + i % high * wide + i / high % wide];
        Self { values: (0..experts * high * wide).map(place).collect(), tile: [tc, tr] }
    }

    /// Those of the same rows in another number of experts, `rows` in each.
    pub(crate) fn regrouped(&self, shape: [usize; 3], rows: usize) -> Self {
        let tr = self.tile[0];
        if shape[1].is_multiple_of(tr) && rows.is_multiple_of(tr) {
            return self.clone();
        }
        self.by_row(shape, 0..shape[0] * shape[1])
    }
}
