//! `llama`: Llama, Mistral and Mixtral, which GGUF calls by one name and tells apart by the number of experts.
//!
//! A file with a window comes out as Mistral, whose class has one; one without as Llama, whatever it was: without a window the two
//! do not differ. llama.cpp reads no window here, but a file that names one means it. These, Granite and SmolLM3 are the
//! architectures whose q and k rows the converter reorders.

use crate::gguf::settings::copy;
use crate::gguf::{Change, Header, Settings, Translation};
use ogive_tensor::Result;
use serde_json::json;

/// Decoders whose q and k rows are interleaved in GGUF.
pub(super) fn interleaved(architecture: &str, class: &str) -> Translation {
    let q = Change::split_rotary_pairs("num_attention_heads");
    let k = Change::split_rotary_pairs("num_key_value_heads");
    Translation::decoder(architecture, class)
        .rename_changed("blk.{}.attn_q", "model.layers.{}.self_attn.q_proj", &q)
        .rename_changed("blk.{}.attn_k", "model.layers.{}.self_attn.k_proj", &k)
}

pub(super) fn llama() -> Translation {
    interleaved("llama", "LlamaForCausalLM")
        .rename("blk.{}.ffn_gate_inp", "model.layers.{}.block_sparse_moe.gate")
        .rename("blk.{}.ffn_gate_exps", "model.layers.{}.block_sparse_moe.experts.w1")
        .rename("blk.{}.ffn_down_exps", "model.layers.{}.block_sparse_moe.experts.w2")
        .rename("blk.{}.ffn_up_exps", "model.layers.{}.block_sparse_moe.experts.w3")
        // Files of early 2024 have each expert by itself.
        .rename("blk.{}.ffn_gate.{}", "model.layers.{}.block_sparse_moe.experts.{}.w1")
        .rename("blk.{}.ffn_down.{}", "model.layers.{}.block_sparse_moe.experts.{}.w2")
        .rename("blk.{}.ffn_up.{}", "model.layers.{}.block_sparse_moe.experts.{}.w3")
        .settings(class)
}

/// Mixtral is Llama with experts, Mistral with a window.
fn class(header: &Header<'_>, settings: &mut Settings) -> Result<()> {
    if header.usize("expert_count")?.is_some_and(|n| n > 0) {
        settings.insert("architectures".into(), json!(["MixtralForCausalLM"]));
        copy(
            header,
            settings,
            &[("expert_count", "num_local_experts"), ("expert_used_count", "num_experts_per_tok")],
        )?;
    } else if settings.contains_key("sliding_window") {
        settings.insert("architectures".into(), json!(["MistralForCausalLM"]));
    }
    Ok(())
}

/// Mistral's models of late 2025, whose queries grow with the position. By how much Hugging Face says among the settings of rotary
/// positions, with the context that it begins after; llama.cpp takes that of the scaling, or else the model's own.
pub(super) fn mistral3() -> Translation {
    interleaved("mistral3", "Ministral3ForCausalLM").settings(|header, settings| {
        let Some(beta) = header.value("attention.temperature_scale")? else { return Ok(()) };
        let context = settings.get("max_position_embeddings").cloned();
        let scaling = settings.entry("rope_scaling").or_insert_with(|| json!({"rope_type": "default"}));
        if let Some(scaling) = scaling.as_object_mut() {
            scaling.insert("llama_4_scaling_beta".into(), beta);
            if let Some(context) = context {
                scaling.entry("original_max_position_embeddings").or_insert(context);
            }
        }
        Ok(())
    })
}
