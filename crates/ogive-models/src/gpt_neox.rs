//! GPT-NeoX: Pythia, Dolly, RedPajama's first models and GPT-NeoX-20B. Attention and an MLP without a gate side by side on the same stream, each
//! behind a layer norm of its own, biases on all matrices, and heads of which a part turns. In some models the MLP reads what attention gave.
//!
//! Black et al. 2022, <https://arxiv.org/abs/2204.06745>; transformers' `modeling_gpt_neox`. A head's queries, key and value are one below the
//! other, head after head; they are put in order when they are loaded. Whether there are biases (`attention_bias`) the weights say.

use crate::layer_normed::{self, Class};
use ogive_nn::backend::Activation;
use ogive_nn::tensor::Result;
use ogive_nn::{Attention, Config, FeedForward, Loader, Mlp, Model, heads_of, rope_of, spec_of};

/// Reads a checkpoint with Hugging Face's names.
///
/// # Errors
/// If heads do not cut `hidden_size` evenly; else those of [every `load`](crate#errors).
pub fn load(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    let class = Class {
        eps: c.f32_or("layer_norm_eps", 1e-5)?,
        norms: ("input_layernorm", Some("post_attention_layernorm")),
        beside: c.bool_or("use_parallel_residual", true)?,
        places: ["gpt_neox", "embed_in", "embed_out"],
        last_norm: "final_layer_norm",
        logit_scale: None,
        tied: false,
    };
    let (heads, dim) = heads_of(c)?;
    let (rope, spec) = (rope_of(c, root, dim)?, spec_of(c, heads, heads, dim)?);
    let attention = |l: &Loader<'_>, i: usize| {
        let l = l.at("attention");
        Attention::load_grouped(&l, c, i, rope.clone(), spec.clone(), ["query_key_value", "dense"])
    };
    let activation = ogive_nn::activation(c, "hidden_act", Activation::Gelu)?;
    let mlp = |l: &Loader<'_>, _: usize| {
        let l = l.at("mlp");
        let (up, down) = (l.linear("dense_h_to_4h")?, l.linear("dense_4h_to_h")?);
        Ok(FeedForward::Plain(Mlp { up, down, activation }))
    };
    layer_normed::load(&class, c, root, &attention, &mlp)
}
