//! Command R7B (Cohere 2): attention and MLP side by side behind one layer norm, scaled logits, and windows in three of four layers.
//! Those turn neighbours of a head; the others have neither window nor positions.
//!
//! Cohere 2025, <https://arxiv.org/abs/2504.00698>; transformers' `modeling_cohere2`.

use crate::head::Head;
use crate::windows;
use ogive_nn::backend::{Activation, LayerCache, RopeLayout};
use ogive_nn::tensor::{Result, Tensor};
use ogive_nn::{Attention, Config, Embedding, GatedMlp, LayerNorm, Loader, Model, Step};

#[derive(Debug)]
struct Cohere2 {
    embed: Embedding,
    blocks: Vec<Block>,
    norm: LayerNorm,
    head: Head,
    logit_scale: Tensor,
}

#[derive(Debug)]
struct Block {
    norm: LayerNorm,
    attn: Attention,
    mlp: GatedMlp,
}

/// Reads a checkpoint with Hugging Face's names.
///
/// # Errors
/// None of its own; those of [every `load`](crate#errors).
pub fn load(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    let eps = c.f32_or("layer_norm_eps", 1e-5)?;
    let (heads, head_dim) = ogive_nn::heads_of(c)?;
    let spec = ogive_nn::spec_of(c, heads, c.usize_or("num_key_value_heads", heads)?, head_dim)?;
    let rope = ogive_nn::rope_of(c, root, head_dim)?.layout(RopeLayout::Pairs);
    let activation = ogive_nn::activation(c, "hidden_act", Activation::Silu)?;
    let window = windows::all_but(c, c.usize_or("sliding_window_pattern", 4)?)?;
    let model = root.at_or_here("model", "embed_tokens")?;
    let blocks = (0..c.usize("num_hidden_layers")?).map(|i| {
        let (l, window) = (model.at("layers").at(i), window(i));
        let (rope, spec) = (window.map(|_| rope.clone()), windows::within(spec.clone(), window));
        Ok(Block {
            norm: l.layer_norm("input_layernorm", eps)?,
            attn: Attention::load(&l.at("self_attn"), c, i, rope, spec)?,
            mlp: GatedMlp::load(&l.at("mlp"), activation)?,
        })
    });
    let embed = model.embedding("embed_tokens")?;
    Ok(Box::new(Cohere2 {
        blocks: blocks.collect::<Result<_>>()?,
        norm: model.layer_norm("norm", eps)?,
        head: Head::load(c, root, &embed, true)?,
        embed,
        logit_scale: root.constant(c.f32_or("logit_scale", 0.0625)?)?,
    }))
}

impl Model for Cohere2 {
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
        let mut x = self.embed.forward(s)?; // [n, dim]
        for (i, block) in self.blocks.iter().enumerate() {
            let h = block.norm.forward(s, &x)?;
            let attended = block.attn.forward(s, &h)?;
            s.observe(|| format!("model.layers.{i}.self_attn"), &attended);
            let h = block.mlp.forward(s, &h)?;
            s.observe(|| format!("model.layers.{i}.mlp"), &h);
            x = s.backend.add(s.backend.add(x, &attended)?, &h)?;
        }
        self.norm.forward(s, &x)
    }

    fn head(&self, s: &Step<'_>, hidden: Tensor) -> Result<Tensor> {
        s.backend.mul(self.head.forward(s, &hidden)?, &self.logit_scale)
    }
}
