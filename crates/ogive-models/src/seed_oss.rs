//! Seed-OSS: Llama with biases on q, k and v, in some models on other matrices, and heads that are wider than `hidden_size` together.
//!
//! ByteDance Seed 2025, <https://github.com/ByteDance-Seed/seed-oss>; transformers' `modeling_seed_oss`. How large its heads are where the
//! settings do not say, `ogive-weights` says.

use crate::llama;
use ogive_nn::tensor::Result;
use ogive_nn::{Config, Loader, Model};

/// Reads a checkpoint with Hugging Face's names. Its class knows no window.
///
/// # Errors
/// None of its own; those of [every `load`](crate#errors).
pub fn load(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    llama::load(c, root)
}
