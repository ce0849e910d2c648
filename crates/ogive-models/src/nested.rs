//! The text's part of checkpoints that also see: a decoder of another file, whose settings stand under `text_config` (or, in the first of Qwen's, among all
//! others) and whose weights are below others' names, where `decoder.rs` looks for them.
//!
//! transformers' `configuration_qwen2_vl`, `configuration_llava` and the like. Settings are sparse there: what is left out has the default of the
//! text's own class, and so it is filled in here.

use crate::llama;
use ogive_nn::tensor::{Error, Result};
use ogive_nn::{Config, Loader, Model};

/// The text's settings. Whether its head is the embedding is what is said of all, where nothing is said of it.
pub(crate) fn text_of(c: &Config) -> Config {
    if !c.has("text_config") {
        return c.clone();
    }
    let mut text = c.at("text_config");
    if let (false, Some(tied)) = (text.has("tie_word_embeddings"), c.0.get("tie_word_embeddings")) {
        text.0["tie_word_embeddings"] = tied.clone();
    }
    text
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
