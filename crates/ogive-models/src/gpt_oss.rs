//! gpt-oss: Llama with biases throughout, a window on every other layer, a sink for each head, which takes part in the softmax only, and a
//! mixture of experts whose gates are bounded.
//!
//! OpenAI 2025, <https://arxiv.org/abs/2508.10925>; transformers' `modeling_gpt_oss`. `hidden_act` says `silu` there and counts for nothing.

use crate::class::{Class, LLAMA};
use crate::{decoder, windows};
use ogive_nn::backend::{Activation, Experts, Gating, RouterSpec, Scoring};
use ogive_nn::tensor::{Error, HostWeight, Result, Tensor};
use ogive_nn::{Config, FeedForward, Loader, Model, Moe};

/// Reads a checkpoint with Hugging Face's names, or one whose experts have gate and up apart, as GGUF's.
///
/// # Errors
/// If there are not `num_local_experts` of each projection, or gate and up have not as many rows each; else as
/// [every `load`](crate#errors).
pub fn load(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    let n = c.usize("num_local_experts")?;
    // The shares of the chosen among all are what a softmax of those alone gives.
    let router = RouterSpec::new(c.usize_or("num_experts_per_tok", 4)?, Scoring::Softmax);
    let gating = Gating::Clamped { limit: c.f32_or("swiglu_limit", 7.0)? };
    let class = Class { head_dim: Some(64), sinks: true, ..LLAMA };
    let window = windows::every_second(c, 128)?;
    let layer = |i, rope, spec| (Some(rope), windows::within(spec, window(i)));
    decoder::load(&class, c, root, layer, &|l, _| {
        let l = l.at("mlp");
        let experts = experts(&l.at("experts"), n)?.gating(gating);
        Ok(FeedForward::Moe(Moe::new(l.linear("router")?, router.clone(), experts)?))
    })
}

/// The experts, with gate and up apart or in one.
fn experts(l: &Loader<'_>, n: usize) -> Result<Experts> {
    let Some(gate) = l.optional(l.stacked("gate_proj", n))? else { return fused(l, n) };
    let weights = [gate, l.stacked("up_proj", n)?, l.stacked("down_proj", n)?];
    let [gate, up, down] =
        ["gate_proj", "up_proj", "down_proj"].map(|name| l.numbers(&format!("{name}.bias")));
    Ok(Experts::new(weights, Activation::QuickGelu).biased([gate?, up?, down?]))
}

/// Those whose gate and up are rows of one matrix in turn, as Hugging Face has them: packed as `[n, out, in]`, or plain as `[n, in, out]`.
fn fused(l: &Loader<'_>, n: usize) -> Result<Experts> {
    const BOTH: &str = "gate_up_proj";
    let weight = |name: &str| {
        let host = match l.optional(l.host(name))? {
            Some(packed) => packed,
            None => l.tensor(name)?.transposed()?,
        };
        if host.shape[0] == n {
            return Ok(host);
        }
        Err(Error::invalid(&host.name, format!("{} experts, where {n} are configured", host.shape[0])))
    };
    let (gate, up) = apart(&weight(BOTH)?)?;
    let weights = [l.weight(&gate)?, l.weight(&up)?, l.weight(&weight("down_proj")?)?];

    let both = l.tensor(&format!("{BOTH}_bias"))?;
    let (values, hidden) = (both.to_vec(), gate.shape[1]);
    if values.len() != 2 * n * hidden {
        let why = format!("{:?} biases for {n} experts of {} outputs", both.shape, 2 * hidden);
        return Err(Error::invalid(&both.name, why));
    }
    let every_second = |first: usize| -> Result<Tensor> {
        let part: Vec<f32> = values.iter().skip(first).step_by(2).copied().collect();
        l.backend().upload(&part, [n, hidden].into())
    };
    let bias = [every_second(0)?, every_second(1)?, l.numbers("down_proj_bias")?];
    Ok(Experts::new(weights, Activation::QuickGelu).biased(bias))
}

/// The even and the odd rows of each expert, as packed as they are.
fn apart(both: &HostWeight) -> Result<(HostWeight, HostWeight)> {
    let [n, rows, _] = both.shape;
    if !rows.is_multiple_of(2) {
        let why = format!("{rows} outputs, where gate and up have as many each");
        return Err(Error::invalid(&both.name, why));
    }
    let order: Vec<usize> = (0..2).flat_map(|first| (first..n * rows).step_by(2)).collect();
    let (sorted, half) = (both.regrouped(1)?.reordered(&order)?, n * rows / 2);
    let part = |range| sorted.rows(range)?.regrouped(n);
    Ok((part(0..half)?, part(half..2 * half)?))
}
