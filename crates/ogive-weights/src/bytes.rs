//! From a file's bytes to a weight's.

use ogive_tensor::{Bytes, Result};
use std::{ops::Range, sync::Arc};

/// The bytes `range` of `file`. Where the file is mapped, [`Bytes::release`] gives its pages back.
///
/// # Errors
/// If it reaches outside, or ends before it begins.
pub fn bytes_of(file: &gguf_file::Bytes, range: Range<usize>) -> Result<Bytes> {
    let owner = file.clone();
    Ok(Bytes::new(Arc::new(file.clone()), range)?.on_release(move |range| owner.release(range)))
}
