//! NumPy files.

use crate::error::Result;
use crate::files;
use ndarray_npy::{WriteNpyError, WriteNpyExt};
use ogive::ndarray::Array2;
use std::io;
use std::path::Path;

/// Writes `numbers` as f32 `[rows, cols]`.
pub(crate) fn save(numbers: &Array2<f32>, path: &Path) -> Result<()> {
    let other = |e: WriteNpyError| match e {
        WriteNpyError::Io(e) => e,
        e => io::Error::other(e),
    };
    files::write(path, |file| numbers.write_npy(file).map_err(other))
}
