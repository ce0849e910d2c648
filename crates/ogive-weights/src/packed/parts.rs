//! The tensors that one packed matrix is made of, found and held to each other.

use super::matrix::Scales;
use crate::safetensors::{Raw, Safetensors};
use ogive_tensor::{BF16, Bytes, Error, F16, F32, Result};

/// The tensors below a name.
pub(super) struct Parts<'a> {
    pub(super) files: &'a Safetensors,
    /// With what joins it to the words below: `model.layers.0.self_attn.q_proj.`
    pub(super) stem: &'a str,
}

impl Parts<'_> {
    /// What is wrong with the tensor `leaf`.
    pub(super) fn wrong(&self, leaf: &str, why: impl Into<String>) -> Error {
        Error::invalid(&format!("{}{leaf}", self.stem), why)
    }

    pub(super) fn raw(&self, leaf: &str) -> Result<Option<Raw>> {
        self.files.raw(&format!("{}{leaf}", self.stem))
    }

    /// A tensor that must be there. That it is not is no [`is_missing`](Error::is_missing): the weight is there, and in pieces.
    pub(super) fn must(&self, leaf: &str) -> Result<Raw> {
        self.raw(leaf)?.ok_or_else(|| {
            self.wrong(
                leaf,
                "a packed weight has no such tensor beside it; are all files of the checkpoint here?",
            )
        })
    }

    /// A matrix of words, and its rows and columns, neither of which is 0.
    pub(super) fn words(&self, leaf: &str, raw: Raw) -> Result<([usize; 2], Bytes)> {
        match matrix(&raw.shape) {
            Some(shape) if raw.dtype == "I32" => Ok((shape, raw.bytes)),
            _ => Err(self
                .wrong(leaf, format!("a matrix of I32 is needed and this is {:?} {}", raw.shape, raw.dtype))),
        }
    }

    /// A matrix of words that must have this shape, for the reason `why`.
    pub(super) fn words_of(&self, leaf: &str, raw: Raw, shape: [usize; 2], why: &str) -> Result<Bytes> {
        let (found, bytes) = self.words(leaf, raw)?;
        if found == shape {
            return Ok(bytes);
        }
        Err(self.wrong(
            leaf,
            format!("its shape is {found:?}, where {why} need {shape:?}; do the files belong together?"),
        ))
    }

    /// Scales, and their shape.
    pub(super) fn scales(&self, leaf: &str, by_row: bool) -> Result<([usize; 2], Scales)> {
        let raw = self.must(leaf)?;
        let format = match &*raw.dtype {
            "F16" => Some(&F16),
            "BF16" => Some(&BF16),
            "F32" => Some(&F32),
            _ => None,
        };
        let (Some(format), Some(shape)) = (format, matrix(&raw.shape)) else {
            let why =
                format!("a matrix of F16, BF16 or F32 is needed and this is {:?} {}", raw.shape, raw.dtype);
            return Err(self.wrong(leaf, why));
        };
        Ok((shape, Scales { bytes: raw.bytes, format, by_row }))
    }

    /// The group of each of `cols` columns, if the file lists them.
    pub(super) fn list(&self, leaf: &str, cols: usize) -> Result<Option<Bytes>> {
        let Some(raw) = self.raw(leaf)? else { return Ok(None) };
        if raw.dtype == "I32" && *raw.shape == [cols as u64] {
            return Ok(Some(raw.bytes));
        }
        let why = format!(
            "the groups of {cols} columns are needed, as I32, and this is {:?} {}",
            raw.shape, raw.dtype
        );
        Err(self.wrong(leaf, why))
    }
}

/// Rows and columns of a matrix that has any.
fn matrix(shape: &[u64]) -> Option<[usize; 2]> {
    let size = |n: u64| usize::try_from(n).ok().filter(|n| (1..MOST).contains(n));
    match *shape {
        [rows, cols] => Some([size(rows)?, size(cols)?]),
        _ => None,
    }
}

/// Rows and columns are fewer, so that each may be multiplied by a few bits or bytes. What two of them make is in the file.
const MOST: usize = isize::MAX as usize / 256;
