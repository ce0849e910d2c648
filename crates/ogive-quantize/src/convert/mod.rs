//! A Hugging Face folder as a GGUF file: names, settings, vocabulary.

use crate::input::Tensor;
use crate::{Error, Result};
use gguf_file::Metadata;
use ogive_weights::Checkpoint;
use std::path::Path;

pub(crate) fn convert(checkpoint: &Checkpoint, _: &Path) -> Result<(Metadata, Vec<Tensor>)> {
    Err(Error::convert(&checkpoint.architecture, "not yet"))
}
