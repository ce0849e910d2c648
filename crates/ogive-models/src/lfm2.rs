//! LFM2, dense and mixtures: in most layers a gated short convolution, in the others attention with norms on queries and keys. One gated MLP
//! follows, or, behind the first layers of a mixture, experts that are scored each by itself and chosen by a bias besides.
//!
//! Liquid AI 2025, <https://arxiv.org/abs/2511.23404>; transformers' `modeling_lfm2` and `modeling_lfm2_moe`. The sum that shares are divided
//! by is taken as it is, where transformers adds 1e-6. How wide a dense MLP is the settings say in a roundabout way; the weights know it.

use crate::block::ReadsFeedForward;
use crate::class::{Class, LLAMA};
use crate::{decoder, hybrid, mixer::Mixer};
use ogive_nn::backend::{Activation, RouterSpec, Scoring};
use ogive_nn::tensor::Result;
use ogive_nn::{Attention, Config, FeedForward, GatedMlp, Loader, Model, Moe, ShortConv, rope_of};

const LFM2: Class = Class {
    norms: [Some("operator_norm"), None, Some("ffn_norm"), None],
    last_norm: "embedding_norm",
    tied: true,
    ..LLAMA
};

/// Gate, up and down.
const NAMES: [&str; 3] = ["w1", "w3", "w2"];

/// Reads a dense checkpoint with Hugging Face's names.
///
/// # Errors
/// If `layer_types` are more or fewer than the layers or name another kind, if `conv_L_cache` or `conv_bias` say otherwise than the weights,
/// or if `is_causal` is off; else as [every `load`](crate#errors).
pub fn load(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    load_with(c, root, &dense)
}

/// Reads a mixture with Hugging Face's names; experts stacked or one by one. The first `num_dense_layers` have none.
///
/// # Errors
/// As [`load`], and if there are not `num_experts` of each projection.
pub fn load_moe(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    let (first, n) = (c.usize("num_dense_layers")?, c.usize("num_experts")?);
    let mut router = RouterSpec::new(c.usize("num_experts_per_tok")?, Scoring::Sigmoid);
    router.normalise = c.bool_or("norm_topk_prob", true)?;
    router.scale = c.f32_or("routed_scaling_factor", 1.0)?;
    let biased = c.bool_or("use_expert_bias", true)?;
    load_with(c, root, &|l, i| {
        if i < first {
            return dense(l, i);
        }
        let (l, mut router) = (l.at("feed_forward"), router.clone());
        if biased {
            router = router.biased(l.numbers("expert_bias")?);
        }
        Ok(FeedForward::Moe(Moe::load(&l, n, router, NAMES, Activation::Silu)?))
    })
}

/// Reads a block's gated MLP.
fn dense(l: &Loader<'_>, _: usize) -> Result<FeedForward> {
    Ok(FeedForward::Dense(GatedMlp::named(&l.at("feed_forward"), NAMES, Activation::Silu)?))
}

/// Reads everything but what follows a block's convolution or attention, which `feed_forward` reads from the block's place.
fn load_with(c: &Config, root: &Loader<'_>, feed_forward: &ReadsFeedForward<'_>) -> Result<Box<dyn Model>> {
    hybrid::looks_back(c, "a short convolution")?;
    let (eps, convolves) = (c.f32_or("rms_norm_eps", 1e-6)?, hybrid::convolves(c)?);
    let (spec, rope) = (LFM2.attention_of(c)?, rope_of(c, root, LFM2.head_dim_of(c)?)?);
    let mixer = |l: &Loader<'_>, i: usize| {
        if convolves(i) {
            return Ok(Mixer::Conv(ShortConv::load(&l.at("conv"), c, i)?.into()));
        }
        let l = l.at("self_attn");
        let norm = |name| l.rms_norm(name, eps);
        let attn = Attention::load_named(&l, c, i, rope.clone(), spec.clone(), "out_proj")?;
        Ok(Mixer::Attention(attn.head_norms(norm("q_layernorm")?, norm("k_layernorm")?).into()))
    };
    let model = root.at_or_here("model", "embed_tokens")?;
    decoder::load_mixed(&LFM2, c, [root, &model], &mixer, feed_forward)
}
