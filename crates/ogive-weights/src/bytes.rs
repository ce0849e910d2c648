//! From a file's bytes to a weight's.

use ogive_tensor::{Bytes, Result};
use std::{ops::Range, sync::Arc};

/// The bytes `range` of `file`, an error if it reaches outside. Where the file is mapped, [`Bytes::release`] gives its pages back.
pub fn bytes_of(file: &gguf_file::Bytes, range: Range<usize>) -> Result<Bytes> {
    let owner = file.clone();
    Ok(Bytes::new(Arc::new(file.clone()), range)?.on_release(move |range| owner.release(range)))
}
