//! `nemotron_h` and `nemotron_h_moe`: blocks that are one thing each.
//!
//! Which it is, is told by two numbers for each layer: key heads and hidden elements of an MLP. Where both are 0 there is a state space, where
//! only the second is, attention; and what has hidden elements is a mixture in a file with experts, in others an MLP.

use super::{deepseek::EXPERTS, mamba2};
use crate::gguf::settings::{copy, key_heads, of_each_layer, only_sigmoids, whole, without_foretelling};
use crate::gguf::{Header, Rule, Settings, Translation};
use ogive_tensor::Result;
use serde_json::{Value, json};

pub(super) fn nemotron_h() -> Translation {
    blocks("nemotron_h")
}

pub(super) fn nemotron_h_moe() -> Translation {
    blocks("nemotron_h_moe")
}

fn blocks(architecture: &str) -> Translation {
    let names = [
        ("token_embd", "backbone.embeddings"),
        ("output_norm", "backbone.norm_f"),
        ("output", "lm_head"),
        ("blk.{}.attn_norm", "backbone.layers.{}.norm"),
        ("blk.{}.attn_q", "backbone.layers.{}.mixer.q_proj"),
        ("blk.{}.attn_k", "backbone.layers.{}.mixer.k_proj"),
        ("blk.{}.attn_v", "backbone.layers.{}.mixer.v_proj"),
        ("blk.{}.attn_output", "backbone.layers.{}.mixer.o_proj"),
        ("blk.{}.ffn_up", "backbone.layers.{}.mixer.up_proj"),
        ("blk.{}.ffn_down", "backbone.layers.{}.mixer.down_proj"),
        ("blk.{}.ffn_gate_inp", "backbone.layers.{}.mixer.gate"),
        ("blk.{}.ffn_up_exps", "backbone.layers.{}.mixer.experts.up_proj"),
        ("blk.{}.ffn_down_exps", "backbone.layers.{}.mixer.experts.down_proj"),
        ("blk.{}.ffn_up_shexp", "backbone.layers.{}.mixer.shared_experts.up_proj"),
        ("blk.{}.ffn_down_shexp", "backbone.layers.{}.mixer.shared_experts.down_proj"),
    ];
    let t = Translation::new(architecture, "NemotronHForCausalLM");
    let t = names
        .into_iter()
        .fold(t, |t, (from, to)| t.rename(from, to))
        .rule(Rule::new("blk.{}.exp_probs_b.bias", "backbone.layers.{}.mixer.gate.e_score_correction_bias"));
    mamba2::with_spaces(t, "backbone.layers.{}.mixer", "n_groups").settings(settings)
}

fn settings(header: &Header<'_>, settings: &mut Settings) -> Result<()> {
    if !settings.contains_key("rms_norm_eps") {
        copy(header, settings, &[("attention.layer_norm_epsilon", "rms_norm_eps")])?;
    }
    let sizes = [
        ("ssm.conv_kernel", "conv_kernel"),
        ("ssm.state_size", "ssm_state_size"),
        ("ssm.group_count", "n_groups"),
    ];
    copy(header, settings, &sizes)?;
    mamba2::heads(header, settings, ["mamba_num_heads", "mamba_head_dim"])?;
    let mixture = header.usize("expert_count")?.is_some_and(|n| n > 0);
    if mixture {
        experts(header, settings)?;
    }
    let mut keys = of_each_layer(settings, "num_key_value_heads");
    let hidden = of_each_layer(settings, "intermediate_size");
    let all = whole(settings, "num_hidden_layers");
    without_foretelling(header, settings)?;
    let behind = all.zip(whole(settings, "num_hidden_layers")).map_or(0, |(all, own)| all - own);
    keys.truncate(keys.len().saturating_sub(behind as usize));
    let kind = |(i, keys): (usize, &Value)| match hidden.get(i).is_none_or(|hidden| *hidden == 0) {
        true if *keys == 0 => "mamba",
        true => "attention",
        false if mixture => "moe",
        false => "mlp",
    };
    settings.insert("layer_types".into(), keys.iter().enumerate().map(kind).collect());
    key_heads(settings, &keys)
}

/// What the mixtures of a file have.
fn experts(header: &Header<'_>, settings: &mut Settings) -> Result<()> {
    only_sigmoids(header)?;
    settings.insert("norm_topk_prob".into(), json!(false));
    if header.f32("expert_weights_scale")?.is_some_and(|scale| scale != 0.0) {
        copy(header, settings, &[("expert_weights_scale", "routed_scaling_factor")])?;
    }
    copy(header, settings, &EXPERTS)?;
    let keys = [
        ("expert_shared_feed_forward_length", "moe_shared_expert_intermediate_size"),
        ("expert_weights_norm", "norm_topk_prob"),
        ("moe_latent_size", "moe_latent_size"),
    ];
    copy(header, settings, &keys)
}
