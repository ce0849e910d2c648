//! Llama 4, the part that reads and writes text (Scout, Maverick): experts in all layers or in some, which are given their share of the input, beside one that all
//! rows share; texts in chunks, beyond which most layers see nothing; and in the others positions that are not turned, by which queries grow instead.
//!
//! Meta 2025, <https://ai.meta.com/blog/llama-4-multimodal-intelligence/>; transformers' `modeling_llama4`. Queries and keys are normed before they are turned and
//! not after, which is the same: a turn leaves a head as long as it is. Experts are chosen by sigmoids, as they are weighed, and not by what these are of:
//! where those of two are 1 as singles the lower index is chosen.

use crate::class::{Class, LLAMA};
use crate::{decoder, head::places, hybrid, mixer::Mixer, smollm3};
use ogive_nn::backend::{Activation, AttnOption, AttnSpec, Experts, RopeLayout, RouterSpec, Scoring};
use ogive_nn::tensor::{Error, Result};
use ogive_nn::{Attention, Config, FeedForward, GatedMlp, Loader, Model, Moe, RmsNorm};

const LLAMA4: Class = Class { head_dim: Some(128), layout: RopeLayout::Pairs, ..LLAMA };

/// Reads a checkpoint with Hugging Face's names, of the text alone or of a model that also sees; experts stacked, gate and up of each in one matrix or not.
///
/// # Errors
/// If lists for layers are longer or shorter than there are layers, if chunks or the steps by which queries grow are of 0 tokens, if rotary positions are stretched
/// otherwise than as `llama3`, or if `is_causal` is off; else as [every `load`](crate#errors).
pub fn load(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    hybrid::looks_back(c, "a chunk")?;
    let kind = c.at("rope_scaling").opt_str("rope_type")?.unwrap_or("default").to_owned();
    if !["default", "llama3", "factors"].contains(&&*kind) {
        let why = format!("rope scaling `{kind}`, and this class knows `llama3` alone");
        return Err(Error::unsupported("config", why));
    }
    let (spec, eps) = (LLAMA4.attention_of(c)?, c.f32_or("rms_norm_eps", 1e-5)?);
    let rope = ogive_nn::rope_of(c, root, spec.k_dim)?.layout(LLAMA4.layout);
    let (turns, chunks, growth) = (smollm3::turns(c)?, Chunks::read(c)?, growth(c)?);
    let (normed, reach) = (on(c, "use_qk_norm")?, c.usize_or("max_position_embeddings", 131_072)?);
    let mixer = |l: &Loader<'_>, i: usize| {
        let (l, rope) = (l.at("self_attn"), turns(i).then(|| rope.clone()));
        let chunk = chunks.of(i, turns(i))?.map(AttnOption::Chunk);
        let spec = chunk.into_iter().fold(spec.clone(), AttnSpec::with);
        let attn = Attention::load(&l, c, i, rope, spec.clone())?;
        Ok(Mixer::Attention(Box::new(match (turns(i), &growth) {
            (true, _) if normed => {
                let ones = l.backend().upload(&vec![1.0; spec.k_dim], [spec.k_dim].into())?;
                let norm = RmsNorm { weight: ones, eps };
                attn.head_norms(norm.clone(), norm)
            }
            (false, Some(growth)) => attn.growing(&l, reach, growth)?,
            _ => attn,
        })))
    };
    let (sparse, activation) = (sparse(c)?, ogive_nn::activation(c, "hidden_act", Activation::Silu)?);
    let (head, model) = places(root)?;
    decoder::load_mixed(&LLAMA4, c, [&head, &model], &mixer, &|l, i| {
        let l = l.at("feed_forward");
        match sparse(i) {
            true => mixture(c, &l, activation),
            false => Ok(FeedForward::Dense(GatedMlp::load(&l, activation)?)),
        }
    })
}

/// Reads the text's part of a checkpoint that also sees.
///
/// # Errors
/// As [`load`], of what is below `text_config`.
pub fn load_nested(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    load(&crate::nested::text_of(c), root)
}

