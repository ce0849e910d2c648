//! ERNIE 4.5: Llama whose neighbours of a head turn together; and its mixtures of experts, chosen by a bias besides, with a gated MLP that
//! all tokens share. Their first layers have no experts.
//!
//! Baidu 2025, <https://ernie.baidu.com/blog/publication/ERNIE_Technical_Report.pdf>; transformers' `modeling_ernie4_5` and
//! `modeling_ernie4_5_moe`. Layers that foretell more than one token are not read.

use crate::class::{Class, LLAMA};
use crate::{decoder, llama};
use ogive_nn::backend::{Activation, Experts, RopeLayout, RouterSpec, Scoring};
use ogive_nn::tensor::{Error, Result, Tensor};
use ogive_nn::{Config, FeedForward, GatedMlp, Loader, Model, Moe};

const ERNIE: Class = Class { layout: RopeLayout::Pairs, tied: true, ..LLAMA };

/// An expert's projections.
const NAMES: [&str; 3] = ["gate_proj", "up_proj", "down_proj"];

/// The largest bound below the sum of shares that no sum comes near.
const NEARLY_NOTHING: f32 = 1e-9;

/// Reads a dense checkpoint with Hugging Face's names.
///
/// # Errors
/// None of its own; those of [every `load`](crate#errors).
pub fn load(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    decoder::load(&ERNIE, c, root, |_, rope, spec| (Some(rope), spec), &llama::dense(c)?)
}

/// Reads a mixture with Hugging Face's names; experts stacked or one by one.
///
/// # Errors
/// If there are not `moe_num_experts` of each projection, if experts have biases of several sizes, if `moe_layer_interval` is 0, and for
/// a `moe_norm_min` that is more than a guard against dividing by 0.
pub fn load_moe(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    if c.f32_or("moe_norm_min", 0.0)? > NEARLY_NOTHING {
        let why = format!(
            "`moe_norm_min` is above {NEARLY_NOTHING:e}, so that shares need not sum to 1, which is not known"
        );
        return Err(Error::unsupported("config", why));
    }
    let (n, chosen) = (c.usize("moe_num_experts")?, c.usize("moe_k")?);
    let shared = c.usize_or("moe_num_shared_experts", 0)?;
    let activation = ogive_nn::activation(c, "hidden_act", Activation::Silu)?;
    let sparse = sparse(c)?;
    decoder::load(&ERNIE, c, root, |_, rope, spec| (Some(rope), spec), &|l, i| {
        let l = l.at("mlp");
        if !sparse(i) {
            return Ok(FeedForward::Dense(GatedMlp::load(&l, activation)?));
        }
        let router = RouterSpec::new(chosen, Scoring::Softmax);
        let router = router.biased(l.numbers("moe_statics.e_score_correction_bias")?);
        // Before experts are read, of which there may be fewer than are configured.
        router.check(n)?;
        let moe = Moe::new(l.linear("gate")?, router, experts(&l.at("experts"), n, activation)?)?;
        if shared == 0 {
            return Ok(FeedForward::Moe(moe));
        }
        let shared = FeedForward::Dense(GatedMlp::load(&l.at("shared_experts"), activation)?);
        Ok(FeedForward::Shared(moe, Box::new(shared)))
    })
}

/// The experts, with biases where the first has some.
fn experts(l: &Loader<'_>, n: usize, activation: Activation) -> Result<Experts> {
    let [gate, up, down] = NAMES.map(|name| l.stacked(name, n));
    let experts = Experts::new([gate?, up?, down?], activation);
    if l.optional(l.at(0).tensor("gate_proj.bias"))?.is_none() {
        return Ok(experts);
    }
    let [gate, up, down] = NAMES.map(|name| biases(l, n, name));
    Ok(experts.biased([gate?, up?, down?]))
}

/// One bias of each expert. `[n, out]`
fn biases(l: &Loader<'_>, n: usize, name: &str) -> Result<Tensor> {
    let mut all = Vec::new();
    for expert in 0..n {
        let bias = l.at(expert).tensor(&format!("{name}.bias"))?;
        let values = bias.to_vec();
        if all.len() != expert * values.len() {
            let why = format!("{} elements, where those of the experts before it have others", values.len());
            return Err(Error::invalid(&bias.name, why));
        }
        all.extend(values);
    }
    l.backend().upload(&all, [n, all.len() / n.max(1)].into())
}

/// Whether a layer has experts: each `moe_layer_interval`-th, from `moe_layer_start_index` to `moe_layer_end_index`, which at -1 is the last.
fn sparse(c: &Config) -> Result<impl Fn(usize) -> bool + use<>> {
    let every = c.usize_or("moe_layer_interval", 1)?;
    if every == 0 {
        return Err(Error::invalid("config", "`moe_layer_interval` is 0: no layer is each 0th"));
    }
    let first = c.usize_or("moe_layer_start_index", 1)?;
    let last = match c.0.get("moe_layer_end_index").and_then(|end| end.as_i64()) {
        Some(-1) => None,
        _ => c.opt_usize("moe_layer_end_index")?,
    };
    Ok(move |i: usize| (i + 1).is_multiple_of(every) && i >= first && last.is_none_or(|last| i <= last))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ogive_nn::tensor::serde_json::{Value, json};

    #[test]
    fn layers_have_experts_where_the_settings_have_them() {
        let of = |settings: Value| Ok::<_, Error>([0, 1, 2, 3, 4].map(sparse(&Config(settings))?));
        assert_eq!(of(json!({})).unwrap(), [false, true, true, true, true]);
        let some = json!({"moe_layer_start_index": 0, "moe_layer_end_index": 3, "moe_layer_interval": 2});
        assert_eq!(of(some).unwrap(), [false, true, false, true, false]);
        let last = json!({"moe_layer_start_index": 2, "moe_layer_end_index": -1});
        assert_eq!(of(last).unwrap(), [false, false, true, true, true]);
        for (key, value) in [
            ("moe_layer_interval", json!(0)),
            ("moe_layer_end_index", json!(-2)),
            ("moe_layer_end_index", json!("x")),
        ] {
            let e = of(json!({ key: value })).unwrap_err().to_string();
            assert!(e.contains(key), "{e}");
        }
    }
}
