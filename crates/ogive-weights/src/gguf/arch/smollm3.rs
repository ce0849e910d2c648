//! `smollm3`: Llama's names and its order of q and k rows. llama.cpp turns no positions in each fourth layer, whatever the file says.

use super::llama::interleaved;
use crate::gguf::Translation;
use crate::gguf::settings::whole;
use serde_json::json;

pub(super) fn smollm3() -> Translation {
    interleaved("smollm3", "SmolLM3ForCausalLM").settings(|_, settings| {
        let layers = whole(settings, "num_hidden_layers").unwrap_or(0).min(10_000);
        let turns = (1..=layers).map(|i| u8::from(!i.is_multiple_of(4)));
        settings.insert("no_rope_layers".into(), turns.collect());
        settings.insert("no_rope_layer_interval".into(), json!(4));
        Ok(())
    })
}
