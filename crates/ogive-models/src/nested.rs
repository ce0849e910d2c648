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
    let text = by_places(text_of(c), false, None);
    if !text.at("rope_scaling").has("mrope_section") {
        // A text would be right, and an image silently wrong.
        return Err(Error::missing("config `rope_scaling.mrope_section`"));
    }
    llama::load_qwen(&text, root)
}

/// Reads the text's part of Qwen3-VL: Qwen3, whose positions are places that pairs turn by in turn.
///
/// # Errors
/// None of its own; those of [every `load`](crate#errors).
pub fn load_qwen3_vl(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    llama::load_qwen(&by_places(text_of(c), true, Some([24, 20, 20])), root)
}

/// Reads the text's part of Qwen3-VL's mixtures of experts.
///
/// # Errors
/// None of its own; those of [every `load`](crate#errors).
pub fn load_qwen3_vl_moe(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    qwen_moe::load_qwen3_vl(&by_places(text_of(c), true, Some([24, 20, 20])), root)
}

/// The settings of a class whose pairs turn by places, `in_turn` or one after the other, and by how many if nothing is said of it. transformers 5 has them among
/// other parameters, of which `ogive-weights` makes a key of its own.
pub(crate) fn by_places(mut c: Config, in_turn: bool, usual: Option<[usize; 3]>) -> Config {
    let said = |c: &Config| c.0.get("mrope_section").filter(|said| !said.is_null()).cloned();
    let sections = said(&c.at("rope_scaling")).or_else(|| said(&c));
    let Some(sections) = sections.or(usual.map(|usual| json!(usual))) else { return c };
    if let Some(settings) = c.0.as_object_mut() {
        let rope = settings.entry("rope_scaling").or_insert(Value::Null);
        if rope.is_null() {
            *rope = json!({"rope_type": "default"});
        }
        if let Some(rope) = rope.as_object_mut() {
            rope.insert("mrope_section".into(), sections);
            rope.insert("mrope_interleaved".into(), in_turn.into());
        }
    }
    c
}
