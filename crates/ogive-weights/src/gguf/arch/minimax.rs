//! `minimax-m2`: MiniMax-M2, with experts that are chosen by a bias besides. As many elements of a head turn as the file says.

use crate::gguf::settings::{MOST_LAYERS, copy, only_sigmoids, whole};
use crate::gguf::{Rule, Translation};
use ogive_tensor::Error;
use serde_json::json;

pub(super) fn minimax_m2() -> Translation {
    Translation::decoder("minimax-m2", "MiniMaxM2ForCausalLM")
        .rename("blk.{}.ffn_gate_inp", "model.layers.{}.block_sparse_moe.gate")
        .rule(Rule::new(
            "blk.{}.exp_probs_b.bias",
            "model.layers.{}.block_sparse_moe.e_score_correction_bias",
        ))
        .rename("blk.{}.ffn_gate_exps", "model.layers.{}.block_sparse_moe.experts.w1")
        .rename("blk.{}.ffn_down_exps", "model.layers.{}.block_sparse_moe.experts.w2")
        .rename("blk.{}.ffn_up_exps", "model.layers.{}.block_sparse_moe.experts.w3")
        .settings(|header, settings| {
            only_sigmoids(header)?;
            const SCALE: &str = "expert_weights_scale";
            if header.f32(SCALE)?.is_some_and(|scale| scale != 0.0 && scale != 1.0) {
                let why = "shares of experts are scaled, which is not known of this architecture";
                return Err(Error::unsupported(SCALE, why));
            }
            // What the settings of a folder say otherwise has no place in a file.
            for (key, usual) in [
                ("scoring_func", json!("sigmoid")),
                ("qk_norm_type", json!("per_layer")),
                ("use_qk_norm", json!(true)),
                ("use_routing_bias", json!(true)),
                ("shared_intermediate_size", json!(0)),
                ("layernorm_full_attention_beta", json!(1.0)),
                ("layernorm_linear_attention_beta", json!(1.0)),
                ("layernorm_mlp_beta", json!(1.0)),
            ] {
                settings.insert(key.into(), usual);
            }
            let layers = whole(settings, "num_hidden_layers").unwrap_or(0).min(MOST_LAYERS) as usize;
            settings.insert("attn_type_list".into(), json!(vec![1; layers]));
            copy(
                header,
                settings,
                &[("expert_count", "num_local_experts"), ("expert_used_count", "num_experts_per_tok")],
            )
        })
}
