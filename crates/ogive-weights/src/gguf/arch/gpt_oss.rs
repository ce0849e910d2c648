//! `gpt-oss`: OpenAI's mixtures, whose experts have gate and up apart, where Hugging Face's have them in turn.

use crate::gguf::settings::copy;
use crate::gguf::{Rule, Translation};
use serde_json::json;

pub(super) fn gpt_oss() -> Translation {
    Translation::decoder("gpt-oss", "GptOssForCausalLM")
        .without("blk.{}.ffn_norm")
        .rename("blk.{}.post_attention_norm", "model.layers.{}.post_attention_layernorm")
        .rule(Rule::new("blk.{}.attn_sinks.weight", "model.layers.{}.self_attn.sinks"))
        .rename("blk.{}.ffn_gate_inp", "model.layers.{}.mlp.router")
        .rename("blk.{}.ffn_gate_exps", "model.layers.{}.mlp.experts.gate_proj")
        .rename("blk.{}.ffn_up_exps", "model.layers.{}.mlp.experts.up_proj")
        .rename("blk.{}.ffn_down_exps", "model.layers.{}.mlp.experts.down_proj")
        .settings(|header, settings| {
            // Trained with a ramp that is not rounded to whole frequencies, which GGUF cannot say.
            if let Some(scaling) = settings.get_mut("rope_scaling").and_then(|s| s.as_object_mut()) {
                scaling.insert("truncate".into(), json!(false));
            }
            copy(
                header,
                settings,
                &[
                    ("expert_count", "num_local_experts"),
                    ("expert_used_count", "num_experts_per_tok"),
                    ("expert_feed_forward_length", "intermediate_size"),
                ],
            )
        })
}
