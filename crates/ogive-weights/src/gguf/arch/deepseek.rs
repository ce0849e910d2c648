//! `deepseek2`: DeepSeek's V2, V3 and R1, with latent attention and shared experts.
//!
//! Newer files have `kv_b_proj` in two halves that suit an attention over latents, the keys' transposed. Hugging Face has no name for
//! them, and one matrix again would have to be decoded; so they are `k_b_proj` and `v_b_proj`, packed as they are.

use crate::gguf::settings::{copy, whole, without_foretelling};
use crate::gguf::{Header, Rule, Settings, Translation};
use ogive_tensor::Result;
use serde_json::json;

pub(super) fn deepseek2() -> Translation {
    with_experts(Translation::decoder("deepseek2", "DeepseekV2ForCausalLM"))
        .rename("blk.{}.attn_q_a", "model.layers.{}.self_attn.q_a_proj")
        .rename("blk.{}.attn_q_a_norm", "model.layers.{}.self_attn.q_a_layernorm")
        .rename("blk.{}.attn_q_b", "model.layers.{}.self_attn.q_b_proj")
        .rename("blk.{}.attn_kv_a_mqa", "model.layers.{}.self_attn.kv_a_proj_with_mqa")
        .rename("blk.{}.attn_kv_a_norm", "model.layers.{}.self_attn.kv_a_layernorm")
        .rename("blk.{}.attn_kv_b", "model.layers.{}.self_attn.kv_b_proj")
        .rename("blk.{}.attn_k_b", "model.layers.{}.self_attn.k_b_proj")
        .rename("blk.{}.attn_v_b", "model.layers.{}.self_attn.v_b_proj")
        .settings(settings)
}

/// How many experts there are, how many of them a token has, how they are grouped, and how wide they are.
pub(super) const EXPERTS: [(&str, &str); 6] = [
    ("expert_count", "n_routed_experts"),
    ("expert_used_count", "num_experts_per_tok"),
    ("expert_shared_count", "n_shared_experts"),
    ("expert_group_count", "n_group"),
    ("expert_group_used_count", "topk_group"),
    ("expert_feed_forward_length", "moe_intermediate_size"),
];

/// The matrices of experts, of their router and of what all rows share, under the names of their classes.
pub(super) fn with_stacks(to: Translation) -> Translation {
    to.rename("blk.{}.ffn_gate_inp", "model.layers.{}.mlp.gate")
        .rename("blk.{}.ffn_gate_exps", "model.layers.{}.mlp.experts.gate_proj")
        .rename("blk.{}.ffn_up_exps", "model.layers.{}.mlp.experts.up_proj")
        .rename("blk.{}.ffn_down_exps", "model.layers.{}.mlp.experts.down_proj")
        .rename("blk.{}.ffn_gate_shexp", "model.layers.{}.mlp.shared_experts.gate_proj")
        .rename("blk.{}.ffn_up_shexp", "model.layers.{}.mlp.shared_experts.up_proj")
        .rename("blk.{}.ffn_down_shexp", "model.layers.{}.mlp.shared_experts.down_proj")
}

/// The same with a bias by which experts are chosen and with their settings, added to another architecture.
pub(super) fn with_experts(to: Translation) -> Translation {
    with_stacks(to)
        .rule(Rule::new("blk.{}.exp_probs_b.bias", "model.layers.{}.mlp.gate.e_score_correction_bias"))
        .settings(|header, settings| {
            settings.insert("norm_topk_prob".into(), json!(false));
            copy(header, settings, &EXPERTS)?;
            copy(
                header,
                settings,
                &[
                    ("leading_dense_block_count", "first_k_dense_replace"),
                    ("expert_weights_scale", "routed_scaling_factor"),
                    ("expert_weights_norm", "norm_topk_prob"),
                ],
            )?;
            without_foretelling(header, settings)
        })
}

fn settings(header: &Header<'_>, settings: &mut Settings) -> Result<()> {
    copy(
        header,
        settings,
        &[("attention.q_lora_rank", "q_lora_rank"), ("attention.kv_lora_rank", "kv_lora_rank")],
    )?;
    // GGUF calls latent attention what it computes: one key head. Hugging Face counts the heads it expands to.
    if let Some(heads) = settings.get("num_attention_heads").cloned() {
        settings.insert("num_key_value_heads".into(), heads);
    }
    let key = header.usize("attention.key_length_mla")?.or(header.usize("attention.key_length")?);
    let value = header.usize("attention.value_length_mla")?.or(header.usize("attention.value_length")?);
    if let Some((key, turned)) = key.zip(header.usize("rope.dimension_count")?) {
        settings.insert("qk_rope_head_dim".into(), turned.into());
        settings.insert("qk_nope_head_dim".into(), key.saturating_sub(turned).into());
        settings.insert("head_dim".into(), turned.into());
        settings.remove("partial_rotary_factor");
    }
    if let Some(value) = value {
        settings.insert("v_head_dim".into(), value.into());
    }
    // V3 scores by sigmoids and balances by a bias; V2 by softmax, its large model within groups.
    let sigmoid = header.usize("expert_gating_func")? == Some(2);
    let grouped = whole(settings, "n_group").is_some_and(|n| n > 1);
    let (scoring, method) = match (sigmoid, grouped) {
        (true, _) => ("sigmoid", "noaux_tc"),
        (false, true) => ("softmax", "group_limited_greedy"),
        (false, false) => ("softmax", "greedy"),
    };
    settings.insert("scoring_func".into(), json!(scoring));
    settings.insert("topk_method".into(), json!(method));
    if sigmoid {
        settings.insert("architectures".into(), json!(["DeepseekV3ForCausalLM"]));
    }
    Ok(())
}
