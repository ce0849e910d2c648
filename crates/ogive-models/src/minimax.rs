//! MiniMax-M2: Llama whose heads turn in part, with norms over all query heads at once and all key heads, and mixtures of experts that are
//! scored each by itself and chosen by a bias besides.
//!
//! MiniMax 2025, <https://github.com/MiniMax-AI/MiniMax-M2>; transformers' `modeling_minimax_m2`. Settings that MiniMax's files keep of
//! MiniMax-01, whose class has more kinds of layers, are refused where they say that this model has them. Layers behind
//! `num_hidden_layers`, which foretell more than one token (`num_mtp_modules`), are not read.

use crate::{class::LLAMA, decoder};
use ogive_nn::backend::{Activation, RouterSpec, Scoring};
use ogive_nn::tensor::{Error, Result};
use ogive_nn::{Config, FeedForward, Loader, Model, Moe};

/// Reads a checkpoint with MiniMax's names; experts stacked or one by one.
///
/// # Errors
/// If there are not `num_local_experts` of each projection, if there are no norms of queries, and for settings under which MiniMax's older
/// classes compute otherwise.
pub fn load(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    settled(c)?;
    if !decoder::norms_heads(root)? {
        return Err(Error::missing("model.layers.0.self_attn.q_norm.weight"));
    }
    let (n, chosen) = (c.usize("num_local_experts")?, c.usize("num_experts_per_tok")?);
    let activation = ogive_nn::activation(c, "hidden_act", Activation::Silu)?;
    decoder::load(&LLAMA, c, root, |_, rope, spec| (Some(rope), spec), &|l, _| {
        let l = l.at("block_sparse_moe");
        let router = RouterSpec::new(chosen, Scoring::Sigmoid).biased(l.numbers("e_score_correction_bias")?);
        // Before experts are read, of which there may be fewer than are configured.
        router.check(n)?;
        Ok(FeedForward::Moe(Moe::load(&l, n, router, ["w1", "w3", "w2"], activation)?))
    })
}

/// Refuses what is otherwise than in all models that are published.
fn settled(c: &Config) -> Result<()> {
    let refuse = |key: &str, why: &str| Err(Error::unsupported("config", format!("`{key}` {why}")));
    for (key, usual) in [("scoring_func", "sigmoid"), ("qk_norm_type", "per_layer")] {
        if c.opt_str(key)?.is_some_and(|said| said != usual) {
            return refuse(key, &format!("is another than `{usual}`, the only one that is known"));
        }
    }
    for key in ["use_qk_norm", "use_routing_bias"] {
        if !c.bool_or(key, true)? {
            return refuse(key, "is off, and MiniMax-M2 has no way without");
        }
    }
    if c.opt_usizes("attn_type_list")?.is_some_and(|kinds| kinds.iter().any(|kind| *kind != 1)) {
        return refuse("attn_type_list", "has layers whose attention is linear (0), which are MiniMax-01's");
    }
    if c.usize_or("shared_intermediate_size", 0)? != 0 {
        return refuse(
            "shared_intermediate_size",
            "is not 0, and experts that all tokens share are not known here",
        );
    }
    let factors = ["layernorm_full_attention_beta", "layernorm_linear_attention_beta", "layernorm_mlp_beta"];
    for key in factors {
        if c.f32_or(key, 1.0)? != 1.0 {
            return refuse(key, "is a factor on the stream, which MiniMax-M2's class does not have");
        }
    }
    Ok(())
}
