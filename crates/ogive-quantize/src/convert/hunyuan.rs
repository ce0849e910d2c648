//! HunYuan as GGUF has it: the base of rotary positions that is turned by, and numbers of experts that are the same in all layers.

use super::settings::whole;
use super::{Keys, Model, refuse};
use crate::Result;
use ogive_tensor::{Config, rope_theta_by_alpha};
use serde_json::{Value, json};

/// GGUF's names of the architectures.
pub(super) const DENSE: &str = "hunyuan-dense";
pub(super) const MIXTURE: &str = "hunyuan-moe";

/// Says in the settings what the class makes of them, as GGUF says it.
pub(super) fn settled(class: &str, config: Config) -> Result<Config> {
    if !class.starts_with("HunYuan") {
        return Ok(config);
    }
    let mut config = config;
    let head_dim = match config.opt_usize("head_dim")? {
        Some(dim) => dim,
        None => config.usize("hidden_size")? / config.usize("num_attention_heads")?.max(1),
    };
    let theta = rope_theta_by_alpha(&config, head_dim)?;
    if let Some(settings) = config.0.as_object_mut() {
        if let Some(theta) = theta {
            settings.insert("rope_theta".into(), json!(theta));
            settings.remove("rope_scaling");
        }
        for key in ["num_experts", "moe_topk"] {
            if let Some(Value::Array(each)) = settings.get(key).cloned() {
                let Some(first) = each.first().filter(|first| each.iter().all(|n| n == *first)) else {
                    return refuse(key, "GGUF has one number of experts for all layers");
                };
                settings.insert(key.into(), first.clone());
            }
        }
        // The class makes experts as wide as `intermediate_size`, whatever this says.
        settings.remove("moe_intermediate_size");
    }
    Ok(config)
}

/// Sets what mixtures have besides.
pub(super) fn set(keys: &mut Keys<'_>, model: &Model<'_>) -> Result<()> {
    let (config, width) = (model.config, model.config.usize("intermediate_size")?);
    for (key, value) in [
        ("expert_used_count", config.usize("moe_topk")?),
        ("expert_shared_count", 1),
        ("expert_feed_forward_length", width),
        ("expert_shared_feed_forward_length", width),
    ] {
        keys.set(key, whole(key, value)?);
    }
    Ok(())
}
