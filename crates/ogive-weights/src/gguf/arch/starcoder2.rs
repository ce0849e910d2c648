//! `starcoder2`: an MLP without a gate, under names of its own. Nothing is reordered.
//!
//! llama.cpp reads no window here, and its converter writes none; a file that names one means it.

use crate::gguf::Translation;
use crate::gguf::settings::copy;
use serde_json::json;

pub(super) fn starcoder2() -> Translation {
    Translation::decoder("starcoder2", "Starcoder2ForCausalLM")
        .without("blk.{}.ffn_gate")
        .rename("blk.{}.ffn_up", "model.layers.{}.mlp.c_fc")
        .rename("blk.{}.ffn_down", "model.layers.{}.mlp.c_proj")
        .settings(|header, settings| {
            settings.insert("hidden_act".into(), json!("gelu_pytorch_tanh"));
            copy(header, settings, &[("attention.layer_norm_epsilon", "norm_epsilon")])
        })
}
