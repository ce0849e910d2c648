//! StarCoder2: layer norms and matrices with biases, an MLP without a gate, and in its models a window in all layers.
//!
//! Lozhkov et al. 2024, <https://arxiv.org/abs/2402.19173>; transformers' `modeling_starcoder2`. Whether there are biases (`use_bias`) the
//! weights say.

use crate::class::LLAMA;
use crate::layer_normed::{self, Class};
use crate::windows;
use ogive_nn::backend::Activation;
use ogive_nn::tensor::Result;
use ogive_nn::{Attention, Config, FeedForward, Loader, Mlp, Model};

/// Reads a checkpoint with Hugging Face's names.
///
/// # Errors
/// None of its own; those of [every `load`](crate#errors).
pub fn load(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    let class = Class {
        eps: c.f32_or("norm_epsilon", 1e-5)?,
        norms: ("input_layernorm", Some("post_attention_layernorm")),
        beside: false,
        places: layer_normed::PLACES,
        last_norm: "norm",
        logit_scale: None,
        tied: true,
    };
    let (rope, window) = (ogive_nn::rope_of(c, root, LLAMA.head_dim_of(c)?)?, windows::same(c)?);
    let spec = LLAMA.attention_of(c)?;
    let attention = |l: &Loader<'_>, i: usize| {
        let spec = windows::within(spec.clone(), window(i));
        Attention::load(&l.at("self_attn"), c, i, rope.clone(), spec)
    };
    let activation = ogive_nn::activation(c, "hidden_act", Activation::GeluTanh)?;
    let mlp = |l: &Loader<'_>, _: usize| {
        let l = l.at("mlp");
        Ok(FeedForward::Plain(Mlp { up: l.linear("c_fc")?, down: l.linear("c_proj")?, activation }))
    };
    layer_normed::load(&class, c, root, &attention, &mlp)
}
