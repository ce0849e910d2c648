//! `olmo2`: OLMo 2, and OLMo 3, which is a file with a window. Norms stand after attention and after the MLP; nothing is reordered. And
//! `olmoe`, the mixture.

use super::qwen::with_experts;
use crate::gguf::settings::{copy, layer_types};
use crate::gguf::{Header, Settings, Translation};
use ogive_tensor::Result;
use serde_json::{Value, json};

pub(super) fn olmo2() -> Translation {
    Translation::decoder("olmo2", "Olmo2ForCausalLM")
        .without("blk.{}.attn_norm")
        .without("blk.{}.ffn_norm")
        .rename("blk.{}.post_attention_norm", "model.layers.{}.post_attention_layernorm")
        .rename("blk.{}.post_ffw_norm", "model.layers.{}.post_feedforward_layernorm")
        .settings(windows)
        .settings(magnitude)
}

pub(super) fn olmoe() -> Translation {
    with_experts(Translation::decoder("olmoe", "OlmoeForCausalLM"), false).settings(|header, settings| {
        // 0 is none.
        match header.f32("attention.clamp_kqv")? {
            Some(bound) if bound != 0.0 => copy(header, settings, &[("attention.clamp_kqv", "clip_qkv")]),
            _ => Ok(()),
        }
    })
}

/// A window makes an OLMo 3, whose layers have it but for each fourth unless the file has a flag for each.
fn windows(header: &Header<'_>, settings: &mut Settings) -> Result<()> {
    if !settings.contains_key("sliding_window") {
        return Ok(());
    }
    settings.insert("architectures".into(), json!(["Olmo3ForCausalLM"]));
    layer_types(header, settings, 0, 4)?;
    copy(header, settings, &[("rope.freq_base_swa", "rope_local_base_freq")])
}

/// YaRN's magnitude: the converters of 2025 wrote the model's own under this key, which llama.cpp multiplies by what it would be
/// without it. The models were trained with the one.
fn magnitude(header: &Header<'_>, settings: &mut Settings) -> Result<()> {
    let said = header.value("rope.scaling.attn_factor")?.filter(|v| v.as_f64() != Some(1.0));
    if let (Some(said), Some(Value::Object(scaling))) = (said, settings.get_mut("rope_scaling"))
        && scaling.get("rope_type").is_some_and(|kind| kind == "yarn")
    {
        scaling.insert("attention_factor".into(), said);
    }
    Ok(())
}
