//! AutoAWQ's files of version `gemm`: `qweight` `[in, out / 8]`, `qzeros` `[groups, out / 8]` and `scales` `[groups, out]`, in 4 bits.

use super::codes::{Codes, Order};
use super::matrix::{Groups, Matrix, Zeros};
use super::parts::Parts;
use ogive_tensor::Result;

/// What the settings say of all matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Awq {
    /// Columns of a group; all of them if nothing is said.
    pub(super) group: Option<usize>,
}

impl Awq {
    /// The matrix whose parts these are.
    pub(super) fn matrix(self, name: &str, parts: &Parts<'_>) -> Result<Matrix> {
        let ([cols, eights], words) = parts.words("qweight", parts.must("qweight")?)?;
        let (rows, size) = (eights * 8, self.group.unwrap_or(cols));
        let count = cols.div_ceil(size);
        let (shape, scales) = parts.scales("scales", false)?;
        if cols % size != 0 || shape != [count, rows] {
            let why = format!(
                "its shape is {shape:?}, where {rows} rows of {cols} columns in groups of {size} need {:?}; is `group_size` of the \
                 settings true, and are they packed as `gemm`?",
                [count, rows]
            );
            return Err(parts.wrong("scales", why));
        }
        let why = format!("{rows} rows and {count} groups");
        let zeros = parts.words_of("qzeros", parts.must("qzeros")?, [count, eights], &why)?;
        let zeros = Codes { words: zeros, order: Order::Interleaved, bits: 4, rows, cols: count };
        Ok(Matrix {
            name: name.into(),
            codes: Codes { words, order: Order::Interleaved, bits: 4, rows, cols },
            zeros: Zeros::Each { codes: zeros, by_row: true },
            scales,
            groups: Groups { count, size, list: None },
        })
    }
}
