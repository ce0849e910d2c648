//! `falcon-h1`: attention and a selective state space beside each other in every block.
//!
//! The converter multiplies the class's factors into the weights, so a file has none. Whether what states give is normed is told by the norm
//! being there; it stands behind the gate then, as llama.cpp's graph has it. The norm before the MLP has no `.weight` behind its name.

use super::mamba2;
use crate::gguf::settings::copy;
use crate::gguf::{Header, Rule, Settings, Translation};
use ogive_tensor::Result;
use serde_json::json;

pub(super) fn falcon_h1() -> Translation {
    let t = Translation::decoder("falcon-h1", "FalconH1ForCausalLM")
        .rename("output_norm", "model.final_layernorm")
        .without("blk.{}.ffn_norm")
        .rule(Rule::new("blk.{}.ffn_norm", "model.layers.{}.pre_ff_layernorm.weight"))
        .rename("blk.{}.ffn_gate", "model.layers.{}.feed_forward.gate_proj")
        .rename("blk.{}.ffn_up", "model.layers.{}.feed_forward.up_proj")
        .rename("blk.{}.ffn_down", "model.layers.{}.feed_forward.down_proj");
    mamba2::with_spaces(t, "model.layers.{}.mamba", "mamba_n_groups")
        .with_factors_in_weights()
        .settings(settings)
}

fn settings(header: &Header<'_>, settings: &mut Settings) -> Result<()> {
    let sizes = [
        ("ssm.inner_size", "mamba_d_ssm"),
        ("ssm.conv_kernel", "mamba_d_conv"),
        ("ssm.state_size", "mamba_d_state"),
        ("ssm.group_count", "mamba_n_groups"),
    ];
    copy(header, settings, &sizes)?;
    mamba2::heads(header, settings, ["mamba_n_heads", "mamba_d_head"])?;
    if header.has_tensor("blk.0.ssm_norm.weight") {
        settings.insert("mamba_rms_norm".into(), json!(true));
        settings.insert("mamba_norm_before_gate".into(), json!(false));
    }
    Ok(())
}
