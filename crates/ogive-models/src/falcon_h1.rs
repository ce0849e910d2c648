//! Falcon-H1: in each block attention and a selective state space beside each other, on the same input, and then a gated MLP. There are
//! factors on nearly everything that a matrix makes or is given.
//!
//! Falcon LLM Team 2025, <https://arxiv.org/abs/2507.22448>; transformers' `modeling_falcon_h1`. That of keys is one of scores, as positions
//! only turn them, and costs nothing; the others follow their matrices, which stay packed. A GGUF file has them in its weights. Which
//! projections have biases the weights say.

use crate::class::{Class, LLAMA};
use crate::{decoder, granite_hybrid, hybrid, mixer::Mixer};
use ogive_nn::backend::Activation;
use ogive_nn::tensor::{Error, Result};
use ogive_nn::{Attention, Config, FeedForward, GatedMlp, Loader, Mamba2, Mamba2Spec, Model, rope_of};

/// Attention has one cache layer and a state space two.
const FALCON_H1: Class = Class {
    norms: [Some("input_layernorm"), None, Some("pre_ff_layernorm"), None],
    last_norm: "final_layernorm",
    caches: 3,
    ..LLAMA
};

/// Reads a checkpoint with Hugging Face's names.
///
/// # Errors
/// If there are more or fewer factors than what they are for, bounds of steps in time, no MLPs (`mamba_use_mlp`), or `is_causal` is off; if
/// sizes of states do not fit each other; else as [every `load`](crate#errors).
pub fn load(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    hybrid::looks_back(c, "a state space")?;
    hybrid::steps_in_time(c)?;
    if !c.bool_or("mamba_use_mlp", true)? {
        return Err(Error::unsupported(
            "config",
            "`mamba_use_mlp` is off, and blocks of this class have MLPs",
        ));
    }
    let factor = |key: &str| c.f32_or(key, 1.0);
    let [attn_in, attn_out, ssm_in, ssm_out] = [
        factor("attention_in_multiplier")?,
        factor("attention_out_multiplier")?,
        factor("ssm_in_multiplier")?,
        factor("ssm_out_multiplier")?,
    ];
    let (parts, [gate, down]) = (factors(c, "ssm_multipliers")?, factors(c, "mlp_multipliers")?);
    let other = |key: &str| Ok::<_, Error>(Some(factor(key)?).filter(|factor| *factor != 1.0));
    let class = Class {
        embed_scale: other("embedding_multiplier")?,
        logit_scale: other("lm_head_multiplier")?,
        ..FALCON_H1
    };
    let spec = class.attention_of(c)?;
    let score = spec.scale * factor("key_multiplier")?;
    let (spec, rope) = (spec.scale(score), rope_of(c, root, class.head_dim_of(c)?)?);
    let (space, activation) = (space(c)?, ogive_nn::activation(c, "hidden_act", Activation::Silu)?);
    let mixer = |l: &Loader<'_>, i: usize| {
        let (first, attn, mamba) = (class.caches * i, l.at("self_attn"), l.at("mamba"));
        let beside = Mamba2::load(&mamba, space, first + 1)?.scaled(&mamba, ssm_in, parts, ssm_out)?;
        let attn =
            Attention::load(&attn, c, first, rope.clone(), spec.clone())?.scaled(&attn, attn_in, attn_out)?;
        Ok(Mixer::Both(Box::new((attn, beside))))
    };
    let model = root.at_or_here("model", "embed_tokens")?;
    decoder::load_mixed(&class, c, [root, &model], &mixer, &|l, _| {
        let l = l.at("feed_forward");
        Ok(FeedForward::Dense(GatedMlp::load(&l, activation)?.scaled(&l, gate, down)?))
    })
}

/// So many factors; 1 each where nothing is said.
fn factors<const N: usize>(c: &Config, key: &str) -> Result<[f32; N]> {
    let Some(all) = c.opt_f32s(key)? else { return Ok([1.0; N]) };
    let why = format!("`{key}` has {} factors in place of {N}", all.len());
    all.try_into().map_err(|_| Error::invalid("config", why))
}

/// The sizes of a state space, which may be as wide as is said. What comes out has a norm where the settings say so, of groups apart.
fn space(c: &Config) -> Result<Mamba2Spec> {
    let (inner, what) = match c.opt_usize("mamba_d_ssm")? {
        Some(inner) => (inner, "`mamba_d_ssm`"),
        None => (granite_hybrid::expanded(c)?, granite_hybrid::EXPANDED),
    };
    let sizes = granite_hybrid::sizes(c, inner, Some(what))?;
    let norm = (sizes.groups, c.f32_or("rms_norm_eps", 1e-5)?);
    Ok(Mamba2Spec {
        norm: c.bool_or("mamba_rms_norm", false)?.then_some(norm),
        norm_before_gate: c.bool_or("mamba_norm_before_gate", true)?,
        ..sizes
    })
}
