//! Decoders with layer norms in place of Llama's: Command R's, StarCoder2 and their like. What follows attention reads the sum, or stands
//! beside it.
//!
//! A decoder of its own and not another `Class` of `decoder.rs`: a sum and the norm behind it are one operator there (`Residual`), which
//! layer norms have none for, and blocks whose parts stand beside each other have no sum between them.

use crate::block::ReadsFeedForward;
use crate::head::Head;
use ogive_nn::backend::LayerCache;
use ogive_nn::tensor::{Error, Result, Tensor};
use ogive_nn::{Attention, Config, Embedding, FeedForward, LayerNorm, Loader, Model, Step, group_by_window};

/// In what classes differ, besides their attention and what follows it.
pub(crate) struct Class {
    /// Added to the variance.
    pub(crate) eps: f32,
    /// What a block's norms are called: before attention, and before what follows, where that has one of its own.
    pub(crate) norms: (&'static str, Option<&'static str>),
    /// Whether what follows attention stands beside it.
    pub(crate) beside: bool,
    /// What is called so: the place of all but the head, the table of tokens, and the head.
    pub(crate) places: [&'static str; 3],
    /// What the norm after the last block is called.
    pub(crate) last_norm: &'static str,
    /// What logits are multiplied by.
    pub(crate) logit_scale: Option<f32>,
    /// Whether the embedding is the head too where the settings do not say.
    pub(crate) tied: bool,
}

/// What most classes call them.
pub(crate) const PLACES: [&str; 3] = ["model", "embed_tokens", "lm_head"];

#[derive(Debug)]
struct Decoder {
    embed: Embedding,
    blocks: Vec<Block>,
    norm: LayerNorm,
    head: Head,
    logit_scale: Option<Tensor>,
}

#[derive(Debug)]
struct Block {
    norm: LayerNorm,
    attn: Attention,
    mlp_norm: Option<LayerNorm>,
    mlp: FeedForward,
    beside: bool,
}

/// Whether the weights have norms of queries that are called so, by those of the first layer.
pub(crate) fn norms_queries(root: &Loader<'_>, name: &str) -> Result<bool> {
    let first = root.at_or_here("model", "embed_tokens")?.at("layers.0.self_attn");
    Ok(root.optional(first.host(name))?.is_some())
}

/// Refuses settings that say otherwise, under `key`, than the weights do on norms of queries.
pub(crate) fn as_said(c: &Config, key: &str, normed: bool) -> Result<()> {
    if c.bool_or(key, normed)? == normed {
        return Ok(());
    }
    let (said, there) = if normed { ("off", "there") } else { ("on", "not") };
    let why = format!("`{key}` is {said}, and norms of queries are {there} in the weights");
    Err(Error::invalid("config", why))
}

/// Reads a layer's attention from its block's place, given the block's number.
pub(crate) type ReadsAttention<'a> = dyn Fn(&Loader<'_>, usize) -> Result<Attention> + 'a;

/// Reads a model of a class.
pub(crate) fn load(
    class: &Class,
    c: &Config,
    root: &Loader<'_>,
    attention: &ReadsAttention<'_>,
    feed_forward: &ReadsFeedForward<'_>,
) -> Result<Box<dyn Model>> {
    let [place, table, head] = class.places;
    let model = root.at_or_here(place, table)?;
    let (first, second) = class.norms;
    // One by one: a false number of layers ends at the first that is missing.
    let blocks = (0..c.usize("num_hidden_layers")?).map(|i| {
        let l = model.at("layers").at(i);
        Ok(Block {
            norm: l.layer_norm(first, class.eps)?,
            attn: attention(&l, i)?,
            mlp_norm: second.map(|name| l.layer_norm(name, class.eps)).transpose()?,
            mlp: feed_forward(&l, i)?,
            beside: class.beside,
        })
    });
    let embed = model.embedding(table)?;
    Ok(Box::new(Decoder {
        blocks: blocks.collect::<Result<_>>()?,
        norm: model.layer_norm(class.last_norm, class.eps)?,
        head: Head::load_named(c, root, head, &embed, class.tied)?,
        embed,
        logit_scale: class.logit_scale.map(|scale| root.constant(scale)).transpose()?,
    }))
}

impl Block {
    /// `[n, dim] -> [n, dim]`, block number `i`.
    fn forward(&self, s: &Step<'_>, x: Tensor, i: usize) -> Result<Tensor> {
        let b = s.backend;
        let h = self.norm.forward(s, &x)?;
        let attended = self.attn.forward(s, &h)?;
        s.observe(|| format!("model.layers.{i}.self_attn"), &attended);
        let x = if self.beside { x } else { b.add(x, &attended)? };
        let h = match &self.mlp_norm {
            Some(norm) => norm.forward(s, &x)?,
            None => h,
        };
        let h = self.mlp.forward(s, &h)?;
        s.observe(|| format!("model.layers.{i}.mlp"), &h);
        let x = if self.beside { b.add(x, &attended)? } else { x };
        b.add(x, &h)
    }
}

impl Model for Decoder {
    fn cache_layout(&self) -> Vec<LayerCache> {
        group_by_window(self.blocks.iter().filter(|b| b.attn.causal()).map(|b| b.attn.cache()))
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
            x = block.forward(s, x, i)?;
        }
        self.norm.forward(s, &x)
    }

    fn head(&self, s: &Step<'_>, hidden: Tensor) -> Result<Tensor> {
        crate::block::scaled(s, self.head.forward(s, &hidden)?, self.logit_scale.as_ref())
    }
}
