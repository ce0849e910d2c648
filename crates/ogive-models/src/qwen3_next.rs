//! Qwen3-Next and Qwen3.5: in three of four layers linear attention by the gated delta rule, in the fourth attention whose output is gated. A
//! mixture of experts and one that all tokens share follow, or, in some of Qwen3.5's, one gated MLP.
//!
//! Qwen Team 2025; Yang et al. 2024, <https://arxiv.org/abs/2412.06464>; transformers' `modeling_qwen3_next` and `modeling_qwen3_5`. All are one
//! function: the two differ in how a file cuts projections and experts, which is looked for. Of a checkpoint that also sees, the part that reads
//! and writes text; there a token has one position, so the three that Qwen3.5 counts by are one. Layers that foretell more than one token
//! (`mtp`) are not read: logits do not depend on them.

use crate::head::{Head, places};
use crate::{hybrid, llama, qwen_moe};
use ogive_nn::backend::LayerCache;
use ogive_nn::tensor::{Result, Tensor};
use ogive_nn::{Attention, Config, Embedding, FeedForward, GatedDeltaNet, Loader, Model};
use ogive_nn::{Residual, RmsNorm, Step, rope_of, spec_of};

const TIED: &str = "tie_word_embeddings";

#[derive(Debug)]
struct Qwen3Next {
    embed: Embedding,
    blocks: Vec<Block>,
    norm: RmsNorm,
    head: Head,
}

#[derive(Debug)]
struct Block {
    mixer_norm: RmsNorm,
    mixer: Mixer,
    mlp_norm: RmsNorm,
    mlp: FeedForward,
}

#[derive(Debug)]
enum Mixer {
    Linear(Box<GatedDeltaNet>),
    Full(Box<Attention>),
}

/// Reads what follows attention in a block, from the block's place and given its number.
type ReadsFeedForward = dyn Fn(&Loader<'_>, usize) -> Result<FeedForward>;

/// Reads a checkpoint with Hugging Face's names; experts stacked or one by one.
///
/// # Errors
/// If `layer_types` are more or fewer than the layers or name another kind, or `full_attention_interval` is 0; if heads do not share keys
/// evenly; if gates are off (`attn_output_gate`) or others; else as [every `load`](crate#errors).
pub fn load(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    let c = &hybrid::settled(c)?;
    let (eps, head_dim) = (c.f32_or("rms_norm_eps", 1e-6)?, c.usize("head_dim")?);
    let (heads, kv_heads) = (c.usize("num_attention_heads")?, c.usize("num_key_value_heads")?);
    let (rope, spec) = (rope_of(c, root, head_dim)?, spec_of(c, heads, kv_heads, head_dim)?);
    let linear = hybrid::linear(c)?;
    let feed_forward: Box<ReadsFeedForward> =
        if c.has("num_experts") { Box::new(qwen_moe::sharing(c)?) } else { Box::new(llama::dense(c)?) };
    let (head, model) = places(root)?;
    // One by one: a false number of layers ends at the first that is missing.
    let blocks = (0..c.usize("num_hidden_layers")?).map(|i| {
        let l = model.at("layers").at(i);
        let norm = |l: &Loader<'_>, name| l.rms_norm_less_one(name, eps);
        let mixer_norm = norm(&l, "input_layernorm")?;
        let mixer = if linear(i) {
            Mixer::Linear(GatedDeltaNet::load(&l.at("linear_attn"), c, 2 * i)?.into())
        } else {
            let l = l.at("self_attn");
            let attn = Attention::load_gated(&l, c, 2 * i, rope.clone(), spec.clone())?;
            Mixer::Full(attn.head_norms(norm(&l, "q_norm")?, norm(&l, "k_norm")?).into())
        };
        let (mlp_norm, mlp) = (norm(&l, "post_attention_layernorm")?, feed_forward(&l, i)?);
        Ok(Block { mixer_norm, mixer, mlp_norm, mlp })
    });
    let embed = model.embedding("embed_tokens")?;
    Ok(Box::new(Qwen3Next {
        blocks: blocks.collect::<Result<_>>()?,
        norm: model.rms_norm_less_one("norm", eps)?,
        head: Head::load(c, &head, &embed, false)?,
        embed,
    }))
}

/// Reads Qwen3.5, whose classes have experts in all layers or in none.
///
/// # Errors
/// As [`load`].
pub fn load_qwen3_5(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    load(&hybrid::of_qwen3_5(c), root)
}

/// Reads the text's part of a Qwen3.5 that also sees.
///
/// # Errors
/// As [`load`], of what is below `text_config`.
pub fn load_nested(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    let mut text = c.at("text_config");
    // Said of the whole or of the text; a head of its own counts whatever they say.
    if let (true, Some(settings)) = (c.bool_or(TIED, false)?, text.0.as_object_mut()) {
        settings.insert(TIED.into(), true.into());
    }
    load_qwen3_5(&text, root)
}

impl Model for Qwen3Next {
    fn cache_layout(&self) -> Vec<LayerCache> {
        // Two for each block, so that a model is split by its blocks.
        let of = |(i, block): (usize, &Block)| match &block.mixer {
            Mixer::Linear(delta) => delta.cache(),
            Mixer::Full(attn) => [attn.cache(), LayerCache::Shares(2 * i)],
        };
        self.blocks.iter().enumerate().flat_map(of).collect()
    }

    fn vocab(&self) -> Option<usize> {
        Some(self.embed.rows())
    }

    fn hidden(&self, s: &Step<'_>) -> Result<Tensor> {
        let mut x = Residual::new(self.embed.forward(s)?); // [n, dim]
        for (i, block) in self.blocks.iter().enumerate() {
            let at = |name: &str| format!("model.layers.{i}.{name}");
            x = match &block.mixer {
                Mixer::Linear(delta) => {
                    x.branch(s, &block.mixer_norm, || at("linear_attn"), |h| delta.forward(s, h))?
                }
                Mixer::Full(attn) => {
                    x.branch(s, &block.mixer_norm, || at("self_attn"), |h| attn.forward(s, h))?
                }
            };
            x = x.branch(s, &block.mlp_norm, || at("mlp"), |h| block.mlp.forward(s, h))?;
        }
        Ok(x.normed(s, &self.norm)?.1)
    }

    fn head(&self, s: &Step<'_>, hidden: Tensor) -> Result<Tensor> {
        self.head.forward(s, &hidden)
    }
}
