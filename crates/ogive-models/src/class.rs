//! In what the classes differ whose model is `decoder.rs`: what a block's norms are called and where they stand, and factors here and
//! there.

use ogive_nn::backend::{Activation, AttnSpec, RopeLayout};
use ogive_nn::tensor::Result;
use ogive_nn::{Config, Loader, RmsNorm};

/// What a class has otherwise than Llama, besides its layers' attention and what follows that.
pub(crate) struct Class {
    pub(crate) norm: fn(&Loader<'_>, &str, f32) -> Result<RmsNorm>,
    /// What a block's norms are called, where it has them: before and after attention or what is in its place, before and after what follows.
    pub(crate) norms: [Option<&'static str>; 4],
    /// What the table of tokens is called.
    pub(crate) embed: &'static str,
    /// What the norm after the last block is called.
    pub(crate) last_norm: &'static str,
    /// How many cache layers a block has.
    pub(crate) caches: usize,
    /// Elements of a head where the settings do not say; `None` where heads then cut `hidden_size` evenly.
    pub(crate) head_dim: Option<usize>,
    /// Which elements of a head turn together.
    pub(crate) layout: RopeLayout,
    /// Whether each head has a score that takes part in its softmax only.
    pub(crate) sinks: bool,
    /// What scores are multiplied by, if not by the usual scale.
    pub(crate) score_scale: Option<f32>,
    /// What embeddings are multiplied by.
    pub(crate) embed_scale: Option<f32>,
    /// What blocks' outputs are multiplied by before they are added to the stream.
    pub(crate) residual_scale: Option<f32>,
    /// What logits are multiplied by.
    pub(crate) logit_scale: Option<f32>,
    /// What logits are kept within, softly.
    pub(crate) logit_cap: Option<f32>,
    /// What the number is called that a block's stream is multiplied by, last of all.
    pub(crate) block_scale: Option<&'static str>,
    /// How many elements the inputs of layers have, and what their gates are activated by; see `layer_inputs.rs`.
    pub(crate) layer_inputs: Option<(usize, Activation)>,
    /// Whether the embedding is the head too where the settings do not say.
    pub(crate) tied: bool,
}

/// Llama's own.
pub(crate) const LLAMA: Class = Class {
    norm: |l, name, eps| l.rms_norm(name, eps),
    norms: [Some("input_layernorm"), None, Some("post_attention_layernorm"), None],
    embed: "embed_tokens",
    last_norm: "norm",
    caches: 1,
    head_dim: None,
    layout: RopeLayout::Halves,
    sinks: false,
    score_scale: None,
    embed_scale: None,
    residual_scale: None,
    logit_scale: None,
    logit_cap: None,
    block_scale: None,
    layer_inputs: None,
    tied: false,
};

impl Class {
    /// How many elements a head has.
    pub(crate) fn head_dim_of(&self, c: &Config) -> Result<usize> {
        let even = c.usize("hidden_size")? / c.usize("num_attention_heads")?.max(1);
        c.usize_or("head_dim", self.head_dim.unwrap_or(even))
    }

    /// The attention of a layer, but for what the layer has of its own.
    pub(crate) fn attention_of(&self, c: &Config) -> Result<AttnSpec> {
        let heads = c.usize("num_attention_heads")?;
        let kv_heads = c.usize_or("num_key_value_heads", heads)?;
        let spec = ogive_nn::spec_of(c, heads, kv_heads, self.head_dim_of(c)?)?;
        Ok(self.score_scale.into_iter().fold(spec, AttnSpec::scale))
    }
}
