//! Nemotron-H, and Nemotron 3's mixtures: blocks that are one thing each, a selective state space, attention that turns nothing, an MLP without
//! a gate, or a mixture of such MLPs beside one that all tokens share.
//!
//! NVIDIA 2025, <https://arxiv.org/abs/2504.03624>, <https://arxiv.org/abs/2508.14444> and <https://arxiv.org/abs/2512.20848>; transformers 5's
//! `modeling_nemotron_h`. Experts are chosen and weighed as DeepSeek-V3's are. Steps in time are as long as they come out, as in NVIDIA's own
//! class and llama.cpp: transformers makes those of prompts `time_step_min` long at least, and those of single tokens not, so that there a text
//! depends on how it is cut. How wide a state space is its heads say, not `expand`, and which projections have biases the weights. Layers that
//! foretell more than one token (`mtp`) are not read: logits do not depend on them.

use crate::class::{Class, LLAMA};
use crate::{decoder, hybrid, mixer::Mixer, routers};
use ogive_nn::backend::{Activation, Experts};
use ogive_nn::tensor::{Error, Result};
use ogive_nn::{Attention, Config, FeedForward, Loader, Mamba2, Mamba2Spec, Mlp, Model, Moe, activation};

/// A state space has two cache layers, and all blocks as many.
const NEMOTRON_H: Class = Class {
    norms: [Some("norm"), None, None, None],
    embed: "embeddings",
    last_norm: "norm_f",
    caches: 2,
    ..LLAMA
};

/// What blocks are.
const KINDS: [&str; 4] = ["mamba", "attention", "mlp", "moe"];

/// Reads a checkpoint with NVIDIA's names, or with those that transformers 5 gives the places where they stand; experts one by one or stacked.
///
/// # Errors
/// If `layer_types` (`hybrid_override_pattern`, `layers_block_type`) are missing, more or fewer than the layers or name another kind; if there
/// are windows, bounds of steps in time, or `is_causal` is off; if sizes of states, or groups of experts, do not fit; if experts have biases, or
/// see latents of their input (`moe_latent_size`); else as [every `load`](crate#errors).
pub fn load(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    hybrid::looks_back(c, "a state space")?;
    if let Some(window) = c.opt_usize("sliding_window")? {
        let why = format!("`sliding_window` is {window}, and programs differ in whether this class obeys it");
        return Err(Error::unsupported("config", why));
    }
    hybrid::steps_in_time(c)?;
    let spec = NEMOTRON_H.attention_of(c)?;
    let (space, relu2) = (space(c)?, activation(c, "mlp_hidden_act", Activation::ReluSquared)?);
    let kinds = hybrid::numbered(c, &KINDS)?.ok_or_else(|| Error::missing("config `layer_types`"))?;
    let mixer = |l: &Loader<'_>, i: usize| {
        let (l, first) = (&l.at("mixer"), NEMOTRON_H.caches * i);
        Ok(match kinds.get(i) {
            Some(0) => Mixer::Mamba(Mamba2::load(l, space, first)?.into()),
            Some(1) => Mixer::Attention(Attention::load(l, c, first, None, spec.clone())?.into()),
            Some(2) => Mixer::Alone(FeedForward::Plain(mlp(l, relu2)?).into()),
            _ => Mixer::Alone(mixture(l, c, relu2)?.into()),
        })
    };
    let backbone = root.at("backbone");
    let model = match root.optional(backbone.host(NEMOTRON_H.embed))? {
        Some(_) => backbone,
        None => root.at_or_here("model", NEMOTRON_H.embed)?,
    };
    decoder::load_alone(&NEMOTRON_H, c, [root, &model], &mixer)
}

/// Reads an MLP.
fn mlp(l: &Loader<'_>, activation: Activation) -> Result<Mlp> {
    Ok(Mlp { up: l.linear("up_proj")?, down: l.linear("down_proj")?, activation })
}

/// Reads a mixture, and the MLP beside it.
fn mixture(l: &Loader<'_>, c: &Config, activation: Activation) -> Result<FeedForward> {
    if let Some(size) = c.opt_usize("moe_latent_size")? {
        let why =
            format!("`moe_latent_size` is {size}, and experts that see latents of their input are not known");
        return Err(Error::unsupported("config", why));
    }
    // Before experts are read, of which there may be fewer than are configured.
    let (n, inner) = (c.usize("n_routed_experts")?, l.at("experts"));
    let router = routers::deepseek_v3(c, l.numbers("gate.e_score_correction_bias")?)?;
    router.check(n)?;
    for name in ["up_proj.bias", "down_proj.bias"] {
        if l.optional(inner.at(0).tensor(name))?.is_some() {
            let why = "experts have biases, which NVIDIA's class gives them with `mlp_bias`, and none of its models has";
            return Err(Error::unsupported(&inner.at(0).name(name), why));
        }
    }
    let experts =
        Experts::ungated([inner.stacked("up_proj", n)?, inner.stacked("down_proj", n)?], activation);
    let moe = Moe::new(l.linear("gate")?, router, experts)?;
    Ok(FeedForward::Shared(moe, Box::new(FeedForward::Plain(mlp(&l.at("shared_experts"), activation)?))))
}

/// The sizes of a state space, whose groups are normed apart.
fn space(c: &Config) -> Result<Mamba2Spec> {
    let groups = c.usize("n_groups")?;
    Ok(Mamba2Spec {
        heads: c.usize("mamba_num_heads")?,
        head_dim: c.usize("mamba_head_dim")?,
        groups,
        state: c.usize("ssm_state_size")?,
        taps: c.usize_or("conv_kernel", 4)?,
        activation: activation(c, "mamba_hidden_act", Activation::Silu)?,
        norm: Some((groups, c.f32_or("rms_norm_eps", 1e-5)?)),
        norm_before_gate: false,
    })
}
