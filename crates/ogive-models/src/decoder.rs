//! The decoder that Llama is, for the classes that differ from it in a part: what a block's norms are called and where they stand,
//! factors here and there, which of its layers attend otherwise, and what they have in place of attention.

use crate::block::{Block, ReadsFeedForward, ReadsMixer, scaled};
use crate::head::{Cap, Head, places};
use crate::{class::Class, layer_inputs::LayerInputs, layer_normed, mixer::Mixer};
use ogive_nn::backend::{AttnOption, AttnSpec, LayerCache, Rope};
use ogive_nn::tensor::{Result, Tensor};
use ogive_nn::{Attention, Config, Embedding, Loader, Model, Residual, RmsNorm, Step, inputs};

#[derive(Debug)]
struct Decoder {
    embed: Embedding,
    embed_scale: Option<Tensor>,
    inputs: Option<LayerInputs>,
    blocks: Vec<Block>,
    /// Cache layers of each.
    caches: usize,
    residual_scale: Option<Tensor>,
    norm: RmsNorm,
    head: Head,
    logit_scale: Option<Tensor>,
    logit_cap: Option<Cap>,
}

/// Reads a model of a class whose layers all attend. What one attends by, `layer` makes of what the settings say, given its number; what
/// follows attention `feed_forward` reads from the block's place.
pub(crate) fn load(
    class: &Class,
    c: &Config,
    root: &Loader<'_>,
    layer: impl Fn(usize, Rope, AttnSpec) -> (Option<Rope>, AttnSpec),
    feed_forward: &ReadsFeedForward<'_>,
) -> Result<Box<dyn Model>> {
    let spec = class.attention_of(c)?;
    let rope = ogive_nn::rope_of(c, root, class.head_dim_of(c)?)?.layout(class.layout);
    let mixer = |l: &Loader<'_>, i: usize| {
        let l = l.at("self_attn");
        let (rope, mut spec) = layer(i, rope.clone(), spec.clone());
        if class.sinks {
            spec = spec.with(AttnOption::Sinks(l.numbers("sinks")?));
        }
        Ok(Mixer::Attention(Attention::load(&l, c, i, rope, spec)?.into()))
    };
    let (head, model) = places(root)?;
    load_mixed(class, c, [&head, &model], &mixer, feed_forward)
}

/// Whether the weights have norms of queries, by those of the first layer.
pub(crate) fn norms_heads(root: &Loader<'_>) -> Result<bool> {
    layer_normed::norms_queries(root, "q_norm")
}

/// Reads a model of a class, the head from the first of two places and all else from the second. What mixes tokens `mixer` reads from the
/// block's place, given the block's number, and what follows `feed_forward`.
pub(crate) fn load_mixed(
    class: &Class,
    c: &Config,
    places: [&Loader<'_>; 2],
    mixer: &ReadsMixer<'_>,
    feed_forward: &ReadsFeedForward<'_>,
) -> Result<Box<dyn Model>> {
    load_blocks(class, c, places, mixer, Some(feed_forward))
}

/// The same where blocks are one thing each, which `mixer` reads.
pub(crate) fn load_alone(
    class: &Class,
    c: &Config,
    places: [&Loader<'_>; 2],
    mixer: &ReadsMixer<'_>,
) -> Result<Box<dyn Model>> {
    load_blocks(class, c, places, mixer, None)
}

fn load_blocks(
    class: &Class,
    c: &Config,
    [head, model]: [&Loader<'_>; 2],
    mixer: &ReadsMixer<'_>,
    feed_forward: Option<&ReadsFeedForward<'_>>,
) -> Result<Box<dyn Model>> {
    let eps = c.f32_or("rms_norm_eps", 1e-6)?;
    // One by one: a false number of layers ends at the first that is missing.
    let blocks = (0..c.usize("num_hidden_layers")?)
        .map(|i| Block::load(class, &model.at("layers").at(i), (i, eps), mixer, feed_forward));
    let embed = model.embedding(class.embed)?;
    let constant = |value: Option<f32>| value.map(|value| model.constant(value)).transpose();
    let inputs = class.layer_inputs.map(|(width, _)| LayerInputs::load(class, c, model, width, eps));
    Ok(Box::new(Decoder {
        blocks: blocks.collect::<Result<_>>()?,
        caches: class.caches,
        norm: (class.norm)(model, class.last_norm, eps)?,
        head: Head::load(c, head, &embed, class.tied)?,
        embed,
        embed_scale: constant(class.embed_scale)?,
        inputs: inputs.transpose()?,
        residual_scale: constant(class.residual_scale)?,
        logit_scale: constant(class.logit_scale)?,
        logit_cap: class.logit_cap.map(|cap| Cap::of(model, cap)).transpose()?,
    }))
}

impl Model for Decoder {
    fn cache_layout(&self) -> Vec<LayerCache> {
        let blocks = self.blocks.iter().filter(|block| block.causal());
        ogive_nn::group_by_window(blocks.flat_map(|block| block.cache(self.caches)))
    }

    fn causal(&self) -> bool {
        self.blocks.iter().all(Block::causal)
    }

    fn vocab(&self) -> Option<usize> {
        Some(self.embed.rows())
    }

    fn takes_vectors(&self) -> Option<usize> {
        Some(self.embed.weight.shape()[2])
    }

    fn hidden(&self, s: &Step<'_>) -> Result<Tensor> {
        let x = scaled(s, self.embed.forward(s)?, self.embed_scale.as_ref())?; // [n, dim]
        let (x, depth) = (inputs::placed(s, x)?, inputs::depth(s));
        let layer_inputs = self.inputs.as_ref().map(|inputs| inputs.forward(s, &x)).transpose()?;
        let mut layer_inputs = layer_inputs.into_iter().flatten();
        let mut x = Residual::new(x);
        for (i, block) in self.blocks.iter().enumerate() {
            x = block.forward(s, x, self.residual_scale.as_ref(), layer_inputs.next().as_ref())?;
            if i < depth {
                x = Residual::new(inputs::deepened(s, x.value(s)?, i)?);
            }
        }
        Ok(x.normed(s, &self.norm)?.1)
    }

    fn head(&self, s: &Step<'_>, hidden: Tensor) -> Result<Tensor> {
        let logits = scaled(s, self.head.forward(s, &hidden)?, self.logit_scale.as_ref())?;
        match &self.logit_cap {
            Some(cap) => cap.forward(s, logits),
            None => Ok(logits),
        }
    }
}
