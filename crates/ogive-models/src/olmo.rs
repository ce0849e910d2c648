//! OLMo 2 and OLMo 3: Llama with norms after attention and after the MLP in place of those before, and norms over all query heads at
//! once and all key heads. OLMo 3 has windows in three of four layers, whose rotary positions are never stretched. OLMoE has Llama's norms
//! and those over all heads, and a mixture of experts like Qwen's.
//!
//! Team OLMo 2024, <https://arxiv.org/abs/2501.00656>; Muennighoff et al. 2024, <https://arxiv.org/abs/2409.02060>; transformers'
//! `modeling_olmo2`, `modeling_olmo3` and `modeling_olmoe`.

use crate::class::{Class, LLAMA};
use crate::{decoder, llama, qwen_moe, windows};
use ogive_nn::tensor::{Error, Result, serde_json::json};
use ogive_nn::{Config, Loader, Model};

const OLMO: Class = Class {
    norms: [None, Some("post_attention_layernorm"), None, Some("post_feedforward_layernorm")],
    ..LLAMA
};

/// Reads an OLMo 2 checkpoint with Hugging Face's names. Its class knows no window.
///
/// # Errors
/// None of its own; those of [every `load`](crate#errors).
pub fn load_olmo2(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    decoder::load(&OLMO, c, root, |_, rope, spec| (Some(rope), spec), &llama::dense(c)?)
}

/// Reads an OLMo 3 checkpoint with Hugging Face's names. What `rope_scaling` says is for the layers without a window.
///
/// # Errors
/// As [`load_olmo2`], and where layers have a window and `sliding_window` does not say of how many tokens.
pub fn load_olmo3(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    // Later versions of transformers keep a base for each kind of layer.
    let theta = c.f32_or("rope_local_base_freq", c.f32_or("rope_theta", 10_000.0)?)?;
    let local = Config(json!({"rope_theta": theta}));
    let local = ogive_nn::rope_of(&local, root, OLMO.head_dim_of(c)?)?;
    let window = windows::all_but(c, 4)?;
    let layer = |i, rope, spec| match window(i) {
        None => (Some(rope), spec),
        window => (Some(local.clone()), windows::within(spec, window)),
    };
    decoder::load(&OLMO, c, root, layer, &llama::dense(c)?)
}

/// Reads an OLMoE checkpoint with Hugging Face's names; experts stacked or one by one.
///
/// # Errors
/// If there are not `num_experts` of each projection, and for `clip_qkv`, which bounds queries, keys and values in models that are not
/// published; else as [every `load`](crate#errors).
pub fn load_olmoe(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    if c.opt_f32("clip_qkv")?.is_some() {
        return Err(Error::unsupported(
            "config",
            "`clip_qkv` bounds queries, keys and values, which is not known",
        ));
    }
    llama::load_with(c, root, |_| None, &qwen_moe::alone(c, |_| true)?)
}
