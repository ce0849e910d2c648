//! Jamba as GGUF has it: layers that attend by their number of key heads, which is 0 for the others, and layers with experts by their routers.

use super::settings::{MOST_LAYERS, set_vocab_size, whole};
use super::{Keys, Model, refuse, space, tensors};
use crate::{Result, input::Tensor};
use ogive_tensor::Config;
use serde_json::json;

/// GGUF's name of the architecture.
pub(super) const ARCHITECTURE: &str = "jamba";

/// Whether it is one.
fn is(model: &Model<'_>) -> bool {
    model.architecture == ARCHITECTURE
}

/// Says in the settings what the class takes for granted, layer by layer.
pub(super) fn settled(class: &str, mut config: Config) -> Result<Config> {
    if class != "JambaForCausalLM" {
        return Ok(config);
    }
    let layers = config.usize("num_hidden_layers")?;
    if layers > MOST_LAYERS {
        return refuse("num_hidden_layers", format!("{layers} layers are more than any model has"));
    }
    let (dim, experts) = (config.usize("hidden_size")?, config.usize_or("num_experts", 16)?);
    let (attends, sparse) = (
        each(&config, ["attn_layer_period", "attn_layer_offset"], [8, 4])?,
        each(&config, ["expert_layer_period", "expert_layer_offset"], [2, 1])?,
    );
    let kinds = (0..layers).map(|i| if attends(i) { "attention" } else { "mamba" }).collect::<Vec<_>>();
    let counts = (0..layers).map(|i| if sparse(i) { experts } else { 1 }).collect::<Vec<_>>();
    let Some(settings) = config.0.as_object_mut() else { return Ok(config) };
    if experts <= 1 {
        // One is an MLP like all others, and readers of GGUF want no more experts of a token than there are.
        settings.retain(|key, _| !["num_experts", "num_experts_per_tok"].contains(&&**key));
    }
    if settings.get("mamba_dt_rank").is_some_and(|said| said == "auto") {
        settings.remove("mamba_dt_rank");
    }
    config.fill([
        ("layer_types", json!(kinds)),
        ("layers_num_experts", json!(counts)),
        ("mamba_expand", json!(2)),
        ("mamba_d_state", json!(16)),
        ("mamba_d_conv", json!(4)),
        ("mamba_dt_rank", json!(dim.div_ceil(16))),
        ("rms_norm_eps", json!(1e-6)),
    ]);
    Ok(config)
}

/// The layers of a period.
fn each(config: &Config, keys: [&str; 2], usual: [usize; 2]) -> Result<impl Fn(usize) -> bool + use<>> {
    let (period, offset) = (config.usize_or(keys[0], usual[0])?, config.usize_or(keys[1], usual[1])?);
    if offset >= period {
        return refuse(keys[1], format!("it is {offset}, and should be below `{}`, {period}", keys[0]));
    }
    Ok(move |i: usize| i % period == offset)
}

/// Whether a layer has a state space; no layer of another architecture.
pub(super) fn has_space(model: &Model<'_>) -> Result<impl Fn(u64) -> bool> {
    let kinds = if is(model) { super::layer_types(model.config, &["mamba", "attention"])? } else { None };
    Ok(move |layer: u64| kinds.as_ref().is_some_and(|kinds| kinds.get(layer as usize) == Some(&"mamba")))
}

/// Whether a layer has experts; no layer of another architecture.
pub(super) fn sparse(model: &Model<'_>) -> Result<impl Fn(u64) -> bool> {
    let own = is(model) && model.config.usize_or("num_experts", 1)? > 1;
    let counts =
        if own { model.config.opt_usizes("layers_num_experts")?.unwrap_or_default() } else { Vec::new() };
    Ok(move |layer: u64| counts.get(layer as usize).is_some_and(|n| *n > 1))
}

/// Sets what this architecture has besides.
pub(super) fn set(keys: &mut Keys<'_>, model: &Model<'_>) -> Result<()> {
    let config = model.config;
    space::refuse_what_has_no_key(config)?;
    space::only(config, "hidden_act", "silu")?;
    if config.has("sliding_window") {
        return refuse("sliding_window", "GGUF has no windows for this architecture");
    }
    let (dim, times) = (config.usize("hidden_size")?, config.usize("mamba_expand")?);
    if times != 2 {
        return refuse("mamba_expand", "it is not 2, which readers of GGUF want of this architecture");
    }
    for (key, setting, size) in [
        ("ssm.conv_kernel", "mamba_d_conv", config.usize("mamba_d_conv")?),
        ("ssm.state_size", "mamba_d_state", config.usize("mamba_d_state")?),
        ("ssm.time_step_rank", "mamba_dt_rank", config.usize("mamba_dt_rank")?),
        ("ssm.inner_size", "mamba_expand", dim.saturating_mul(times)),
    ] {
        keys.set(key, whole(setting, size)?);
    }
    let (layers, has_space) = (config.usize("num_hidden_layers")?, has_space(model)?);
    let heads = whole("num_key_value_heads", config.usize("num_key_value_heads")?)?;
    let of_each: Vec<u32> = (0..layers as u64).map(|i| if has_space(i) { 0 } else { heads }).collect();
    keys.set("attention.head_count_kv", of_each);
    set_vocab_size(keys, config)
}

/// Refuses tensors that the file's readers pass over or miss, and those of other sizes than the settings say, by which they go.
pub(super) fn check(model: &Model<'_>, all: &[Tensor]) -> Result<()> {
    if !is(model) {
        return Ok(());
    }
    space::biases(all, &["ssm_in.bias", "ssm_out.bias", "ssm_x.bias"])?;
    let size = |key: &str| model.config.usize(key);
    let (state, rank, width) = (size("mamba_d_state")?, size("mamba_dt_rank")?, size("intermediate_size")?);
    let inner = size("mamba_expand")?.saturating_mul(size("hidden_size")?);
    tensors::fit(
        all,
        &[
            (".ssm_in.weight", 1, inner.saturating_mul(2)),
            (".ssm_conv1d.weight", 1, inner),
            (".ssm_conv1d.weight", 0, size("mamba_d_conv")?.max(1)),
            (".ssm_conv1d.bias", 0, inner),
            (".ssm_x.weight", 1, state.saturating_mul(2).saturating_add(rank)),
            (".ssm_dt.weight", 1, inner),
            (".ssm_dt.weight", 0, rank),
            (".ssm_dt.bias", 0, inner),
            (".ssm_dt_norm.weight", 0, rank),
            (".ssm_b_norm.weight", 0, state),
            (".ssm_c_norm.weight", 0, state),
            (".ssm_a", 1, inner),
            (".ssm_a", 0, state),
            (".ssm_d", 0, inner),
            (".ssm_out.weight", 0, inner),
            (".ffn_gate.weight", 1, width),
            (".ffn_gate_exps.weight", 1, width),
        ],
    )
}
