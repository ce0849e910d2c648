//! The decoder that Llama is, for the classes that differ from it in a part: what a block's norms are called and where they stand,
//! factors here and there, and which of its layers attend otherwise.

use crate::class::Class;
use crate::head::Head;
use ogive_nn::backend::{AttnOption, AttnSpec, LayerCache, Rope};
use ogive_nn::tensor::{Result, Tensor};
use ogive_nn::{Attention, Config, Embedding, FeedForward, Loader, Model, Residual, RmsNorm, Step};

#[derive(Debug)]
struct Decoder {
    embed: Embedding,
    embed_scale: Option<Tensor>,
    blocks: Vec<Block>,
    residual_scale: Option<Tensor>,
    norm: RmsNorm,
    head: Head,
    logit_scale: Option<Tensor>,
}

#[derive(Debug)]
struct Block {
    pre_attn: Option<RmsNorm>,
    attn: Attention,
    post_attn: Option<RmsNorm>,
    pre_mlp: Option<RmsNorm>,
    mlp: FeedForward,
    post_mlp: Option<RmsNorm>,
}

/// Reads a model of a class. What a layer attends by, `layer` makes of what the settings say, given its number; what follows attention
/// `feed_forward` reads from the block's place.
pub(crate) fn load(
    class: &Class,
    c: &Config,
    root: &Loader<'_>,
    layer: impl Fn(usize, Rope, AttnSpec) -> (Option<Rope>, AttnSpec),
    feed_forward: &dyn Fn(&Loader<'_>, usize) -> Result<FeedForward>,
) -> Result<Box<dyn Model>> {
    let eps = c.f32_or("rms_norm_eps", 1e-6)?;
    let (heads, head_dim) = (c.usize("num_attention_heads")?, class.head_dim_of(c)?);
    let kv_heads = c.usize_or("num_key_value_heads", heads)?;
    let rope = ogive_nn::rope_of(c, root, head_dim)?.layout(class.layout);
    let spec = ogive_nn::spec_of(c, heads, kv_heads, head_dim)?;
    let spec = class.score_scale.into_iter().fold(spec, AttnSpec::scale);

    let model = root.at_or_here("model", "embed_tokens")?;
    // One by one: a false number of layers ends at the first that is missing.
    let blocks = (0..c.usize("num_hidden_layers")?).map(|i| {
        let l = model.at("layers").at(i);
        let norm = |name: Option<&str>| name.map(|name| (class.norm)(&l, name, eps)).transpose();
        let [pre_attn, post_attn, pre_mlp, post_mlp] = class.norms.map(norm);
        let (rope, mut spec) = layer(i, rope.clone(), spec.clone());
        if class.sinks {
            spec = spec.with(AttnOption::Sinks(l.at("self_attn").numbers("sinks")?));
        }
        Ok(Block {
            pre_attn: pre_attn?,
            attn: Attention::load(&l.at("self_attn"), c, i, rope, spec)?,
            post_attn: post_attn?,
            pre_mlp: pre_mlp?,
            mlp: feed_forward(&l, i)?,
            post_mlp: post_mlp?,
        })
    });
    let embed = model.embedding("embed_tokens")?;
    let constant = |value: Option<f32>| value.map(|value| root.constant(value)).transpose();
    Ok(Box::new(Decoder {
        blocks: blocks.collect::<Result<_>>()?,
        norm: (class.norm)(&model, "norm", eps)?,
        head: Head::load(c, root, &embed, class.tied)?,
        embed,
        embed_scale: constant(class.embed_scale)?,
        residual_scale: constant(class.residual_scale)?,
        logit_scale: constant(class.logit_scale)?,
    }))
}

/// `x` times the factor, where there is one. `[n, d] -> [n, d]`
fn scaled(s: &Step<'_>, x: Tensor, scale: Option<&Tensor>) -> Result<Tensor> {
    match scale {
        Some(scale) => s.backend.mul(x, scale),
        None => Ok(x),
    }
}

impl Decoder {
    /// The stream as a block reads it.
    fn read(s: &Step<'_>, x: Residual, norm: Option<&RmsNorm>) -> Result<(Residual, Tensor)> {
        match norm {
            Some(norm) => x.normed(s, norm),
            None => x.plain(s),
        }
    }

    /// The stream with what a block has made.
    fn add(&self, s: &Step<'_>, x: Residual, norm: Option<&RmsNorm>, mut h: Tensor) -> Result<Residual> {
        if let Some(norm) = norm {
            h = norm.forward(s, &h)?;
        }
        x.add(s, scaled(s, h, self.residual_scale.as_ref())?)
    }
}

impl Model for Decoder {
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
        let mut h = scaled(s, self.embed.forward(s)?, self.embed_scale.as_ref())?; // [n, dim]
        let mut x = Residual::new(h);
        for (i, block) in self.blocks.iter().enumerate() {
            (x, h) = Self::read(s, x, block.pre_attn.as_ref())?;
            h = block.attn.forward(s, &h)?;
            s.observe(|| format!("model.layers.{i}.self_attn"), &h);
            x = self.add(s, x, block.post_attn.as_ref(), h)?;
            (x, h) = Self::read(s, x, block.pre_mlp.as_ref())?;
            h = block.mlp.forward(s, &h)?;
            s.observe(|| format!("model.layers.{i}.mlp"), &h);
            x = self.add(s, x, block.post_mlp.as_ref(), h)?;
        }
        (_, h) = x.normed(s, &self.norm)?;
        Ok(h)
    }

    fn head(&self, s: &Step<'_>, hidden: Tensor) -> Result<Tensor> {
        scaled(s, self.head.forward(s, &hidden)?, self.logit_scale.as_ref())
    }
}
