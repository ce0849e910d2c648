//! `phi2`: Phi-1, 1.5 and 2, with an MLP without a gate; q, k and v apart, in older files one matrix. Nothing is reordered.

use crate::gguf::Translation;
use crate::gguf::settings::copy;
use serde_json::json;

pub(super) fn phi2() -> Translation {
    Translation::decoder("phi2", "PhiForCausalLM")
        .without("blk.{}.ffn_gate")
        .without("blk.{}.ffn_norm")
        .rename("output_norm", "model.final_layernorm")
        .rename("blk.{}.attn_qkv", "model.layers.{}.self_attn.qkv_proj")
        .rename("blk.{}.attn_output", "model.layers.{}.self_attn.dense")
        .rename("blk.{}.ffn_up", "model.layers.{}.mlp.fc1")
        .rename("blk.{}.ffn_down", "model.layers.{}.mlp.fc2")
        .settings(|header, settings| {
            settings.insert("hidden_act".into(), json!("gelu_new"));
            copy(header, settings, &[("attention.layer_norm_epsilon", "layer_norm_eps")])
        })
}
