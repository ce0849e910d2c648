//! Qwen's mixtures of experts: Qwen2 (Qwen1.5-MoE too) with an expert that all tokens share beside those they choose, and Qwen3
//! without. Some layers may be dense.
//!
//! Yang et al. 2024, <https://arxiv.org/abs/2407.10671>, and 2025, <https://arxiv.org/abs/2505.09388>; transformers'
//! `modeling_qwen2_moe` and `modeling_qwen3_moe`. The shares of the chosen experts are those of all unless `norm_topk_prob` is on, as
//! the classes have it; that GGUF's Qwen3 has it on always, `ogive-weights` says.

use crate::{llama, windows};
use ogive_nn::backend::{Activation, Experts, RouterSpec, Scoring};
use ogive_nn::tensor::{Error, Result};
use ogive_nn::{Config, FeedForward, Loader, Model, Moe};

const NAMES: [&str; 3] = ["gate_proj", "up_proj", "down_proj"];

/// Reads a Qwen2 checkpoint with Hugging Face's names; experts stacked or one by one.
///
/// # Errors
/// If there are not `num_experts` of each projection, if `decoder_sparse_step` is 0, or if windows are on; else as
/// [every `load`](crate#errors).
pub fn load_qwen2(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    llama::load_with(c, root, windows::qwen2_moe(c)?, &sharing(c)?)
}

/// Reads a Qwen3 checkpoint with Hugging Face's names; experts stacked or one by one.
///
/// # Errors
/// If there are not `num_experts` of each projection, or `decoder_sparse_step` is 0; else as [every `load`](crate#errors).
pub fn load_qwen3(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    llama::load_with(c, root, windows::qwen3_moe(c)?, &alone(c, sparse(c)?)?)
}

/// Reads the text's part of Qwen3-VL's mixtures: Qwen3, whose shares sum to one and whose stacked experts have columns for rows.
pub(crate) fn load_qwen3_vl(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    let mut c = c.clone();
    if let Some(settings) = c.0.as_object_mut() {
        settings.insert("norm_topk_prob".into(), true.into());
    }
    let turned = Some([c.usize("hidden_size")?, c.usize("moe_intermediate_size")?]);
    let feed_forward = mixture(&c, sparse(&c)?, turned, |_, moe| Ok(FeedForward::Moe(moe)))?;
    llama::load_with(&c, root, windows::qwen3_moe(&c)?, &feed_forward)
}

/// Reads what follows attention in a block: a mixture where `sparse` says so, else one gated MLP.
pub(crate) fn alone<S: Fn(usize) -> bool>(
    c: &Config,
    sparse: S,
) -> Result<impl Fn(&Loader<'_>, usize) -> Result<FeedForward> + use<S>> {
    mixture(c, sparse, None, |_, moe| Ok(FeedForward::Moe(moe)))
}

/// The same by Qwen's rule, with an expert that all rows share beside the mixture.
pub(crate) fn sharing(c: &Config) -> Result<impl Fn(&Loader<'_>, usize) -> Result<FeedForward> + use<>> {
    let activation = ogive_nn::activation(c, "hidden_act", Activation::Silu)?;
    mixture(c, sparse(c)?, None, move |l, moe| {
        let shared = Moe::shared(l, "shared_expert_gate", "shared_expert", NAMES, activation)?;
        Ok(FeedForward::Shared(moe, Box::new(FeedForward::Moe(shared))))
    })
}

/// The same with what `finish` reads beside the mixture, from the block's `mlp`.
fn mixture<S: Fn(usize) -> bool, F: Fn(&Loader<'_>, Moe) -> Result<FeedForward>>(
    c: &Config,
    sparse: S,
    turned: Option<[usize; 2]>,
    finish: F,
) -> Result<impl Fn(&Loader<'_>, usize) -> Result<FeedForward> + use<S, F>> {
    // Later versions of transformers save it under the name that Mixtral has for it.
    let n = c.opt_usize("num_experts")?.or(c.opt_usize("num_local_experts")?);
    let n = n.ok_or_else(|| Error::missing("config `num_experts`"))?;
    let router = RouterSpec::new(c.usize("num_experts_per_tok")?, Scoring::Softmax);
    let router = if c.bool_or("norm_topk_prob", false)? { router } else { router.unnormalised(1.0) };
    let activation = ogive_nn::activation(c, "hidden_act", Activation::Silu)?;
    let dense = llama::dense(c)?;
    Ok(move |l: &Loader<'_>, i: usize| {
        if n == 0 || !sparse(i) {
            return dense(l, i);
        }
        let l = l.at("mlp");
        finish(&l, experts(&l, n, turned, router.clone(), activation)?)
    })
}

/// Reads a mixture: experts one by one or stacked, of which gate and up may be one matrix, as later versions of transformers keep them. Where files have
/// columns for rows of them, `turned` are the inputs and outputs of gate and up, by which it is seen whether this one has.
fn experts(
    l: &Loader<'_>,
    n: usize,
    turned: Option<[usize; 2]>,
    router: RouterSpec,
    activation: Activation,
) -> Result<Moe> {
    let inner = l.at("experts");
    let Some(both) = l.optional(inner.tensor("gate_up_proj"))? else {
        return Moe::load(l, n, router, NAMES, activation);
    };
    let down = inner.tensor("down_proj")?;
    let (both, down) = match turned {
        Some([dim, ffn]) if both.shape[1] == dim && down.shape[1] == ffn => {
            (both.transposed()?, down.transposed()?)
        }
        _ => (both, down),
    };
    let [gate, up] = inner.parts_of_stack(&both, n, [both.shape[1] / 2; 2])?;
    Moe::new(l.linear("gate")?, router, Experts::new([gate, up, l.weight(&down)?], activation))
}

/// Whether a layer has experts: each `decoder_sparse_step`-th, but for those that `mlp_only_layers` names.
fn sparse(c: &Config) -> Result<impl Fn(usize) -> bool + use<>> {
    let (step, dense) =
        (c.usize_or("decoder_sparse_step", 1)?, c.opt_usizes("mlp_only_layers")?.unwrap_or_default());
    if step == 0 {
        return Err(Error::invalid("config", "`decoder_sparse_step` is 0: no layer is each 0th"));
    }
    Ok(move |i: usize| (i + 1).is_multiple_of(step) && !dense.contains(&i))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_sparse_where_the_settings_have_them() {
        let of = |text: &str| {
            let sparse = sparse(&Config(serde_json::from_str(text).unwrap())).unwrap();
            [0, 1, 2, 3].map(sparse)
        };
        assert_eq!(of("{}"), [true; 4]);
        assert_eq!(of(r#"{"mlp_only_layers": [], "decoder_sparse_step": 2}"#), [false, true, false, true]);
        assert_eq!(
            of(r#"{"mlp_only_layers": [1, 9], "decoder_sparse_step": 2}"#),
            [false, false, false, true]
        );
        let zero = Config(serde_json::from_str(r#"{"decoder_sparse_step": 0}"#).unwrap());
        assert!(sparse(&zero).is_err());
    }
}
