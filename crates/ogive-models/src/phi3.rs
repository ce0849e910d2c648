//! Phi-3 and Phi-4 mini: Llama with q, k and v in one matrix and gate and up in another, rotary positions stretched by
//! LongRoPE, and a window where the configuration has one.
//!
//! Abdin et al. 2024, <https://arxiv.org/abs/2404.14219>; transformers' `modeling_phi3`. The layers cut such matrices when
//! they are loaded, so that all that follows is Llama's; multiplying by them whole and splitting what comes out would
//! shut out the operators that backends fuse.

use crate::{llama, windows};
use ogive_nn::tensor::Result;
use ogive_nn::{Config, Loader, Model};

/// Reads a checkpoint with Hugging Face's names. Which of LongRoPE's two lists counts, the loader's context decides.
///
/// # Errors
/// None of its own; those of [every `load`](crate#errors).
pub fn load(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    llama::load_with(c, root, windows::same(c)?, &llama::dense(c)?)
}
