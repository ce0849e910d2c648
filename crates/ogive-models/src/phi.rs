//! Phi-1, 1.5 and 2: attention and an MLP without a gate side by side behind one layer norm, biases on all matrices and the head, and heads
//! of which a part turns; in some models layer norms on heads.
//!
//! Microsoft 2023, <https://arxiv.org/abs/2309.05463>; transformers' `modeling_phi`.

use crate::class::LLAMA;
use crate::layer_normed::{self, Class};
use ogive_nn::backend::Activation;
use ogive_nn::tensor::Result;
use ogive_nn::{Attention, Config, FeedForward, Loader, Mlp, Model};

/// Reads a checkpoint with Hugging Face's names.
///
/// # Errors
/// Where `qk_layernorm` says otherwise than the weights; else those of [every `load`](crate#errors).
pub fn load(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    let normed = layer_normed::norms_queries(root, "q_layernorm")?;
    layer_normed::as_said(c, "qk_layernorm", normed)?;
    let class = Class {
        eps: c.f32_or("layer_norm_eps", 1e-5)?,
        norms: ("input_layernorm", None),
        beside: true,
        places: layer_normed::PLACES,
        last_norm: "final_layernorm",
        logit_scale: None,
        tied: false,
    };
    let (rope, spec) = (ogive_nn::rope_of(c, root, LLAMA.head_dim_of(c)?)?, LLAMA.attention_of(c)?);
    let attention = |l: &Loader<'_>, i: usize| {
        let l = l.at("self_attn");
        let attention = Attention::load_named(&l, c, i, rope.clone(), spec.clone(), "dense")?;
        match normed {
            true => attention.head_layer_norms(&l, ["q_layernorm", "k_layernorm"], class.eps),
            false => Ok(attention),
        }
    };
    let activation = ogive_nn::activation(c, "hidden_act", Activation::GeluTanh)?;
    let mlp = |l: &Loader<'_>, _: usize| {
        let l = l.at("mlp");
        Ok(FeedForward::Plain(Mlp { up: l.linear("fc1")?, down: l.linear("fc2")?, activation }))
    };
    layer_normed::load(&class, c, root, &attention, &mlp)
}
