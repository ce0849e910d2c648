//! `arcee`: Llama, q and k rows reordered too, without a gate.

use super::llama::interleaved;
use crate::gguf::Translation;
use serde_json::json;

pub(super) fn arcee() -> Translation {
    interleaved("arcee", "ArceeForCausalLM").without("blk.{}.ffn_gate").settings(|_, settings| {
        settings.insert("hidden_act".into(), json!("relu2"));
        Ok(())
    })
}
