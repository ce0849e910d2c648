//! Gemma 2: scaled embeddings, a norm before and after each block, a window on every other layer, and soft caps on the
//! scores and on the logits. Gemma 3 builds on it with other attention.
//!
//! Gemma Team 2024, <https://arxiv.org/abs/2408.00118>; transformers' `modeling_gemma2`.

use crate::class::{Class, LLAMA};
use crate::head::{Cap, above_zero};
use crate::{decoder, mixer::Mixer, windows};
use ogive_nn::backend::{Activation, AttnOption, AttnSpec};
use ogive_nn::tensor::Result;
use ogive_nn::{Attention, Config, FeedForward, GatedMlp, Loader, Model};

/// What the norms of a block are called that has them before and after each of its two parts.
pub(crate) const NORMS: [Option<&str>; 4] = [
    Some("input_layernorm"),
    Some("post_attention_layernorm"),
    Some("pre_feedforward_layernorm"),
    Some("post_feedforward_layernorm"),
];

/// Reads a checkpoint with Hugging Face's names.
///
/// # Errors
/// If `layer_types` are more or fewer than the layers, or a cap or `query_pre_attn_scalar` is not above 0; else as [every `load`](crate#errors).
pub fn load(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    let cap = Cap::set(c, "attn_logit_softcapping")?;
    let spec = cap.into_iter().fold(scores(c)?, |s, cap| s.with(AttnOption::SoftCap(cap)));
    let rope = ogive_nn::rope_of(c, root, spec.k_dim)?;
    let window = windows::every_second(c, 4096)?;
    load_with(c, [root, &root.at_or_here("model", "embed_tokens")?], &|l, i| {
        Attention::load(l, c, i, rope.clone(), windows::within(spec.clone(), window(i)))
    })
}

/// Heads and the scale of their scores; no window and no soft cap.
pub(crate) fn scores(c: &Config) -> Result<AttnSpec> {
    let (heads, head_dim) = (c.usize("num_attention_heads")?, c.usize_or("head_dim", 256)?);
    let of = above_zero("query_pre_attn_scalar", c.opt_f32("query_pre_attn_scalar")?)?;
    let scale = of.unwrap_or(head_dim as f32).powf(-0.5);
    Ok(ogive_nn::spec_of(c, heads, c.usize_or("num_key_value_heads", heads)?, head_dim)?.scale(scale))
}

/// Reads everything but attention, which `attention` reads from its place in a block: the head from the first of two places, the rest from
/// the second.
pub(crate) fn load_with(
    c: &Config,
    places: [&Loader<'_>; 2],
    attention: &dyn Fn(&Loader<'_>, usize) -> Result<Attention>,
) -> Result<Box<dyn Model>> {
    let activation = ogive_nn::activation(c, "hidden_activation", Activation::GeluTanh)?;
    let class = Class {
        norm: |l, name, eps| l.rms_norm_less_one(name, eps),
        norms: NORMS,
        embed_scale: Some((c.usize("hidden_size")? as f32).sqrt()),
        logit_cap: Cap::set(c, "final_logit_softcapping")?,
        tied: true,
        ..LLAMA
    };
    let mixer = |l: &Loader<'_>, i: usize| Ok(Mixer::Attention(attention(&l.at("self_attn"), i)?.into()));
    decoder::load_mixed(&class, c, places, &mixer, &|l, _| {
        Ok(FeedForward::Dense(GatedMlp::load(&l.at("mlp"), activation)?))
    })
}
