//! FP8 weights ([`F8_E4M3`]), with and without factors for tiles beside them.
//!
//! Their product is that of their numbers in single precision, an element times its factor and rounded: what [`HostWeight::decode_row`] gives, in the order of
//! [`dense`](super::dense). So nothing is lost beside what the file has lost, no activation is rounded, and who has no kernels decodes. In strips four
//! neighbouring elements of each of sixteen rows stand together, as packed formats' do: one register of bytes is what four of singles are multiplied
//! as, a row's four lanes side by side.

use super::dense::LANES;
use ogive_tensor::{F8_E4M3, HostWeight};

/// Kernels make numbers that are a 256th as large, as half precision has the same bits for those: factors make up for it.
#[cfg(target_arch = "x86_64")]
const UP: f32 = 256.0;
/// Factors that can be made so much larger.
const MOST: f32 = 1e35;

/// Whether kernels read it: rows of whole words, whose factors end with words and are no infinities once they are raised.
pub(crate) fn is_read(w: &HostWeight) -> bool {
    let cols = w.shape[2];
    let fits = |columns: usize| columns.is_multiple_of(LANES) || columns >= cols;
    let scale = w.scale.as_ref();
    std::ptr::eq(w.format, &F8_E4M3)
        && w.input_perm.is_none()
        && cols.is_multiple_of(LANES)
        && scale.is_none_or(|scale| fits(scale.tile[1]) && scale.values.iter().all(|v| v.abs() <= MOST))
}

/// Factors of a strip's rows, a tile's columns after the other's, each for all lanes of the sum.
#[cfg(target_arch = "x86_64")]
#[derive(Debug, Default)]
pub(crate) struct Factors {
    /// Columns of a tile.
    pub(crate) columns: usize,
    /// Raised by [`UP`].
    pub(crate) of_tiles: Vec<super::Quads>,
}

#[cfg(target_arch = "x86_64")]
impl Factors {
    /// Those of the rows from `first` on, counted through all experts; behind an expert's end its last row's stand in.
    pub(super) fn fill(&mut self, w: &HostWeight, first: usize) {
        self.of_tiles.clear();
        let Some(scale) = &w.scale else {
            self.columns = w.shape[2];
            return self.of_tiles.push([[UP; LANES]; super::TILE]);
        };
        self.columns = scale.tile[1].min(w.shape[2]);
        let last = w.shape[1] - 1 - first % w.shape[1];
        let lines: [&[f32]; super::TILE] =
            std::array::from_fn(|r| scale.of_row(w.shape, first + r.min(last)));
        self.of_tiles.extend((0..lines[0].len()).map(|i| lines.map(|line| [line[i] * UP; LANES])));
    }
}
