//! Gemma 2: scaled embeddings, a norm before and after each block, a window on every other layer, and soft caps on the
//! scores and on the logits. Gemma 3 builds on it with other attention.
//!
//! Gemma Team 2024, <https://arxiv.org/abs/2408.00118>; transformers' `modeling_gemma2`.

use crate::{head::Head, windows};
use ogive_nn::backend::{Activation, AttnOption, AttnSpec, LayerCache};
use ogive_nn::tensor::{Error, Result, Tensor};
use ogive_nn::{Attention, Config, Embedding, GatedMlp, Loader, Model, Residual, RmsNorm, Step};

#[derive(Debug)]
struct Gemma2 {
    embed: Embedding,
    embed_scale: Tensor,
    blocks: Vec<Block>,
    norm: RmsNorm,
    head: Head,
    cap: Option<Cap>,
}

#[derive(Debug)]
struct Block {
    pre_attn: RmsNorm,
    attn: Attention,
    post_attn: RmsNorm,
    pre_mlp: RmsNorm,
    mlp: GatedMlp,
    post_mlp: RmsNorm,
}

/// `cap * tanh(x / cap)`, as factors before and after.
#[derive(Debug)]
struct Cap {
    before: Tensor,
    after: Tensor,
}

/// Reads a checkpoint with Hugging Face's names.
///
/// # Errors
/// If `layer_types` are more or fewer than the layers, or a cap or `query_pre_attn_scalar` is not above 0; else as [every `load`](crate#errors).
pub fn load(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    let cap = positive("attn_logit_softcapping", c.opt_f32("attn_logit_softcapping")?)?;
    let spec = cap.into_iter().fold(scores(c)?, |s, cap| s.with(AttnOption::SoftCap(cap)));
    let rope = ogive_nn::rope_of(c, root, spec.k_dim)?;
    let window = windows::every_second(c, 4096)?;
    load_with(c, root, &root.at_or_here("model", "embed_tokens")?, &|l, i| {
        Attention::load(l, c, i, rope.clone(), windows::within(spec.clone(), window(i)))
    })
}

/// Heads and the scale of their scores; no window and no soft cap.
pub(crate) fn scores(c: &Config) -> Result<AttnSpec> {
    let (heads, head_dim) = (c.usize("num_attention_heads")?, c.usize_or("head_dim", 256)?);
    let of = positive("query_pre_attn_scalar", c.opt_f32("query_pre_attn_scalar")?)?;
    let scale = of.unwrap_or(head_dim as f32).powf(-0.5);
    Ok(ogive_nn::spec_of(c, heads, c.usize_or("num_key_value_heads", heads)?, head_dim)?.scale(scale))
}

/// A number that others are divided by, if there is one: with 0 or less every logit would be no number.
fn positive(key: &str, value: Option<f32>) -> Result<Option<f32>> {
    match value {
        Some(v) if !(v > 0.0 && v.is_finite()) => Err(Error::invalid(
            "config",
            format!("`{key}` should be above 0 and is {v}; null turns a cap off"),
        )),
        other => Ok(other),
    }
}

/// Reads everything but attention, which `attention` reads from a block's place: the head at `root`, the rest at `model`.
pub(crate) fn load_with(
    c: &Config,
    root: &Loader<'_>,
    model: &Loader<'_>,
    attention: &dyn Fn(&Loader<'_>, usize) -> Result<Attention>,
) -> Result<Box<dyn Model>> {
    let eps = c.f32_or("rms_norm_eps", 1e-6)?;
    let activation = ogive_nn::activation(c, "hidden_activation", Activation::GeluTanh)?;
    let blocks = (0..c.usize("num_hidden_layers")?).map(|i| {
        let l = model.at("layers").at(i);
        Ok(Block {
            pre_attn: l.rms_norm_less_one("input_layernorm", eps)?,
            attn: attention(&l.at("self_attn"), i)?,
            post_attn: l.rms_norm_less_one("post_attention_layernorm", eps)?,
            pre_mlp: l.rms_norm_less_one("pre_feedforward_layernorm", eps)?,
            mlp: GatedMlp::load(&l.at("mlp"), activation)?,
            post_mlp: l.rms_norm_less_one("post_feedforward_layernorm", eps)?,
        })
    });
    let cap = match positive("final_logit_softcapping", c.opt_f32("final_logit_softcapping")?)? {
        Some(cap) => Some(Cap { before: root.constant(cap.recip())?, after: root.constant(cap)? }),
        None => None,
    };
    let embed = model.embedding("embed_tokens")?;
    Ok(Box::new(Gemma2 {
        blocks: blocks.collect::<Result<_>>()?,
        head: Head::load(c, root, &embed, true)?,
        embed,
        embed_scale: root.constant((c.usize("hidden_size")? as f32).sqrt())?,
        norm: model.rms_norm_less_one("norm", eps)?,
        cap,
    }))
}

impl Model for Gemma2 {
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
        let mut x = Residual::new(s.backend.mul(self.embed.forward(s)?, &self.embed_scale)?); // [n, dim]
        let mut h;
        for (i, block) in self.blocks.iter().enumerate() {
            (x, h) = x.normed(s, &block.pre_attn)?;
            h = block.attn.forward(s, &h)?;
            s.observe(|| format!("model.layers.{i}.self_attn"), &h);
            x = x.add(s, block.post_attn.forward(s, &h)?)?;
            (x, h) = x.normed(s, &block.pre_mlp)?;
            h = block.mlp.forward(s, &h)?;
            s.observe(|| format!("model.layers.{i}.mlp"), &h);
            x = x.add(s, block.post_mlp.forward(s, &h)?)?;
        }
        (_, h) = x.normed(s, &self.norm)?;
        Ok(h)
    }

    fn head(&self, s: &Step<'_>, hidden: Tensor) -> Result<Tensor> {
        let (b, logits) = (s.backend, self.head.forward(s, &hidden)?);
        let Some(cap) = &self.cap else { return Ok(logits) };
        let capped = b.activate(b.mul(logits, &cap.before)?, Activation::Tanh)?;
        b.mul(capped, &cap.after)
    }
}
