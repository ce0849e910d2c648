//! The first Gemma, and CodeGemma: Llama with scaled embeddings, norms whose factors are kept less one, and another activation.
//! That is `hidden_activation`; what the first checkpoints have under `hidden_act` instead, `ogive-weights` puts there.
//!
//! Gemma Team 2024, <https://arxiv.org/abs/2403.08295>; transformers' `modeling_gemma`.

use crate::class::{Class, LLAMA};
use crate::decoder;
use ogive_nn::backend::Activation;
use ogive_nn::tensor::{Error, Result};
use ogive_nn::{Config, FeedForward, GatedMlp, Loader, Model};

/// Reads a checkpoint with Hugging Face's names.
///
/// # Errors
/// If `use_bidirectional_attention` is on; else as [every `load`](crate#errors).
pub fn load(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    if c.bool_or("use_bidirectional_attention", false)? {
        return Err(Error::unsupported("config", "`use_bidirectional_attention` is on, which is not known"));
    }
    let activation = ogive_nn::activation(c, "hidden_activation", Activation::GeluTanh)?;
    let class = Class {
        norm: |l, name, eps| l.rms_norm_less_one(name, eps),
        embed_scale: Some((c.usize("hidden_size")? as f32).sqrt()),
        sinks: false,
        tied: true,
        head_dim: Some(256),
        ..LLAMA
    };
    decoder::load(&class, c, root, |_, rope, spec| (Some(rope), spec), &|l, _| {
        Ok(FeedForward::Dense(GatedMlp::load(&l.at("mlp"), activation)?))
    })
}
