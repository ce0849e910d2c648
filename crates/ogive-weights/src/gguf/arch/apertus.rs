//! `apertus`: Llama's names, but for norms, and no gate. What each layer's activation has learned are lists of settings, or one number for
//! all layers. Nothing is reordered.

use crate::gguf::settings::of_each_layer;
use crate::gguf::{Header, Settings, Translation};
use ogive_tensor::Result;
use serde_json::json;

/// What an activation has learned: its names in Hugging Face's files.
const NUMBERS: [&str; 4] = ["alpha_p", "alpha_n", "beta", "eps"];

pub(super) fn apertus() -> Translation {
    Translation::decoder("apertus", "ApertusForCausalLM")
        .without("blk.{}.ffn_gate")
        .rename("blk.{}.attn_norm", "model.layers.{}.attention_layernorm")
        .rename("blk.{}.ffn_norm", "model.layers.{}.feedforward_layernorm")
        .settings(numbers)
}

/// The keys are below no architecture.
fn numbers(header: &Header<'_>, settings: &mut Settings) -> Result<()> {
    settings.insert("hidden_act".into(), json!("xielu"));
    for name in NUMBERS {
        let key = format!("xielu_{name}");
        if let Some(value) = header.global(&format!("xielu.{name}"))? {
            settings.insert(key.clone(), value);
            let each = of_each_layer(settings, &key);
            settings.insert(key, each.into());
        }
    }
    Ok(())
}
