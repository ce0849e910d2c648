//! DeepSeek-V2 and V3, and what has V3's class: R1, Moonlight, Kimi K2. Latent attention, then in all but the first layers a mixture of many
//! small experts and a gated MLP that all tokens share.
//!
//! DeepSeek-AI 2024, <https://arxiv.org/abs/2405.04434> (V2) and <https://arxiv.org/abs/2412.19437> (V3); transformers'
//! `modeling_deepseek_v2` and `modeling_deepseek_v3`. Where those of 4.57 and DeepSeek's own differ, what counts is DeepSeek's own: scores are
//! scaled by `mscale_all_dim` in V2 too, layers may be dense in between (`moe_layer_freq`), and V3's experts outside the chosen groups are
//! never chosen, where transformers gives them a score of 0. Layers behind `num_hidden_layers`, which foretell more than one token
//! (`num_nextn_predict_layers`), are not read: logits do not depend on them.

use crate::{class::LLAMA, decoder, mixer::Mixer, routers};
use ogive_nn::backend::{Activation, RopeLayout, RouterSpec};
use ogive_nn::tensor::{Error, Result};
use ogive_nn::{Config, FeedForward, GatedMlp, LatentAttention, Loader, Model, Moe, activation, rope_of};

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
    let rope = rope_of(c, root, c.usize("qk_rope_head_dim")?)?.layout(layout);
    let every = c.usize_or("moe_layer_freq", 1)?;
    if every == 0 {
        return Err(Error::invalid("config", "`moe_layer_freq` is 0: no layer is each 0th"));
    }
    let feed_forward = mixtures(c, every, router)?;
    let mixer = |l: &Loader<'_>, i: usize| {
        let attn = LatentAttention::load(&l.at("self_attn"), c, i, rope.clone())?;
        Ok(Mixer::Latent(attn.into()))
    };
    let model = root.at_or_here("model", "embed_tokens")?;
    decoder::load_mixed(&LLAMA, c, [root, &model], &mixer, &feed_forward)
}

/// Reads what follows attention: in the first layers one gated MLP, in each `every`-th of the others experts and a gated MLP that all tokens
/// share. How a layer chooses experts `router` reads, from the block's `mlp`.
pub(crate) fn mixtures<'a>(
    c: &Config,
    every: usize,
    router: &'a dyn Fn(&Loader<'_>) -> Result<RouterSpec>,
) -> Result<impl Fn(&Loader<'_>, usize) -> Result<FeedForward> + use<'a>> {
    let activation = activation(c, "hidden_act", Activation::Silu)?;
    let dense = c.usize_or("first_k_dense_replace", 0)?;
    let (experts, shared) = (c.usize_or("n_routed_experts", 0)?, c.usize_or("n_shared_experts", 0)?);
    Ok(move |l: &Loader<'_>, i: usize| {
        let l = &l.at("mlp");
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
    })
}
