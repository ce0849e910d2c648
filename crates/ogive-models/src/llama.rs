//! Llama, and the models that differ from it only in their configuration: Mistral (a sliding window), Qwen2 (biases on
//! q, k and v), Qwen3 (norms on the query and key heads). Mixtral and Qwen's mixtures build on it with other blocks after attention, Phi-3
//! with fused matrices, the first Gemma with scaled embeddings. Of each there are encoders of texts, by a setting (`is_causal`).
//!
//! Touvron et al. 2023, <https://arxiv.org/abs/2302.13971>; transformers' `modeling_llama`.
#![allow(clippy::missing_errors_doc, reason = "the crate's documentation has those of every `load`")]

use crate::{head::Head, windows};
use ogive_nn::backend::{Activation, AttnOption, LayerCache};
use ogive_nn::tensor::{Result, Tensor};
use ogive_nn::{Attention, Config, Embedding, FeedForward, GatedMlp, Loader, Model, Residual, RmsNorm, Step};

#[derive(Debug)]
struct Llama {
    embed: Embedding,
    embed_scale: Option<Tensor>,
    blocks: Vec<Block>,
    norm: RmsNorm,
    head: Head,
}

#[derive(Debug)]
struct Block {
    attn_norm: RmsNorm,
    attn: Attention,
    mlp_norm: RmsNorm,
    mlp: FeedForward,
}

/// Reads a Llama checkpoint. Its class knows no window; a `sliding_window` is left over from the model it was made of.
pub fn load(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    load_with(c, root, |_| None, &dense(c)?)
}

/// Reads a Mistral checkpoint, which may have a window; so may GGUF's Llamas, which `ogive-weights` then calls Mistral.
pub fn load_mistral(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    load_with(c, root, windows::same(c)?, &dense(c)?)
}

/// Reads a Qwen2 or Qwen3 checkpoint, where a window is off unless the configuration turns it on.
pub fn load_qwen(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    load_with(c, root, windows::qwen(c)?, &dense(c)?)
}

/// Reads a block's gated MLP.
pub(crate) fn dense(c: &Config) -> Result<impl Fn(&Loader<'_>, usize) -> Result<FeedForward> + use<>> {
    let activation = ogive_nn::activation(c, "hidden_act", Activation::Silu)?;
    Ok(move |l: &Loader<'_>, _| Ok(FeedForward::Dense(GatedMlp::load(&l.at("mlp"), activation)?)))
}

/// What a class has otherwise than Llama, besides windows and what follows attention.
pub(crate) struct Class {
    pub(crate) norm: fn(&Loader<'_>, &str, f32) -> Result<RmsNorm>,
    /// Elements of a head where the settings do not say; `None` where heads then cut `hidden_size` evenly.
    pub(crate) head_dim: Option<usize>,
    /// What embeddings are multiplied by.
    pub(crate) embed_scale: Option<f32>,
    /// Whether each head has a score that takes part in its softmax only.
    pub(crate) sinks: bool,
    /// Whether the embedding is the head too where the settings do not say.
    pub(crate) tied: bool,
}

pub(crate) const LLAMA: Class = Class {
    norm: |l, name, eps| l.rms_norm(name, eps),
    head_dim: None,
    embed_scale: None,
    sinks: false,
    tied: false,
};

/// Reads everything but what follows attention, which `feed_forward` reads from a block's place, given its number.
pub(crate) fn load_with(
    c: &Config,
    root: &Loader<'_>,
    window: impl Fn(usize) -> Option<usize>,
    feed_forward: &dyn Fn(&Loader<'_>, usize) -> Result<FeedForward>,
) -> Result<Box<dyn Model>> {
    load_as(&LLAMA, c, root, window, feed_forward)
}

/// The same for another class.
pub(crate) fn load_as(
    class: &Class,
    c: &Config,
    root: &Loader<'_>,
    window: impl Fn(usize) -> Option<usize>,
    feed_forward: &dyn Fn(&Loader<'_>, usize) -> Result<FeedForward>,
) -> Result<Box<dyn Model>> {
    let eps = c.f32_or("rms_norm_eps", 1e-6)?;
    let heads = c.usize("num_attention_heads")?;
    let kv_heads = c.usize_or("num_key_value_heads", heads)?;
    let even = c.usize("hidden_size")? / heads.max(1);
    let head_dim = c.usize_or("head_dim", class.head_dim.unwrap_or(even))?;
    let rope = ogive_nn::rope_of(c, root, head_dim)?;
    let spec = ogive_nn::spec_of(c, heads, kv_heads, head_dim)?;

    let model = root.at_or_here("model", "embed_tokens")?;
    // One by one: a false number of layers ends at the first that is missing.
    let blocks = (0..c.usize("num_hidden_layers")?).map(|i| {
        let l = model.at("layers").at(i);
        let mut spec = window(i).into_iter().fold(spec.clone(), |s, w| s.with(AttnOption::Window(w)));
        if class.sinks {
            spec = spec.with(AttnOption::Sinks(l.at("self_attn").numbers("sinks")?));
        }
        Ok(Block {
            attn_norm: (class.norm)(&l, "input_layernorm", eps)?,
            attn: Attention::load(&l.at("self_attn"), c, i, rope.clone(), spec)?,
            mlp_norm: (class.norm)(&l, "post_attention_layernorm", eps)?,
            mlp: feed_forward(&l, i)?,
        })
    });
    let embed = model.embedding("embed_tokens")?;
    Ok(Box::new(Llama {
        blocks: blocks.collect::<Result<_>>()?,
        norm: (class.norm)(&model, "norm", eps)?,
        head: Head::load(c, root, &embed, class.tied)?,
        embed,
        embed_scale: class.embed_scale.map(|scale| root.constant(scale)).transpose()?,
    }))
}

impl Model for Llama {
    fn cache_layout(&self) -> Vec<LayerCache> {
        ogive_nn::group_by_window(self.blocks.iter().filter(|b| b.attn.causal()).map(|b| b.attn.cache()))
    }

    fn causal(&self) -> bool {
        self.blocks.iter().all(|b| b.attn.causal())
    }

    fn vocab(&self) -> Option<usize> {
        Some(self.embed.rows())
    }

    fn hidden(&self, s: &Step<'_>) -> Result<Tensor> {
        let mut h = self.embed.forward(s)?; // [n, dim]
        if let Some(scale) = &self.embed_scale {
            h = s.backend.mul(h, scale)?;
        }
        let mut x = Residual::new(h);
        for (i, block) in self.blocks.iter().enumerate() {
            (x, h) = x.normed(s, &block.attn_norm)?;
            h = block.attn.forward(s, &h)?;
            s.observe(|| format!("model.layers.{i}.self_attn"), &h);
            x = x.add(s, h)?;
            (x, h) = x.normed(s, &block.mlp_norm)?;
            h = block.mlp.forward(s, &h)?;
            s.observe(|| format!("model.layers.{i}.mlp"), &h);
            x = x.add(s, h)?;
        }
        (_, h) = x.normed(s, &self.norm)?;
        Ok(h)
    }

    fn head(&self, s: &Step<'_>, hidden: Tensor) -> Result<Tensor> {
        self.head.forward(s, &hidden)
    }
}
