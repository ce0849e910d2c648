//! `stablelm`: Llama's names. Whether the MLP stands beside attention the weights say, by a norm that is not there. Nothing is reordered.

use crate::gguf::Translation;
use crate::gguf::settings::copy;
use serde_json::json;

pub(super) fn stablelm() -> Translation {
    Translation::decoder("stablelm", "StableLmForCausalLM")
        .rename("blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_layernorm")
        .rename("blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_layernorm")
        .settings(|header, settings| {
            let beside = !header.has_tensor("blk.0.ffn_norm.weight");
            settings.insert("use_parallel_residual".into(), json!(beside));
            copy(header, settings, &[("attention.layer_norm_epsilon", "layer_norm_eps")])
        })
}
