//! The first Mamba and Falcon-Mamba as GGUF has them: models without attention and MLPs, whose numbers are 0 there, and twice as wide within.

use super::settings::{set_vocab_size, whole};
use super::{Keys, Model, mamba2, refuse, space, tensors};
use crate::{Result, input::Tensor};
use ogive_tensor::Config;
use serde_json::json;

/// GGUF's name of the architecture.
pub(super) const ARCHITECTURE: &str = "mamba";

/// The classes.
const CLASSES: [&str; 2] = ["MambaForCausalLM", "FalconMambaForCausalLM"];

/// Tokens of a text, which nothing bounds; the converter has the same number.
pub(super) const CONTEXT: usize = 1 << 20;

/// Whether it is one.
fn is(model: &Model<'_>) -> bool {
    model.architecture == ARCHITECTURE
}

/// Says in the settings what these classes take for granted, and what they have nothing of and readers of GGUF ask for.
pub(super) fn settled(class: &str, mut config: Config) -> Result<Config> {
    if !CLASSES.contains(&class) {
        return Ok(config);
    }
    let dim = config.usize("hidden_size")?;
    let inner = (f64::from(config.f32_or("expand", 2.0)?) * dim as f64) as usize;
    let Some(settings) = config.0.as_object_mut() else { return Ok(config) };
    settings.insert("num_attention_heads".into(), json!(0));
    settings.insert("max_position_embeddings".into(), json!(CONTEXT));
    let auto = settings.get("time_step_rank").is_some_and(|said| said == "auto");
    if auto {
        settings.remove("time_step_rank");
    }
    config.fill([
        ("intermediate_size", json!(inner)),
        ("time_step_rank", json!(dim.div_ceil(16))),
        ("state_size", json!(16)),
        ("conv_kernel", json!(4)),
    ]);
    Ok(config)
}

/// transformers' name for the table of tokens that state-spaces calls otherwise, of both Mambas.
pub(super) fn own_name(model: &Model<'_>, name: &str) -> Option<String> {
    let either = is(model) || mamba2::is(model);
    (either && name == "backbone.embedding.weight").then(|| "backbone.embeddings.weight".into())
}

/// Sets what this architecture has besides.
pub(super) fn set(keys: &mut Keys<'_>, model: &Model<'_>) -> Result<()> {
    let config = model.config;
    space::refuse_what_has_no_key(config)?;
    space::only(config, "hidden_act", "silu")?;
    let (inner, dim) = (config.usize("intermediate_size")?, config.usize("hidden_size")?);
    if dim.checked_mul(2) != Some(inner) {
        return refuse(
            "expand",
            format!("{inner} is not twice {dim}, which readers of GGUF want of this architecture"),
        );
    }
    set_vocab_size(keys, config)?;
    keys.set("feed_forward_length", 0_u32);
    for (key, setting) in [
        ("ssm.conv_kernel", "conv_kernel"),
        ("ssm.state_size", "state_size"),
        ("ssm.time_step_rank", "time_step_rank"),
        ("ssm.inner_size", "intermediate_size"),
    ] {
        keys.set(key, whole(setting, config.usize(setting)?)?);
    }
    let normed = model.class == CLASSES[1];
    keys.set("ssm.dt_b_c_rms", normed);
    if normed {
        // llama.cpp has one epsilon for all norms, and passes this over.
        keys.set("ssm.dt_b_c_rms_epsilon", config.f32_or("mixer_rms_eps", 1e-6)?);
    }
    Ok(())
}

/// Refuses tensors that the file's readers pass over or miss, and those of other sizes than the settings say, by which they go.
pub(super) fn check(model: &Model<'_>, all: &[Tensor]) -> Result<()> {
    if !is(model) {
        return Ok(());
    }
    space::biases(all, &["ssm_in.bias", "ssm_out.bias", "ssm_x.bias"])?;
    let size = |key: &str| model.config.usize(key);
    let (inner, state, rank) = (size("intermediate_size")?, size("state_size")?, size("time_step_rank")?);
    tensors::fit(
        all,
        &[
            (".ssm_in.weight", 1, inner.saturating_mul(2)),
            (".ssm_conv1d.weight", 1, inner),
            (".ssm_conv1d.weight", 0, size("conv_kernel")?.max(1)),
            (".ssm_conv1d.bias", 0, inner),
            (".ssm_x.weight", 1, state.saturating_mul(2).saturating_add(rank)),
            (".ssm_dt.weight", 1, inner),
            (".ssm_dt.weight", 0, rank),
            (".ssm_dt.bias", 0, inner),
            (".ssm_a", 1, inner),
            (".ssm_a", 0, state),
            (".ssm_d", 0, inner),
            (".ssm_out.weight", 0, inner),
        ],
    )
}
