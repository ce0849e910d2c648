//! `phi3`: q, k and v in one matrix, gate and up in another; long contexts by two lists of factors. And `phimoe`, Phi-3.5-MoE, with Mixtral's
//! names of experts.
//!
//! What llama.cpp makes of the latter's routers is another thing than its class does (a softmax over the two chosen), and no key says which
//! is meant: the class's is. So it is with norms, which llama.cpp's graph has by RMS with a bias, and with a window, which it leaves out. And
//! the converter writes Phi-3's magnitude of stretched positions, computed, where Microsoft's settings have another: exactly that number in a
//! file of exactly those contexts is read as Microsoft's.

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
        .settings(|_, settings| {
            magnitude(settings);
            Ok(())
        })
        .settings(|header, settings| {
            settings.insert("router_jitter_noise".into(), json!(0.01));
            let keys = [("expert_count", "num_local_experts"), ("expert_used_count", "num_experts_per_tok")];
            copy(header, settings, &keys)
        })
}

/// Microsoft's `short_mscale` and `long_mscale` of Phi-3.5-MoE in place of Phi-3's formula.
fn magnitude(settings: &mut Settings) {
    const OWN: f64 = 1.243_163_121_016_122;
    let [context, original] =
        ["max_position_embeddings", "original_max_position_embeddings"].map(|key| settings.get(key));
    if context.is_none_or(|n| *n != 131_072) || original.is_none_or(|n| *n != 4096) {
        return;
    }
    let formula = (1.0 + 32f64.ln() / 4096f64.ln()).sqrt();
    if let Some(factor) = settings.get_mut("rope_scaling").and_then(|s| s.get_mut("attention_factor"))
        && factor.as_f64().is_some_and(|f| (f - formula).abs() < 1e-6)
    {
        *factor = json!(OWN);
    }
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
