//! GLM-4: Llama with biases on q, k and v, gate and up in one matrix, and rotary positions that turn neighbours in half of a head. Its
//! models of 2025 have norms after each block as well as before it. GLM-4.5 and 4.6 have Llama's norms again, halves that turn, norms on
//! heads in the larger model, and DeepSeek-V3's mixtures.
//!
//! GLM Team 2024, <https://arxiv.org/abs/2406.12793>, and 2025, <https://arxiv.org/abs/2508.06471>; transformers' `modeling_glm`,
//! `modeling_glm4` and `modeling_glm4_moe`. Layers behind `num_hidden_layers`, which foretell more than one token, are not read.

use crate::class::{Class, LLAMA};
use crate::{decoder, deepseek, layer_normed, llama, routers};
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

/// Reads a mixture (GLM-4.5, its Air, 4.6) with Hugging Face's names; experts stacked or one by one.
///
/// # Errors
/// Where groups of experts do not fit, and where `use_qk_norm` says otherwise than the weights.
pub fn load_glm4_moe(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    let normed = decoder::norms_heads(root)?;
    layer_normed::as_said(c, "use_qk_norm", normed)?;
    let router = |l: &Loader<'_>| routers::deepseek_v3(c, l.numbers("gate.e_score_correction_bias")?);
    let feed_forward = deepseek::mixtures(c, 1, &router)?;
    decoder::load(&LLAMA, c, root, |_, rope, spec| (Some(rope), spec), &feed_forward)
}

fn load(class: &Class, c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    decoder::load(class, c, root, |_, rope, spec| (Some(rope), spec), &llama::dense(c)?)
}
