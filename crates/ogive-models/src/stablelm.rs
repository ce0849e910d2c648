//! StableLM: Llama with layer norms with biases, and heads of which a part turns. The largest has norms on heads, each by factors of its own, and
//! attention and MLP side by side behind one norm.
//!
//! Stability AI 2024, <https://arxiv.org/abs/2402.17834>; transformers' `modeling_stablelm`. Whether there are biases on q, k and v
//! (`use_qkv_bias`) the weights say.

use crate::class::LLAMA;
use crate::layer_normed::{self, Class};
use crate::llama;
use ogive_nn::tensor::Result;
use ogive_nn::{Attention, Config, Loader, Model};

/// Reads a checkpoint with Hugging Face's names; norms on heads stacked or one by one.
///
/// # Errors
/// Where `qk_layernorm` says otherwise than the weights; else those of [every `load`](crate#errors).
pub fn load(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    let normed = |name| layer_normed::norms_queries(root, name);
    let normed = normed("q_layernorm")? || normed("q_layernorm.norms.0")?;
    layer_normed::as_said(c, "qk_layernorm", normed)?;
    let beside = c.bool_or("use_parallel_residual", false)?;
    let class = Class {
        eps: c.f32_or("layer_norm_eps", 1e-5)?,
        norms: ("input_layernorm", Some("post_attention_layernorm").filter(|_| !beside)),
        beside,
        places: layer_normed::PLACES,
        last_norm: "norm",
        logit_scale: None,
        tied: false,
    };
    let (rope, spec) = (ogive_nn::rope_of(c, root, LLAMA.head_dim_of(c)?)?, LLAMA.attention_of(c)?);
    let attention = |l: &Loader<'_>, i: usize| {
        let l = l.at("self_attn");
        let attention = Attention::load(&l, c, i, rope.clone(), spec.clone())?;
        match normed {
            true => attention.head_layer_norms(&l, ["q_layernorm", "k_layernorm"], class.eps),
            false => Ok(attention),
        }
    };
    layer_normed::load(&class, c, root, &attention, &llama::dense(c)?)
}
