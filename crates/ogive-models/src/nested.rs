//! The text's part of checkpoints that also see: a decoder of another file, whose settings stand under `text_config` (or, in the first of Qwen's, among all
//! others) and whose weights are below others' names, where `decoder.rs` looks for them.
//!
//! transformers' `configuration_qwen2_vl`, `configuration_llava` and the like. Settings are sparse there: what is left out has the default of the
//! text's own class, and so it is filled in here.

use crate::{llama, qwen_moe};
use ogive_nn::tensor::serde_json::{Value, json};
use ogive_nn::tensor::{Error, Result};
use ogive_nn::{Config, Loader, Model};

/// The text's settings. Its head is the embedding where either says so that it may be said in: transformers looks at the text's settings before version 5, and
/// at those of all from then on. (A head that the file has counts anyhow.)
pub(crate) fn text_of(c: &Config) -> Config {
    if !c.has("text_config") {
        return c.clone();
    }
    let mut text = c.at("text_config");
    let tied = c.0.get("tie_word_embeddings").filter(|tied| **tied != Value::Bool(false));
    if let (Some(tied), Some(settings)) = (tied, text.0.as_object_mut()) {
        settings.insert("tie_word_embeddings".into(), tied.clone());
    }
    text
}

/// Reads the text's part of classes that go with several texts: LLaVA, Mistral 3.1, Idefics, InternVL.
///
/// # Errors
/// If `model_type` is none that is known; else as [every `load`](crate#errors).
pub fn load(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    let text = text_of(c);
    match text.opt_str("model_type")?.unwrap_or("llama") {
        "llama" => llama::load(&filled(text, &[]), root),
        "mistral" => {
            let own = [("num_key_value_heads", json!(8)), ("sliding_window", json!(4096))];
            llama::load_mistral(&filled(text, &own), root)
        }
        "qwen2" | "qwen3" => llama::load_qwen(&text, root),
        "qwen3_moe" => qwen_moe::load_qwen3(&text, root),
        other => {
            let known = "llama, mistral, qwen2, qwen3, qwen3_moe";
            Err(Error::unsupported("config", format!("a `text_config` of type `{other}`; known are {known}")))
        }
    }
}

/// Defaults of `LlamaConfig`, most of which `MistralConfig` has too.
fn filled(mut c: Config, own: &[(&str, Value)]) -> Config {
    let shared = ["num_attention_heads", "num_hidden_layers"].map(|key| (key, json!(32)));
    let shared = shared.into_iter().chain([("hidden_size", json!(4096))]);
    for (key, value) in own.iter().cloned().chain(shared) {
        // `null` is no default: it turns a window off.
        if let Some(settings) = c.0.as_object_mut() {
            settings.entry(key).or_insert(value);
        }
    }
    c
}

/// Reads the text's part of Qwen2-VL and Qwen2.5-VL: Qwen2, whose positions are places.
///
/// # Errors
/// If there is no `mrope_section`; else as [every `load`](crate#errors).
pub fn load_qwen2_vl(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    llama::load_qwen(&by_places(text_of(c), false)?, root)
}

/// Reads the text's part of Qwen3-VL: Qwen3, whose positions are places, of which pairs take turns.
///
/// # Errors
/// As [`load_qwen2_vl`].
pub fn load_qwen3_vl(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    llama::load_qwen(&by_places(text_of(c), true)?, root)
}

/// The settings of positions that are places. Without sections a text would be right and an image silently wrong.
fn by_places(mut c: Config, in_turn: bool) -> Result<Config> {
    let key = if c.has("rope_scaling") { "rope_scaling" } else { "rope_parameters" };
    if !c.at(key).has("mrope_section") {
        return Err(Error::missing("config `rope_scaling.mrope_section`"));
    }
    if in_turn {
        c.0[key]["mrope_interleaved"] = true.into();
    }
    Ok(c)
}
