//! Bamba: selective state spaces in most layers, attention whose heads turn in part in the others, and a gated MLP behind either.
//!
//! IBM, Princeton, CMU and UIUC 2024, <https://huggingface.co/blog/bamba>; transformers' `modeling_bamba`. What comes out of a state space is normed
//! all at once. Which projections have biases the weights say. A GGUF file calls it Granite 4, and says that it has no factors.

use crate::class::{Class, LLAMA};
use crate::{decoder, granite_hybrid, hybrid};
use ogive_nn::backend::Activation;
use ogive_nn::tensor::Result;
use ogive_nn::{Config, FeedForward, GatedMlp, Loader, Model, rope_of};

/// The convolution has a state, and the space another.
const BAMBA: Class = Class {
    norms: [Some("input_layernorm"), None, Some("pre_ff_layernorm"), None],
    last_norm: "final_layernorm",
    caches: 2,
    ..LLAMA
};

/// Reads a checkpoint with Hugging Face's names.
///
/// # Errors
/// If `layer_types` are more or fewer than the layers or name another kind, if `is_causal` is off, or if the sizes of states do not fit each
/// other; else as [every `load`](crate#errors).
pub fn load(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    let rope = rope_of(c, root, BAMBA.head_dim_of(c)?)?;
    let attends = attends(c)?;
    let mixer = granite_hybrid::mixers(&BAMBA, c, Some(rope), move |i| !attends(i))?;
    let activation = ogive_nn::activation(c, "hidden_act", Activation::Silu)?;
    let model = root.at_or_here("model", "embed_tokens")?;
    decoder::load_mixed(&BAMBA, c, [root, &model], &mixer, &|l, _| {
        Ok(FeedForward::Dense(GatedMlp::load(&l.at("feed_forward"), activation)?))
    })
}

/// Whether a layer attends: by `layer_types`, else those of `attn_layer_indices`; none where both are silent.
fn attends(c: &Config) -> Result<impl Fn(usize) -> bool + use<>> {
    let kinds = hybrid::numbered(c, &["mamba", "attention"])?;
    let attend = c.opt_usizes("attn_layer_indices")?.unwrap_or_default();
    Ok(move |i: usize| kinds.as_ref().map_or_else(|| attend.contains(&i), |kinds| kinds.get(i) == Some(&1)))
}
