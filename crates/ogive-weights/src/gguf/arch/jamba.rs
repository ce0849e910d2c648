//! `jamba`: the first Mamba's state spaces in most layers. Which layers attend is told by how many key heads each has, and which have experts by
//! their routers.

use super::mamba::with_spaces;
use crate::gguf::settings::{MOST_LAYERS, copy, kinds_by_key_heads, whole};
use crate::gguf::{Header, Settings, Translation};
use ogive_tensor::{Error, Result};
use serde_json::json;

pub(super) fn jamba() -> Translation {
    let t = Translation::decoder("jamba", "JambaForCausalLM")
        .rename("output_norm", "model.final_layernorm")
        .rename("blk.{}.ffn_norm", "model.layers.{}.pre_ff_layernorm")
        .rename("blk.{}.ffn_gate", "model.layers.{}.feed_forward.gate_proj")
        .rename("blk.{}.ffn_up", "model.layers.{}.feed_forward.up_proj")
        .rename("blk.{}.ffn_down", "model.layers.{}.feed_forward.down_proj")
        .rename("blk.{}.ffn_gate_inp", "model.layers.{}.feed_forward.router")
        .rename("blk.{}.ffn_gate_exps", "model.layers.{}.feed_forward.experts.gate_proj")
        .rename("blk.{}.ffn_up_exps", "model.layers.{}.feed_forward.experts.up_proj")
        .rename("blk.{}.ffn_down_exps", "model.layers.{}.feed_forward.experts.down_proj")
        .rename("blk.{}.ssm_dt_norm", "model.layers.{}.mamba.dt_layernorm")
        .rename("blk.{}.ssm_b_norm", "model.layers.{}.mamba.b_layernorm")
        .rename("blk.{}.ssm_c_norm", "model.layers.{}.mamba.c_layernorm");
    with_spaces(t, "model.layers.{}.mamba").settings(settings)
}

fn settings(header: &Header<'_>, settings: &mut Settings) -> Result<()> {
    let keys = [
        ("ssm.conv_kernel", "mamba_d_conv"),
        ("ssm.state_size", "mamba_d_state"),
        ("ssm.time_step_rank", "mamba_dt_rank"),
        ("expert_count", "num_experts"),
        ("expert_used_count", "num_experts_per_tok"),
    ];
    copy(header, settings, &keys)?;
    settings.entry("num_experts").or_insert(json!(1));
    const WIDTH: &str = "ssm.inner_size";
    if let Some((inner, dim)) = header.usize(WIDTH)?.zip(whole(settings, "hidden_size")) {
        let inner = inner as u64;
        let Some(times) = inner.checked_div(dim).filter(|_| inner.is_multiple_of(dim)) else {
            let why = format!("{inner} is no multiple of the model's width, {dim}");
            return Err(Error::unsupported(WIDTH, why));
        };
        settings.insert("mamba_expand".into(), times.into());
    }
    let layers = whole(settings, "num_hidden_layers").unwrap_or(0).min(MOST_LAYERS);
    let n = settings.get("num_experts").cloned().unwrap_or(json!(1));
    let routed = |i: u64| header.has_tensor(&format!("blk.{i}.ffn_gate_inp.weight"));
    let counts = (0..layers).map(|i| if routed(i) { n.clone() } else { json!(1) });
    settings.insert("layers_num_experts".into(), counts.collect());
    kinds_by_key_heads(settings, ["mamba", "attention"])
}
