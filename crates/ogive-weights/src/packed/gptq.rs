//! AutoGPTQ's files, and GPTQModel's: `qweight` `[in · bits / 32, out]`, `qzeros` `[groups, out · bits / 32]`, `scales`
//! `[groups, out]` and `g_idx` `[in]`.
//!
//! The zero points that AutoGPTQ writes are one less than they are (`checkpoint_format` `gptq`, or none). One is added to what stands
//! there, as its own code does, so that 15 of 4 bits is 16 and not 0.

use super::codes::{Codes, Order};
use super::matrix::{Groups, Matrix, Zeros};
use super::parts::Parts;
use ogive_tensor::Result;

/// What the settings say of all matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gptq {
    pub(super) bits: usize,
    /// Columns of a group; all of them if nothing is said.
    pub(super) group: Option<usize>,
    /// What zero points are more than the file says.
    pub(super) more: u16,
}

impl Gptq {
    /// The matrix whose parts these are.
    pub(super) fn matrix(self, name: &str, parts: &Parts<'_>) -> Result<Matrix> {
        let Self { bits, group, more } = self;
        let ([lines, rows], words) = parts.words("qweight", parts.must("qweight")?)?;
        if lines * 32 % bits != 0 {
            let why = format!(
                "{lines} lines of words are no whole numbers of {bits} bits; is `bits` of the settings true?"
            );
            return Err(parts.wrong("qweight", why));
        }
        let cols = lines * 32 / bits;
        let (shape, scales) = parts.scales("scales", false)?;
        let size = group.unwrap_or(cols);
        let count = cols.div_ceil(size);
        if shape != [count, rows] {
            let why = format!(
                "its shape is {shape:?}, where {rows} rows of {cols} columns of {bits} bits in groups of {size} need {:?}; \
                 are `bits` and `group_size` of the settings true for it? Matrices with settings of their own (`dynamic`) are not read",
                [count, rows]
            );
            return Err(parts.wrong("scales", why));
        }
        if rows * bits % 32 != 0 {
            let why = format!("the zero points of {rows} rows of {bits} bits do not fill words");
            return Err(parts.wrong("qzeros", why));
        }
        let why = format!("{rows} rows and {count} groups of {bits} bits");
        let zeros = parts.words_of("qzeros", parts.must("qzeros")?, [count, rows * bits / 32], &why)?;
        let zeros = Codes { words: zeros, order: Order::Along, bits, rows: count, cols: rows };
        Ok(Matrix {
            name: name.into(),
            codes: Codes { words, order: Order::Down, bits, rows, cols },
            zeros: Zeros::Each { codes: zeros, by_row: false, more },
            scales,
            groups: Groups { count, size, list: parts.list("g_idx", cols)? },
        })
    }
}
