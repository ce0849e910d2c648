//! Phi-3.5-MoE as GGUF has it: one magnitude of stretched positions for all lengths of text, and biases on attention's output and the head.
//!
//! llama.cpp reads such a file, and weighs the two experts of a token otherwise than transformers does, norms by RMS and leaves a window out, whatever
//! the file says.

use super::{Model, refuse, rope};
use crate::Result;
use ogive_tensor::Config;
use serde_json::json;

/// GGUF's name of the architecture.
pub(super) const ARCHITECTURE: &str = "phimoe";

/// The classes: transformers' own, and Microsoft's.
const CLASSES: [&str; 2] = ["PhimoeForCausalLM", "PhiMoEForCausalLM"];

/// Says the magnitude of stretched positions as Phi-3's settings do.
pub(super) fn settled(class: &str, mut config: Config) -> Result<Config> {
    let scaling = config.at("rope_scaling");
    if !CLASSES.contains(&class) || !scaling.has("long_factor") || scaling.has("attention_factor") {
        return Ok(config);
    }
    let (short, long) = (scaling.opt_f32("short_mscale")?, scaling.opt_f32("long_mscale")?);
    if short.is_none() || short != long {
        let why =
            "GGUF has one magnitude for texts of all lengths, and `short_mscale` and `long_mscale` are two";
        return refuse("rope_scaling", why);
    }
    if let Some(scaling) = config.0.get_mut("rope_scaling").and_then(|scaling| scaling.as_object_mut()) {
        scaling.insert("attention_factor".into(), json!(short));
    }
    Ok(config)
}

/// Refuses what has no key.
pub(super) fn refuse_what_has_no_key(model: &Model<'_>) -> Result<()> {
    for flag in ["attention_bias", "lm_head_bias"] {
        if !model.config.bool_or(flag, false)? {
            return refuse(flag, "readers of GGUF want biases in this architecture");
        }
    }
    // The one number that is read as Microsoft's, as llama.cpp's converter writes it in its place.
    let (config, scaling) = (model.config, model.config.at("rope_scaling"));
    let formula = (1.0 + 32f32.ln() / 4096f32.ln()).sqrt();
    if config.opt_usize("max_position_embeddings")? == Some(131_072)
        && rope::original(config, &scaling)?.is_some_and(|n| n == 4096.0)
        && scaling.opt_f32("attention_factor")?.is_some_and(|f| (f - formula).abs() < 1e-6)
    {
        let why = "a file with this magnitude is read as one of llama.cpp's converter, which means 1.243163";
        return refuse("rope_scaling", why);
    }
    Ok(())
}
