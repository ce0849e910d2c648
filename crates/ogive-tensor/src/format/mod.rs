//! Weight formats. A format is a value, not an enum variant, so that a crate outside this workspace can bring its own:
//! it says how to decode a block, and every backend can then run it, if slowly.
//!
//! Every decoder of a format that ggml has gives the same bits as ggml's, also where sums and products could be ordered otherwise; tests hold
//! that against blocks that ggml made.

mod book;
mod codebook;
mod codebook_encode;
mod float8;
pub mod grids;
mod importance;
mod k_encode;
mod k_quants;
mod legacy;
mod level_encode;
mod nonlinear;
mod plain;
mod search;
mod ternary;

pub use codebook::{IQ1_M, IQ1_S, IQ2_S, IQ2_XS, IQ2_XXS, IQ3_S, IQ3_XXS};
pub use float8::F8_E4M3;
pub use k_quants::{Q2_K, Q3_K, Q4_K, Q5_K, Q6_K};
pub use legacy::{Q4_0, Q4_1, Q5_0, Q5_1, Q8_0};
pub use nonlinear::{IQ4_NL, IQ4_XS, MXFP4, NVFP4};
pub use plain::{BF16, F16, F32};
pub use ternary::{TQ1_0, TQ2_0};

use crate::{Error, Result};
use half::f16;
use std::fmt;

/// Turns one packed block into its elements.
pub type Decode = fn(&[u8], &mut [f32]);

/// Packs the elements of one block, so that their squared errors, each times its element's importance, add up to little. The second
/// argument has the importances, none of them negative and the greatest of them 1: as many as elements, or none where all count alike.
pub type Encode = fn(&[f32], &[f32], &mut [u8]);

/// How a weight's elements are packed along the input dimension.
pub struct Format {
    /// The name weight files and error messages use, in lower case as ggml has it (`q4_k`).
    pub name: &'static str,
    /// Elements in a block, at least one: weights of no other format can be made.
    pub block_len: usize,
    /// Bytes in a block, at least one.
    pub block_bytes: usize,
    /// Decodes one block of exactly `block_bytes` to exactly `block_len` elements: the definition of the format. Any
    /// bytes decode to something; a damaged scale may decode to infinities or NaN.
    pub decode: Decode,
    /// Packs exactly `block_len` elements to one block of exactly `block_bytes`. Any numbers pack to something, NaN and
    /// infinities to something useless. `None` for a format that is only read.
    pub encode: Option<Encode>,
}

impl Format {
    /// Bytes of a row of `n` elements; `n` must be a multiple of the block. The most that can be counted where they are more.
    pub fn row_bytes(&self, n: usize) -> usize {
        n.checked_div(self.block_len).unwrap_or(0).saturating_mul(self.block_bytes)
    }

    /// Bits an element takes, its share of scales included.
    pub fn bits(&self) -> f32 {
        8.0 * self.block_bytes as f32 / self.block_len as f32
    }

    /// Whether blocks are of something.
    pub(crate) fn has_blocks(&self) -> bool {
        self.block_len > 0 && self.block_bytes > 0
    }

    /// Decodes a row. Whole blocks only: what does not fill a block on either side is left alone.
    pub fn decode_row(&self, bytes: &[u8], out: &mut [f32]) {
        if !self.has_blocks() || plain::decode_row(self, bytes, out) {
            return;
        }
        for (b, o) in bytes.chunks_exact(self.block_bytes).zip(out.chunks_exact_mut(self.block_len)) {
            (self.decode)(b, o);
        }
    }

    /// Packs a row into `out`.
    ///
    /// # Errors
    /// If the format is only read, if `values` are not whole blocks, or if `out` has more or fewer bytes than they take.
    pub fn encode_row(&self, values: &[f32], out: &mut [u8]) -> Result<()> {
        self.encode_row_by(values, &[], out)
    }

