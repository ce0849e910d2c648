//! `qwen2`, `qwen3` and their mixtures of experts: nothing is reordered, only renamed.

use crate::gguf::Translation;
use crate::gguf::settings::{classes, copy};
use serde_json::json;

pub(super) fn qwen2() -> Translation {
    Translation::decoder("qwen2", "Qwen2ForCausalLM")
}

/// With a head for classes where it is a reranker of llama.cpp's making: rows of the output matrix, those of `yes` and `no`.
pub(super) fn qwen3() -> Translation {
    Translation::decoder("qwen3", "Qwen3ForCausalLM").rename("cls.output", "score").settings(
        |header, settings| {
            if header.has_tensor("cls.output.weight") {
                settings.insert("architectures".into(), json!(["Qwen3ForSequenceClassification"]));
            }
            classes(header, settings)
        },
    )
}

/// What the mixtures share.
fn mixture(architecture: &str, class: &str, normalised: bool) -> Translation {
    with_experts(Translation::decoder(architecture, class), normalised)
}

/// The same added to another architecture.
pub(super) fn with_experts(to: Translation, normalised: bool) -> Translation {
    to.rename("blk.{}.ffn_gate_inp", "model.layers.{}.mlp.gate")
        .rename("blk.{}.ffn_gate_exps", "model.layers.{}.mlp.experts.gate_proj")
        .rename("blk.{}.ffn_up_exps", "model.layers.{}.mlp.experts.up_proj")
        .rename("blk.{}.ffn_down_exps", "model.layers.{}.mlp.experts.down_proj")
        .settings(move |header, settings| {
            // Not kept in GGUF: each architecture's graph in llama.cpp has it one way, whatever the class takes for granted.
            settings.insert("norm_topk_prob".into(), json!(normalised));
            copy(
                header,
                settings,
                &[
                    ("expert_count", "num_experts"),
                    ("expert_used_count", "num_experts_per_tok"),
                    ("expert_feed_forward_length", "moe_intermediate_size"),
                    ("expert_shared_feed_forward_length", "shared_expert_intermediate_size"),
                ],
            )
        })
}

pub(super) fn qwen2_moe() -> Translation {
    with_shared_expert(mixture("qwen2moe", "Qwen2MoeForCausalLM", false))
}

/// The expert that all rows go through.
pub(super) fn with_shared_expert(to: Translation) -> Translation {
    to.rename("blk.{}.ffn_gate_shexp", "model.layers.{}.mlp.shared_expert.gate_proj")
        .rename("blk.{}.ffn_up_shexp", "model.layers.{}.mlp.shared_expert.up_proj")
        .rename("blk.{}.ffn_down_shexp", "model.layers.{}.mlp.shared_expert.down_proj")
        .rename("blk.{}.ffn_gate_inp_shexp", "model.layers.{}.mlp.shared_expert_gate")
}

pub(super) fn qwen3_moe() -> Translation {
    mixture("qwen3moe", "Qwen3MoeForCausalLM", true)
}
