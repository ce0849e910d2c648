//! Jamba: the first Mamba's state spaces in most layers, attention that turns nothing in the others, and in each so-manyth layer a mixture of
//! gated MLPs in place of one. Steps in time, writing and reading are normed.
//!
//! AI21 Labs 2024, <https://arxiv.org/abs/2403.19887> and <https://arxiv.org/abs/2408.12570>; transformers' `modeling_jamba`. Shares are those of
//! all experts. Which projections have biases the weights say.

use crate::class::{Class, LLAMA};
use crate::{decoder, hybrid, mixer::Mixer};
use ogive_nn::backend::{Activation, Experts, RouterSpec, Scoring};
use ogive_nn::tensor::{Error, Result};
use ogive_nn::{Attention, Config, FeedForward, GatedMlp, Loader, Mamba, MambaSpec, Model, Moe};

/// A state space has two cache layers, and all blocks as many.
const JAMBA: Class = Class {
    norms: [Some("input_layernorm"), None, Some("pre_ff_layernorm"), None],
    last_norm: "final_layernorm",
    caches: 2,
    ..LLAMA
};

/// Norms of what steps in time, writing and reading are made of.
const NORMS: [&str; 3] = ["dt_layernorm", "b_layernorm", "c_layernorm"];

/// Reads a checkpoint with Hugging Face's names; experts stacked or one by one.
///
/// # Errors
/// If there are windows, or `is_causal` is off; if `layer_types` or `layers_num_experts` are more or fewer than the layers; if a period is 0 or
/// its offset beyond it; if there are not `num_experts` of each projection, or the sizes of states are none; else as
/// [every `load`](crate#errors).
pub fn load(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    hybrid::looks_back(c, "a state space")?;
    if let Some(window) = c.opt_usize("sliding_window")? {
        let why = format!("`sliding_window` is {window}, and programs differ in whether this class obeys it");
        return Err(Error::unsupported("config", why));
    }
    let (attends, sparse, spec, space) = (attends(c)?, sparse(c)?, JAMBA.attention_of(c)?, space(c)?);
    let mixer = |l: &Loader<'_>, i: usize| {
        let first = JAMBA.caches * i;
        if attends(i) {
            let attn = Attention::load(&l.at("self_attn"), c, first, None, spec.clone())?;
            return Ok(Mixer::Attention(attn.into()));
        }
        let l = l.at("mamba");
        // Without any, a layer would norm by ones, as Falcon-Mamba does.
        NORMS.iter().try_for_each(|name| l.host(name).map(drop))?;
        Ok(Mixer::Space(Mamba::load(&l, space, first)?.into()))
    };
    let activation = ogive_nn::activation(c, "hidden_act", Activation::Silu)?;
    let (n, chosen) = (c.usize_or("num_experts", 16)?, c.usize_or("num_experts_per_tok", 2)?);
    let model = root.at_or_here("model", "embed_tokens")?;
    decoder::load_mixed(&JAMBA, c, [root, &model], &mixer, &|l, i| {
        let l = l.at("feed_forward");
        if !sparse(i) {
            return Ok(FeedForward::Dense(GatedMlp::load(&l, activation)?));
        }
        let router = RouterSpec::new(chosen, Scoring::Softmax).unnormalised(1.0);
        // Before experts are read, of which there may be fewer than are configured.
        router.check(n)?;
        let stack = |name| l.at("experts").stacked(name, n);
        let experts = Experts::new([stack("gate_proj")?, stack("up_proj")?, stack("down_proj")?], activation);
        Ok(FeedForward::Moe(Moe::new(l.linear("router")?, router, experts)?))
    })
}

/// Whether a layer attends: by `layer_types`, else each so-manyth from an offset on.
fn attends(c: &Config) -> Result<impl Fn(usize) -> bool + use<>> {
    let kinds = hybrid::numbered(c, &["mamba", "attention"])?;
    let each = each(c, ["attn_layer_period", "attn_layer_offset"], [8, 4])?;
    Ok(move |i: usize| kinds.as_ref().map_or_else(|| each(i), |kinds| kinds.get(i) == Some(&1)))
}