    /// Packs a row into `out` by the importance of its elements: their squared errors count so many times. What counts is their ratio to each
    /// other within a block: all zero is all alike. Formats without a choice to make (and Q8_0, TQ1_0 and TQ2_0, which are
    /// packed as ggml's) do not look at it.
    ///
    /// # Errors
    /// As [`Format::encode_row`], and if there are importances, but not one for each element, or one that is negative or no finite number.
    pub fn encode_row_by(&self, values: &[f32], importance: &[f32], out: &mut [u8]) -> Result<()> {
        let encode = self
            .encode
            .ok_or_else(|| Error::unsupported(self.name, "this format can be read but not written"))?;
        let whole = self.has_blocks() && values.len().is_multiple_of(self.block_len);
        if !whole || out.len() != self.row_bytes(values.len()) {
            return Err(Error::invalid(
                self.name,
                format!(
                    "{} elements in {} bytes are not whole blocks of {}",
                    values.len(),
                    out.len(),
                    self.block_len
                ),
            ));
        }
        if !importance.is_empty() {
            if importance.len() != values.len() || !importance.iter().all(|v| (0.0..=f32::MAX).contains(v)) {
                return Err(Error::invalid(
                    self.name,
                    format!(
                        "{} importances of {} elements, not one for each, or not all of them finite and at least 0",
                        importance.len(),
                        values.len()
                    ),
                ));
            }
            let blocks = values.chunks_exact(self.block_len).zip(importance.chunks_exact(self.block_len));
            let mut parts = vec![0.0; self.block_len];
            for (b, (v, importance)) in out.chunks_exact_mut(self.block_bytes).zip(blocks) {
                // Sums of them times squares should be neither infinite nor nothing, also where a sub-block has none but small ones.
                let most = importance.iter().fold(0.0_f32, |m, &v| m.max(v));
                parts
                    .iter_mut()
                    .zip(importance)
                    .for_each(|(part, v)| *part = (v / most).max(LEAST_IMPORTANCE));
                let differ = importance.iter().any(|&v| v != most);
                encode(v, if differ { &parts } else { &[] }, b);
            }
            return Ok(());
        }
        for (b, v) in out.chunks_exact_mut(self.block_bytes).zip(values.chunks_exact(self.block_len)) {
            encode(v, &[], b);
        }
        Ok(())
    }
}

impl PartialEq for Format {
    fn eq(&self, other: &Self) -> bool {
        (self.name, self.block_len, self.block_bytes) == (other.name, other.block_len, other.block_bytes)
    }
}

impl Eq for Format {}

impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// What an element counts at least, as a part of what the most important of its block does: what was never seen is not known to be nothing.
const LEAST_IMPORTANCE: f32 = 1e-6;

/// Every format of this crate.
pub static FORMATS: &[&Format] = &[
    &F32, &F16, &BF16, &Q4_0, &Q4_1, &Q5_0, &Q5_1, &Q8_0, &Q2_K, &Q3_K, &Q4_K, &Q5_K, &Q6_K, &IQ4_NL,
    &IQ4_XS, &MXFP4, &NVFP4, &F8_E4M3, &IQ1_S, &IQ1_M, &IQ2_XXS, &IQ2_XS, &IQ2_S, &IQ3_XXS, &IQ3_S, &TQ1_0,
    &TQ2_0,
];

/// Those of one to three bits whose codes stand for several elements: blocks take microseconds to pack, and kernels for them are one source but for how
/// a block is read. So tests draw blocks of theirs as bytes, and no cache is made of them.
pub static FEW_BITS: &[&Format] =
    &[&IQ1_S, &IQ1_M, &IQ2_XXS, &IQ2_XS, &IQ2_S, &IQ3_XXS, &IQ3_S, &TQ1_0, &TQ2_0];

/// The format called `name`, in any case; `None` for a name this crate does not know.
pub fn format_by_name(name: &str) -> Option<&'static Format> {
    FORMATS.iter().copied().find(|f| f.name.eq_ignore_ascii_case(name))
}

/// The f16 at byte `at` of a block.
fn half_at(b: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([b[at], b[at + 1]]).to_f32()
}

/// Writes `v`, rounded to nearest even, at byte `at` of a block.
fn put_half(b: &mut [u8], at: usize, v: f32) {
    b[at..at + 2].copy_from_slice(&f16::from_f32(v).to_le_bytes());
}
