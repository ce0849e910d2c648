//! Gemma 4, the part that reads and writes text: Gemma 3's blocks with longer heads where all tokens are seen, norms on values, scores without a
//! scale, and a number that each block's stream is multiplied by. The smaller models have inputs of layers (`layer_inputs.rs`), and their last
//! layers attend to what the last one of their kind before them stored; in the larger ones keys are values, too, where all is seen; and one has a
//! mixture beside the MLP of each block, each of the two between norms of its own.
//!
//! Gemma Team 2026, <https://huggingface.co/google/gemma-4-E2B-it>; transformers' `modeling_gemma4`. Norms are kept as the factors.

use crate::class::{Class, LLAMA};
use crate::gemma2::NORMS;
use crate::head::{Cap, places};
use crate::{decoder, gemma4_layers::Layers, mixer::Mixer};
use ogive_nn::backend::{Activation, Experts, RouterSpec, Scoring};
use ogive_nn::tensor::{Error, Result};
use ogive_nn::{Config, FeedForward, GatedMlp, Loader, Model, Moe, RmsNorm};

/// Reads a checkpoint with Hugging Face's names, of the text alone or of a model that also sees and hears.
///
/// # Errors
/// If tokens see later ones (`use_bidirectional_attention`), if settings of single layers are no settings of the two kinds, if the last layer
/// has a window or a layer another kind than these two, or if no layer stores what others share; else as [every `load`](crate#errors).
pub fn load(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    refuse_others(c)?;
    let activation = ogive_nn::activation(c, "hidden_activation", Activation::GeluTanh)?;
    let width = c.usize_or("hidden_size_per_layer_input", 256)?;
    let (is_moe, layers) = (c.bool_or("enable_moe_block", false)?, Layers::read(c, root)?);
    let [a, b, before, d] = NORMS;
    let class = Class {
        norms: [a, b, before.filter(|_| !is_moe), d],
        embed_scale: Some((c.usize("hidden_size")? as f32).sqrt()),
        logit_cap: Cap::set(c, "final_logit_softcapping")?,
        block_scale: Some("layer_scalar"),
        layer_inputs: (width > 0).then_some((width, activation)),
        tied: true,
        ..LLAMA
    };
    let mixer =
        |l: &Loader<'_>, i: usize| Ok(Mixer::Attention(layers.attention(&l.at("self_attn"), c, i)?.into()));
    let (head, model) = places(root)?;
    decoder::load_mixed(&class, c, [&head, &model], &mixer, &|l, _| {
        let dense = FeedForward::Dense(GatedMlp::load(&l.at("mlp"), activation)?);
        if is_moe { beside(dense, c, l, activation) } else { Ok(dense) }
    })
}

/// Reads the text's part of a checkpoint that also sees and hears.
///
/// # Errors
/// As [`load`], of what is below `text_config`.
pub fn load_nested(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    load(&c.at("text_config"), root)
}

fn refuse_others(c: &Config) -> Result<()> {
    let sees_all =
        c.0.get("use_bidirectional_attention").is_some_and(|v| !v.is_null() && *v != "vision" && *v != false);
    let why = match (sees_all || !c.bool_or("is_causal", true)?, c.has("per_layer_config")) {
        (true, _) => {
            "`use_bidirectional_attention`, or `is_causal`, has tokens see later ones, which is not known of this class"
        }
        (_, true) => "`per_layer_config` has more than the sizes of heads of all layers without a window",
        _ => return Ok(()),
    };
    Err(Error::unsupported("config", why))
}

/// An MLP and a mixture, each between norms of its own. The router has one more, which the width of the stream divides.
fn beside(dense: FeedForward, c: &Config, l: &Loader<'_>, activation: Activation) -> Result<FeedForward> {
    let (n, eps) = (c.usize("num_experts")?, c.f32_or("rms_norm_eps", 1e-6)?);
    let norm = |name: &str| l.rms_norm(name, eps);
    let (experts, router) = (l.at("experts"), l.at("router"));
    let gate_up = experts.optional(experts.tensor("gate_up_proj"))?;
    let [gate, up] = match &gate_up {
        Some(both) => experts.parts_of_stack(both, n, [both.shape[1] / 2; 2])?,
        None => [experts.stacked("gate_proj", n)?, experts.stacked("up_proj", n)?],
    };
    let experts = Experts::new([gate, up, experts.stacked("down_proj", n)?], activation);
    let spec = RouterSpec::new(c.usize("top_k_experts")?, Scoring::Softmax);
    let root = (c.usize("hidden_size")? as f32).sqrt().recip();
    let factors: Vec<f32> = router.tensor("scale")?.to_vec().iter().map(|factor| factor * root).collect();
    let of_router = RmsNorm { weight: l.backend().upload(&factors, [factors.len()].into())?, eps };
    let moe = Moe::new(router.linear("proj")?, spec, experts)?;
    let moe = match l.optional(router.tensor("per_expert_scale"))? {
        Some(factors) => moe.weighted(&router, &factors)?,
        None => moe,
    };
    let moe =
        moe.normed(of_router, norm("pre_feedforward_layernorm_2")?, norm("post_feedforward_layernorm_2")?);
    let (before, after) = (norm("pre_feedforward_layernorm")?, norm("post_feedforward_layernorm_1")?);
    Ok(FeedForward::Shared(moe, Box::new(FeedForward::Normed(before, dense.into(), after))))
}
