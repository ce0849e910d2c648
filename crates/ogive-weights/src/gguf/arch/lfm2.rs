//! `lfm2` and `lfm2moe`: gated short convolutions in most layers.
//!
//! Which layers attend is told by how many key heads each has, and the last norm is called after the embedding.

use crate::gguf::settings::{copy, kinds_by_key_heads, only_sigmoids};
use crate::gguf::{Change, Header, Rule, Settings, Translation};
use ogive_tensor::{Error, Result};
use serde_json::json;

pub(super) fn lfm2() -> Translation {
    short_conv("lfm2", "Lfm2ForCausalLM")
}

pub(super) fn lfm2_moe() -> Translation {
    short_conv("lfm2moe", "Lfm2MoeForCausalLM")
        .rename("blk.{}.ffn_gate_inp", "model.layers.{}.feed_forward.gate")
        .rule(Rule::new("blk.{}.exp_probs_b.bias", "model.layers.{}.feed_forward.expert_bias"))
        .rename("blk.{}.ffn_gate_exps", "model.layers.{}.feed_forward.experts.w1")
        .rename("blk.{}.ffn_up_exps", "model.layers.{}.feed_forward.experts.w3")
        .rename("blk.{}.ffn_down_exps", "model.layers.{}.feed_forward.experts.w2")
        .settings(mixture)
}

/// What both share.
fn short_conv(architecture: &str, class: &str) -> Translation {
    Translation::decoder(architecture, class)
        .without("output_norm")
        .rename("token_embd_norm", "model.embedding_norm")
        .rename("blk.{}.attn_norm", "model.layers.{}.operator_norm")
        .rename("blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_layernorm")
        .rename("blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_layernorm")
        .rename("blk.{}.attn_output", "model.layers.{}.self_attn.out_proj")
        .rename("blk.{}.shortconv.in_proj", "model.layers.{}.conv.in_proj")
        .rename("blk.{}.shortconv.out_proj", "model.layers.{}.conv.out_proj")
        .rule(Rule::changed(
            ["blk.{}.shortconv.conv.weight"],
            "model.layers.{}.conv.conv.weight",
            Change::flat_taps(),
        ))
        .rule(Rule::new("blk.{}.shortconv.conv.bias", "model.layers.{}.conv.conv.bias"))
        .rename("blk.{}.ffn_norm", "model.layers.{}.ffn_norm")
        .rename("blk.{}.ffn_gate", "model.layers.{}.feed_forward.w1")
        .rename("blk.{}.ffn_up", "model.layers.{}.feed_forward.w3")
        .rename("blk.{}.ffn_down", "model.layers.{}.feed_forward.w2")
        .settings(settings)
}

fn settings(header: &Header<'_>, settings: &mut Settings) -> Result<()> {
    copy(header, settings, &[("shortconv.l_cache", "conv_L_cache")])?;
    if settings.contains_key("sliding_window") {
        let why = "layers that attend have a window, which is not known of this architecture";
        return Err(Error::unsupported("attention.sliding_window", why));
    }
    kinds_by_key_heads(settings, ["conv", "full_attention"])
}

fn mixture(header: &Header<'_>, settings: &mut Settings) -> Result<()> {
    only_sigmoids(header)?;
    // llama.cpp's graph has it so, whatever the file says.
    settings.insert("norm_topk_prob".into(), json!(true));
    settings.insert("num_dense_layers".into(), json!(0));
    if header.f32("expert_weights_scale")?.is_some_and(|scale| scale != 0.0) {
        copy(header, settings, &[("expert_weights_scale", "routed_scaling_factor")])?;
    }
    copy(
        header,
        settings,
        &[
            ("leading_dense_block_count", "num_dense_layers"),
            ("expert_count", "num_experts"),
            ("expert_used_count", "num_experts_per_tok"),
            ("expert_feed_forward_length", "moe_intermediate_size"),
        ],
    )
}
