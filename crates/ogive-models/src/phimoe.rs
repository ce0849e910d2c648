//! Phi-3.5-MoE: layer norms and matrices with biases, rotary positions stretched by LongRoPE, and mixtures whose two experts of a token are chosen one
//! after the other, each with a share of its own.
//!
//! Abdin et al. 2024, <https://arxiv.org/abs/2404.14219>; transformers' `modeling_phimoe`. Shares are those of its sparse mixer (Liu et al. 2024,
//! <https://arxiv.org/abs/2409.12136>), nearly all of them 1; llama.cpp has a softmax over the two experts in its place, norms by RMS with a bias and no window, by which its files
//! compute otherwise.
//! Which projections have biases the weights say.

use crate::class::LLAMA;
use crate::layer_normed::{self, Class};
use crate::windows;
use ogive_nn::backend::{Activation, Rope, RouterSpec, Scoring};
use ogive_nn::tensor::{Error, Result};
use ogive_nn::{Attention, Config, FeedForward, Loader, Model, Moe, rope_of};

/// How many experts of a token the sparse mixer is for.
const CHOSEN: usize = 2;

/// Reads a checkpoint with Hugging Face's names; experts stacked or one by one. Which of LongRoPE's two lists and magnitudes counts, the loader's
/// context decides.
///
/// # Errors
/// If a token has not two experts, if `router_jitter_noise` is below 0, if positions are stretched by no magnitude, or if there are not
/// `num_local_experts` of each projection; else as [every `load`](crate#errors).
pub fn load(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    let class = Class {
        eps: c.f32_or("rms_norm_eps", 1e-5)?,
        norms: ("input_layernorm", Some("post_attention_layernorm")),
        beside: false,
        places: layer_normed::PLACES,
        last_norm: "norm",
        logit_scale: None,
        tied: false,
    };
    let (rope, window, spec) = (rope(c, root)?, windows::same(c)?, LLAMA.attention_of(c)?);
    let attention = |l: &Loader<'_>, i: usize| {
        let spec = windows::within(spec.clone(), window(i));
        Attention::load(&l.at("self_attn"), c, i, rope.clone(), spec)
    };
    let (n, router) = (c.usize_or("num_local_experts", 16)?, router(c)?);
    // Before experts are read, of which there may be fewer than are configured.
    router.check(n)?;
    let activation = ogive_nn::activation(c, "hidden_act", Activation::Silu)?;
    let mixture = |l: &Loader<'_>, _: usize| {
        let l = l.at("block_sparse_moe");
        Ok(FeedForward::Moe(Moe::load(&l, n, router.clone(), ["w1", "w3", "w2"], activation)?))
    };
    layer_normed::load(&class, c, root, &attention, &mixture)
}

/// The sparse mixer.
fn router(c: &Config) -> Result<RouterSpec> {
    let (chosen, noise) =
        (c.usize_or("num_experts_per_tok", CHOSEN)?, c.f32_or("router_jitter_noise", 0.01)?);
    if chosen != CHOSEN {
        let why = format!(
            "`num_experts_per_tok` is {chosen}, and the sparse mixer is for {CHOSEN} experts of a token"
        );
        return Err(Error::unsupported("config", why));
    }
    Ok(RouterSpec::new(CHOSEN, Scoring::SparseMixer { within: 2.0 * noise }).unnormalised(1.0))
}

/// The rotary positions, with the magnitude that the settings have for short texts or for long ones.
fn rope(c: &Config, root: &Loader<'_>) -> Result<Rope> {
    let (rope, scaling) = (rope_of(c, root, LLAMA.head_dim_of(c)?)?, c.at("rope_scaling"));
    if !scaling.has("long_factor") || scaling.has("attention_factor") {
        return Ok(rope);
    }
    const TRAINED: &str = "original_max_position_embeddings";
    let trained = c.opt_usize(TRAINED)?.or(scaling.opt_usize(TRAINED)?);
    let trained = trained.ok_or_else(|| Error::missing(&format!("config `rope_scaling.{TRAINED}`")))?;
    let longer = |tokens: usize| tokens > trained;
    let key = match root.context_as(|tokens| longer(tokens).into()).is_some_and(longer) {
        true => "long_mscale",
        false => "short_mscale",
    };
    let magnitude = scaling.opt_f32(key)?;
    Ok(rope.factor(magnitude.ok_or_else(|| Error::missing(&format!("config `rope_scaling.{key}`")))?))
}
