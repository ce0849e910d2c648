//! DeepSeek-V2 and V3, and what has V3's class: R1, Moonlight, Kimi K2. Latent attention, then in all but the first layers a mixture of many
//! small experts and a gated MLP that all tokens share.
//!
//! DeepSeek-AI 2024, <https://arxiv.org/abs/2405.04434> (V2) and <https://arxiv.org/abs/2412.19437> (V3); transformers'
//! `modeling_deepseek_v2` and `modeling_deepseek_v3`. Where those of 4.57 and DeepSeek's own differ, what counts is DeepSeek's own: scores are
//! scaled by `mscale_all_dim` in V2 too, layers may be dense in between (`moe_layer_freq`), and V3's experts outside the chosen groups are
//! never chosen, where transformers gives them a score of 0. Layers behind `num_hidden_layers`, which foretell more than one token
//! (`num_nextn_predict_layers`), are not read: logits do not depend on them.

use crate::{head::Head, routers};
use ogive_nn::backend::{Activation, LayerCache, RopeLayout, RouterSpec};
use ogive_nn::tensor::{Error, Result, Tensor};
use ogive_nn::{Config, Embedding, FeedForward, GatedMlp, LatentAttention, Loader, Model, Moe};
use ogive_nn::{Residual, RmsNorm, Step, activation, rope_of};

#[derive(Debug)]
struct DeepSeek {
    embed: Embedding,
    blocks: Vec<Block>,
    norm: RmsNorm,
    head: Head,
}

#[derive(Debug)]
struct Block {
    attn_norm: RmsNorm,
    attn: LatentAttention,
    mlp_norm: RmsNorm,
    mlp: FeedForward,
}

/// Reads a DeepSeek-V2 checkpoint, large or Lite, with Hugging Face's names; experts stacked or one by one.
///
/// # Errors
/// Where sizes or groups do not fit, where a way to choose experts is not known, and for `norm_topk_prob`: transformers ignores it,
/// DeepSeek's own class leaves out `routed_scaling_factor` then, llama.cpp does not, and no model has it on.
pub fn load_v2(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    load(c, root, RopeLayout::Pairs, &|_| routers::deepseek_v2(c))
}

/// Reads a checkpoint of V3's class. Experts are chosen by a bias besides, and halves of a head rotate in place of pairs where
/// `rope_interleave` is off.
///
/// # Errors
/// Where sizes or groups do not fit, and where a way to choose experts is not known.
pub fn load_v3(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    let pairs = c.bool_or("rope_interleave", true)?;
    let layout = if pairs { RopeLayout::Pairs } else { RopeLayout::Halves };
    load(c, root, layout, &|l| routers::deepseek_v3(c, l.numbers("gate.e_score_correction_bias")?))
}

/// Reads everything. How a layer chooses experts `router` reads, from the block's `mlp`.
fn load(
    c: &Config,
    root: &Loader<'_>,
    layout: RopeLayout,
    router: &dyn Fn(&Loader<'_>) -> Result<RouterSpec>,
) -> Result<Box<dyn Model>> {
    let eps = c.f32_or("rms_norm_eps", 1e-6)?;
    let rope = rope_of(c, root, c.usize("qk_rope_head_dim")?)?.layout(layout);
    let activation = activation(c, "hidden_act", Activation::Silu)?;
    let (dense, every) = (c.usize_or("first_k_dense_replace", 0)?, c.usize_or("moe_layer_freq", 1)?);
    if every == 0 {
        return Err(Error::invalid("config", "`moe_layer_freq` is 0: no layer is each 0th"));
    }
    let (experts, shared) = (c.usize_or("n_routed_experts", 0)?, c.usize_or("n_shared_experts", 0)?);
    let feed_forward = |l: &Loader<'_>, i: usize| {
        if experts == 0 || i < dense || !i.is_multiple_of(every) {
            return Ok(FeedForward::Dense(GatedMlp::load(l, activation)?));
        }
        // Before experts are read, of which there may be fewer than are configured.
        let router = router(l)?;
        router.check(experts)?;
        let moe = Moe::load(l, experts, router, ["gate_proj", "up_proj", "down_proj"], activation)?;
        if shared == 0 {
            return Ok(FeedForward::Moe(moe));
        }
        let shared = FeedForward::Dense(GatedMlp::load(&l.at("shared_experts"), activation)?);
        Ok(FeedForward::Shared(moe, Box::new(shared)))
    };
    let model = root.at_or_here("model", "embed_tokens")?;
    // One by one: a false number of layers ends at the first that is missing.
    let blocks = (0..c.usize("num_hidden_layers")?).map(|i| {
        let l = model.at("layers").at(i);
        Ok(Block {
            attn_norm: l.rms_norm("input_layernorm", eps)?,
            attn: LatentAttention::load(&l.at("self_attn"), c, i, rope.clone())?,
            mlp_norm: l.rms_norm("post_attention_layernorm", eps)?,
            mlp: feed_forward(&l.at("mlp"), i)?,
        })
    });
    let embed = model.embedding("embed_tokens")?;
    Ok(Box::new(DeepSeek {
        blocks: blocks.collect::<Result<_>>()?,
        norm: model.rms_norm("norm", eps)?,
        head: Head::load(c, root, &embed, false)?,
        embed,
    }))
}

impl Model for DeepSeek {
    fn cache_layout(&self) -> Vec<LayerCache> {
        self.blocks.iter().map(|block| block.attn.cache()).collect()
    }

    fn vocab(&self) -> Option<usize> {
        Some(self.embed.rows())
    }

    fn hidden(&self, s: &Step<'_>) -> Result<Tensor> {
        let mut x = Residual::new(self.embed.forward(s)?); // [n, dim]
        for (i, block) in self.blocks.iter().enumerate() {
            let at = |name: &str| format!("model.layers.{i}.{name}");
            x = x.branch(s, &block.attn_norm, || at("self_attn"), |h| block.attn.forward(s, h))?;
            x = x.branch(s, &block.mlp_norm, || at("mlp"), |h| block.mlp.forward(s, h))?;
        }
        Ok(x.normed(s, &self.norm)?.1)
    }

    fn head(&self, s: &Step<'_>, hidden: Tensor) -> Result<Tensor> {
        self.head.forward(s, &hidden)
    }
}
