//! The decoder that Llama is, for the classes that differ from it in a part: what a block's norms are called and where they stand,
//! factors here and there, which of its layers attend otherwise, and what they have in place of attention.

use crate::{class::Class, head::Head, mixer::Mixer};
use ogive_nn::backend::{AttnOption, AttnSpec, LayerCache, Rope};
use ogive_nn::tensor::{Result, Tensor};
use ogive_nn::{Attention, Config, Embedding, FeedForward, Loader, Model, Residual, RmsNorm, Step};

#[derive(Debug)]
struct Decoder {
    embed: Embedding,
    embed_scale: Option<Tensor>,
    blocks: Vec<Block>,
    /// Cache layers of each.
    caches: usize,
    residual_scale: Option<Tensor>,
    norm: RmsNorm,
    head: Head,
    logit_scale: Option<Tensor>,
}

#[derive(Debug)]
struct Block {
    mixer: Mixer,
    mlp: FeedForward,
    /// Before and after the one, before and after the other.
    norms: [[Option<RmsNorm>; 2]; 2],
}

/// Reads a model of a class whose layers all attend. What one attends by, `layer` makes of what the settings say, given its number; what
/// follows attention `feed_forward` reads from the block's place.
pub(crate) fn load(
    class: &Class,
    c: &Config,
    root: &Loader<'_>,
    layer: impl Fn(usize, Rope, AttnSpec) -> (Option<Rope>, AttnSpec),
    feed_forward: &dyn Fn(&Loader<'_>, usize) -> Result<FeedForward>,
) -> Result<Box<dyn Model>> {
    let (heads, head_dim) = (c.usize("num_attention_heads")?, class.head_dim_of(c)?);
    let rope = ogive_nn::rope_of(c, root, head_dim)?.layout(class.layout);
    let spec = ogive_nn::spec_of(c, heads, c.usize_or("num_key_value_heads", heads)?, head_dim)?;
    let spec = class.score_scale.into_iter().fold(spec, AttnSpec::scale);
    let mixer = |l: &Loader<'_>, i: usize| {
        let l = l.at("self_attn");
        let (rope, mut spec) = layer(i, rope.clone(), spec.clone());
        if class.sinks {
            spec = spec.with(AttnOption::Sinks(l.numbers("sinks")?));
        }
        Ok(Mixer::Attention(Attention::load(&l, c, i, rope, spec)?.into()))
    };
    let model = root.at_or_here("model", "embed_tokens")?;
    load_mixed(class, c, [root, &model], &mixer, feed_forward)
}

/// Reads a model of a class, the head from the first of two places and all else from the second. What mixes tokens `mixer` reads from the
/// block's place, given the block's number, and what follows `feed_forward`.
pub(crate) fn load_mixed(
    class: &Class,
    c: &Config,
    [head, model]: [&Loader<'_>; 2],
    mixer: &dyn Fn(&Loader<'_>, usize) -> Result<Mixer>,
    feed_forward: &dyn Fn(&Loader<'_>, usize) -> Result<FeedForward>,
) -> Result<Box<dyn Model>> {
    let eps = c.f32_or("rms_norm_eps", 1e-6)?;
    // One by one: a false number of layers ends at the first that is missing.
    let blocks = (0..c.usize("num_hidden_layers")?).map(|i| {
        let l = model.at("layers").at(i);
        let norm = |name: Option<&str>| name.map(|name| (class.norm)(&l, name, eps)).transpose();
        let [before, after, pre, post] = class.norms.map(norm);
        let norms = [[before?, after?], [pre?, post?]];
        Ok(Block { mixer: mixer(&l, i)?, mlp: feed_forward(&l, i)?, norms })
    });
    let embed = model.embedding("embed_tokens")?;
    let constant = |value: Option<f32>| value.map(|value| model.constant(value)).transpose();
    Ok(Box::new(Decoder {
        blocks: blocks.collect::<Result<_>>()?,
        caches: class.caches,
        norm: (class.norm)(model, class.last_norm, eps)?,
        head: Head::load(c, head, &embed, class.tied)?,
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
    /// The stream with what `f` makes of it, between the norms where there are any. What it gives is observed under `name`.
    fn branch(
        &self,
        s: &Step<'_>,
        x: Residual,
        [before, after]: &[Option<RmsNorm>; 2],
        name: impl FnOnce() -> String,
        f: impl FnOnce(&Tensor) -> Result<Tensor>,
    ) -> Result<Residual> {
        let (x, h) = match before {
            Some(norm) => x.normed(s, norm)?,
            None => x.plain(s)?,
        };
        let mut h = f(&h)?;
        s.observe(name, &h);
        if let Some(norm) = after {
            h = norm.forward(s, &h)?;
        }
        x.add(s, scaled(s, h, self.residual_scale.as_ref())?)
    }
}

impl Model for Decoder {
    fn cache_layout(&self) -> Vec<LayerCache> {
        let blocks = self.blocks.iter().enumerate().filter(|(_, b)| b.mixer.causal());
        ogive_nn::group_by_window(blocks.flat_map(|(i, b)| b.mixer.cache(i * self.caches, self.caches)))
    }

    fn causal(&self) -> bool {
        self.blocks.iter().all(|b| b.mixer.causal())
    }

    fn vocab(&self) -> Option<usize> {
        Some(self.embed.rows())
    }

    fn hidden(&self, s: &Step<'_>) -> Result<Tensor> {
        let mut x = Residual::new(scaled(s, self.embed.forward(s)?, self.embed_scale.as_ref())?); // [n, dim]
        for (i, Block { mixer, mlp, norms: [of_mixer, of_mlp] }) in self.blocks.iter().enumerate() {
            let at = |name: &str| format!("model.layers.{i}.{name}");
            x = self.branch(s, x, of_mixer, || at(mixer.name()), |h| mixer.forward(s, h))?;
            x = self.branch(s, x, of_mlp, || at("mlp"), |h| mlp.forward(s, h))?;
        }
        Ok(x.normed(s, &self.norm)?.1)
    }

    fn head(&self, s: &Step<'_>, hidden: Tensor) -> Result<Tensor> {
        scaled(s, self.head.forward(s, &hidden)?, self.logit_scale.as_ref())
    }
}
