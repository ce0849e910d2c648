//! Llama, and the models that differ from it only in their configuration: Mistral (a sliding window), Qwen2 (biases on
//! q, k and v), Qwen3 (norms on the query and key heads). Mixtral and Qwen's mixtures build on it with other blocks after attention, Phi-3
//! with fused matrices, the first Gemma with scaled embeddings. Of each there are encoders of texts, by a setting (`is_causal`).
//! The model itself is `decoder.rs`, which OLMo, Granite, SmolLM3, GLM-4, ERNIE and others have too.
//!
//! Touvron et al. 2023, <https://arxiv.org/abs/2302.13971>; transformers' `modeling_llama`.

use crate::block::ReadsFeedForward;
use crate::class::LLAMA;
use crate::{decoder, windows};
use ogive_nn::backend::Activation;
use ogive_nn::tensor::Result;
use ogive_nn::{Config, FeedForward, GatedMlp, Loader, Model};

/// Reads a Llama checkpoint. Its class knows no window; a `sliding_window` is left over from the model it was made of.
///
/// # Errors
/// None of its own; those of [every `load`](crate#errors).
pub fn load(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    load_with(c, root, |_| None, &dense(c)?)
}

/// Reads a Mistral checkpoint, which may have a window; so may GGUF's Llamas, which `ogive-weights` then calls Mistral.
///
/// # Errors
/// None of its own; those of [every `load`](crate#errors).
pub fn load_mistral(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    load_with(c, root, windows::same(c)?, &dense(c)?)
}

/// Reads a Qwen2 or Qwen3 checkpoint, where a window is off unless the configuration turns it on.
///
/// # Errors
/// If `layer_types` are more or fewer than the layers; else as [every `load`](crate#errors).
pub fn load_qwen(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    load_with(c, root, windows::qwen(c)?, &dense(c)?)
}

/// Reads a block's gated MLP.
pub(crate) fn dense(c: &Config) -> Result<impl Fn(&Loader<'_>, usize) -> Result<FeedForward> + use<>> {
    let activation = ogive_nn::activation(c, "hidden_act", Activation::Silu)?;
    Ok(move |l: &Loader<'_>, _| Ok(FeedForward::Dense(GatedMlp::load(&l.at("mlp"), activation)?)))
}

/// Reads everything but what follows attention, which `feed_forward` reads from a block's place, given its number.
pub(crate) fn load_with(
    c: &Config,
    root: &Loader<'_>,
    window: impl Fn(usize) -> Option<usize>,
    feed_forward: &ReadsFeedForward<'_>,
) -> Result<Box<dyn Model>> {
    let layer = |i, rope, spec| (Some(rope), windows::within(spec, window(i)));
    decoder::load(&LLAMA, c, root, layer, feed_forward)
}
