//! GLM-4: Llama with biases on q, k and v, gate and up in one matrix, and rotary positions that turn neighbours in half of a head. Its
//! models of 2025 have norms after each block as well as before it.
//!
//! GLM Team 2024, <https://arxiv.org/abs/2406.12793>; transformers' `modeling_glm` and `modeling_glm4`.

use crate::class::{Class, LLAMA};
use crate::{decoder, llama};
use ogive_nn::backend::RopeLayout;
use ogive_nn::tensor::Result;
use ogive_nn::{Config, Loader, Model};

const GLM: Class = Class { layout: RopeLayout::Pairs, ..LLAMA };

const GLM_4: Class = Class {
    norms: [
        Some("input_layernorm"),
        Some("post_self_attn_layernorm"),
        Some("post_attention_layernorm"),
        Some("post_mlp_layernorm"),
    ],
    ..GLM
};

/// Reads a checkpoint of 2024 (GLM-4-9B-Chat as transformers has it) with Hugging Face's names.
///
/// # Errors
/// None of its own; those of [every `load`](crate#errors).
pub fn load_glm(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    load(&GLM, c, root)
}

/// Reads a checkpoint of 2025 (GLM-4-0414, GLM-Z1) with Hugging Face's names.
///
/// # Errors
/// As [`load_glm`].
pub fn load_glm4(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    load(&GLM_4, c, root)
}

fn load(class: &Class, c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    decoder::load(class, c, root, |_, rope, spec| (Some(rope), spec), &llama::dense(c)?)
}
