//! HunYuan: Llama with norms on heads behind their rotation, which is by a larger base for longer contexts; and its mixtures, each with a
//! gated MLP that all tokens share.
//!
//! Tencent 2025, <https://github.com/Tencent-Hunyuan/Hunyuan-A13B>; transformers' `modeling_hunyuan_v1_dense` and `modeling_hunyuan_v1_moe`.
//! Beyond the context it was trained for transformers turns by another base than within; here one base is for all.

use crate::block::ReadsFeedForward;
use crate::class::LLAMA;
use crate::head::places;
use crate::{decoder, llama, mixer::Mixer};
use ogive_nn::backend::{Activation, Experts, Rope, RouterSpec, Scoring};
use ogive_nn::tensor::{Error, Result, rope_theta_by_alpha, serde_json::Value};
use ogive_nn::{Attention, Config, FeedForward, GatedMlp, Loader, Model, Moe};

/// Reads a dense checkpoint with Hugging Face's names.
///
/// # Errors
/// If there are no norms of queries; else those of [every `load`](crate#errors).
pub fn load(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    load_with(c, root, &llama::dense(c)?)
}

/// Reads a mixture with Hugging Face's names; experts stacked or one by one. How many there are and are chosen may be said for each layer.
///
/// # Errors
/// As [`load`], and if one of the two is said for fewer layers than there are.
pub fn load_moe(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    let activation = ogive_nn::activation(c, "hidden_act", Activation::Silu)?;
    let (experts, chosen) = (of_each(c, "num_experts")?, of_each(c, "moe_topk")?);
    load_with(c, root, &|l, i| {
        let (l, n) = (l.at("mlp"), experts(i)?);
        let router = RouterSpec::new(chosen(i)?, Scoring::Softmax);
        // Before experts are read, of which there may be fewer than are configured.
        router.check(n)?;
        let [gate, up, down] =
            ["gate_proj", "up_proj", "down_proj"].map(|name| l.at("experts").stacked(name, n));
        let experts = Experts::new([gate?, up?, down?], activation);
        let shared = FeedForward::Dense(GatedMlp::load(&l.at("shared_mlp"), activation)?);
        Ok(FeedForward::Shared(Moe::new(l.at("gate").linear("wg")?, router, experts)?, Box::new(shared)))
    })
}

fn load_with(c: &Config, root: &Loader<'_>, feed_forward: &ReadsFeedForward<'_>) -> Result<Box<dyn Model>> {
    let (rope, spec, eps) = (rope(c, root)?, LLAMA.attention_of(c)?, c.f32_or("rms_norm_eps", 1e-6)?);
    let mixer = |l: &Loader<'_>, i: usize| {
        let l = l.at("self_attn");
        let attention = Attention::load(&l, c, i, rope.clone(), spec.clone())?;
        let [q, k] = ["query_layernorm", "key_layernorm"].map(|name| l.rms_norm(name, eps));
        Ok(Mixer::Attention(attention.head_norms(q?, k?).normed_late().into()))
    };
    let (head, model) = places(root)?;
    decoder::load_mixed(&LLAMA, c, [&head, &model], &mixer, feed_forward)
}

/// The rotation: `alpha` is a factor of the base by itself, whatever the context.
fn rope(c: &Config, root: &Loader<'_>) -> Result<Rope> {
    let dim = LLAMA.head_dim_of(c)?;
    let Some(theta) = rope_theta_by_alpha(c, dim)? else { return ogive_nn::rope_of(c, root, dim) };
    let mut plain = c.clone();
    plain.0["rope_theta"] = theta.into();
    plain.0["rope_scaling"] = Value::Null;
    ogive_nn::rope_of(&plain, root, dim)
}

/// A number of experts, the same in all layers or said for each.
fn of_each(c: &Config, key: &'static str) -> Result<impl Fn(usize) -> Result<usize> + use<>> {
    let (each, all) = match c.0.get(key).is_some_and(|said| said.is_array()) {
        true => (c.opt_usizes(key)?, 0),
        false => (None, c.usize(key)?),
    };
    let missing =
        move |layer: usize| Error::invalid("config", format!("`{key}` has no number for layer {layer}"));
    Ok(move |layer: usize| match &each {
        Some(each) => each.get(layer).copied().ok_or_else(|| missing(layer)),
        None => Ok(all),
    })
}