/// Whether a layer has experts: by how many each has (`layers_num_experts`), else each so-manyth from an offset on. One alone is none.
fn sparse(c: &Config) -> Result<impl Fn(usize) -> bool + use<>> {
    const KEY: &str = "layers_num_experts";
    let (listed, n) = (c.opt_usizes(KEY)?, c.usize("num_hidden_layers")?);
    if let Some(listed) = listed.as_ref().filter(|listed| listed.len() != n) {
        return Err(Error::invalid("config", format!("{} `{KEY}` for {n} layers", listed.len())));
    }
    let some = c.usize_or("num_experts", 16)? > 1;
    let each = each(c, ["expert_layer_period", "expert_layer_offset"], [2, 1])?;
    Ok(move |i: usize| {
        some && listed.as_ref().map_or_else(|| each(i), |listed| listed.get(i).is_some_and(|n| *n > 1))
    })
}

/// The layers of a period.
fn each(c: &Config, keys: [&str; 2], usual: [usize; 2]) -> Result<impl Fn(usize) -> bool + use<>> {
    let (period, offset) = (c.usize_or(keys[0], usual[0])?, c.usize_or(keys[1], usual[1])?);
    if offset >= period {
        let why = format!("`{}` is {offset}, which should be below `{}`, {period}", keys[1], keys[0]);
        return Err(Error::invalid("config", why));
    }
    Ok(move |i: usize| i % period == offset)
}

/// The sizes of a state space.
fn space(c: &Config) -> Result<MambaSpec> {
    let dim = c.usize("hidden_size")?;
    let auto = c.0.get("mamba_dt_rank").is_none_or(|said| said.is_null() || said == "auto");
    Ok(MambaSpec {
        inner: c.usize_or("mamba_expand", 2)?.saturating_mul(dim),
        state: c.usize_or("mamba_d_state", 16)?,
        rank: if auto { dim.div_ceil(16) } else { c.usize("mamba_dt_rank")? },
        taps: c.usize_or("mamba_d_conv", 4)?,
        activation: ogive_nn::activation(c, "hidden_act", Activation::Silu)?,
        norm: Some(c.f32_or("rms_norm_eps", 1e-6)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ogive_nn::tensor::serde_json::{Value, json};

    #[test]
    fn layers_are_what_periods_or_lists_say() {
        let of = |more: Value| {
            let mut c = Config(json!({"num_hidden_layers": 4, "num_experts": 3}));
            c.0.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let (attends, sparse) = (attends(&c)?, sparse(&c)?);
            Ok::<_, Error>(([0, 1, 2, 3].map(attends), [0, 1, 2, 3].map(sparse)))
        };
        let odd = [false, true, false, true];
        assert_eq!(of(json!({})).unwrap(), ([false; 4], odd));
        let turns = json!({"attn_layer_period": 3, "attn_layer_offset": 0, "expert_layer_period": 1, "expert_layer_offset": 0});
        assert_eq!(of(turns).unwrap(), ([true, false, false, true], [true; 4]));
        let lists = json!({"layer_types": ["attention", "mamba", "mamba", "mamba"], "layers_num_experts": [3, 1, 0, 3]});
        assert_eq!(of(lists).unwrap(), ([true, false, false, false], [true, false, false, true]));
        assert_eq!(of(json!({"num_experts": 1})).unwrap().1, [false; 4]);
        for (key, value) in [
            ("attn_layer_period", json!(4)),
            ("expert_layer_period", json!(0)),
            ("layer_types", json!(["mamba"])),
            ("layers_num_experts", json!([3])),
        ] {
            let e = of(json!({ key: value })).unwrap_err().to_string();
            assert!(e.contains(key), "{e}");
        }
    }
}
