//! `granite` and `granitemoe`: Llama's names and its order of q and k rows, and four factors.
//!
//! llama.cpp takes a factor of 0 for none, as it does silence; scores have the usual scale then.

use super::llama::interleaved;
use crate::gguf::settings::copy;
use crate::gguf::{Header, Settings, Translation};
use ogive_tensor::{Error, Result};
use serde_json::json;

pub(super) fn granite() -> Translation {
    interleaved("granite", "GraniteForCausalLM").settings(factors)
}

pub(super) fn granite_moe() -> Translation {
    interleaved("granitemoe", "GraniteMoeForCausalLM")
        .rename("blk.{}.ffn_gate_inp", "model.layers.{}.block_sparse_moe.router.layer")
        .rename("blk.{}.ffn_gate_exps", "model.layers.{}.block_sparse_moe.experts.gate_proj")
        .rename("blk.{}.ffn_up_exps", "model.layers.{}.block_sparse_moe.experts.up_proj")
        .rename("blk.{}.ffn_down_exps", "model.layers.{}.block_sparse_moe.output_linear")
        .settings(factors)
        .settings(|header, settings| {
            if header.usize("expert_shared_feed_forward_length")?.is_some_and(|n| n > 0) {
                settings.insert("architectures".into(), json!(["GraniteMoeSharedForCausalLM"]));
            }
            let keys = [("expert_count", "num_local_experts"), ("expert_used_count", "num_experts_per_tok")];
            copy(header, settings, &keys)
        })
}

fn factors(header: &Header<'_>, settings: &mut Settings) -> Result<()> {
    if !header.bool("rope.scaling.finetuned")?.unwrap_or(true) {
        let why = "the file says that no positions are turned, which is not known of this architecture";
        return Err(Error::unsupported("rope.scaling.finetuned", why));
    }
    let keys = [
        ("embedding_scale", "embedding_multiplier"),
        ("residual_scale", "residual_multiplier"),
        ("logit_scale", "logits_scaling"),
    ];
    copy(header, settings, &keys)?;
    let names = keys.map(|(_, name)| name).into_iter().chain(["attention_multiplier"]);
    for name in names {
        if settings.get(name).is_some_and(|v| v.as_f64() == Some(0.0)) {
            settings.remove(name);
        }
    }
    Ok(())
}
