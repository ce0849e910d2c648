//! Bamba as GGUF has it: Granite 4 without factors, whose layers that attend turn a part of their heads.
//!
//! Of rows of queries and keys that part alone is interleaved, as readers turn it. llama.cpp's converter interleaves whole heads, whatever part of
//! them turns, so that other elements turn together there than in transformers. By a key of our own the two are told apart when a file is read.

use super::settings::{MOST_LAYERS, turning, whole};
use super::{Keys, Model, granite, refuse};
use crate::Result;
use ogive_tensor::Config;
use serde_json::json;

const CLASS: &str = "BambaForCausalLM";

/// Whether it is one.
pub(super) fn is(model: &Model<'_>) -> bool {
    model.class == CLASS
}

/// Says in the settings what the class takes for granted, under the names of Granite's.
pub(super) fn settled(class: &str, mut config: Config) -> Result<Config> {
    if class != CLASS {
        return Ok(config);
    }
    let attend = config.opt_usizes("attn_layer_indices")?.unwrap_or_default();
    let layers = config.usize("num_hidden_layers")?;
    if layers > MOST_LAYERS {
        return refuse("num_hidden_layers", format!("{layers} layers are more than any model has"));
    }
    let kind = |i| if attend.contains(&i) { "attention" } else { "mamba" };
    let kinds = (0..layers).map(kind).collect::<Vec<_>>();
    let head_dim = granite::state_head(&config)?;
    if let Some(settings) = config.0.as_object_mut() {
        settings.extend(head_dim.map(|n| ("mamba_d_head".into(), json!(n))));
        settings.insert("position_embedding_type".into(), json!("rope"));
    }
    config.fill([("layer_types", json!(kinds)), ("rms_norm_eps", json!(1e-5))]);
    Ok(config)
}

/// Granite's name of a tensor.
pub(super) fn own_name(model: &Model<'_>, name: &str) -> Option<String> {
    let parts = [
        (".pre_ff_layernorm.", ".post_attention_layernorm."),
        (".feed_forward.", ".mlp."),
        ("model.final_layernorm.", "model.norm."),
    ];
    let (own, to) = parts.into_iter().find(|(own, _)| is(model) && name.contains(own))?;
    Some(name.replace(own, to))
}

/// Sets what it has besides.
pub(super) fn set(keys: &mut Keys<'_>, model: &Model<'_>, head_dim: usize) -> Result<()> {
    let config = model.config;
    let dim = config.usize("hidden_size")?;
    let inner = config.usize("mamba_n_heads")?.saturating_mul(config.usize("mamba_d_head")?);
    if dim.checked_mul(2) != Some(inner) {
        let why = format!("{inner} is not twice {dim}, which readers of GGUF want of this architecture");
        return refuse("mamba_expand", why);
    }
    turning(keys, config, head_dim)?;
    keys.metadata.set("ogive.rope.interleaved_in_part", true);
    keys.set("rope.scaling.finetuned", true);
    keys.set("attention.key_length", whole("head_dim", head_dim)?);
    keys.set("attention.value_length", whole("head_dim", head_dim)?);
    granite::spaces(keys, model)
}