/// A router, experts, and the MLP beside them. In transformers' files matrices of experts have columns for rows, and gate and up are one.
fn mixture(c: &Config, l: &Loader<'_>, activation: Activation) -> Result<FeedForward> {
    let (n, inner) = (c.usize("num_local_experts")?, l.at("experts"));
    let weights = match l.optional(inner.tensor("gate_up_proj"))? {
        Some(both) => {
            let (both, down) = (both.transposed()?, inner.tensor("down_proj")?.transposed()?);
            let [gate, up] = inner.parts_of_stack(&both, n, [both.shape[1] / 2; 2])?;
            [gate, up, l.weight(&down)?]
        }
        None => {
            [inner.stacked("gate_proj", n)?, inner.stacked("up_proj", n)?, inner.stacked("down_proj", n)?]
        }
    };
    let spec = RouterSpec::new(c.usize("num_experts_per_tok")?, Scoring::Sigmoid).unnormalised(1.0);
    let moe = Moe::new(l.linear("router")?, spec, Experts::new(weights, activation))?.weighing_inputs(l)?;
    let shared = GatedMlp::load(&l.at("shared_expert"), activation)?;
    Ok(FeedForward::Shared(moe, Box::new(FeedForward::Dense(shared))))
}

/// Whether a layer has experts: by `moe_layers`, else each `interleave_moe_layer_step`-th.
fn sparse(c: &Config) -> Result<impl Fn(usize) -> bool + use<>> {
    let (listed, step) = (c.opt_usizes("moe_layers")?, c.usize_or("interleave_moe_layer_step", 1)?);
    if listed.is_none() && step == 0 {
        return Err(Error::invalid("config", "`interleave_moe_layer_step` is 0: no layer is each 0th"));
    }
    Ok(move |i: usize| {
        listed.as_ref().map_or_else(|| (i + 1).is_multiple_of(step), |listed| listed.contains(&i))
    })
}

/// Which layers see no further than their chunk, by `layer_types`, else those that turn; and how long chunks are.
struct Chunks {
    listed: Option<Vec<usize>>,
    len: usize,
}

impl Chunks {
    fn read(c: &Config) -> Result<Self> {
        const LEN: &str = "attention_chunk_size";
        // `null` is no default.
        let len = if c.0.get(LEN).is_some() { c.opt_usize(LEN)?.unwrap_or(0) } else { 8192 };
        Ok(Self { listed: hybrid::numbered(c, &["chunked_attention", "full_attention"])?, len })
    }

    fn of(&self, i: usize, turns: bool) -> Result<Option<usize>> {
        let chunked = self.listed.as_ref().map_or(turns, |kinds| kinds.get(i) == Some(&0));
        match self.len {
            0 if chunked => {
                Err(Error::invalid("config", "`attention_chunk_size` is 0 or null: nobody would see"))
            }
            n => Ok(chunked.then_some(n)),
        }
    }
}

/// Whether a switch is on, as it is where nothing is said; `null` is off. Early checkpoints have a number, of which counts whether it is one.
fn on(c: &Config, switch: &str) -> Result<bool> {
    match c.0.get(switch) {
        Some(said) if said.is_u64() => Ok(c.usize(switch)? > 0),
        Some(said) if said.is_null() => Ok(false),
        _ => c.bool_or(switch, true),
    }
}

/// What queries of each position are multiplied by where they are not turned, if by anything: more every `floor_scale` tokens.
fn growth(c: &Config) -> Result<Option<impl Fn(usize) -> f32 + use<>>> {
    if !on(c, "attn_temperature_tuning")? {
        return Ok(None);
    }
    let (step, by) = (c.usize_or("floor_scale", 8192)?, c.f32_or("attn_scale", 0.1)?);
    if step == 0 {
        return Err(Error::invalid("config", "`floor_scale` is 0: queries cannot grow every 0 tokens"));
    }
    Ok(Some(move |place: usize| (((place + 1) / step) as f32).ln_1p() * by + 1.0))
}
