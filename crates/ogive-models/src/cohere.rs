//! Command R and Aya (Cohere), and Command R7B (Cohere 2): attention and MLP side by side behind one layer norm, scaled logits, and
//! neighbours of a head that turn together. Command R+ has layer norms on heads, each by factors of its own; Command R7B windows in three
//! of four layers, the others without positions.
//!
//! Cohere 2024, <https://docs.cohere.com/docs/command-r-plus>, and 2025, <https://arxiv.org/abs/2504.00698>; transformers'
//! `modeling_cohere` and `modeling_cohere2`.

use crate::class::LLAMA;
use crate::layer_normed::{self, Class};
use crate::{decoder, llama, windows};
use ogive_nn::backend::{Rope, RopeLayout};
use ogive_nn::tensor::Result;
use ogive_nn::{Attention, Config, Loader, Model};

/// Reads a checkpoint of Command R, its R+ and of Aya with Hugging Face's names.
///
/// # Errors
/// Where `use_qk_norm` says otherwise than the weights; else those of [every `load`](crate#errors).
pub fn load(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    let normed = decoder::norms_heads(root)?;
    layer_normed::as_said(c, "use_qk_norm", normed)?;
    let (class, rope, spec) = (class(c)?, rope(c, root)?, LLAMA.attention_of(c)?);
    let attention = |l: &Loader<'_>, i: usize| {
        let l = l.at("self_attn");
        let attention = Attention::load(&l, c, i, rope.clone(), spec.clone())?;
        if normed { attention.head_layer_norms(&l, ["q_norm", "k_norm"], class.eps) } else { Ok(attention) }
    };
    layer_normed::load(&class, c, root, &attention, &llama::dense(c)?)
}

/// Reads a checkpoint of Command R7B with Hugging Face's names.
///
/// # Errors
/// None of its own; those of [every `load`](crate#errors).
pub fn load_cohere2(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    let (rope, spec) = (rope(c, root)?, LLAMA.attention_of(c)?);
    let window = windows::all_but(c, c.usize_or("sliding_window_pattern", 4)?)?;
    let attention = |l: &Loader<'_>, i: usize| {
        let window = window(i);
        let (rope, spec) = (window.map(|_| rope.clone()), windows::within(spec.clone(), window));
        Attention::load(&l.at("self_attn"), c, i, rope, spec)
    };
    layer_normed::load(&class(c)?, c, root, &attention, &llama::dense(c)?)
}

fn class(c: &Config) -> Result<Class> {
    Ok(Class {
        eps: c.f32_or("layer_norm_eps", 1e-5)?,
        norms: ("input_layernorm", None),
        beside: true,
        places: layer_normed::PLACES,
        last_norm: "norm",
        logit_scale: Some(c.f32_or("logit_scale", 0.0625)?),
        tied: true,
    })
}

fn rope(c: &Config, root: &Loader<'_>) -> Result<Rope> {
    Ok(ogive_nn::rope_of(c, root, LLAMA.head_dim_of(c)?)?.layout(RopeLayout::Pairs))
}
