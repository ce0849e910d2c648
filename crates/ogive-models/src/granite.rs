//! Granite 3: Llama with four factors, on embeddings, scores, what a block adds and logits, and its mixtures of experts, whose gate and
//! up are one matrix of each expert.
//!
//! Granite Team 2024, <https://github.com/ibm-granite/granite-3.0-language-models/blob/main/paper.pdf>; transformers'
//! `modeling_granite` and `modeling_granitemoe`. Where no `attention_multiplier` is said, scores have the usual scale, as in llama.cpp;
//! that the classes take silence for 1, `ogive-weights` says.

use crate::class::{Class, LLAMA};
use crate::{decoder, llama};
use ogive_nn::backend::{Activation, Experts, RouterSpec, Scoring};
use ogive_nn::tensor::{Error, Result};
use ogive_nn::{Config, FeedForward, Loader, Model, Moe};

/// Reads a checkpoint with Hugging Face's names.
///
/// # Errors
/// None of its own; those of [every `load`](crate#errors).
pub fn load(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    decoder::load(&class(c)?, c, root, |_, rope, spec| (Some(rope), spec), &llama::dense(c)?)
}

/// Reads a mixture of experts with Hugging Face's names; gate and up in one matrix, or each in its own.
///
/// # Errors
/// As [`load`].
pub fn load_moe(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    let experts = experts(c)?;
    decoder::load(&class(c)?, c, root, |_, rope, spec| (Some(rope), spec), &|l, _| {
        Ok(FeedForward::Moe(experts(l)?))
    })
}

/// Reads a block's mixture of experts.
pub(crate) fn experts(c: &Config) -> Result<impl Fn(&Loader<'_>) -> Result<Moe> + use<>> {
    let (n, ffn) = (c.usize("num_local_experts")?, c.usize("intermediate_size")?);
    let router = RouterSpec::new(c.usize("num_experts_per_tok")?, Scoring::Softmax);
    let activation = ogive_nn::activation(c, "hidden_act", Activation::Silu)?;
    Ok(move |l: &Loader<'_>| {
        let l = l.at("block_sparse_moe");
        let [gate, up] = match l.optional(l.stacked_parts("input_linear", n, [ffn; 2]))? {
            Some(parts) => parts,
            None => [l.at("experts").stacked("gate_proj", n)?, l.at("experts").stacked("up_proj", n)?],
        };
        let experts = Experts::new([gate, up, l.stacked("output_linear", n)?], activation);
        Moe::new(l.linear("router.layer")?, router.clone(), experts)
    })
}

/// Granite's factors.
pub(crate) fn class(c: &Config) -> Result<Class> {
    let logits = c.f32_or("logits_scaling", 1.0)?;
    if logits == 0.0 {
        return Err(Error::invalid("config", "`logits_scaling` is 0, and logits are divided by it"));
    }
    let factor = |key: &str| Ok(Some(c.f32_or(key, 1.0)?).filter(|factor| *factor != 1.0));
    Ok(Class {
        score_scale: c.opt_f32("attention_multiplier")?,
        embed_scale: factor("embedding_multiplier")?,
        residual_scale: factor("residual_multiplier")?,
        logit_scale: Some(logits.recip()).filter(|factor| *factor != 1.0),
        ..LLAMA
    })
}
