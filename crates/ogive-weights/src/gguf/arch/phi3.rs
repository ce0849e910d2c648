//! `phi3`: q, k and v in one matrix, gate and up in another; long contexts by two lists of factors. And `phimoe`, Phi-3.5-MoE, with Mixtral's
//! names of experts.
//!
//! What llama.cpp makes of the latter's routers is another thing than its class does (a softmax over the two chosen), and no key says which
//! is meant: the class's is.

use crate::gguf::settings::copy;
use crate::gguf::{Header, Settings, Translation};
use ogive_tensor::Result;
use serde_json::json;

pub(super) fn phi3() -> Translation {
    Translation::decoder("phi3", "Phi3ForCausalLM")
        .rename("blk.{}.attn_qkv", "model.layers.{}.self_attn.qkv_proj")
        .rename("blk.{}.ffn_up", "model.layers.{}.mlp.gate_up_proj")
        .settings(long_rope)
}

pub(super) fn phimoe() -> Translation {
    Translation::decoder("phimoe", "PhimoeForCausalLM")
        .rename("blk.{}.ffn_gate_inp", "model.layers.{}.block_sparse_moe.gate")
        .rename("blk.{}.ffn_gate_exps", "model.layers.{}.block_sparse_moe.experts.w1")
        .rename("blk.{}.ffn_down_exps", "model.layers.{}.block_sparse_moe.experts.w2")
        .rename("blk.{}.ffn_up_exps", "model.layers.{}.block_sparse_moe.experts.w3")
        .settings(long_rope)
        .settings(|header, settings| {
            settings.insert("router_jitter_noise".into(), json!(0.01));
            let keys = [("expert_count", "num_local_experts"), ("expert_used_count", "num_experts_per_tok")];
            copy(header, settings, &keys)
        })
}

/// The factors are tensors in GGUF and settings in Hugging Face's files.
fn long_rope(header: &Header<'_>, settings: &mut Settings) -> Result<()> {
    if let Some(original) = header.value("rope.scaling.original_context_length")? {
        settings.insert("original_max_position_embeddings".into(), original);
    }
    let (long, short) =
        (header.numbers("rope_factors_long.weight")?, header.numbers("rope_factors_short.weight")?);
    if let Some((long, short)) = long.zip(short) {
        let mut scaling = json!({"rope_type": "longrope", "long_factor": long, "short_factor": short});
        if let Some(factor) = header.value("rope.scaling.attn_factor")? {
            scaling["attention_factor"] = factor;
        }
        settings.insert("rope_scaling".into(), scaling);
    }
    Ok(())
}
