//! EmbeddingGemma: Gemma 3 without a head whose tokens see to both sides, and the layers that its vectors go through.
//!
//! llama.cpp's converter leaves those layers out unless it is asked for them, and vectors of its file are then others; here they always go along, and what
//! its reader has no place for (an activation, a bias) is refused.

use super::settings::whole;
use super::{Keys, Model, layer_types, refuse};
use crate::input::Tensor;
use crate::{Error, Result};

/// The architecture that it becomes.
pub(super) const ARCHITECTURE: &str = "gemma-embedding";

/// Layers of which the last has no window, where nothing else is said.
pub(super) const EVERY: usize = 6;

/// The layers behind the pooling, in the order in which readers take them, and what they become.
const DENSE: [(&str, &str); 2] = [("2_Dense", "dense_2"), ("3_Dense", "dense_3")];

pub(super) fn is(model: &Model<'_>) -> bool {
    model.architecture == ARCHITECTURE
}

/// The name as the class with a head has it; what stands beside the model keeps its own.
pub(super) fn own_name(model: &Model<'_>, name: &str) -> Option<String> {
    let inside = ["embed_tokens.", "layers.", "norm."].iter().any(|part| name.starts_with(part));
    (is(model) && inside).then(|| format!("model.{name}"))
}

/// Sets what it has besides Gemma 3, and refuses what a file cannot say.
pub(super) fn set(keys: &mut Keys<'_>, model: &Model<'_>, tensors: &[Tensor]) -> Result<()> {
    if !is(model) {
        return Ok(());
    }
    let config = model.config;
    if !config.bool_or("use_bidirectional_attention", false)? {
        return refuse(
            "use_bidirectional_attention",
            "it is off, and GGUF has this class as an encoder alone",
        );
    }
    keys.set("attention.causal", false);
    if let Some(kinds) = layer_types(config, &["sliding_attention", "full_attention"])? {
        let slides = |every: usize| {
            (1..)
                .zip(&kinds)
                .all(|(i, kind): (usize, _)| (*kind == "full_attention") == i.is_multiple_of(every))
        };
        let every = std::iter::once(EVERY).chain(1..=kinds.len() + 1).find(|every| slides(*every));
        match every {
            Some(EVERY) => {}
            Some(every) => keys.set("attention.sliding_window_pattern", whole("layer_types", every)?),
            None => {
                return refuse("layer_types", "GGUF has each so many layers of this class without a window");
            }
        }
    }
    let listed = config.0["sentence_dense"].as_array().map_or(&[][..], Vec::as_slice);
    if listed.iter().any(|layer| !layer["activation"].is_null()) {
        return refuse("activation_function", "GGUF has no activation behind a layer `Dense`");
    }
    // Readers know both or none, and the second by its number.
    if ![0, DENSE.len()].contains(&listed.len()) {
        return refuse(
            "modules.json",
            format!("GGUF has two layers `Dense`, and there are {}", listed.len()),
        );
    }
    for (layer, (own, _)) in listed.iter().zip(DENSE) {
        if layer["name"] != own {
            let why = format!(
                "{} stands where GGUF has {own}: its layers `Dense` are `2_Dense` and `3_Dense`, in this order",
                layer["name"]
            );
            return refuse("modules.json", why);
        }
    }
    for (_, name) in DENSE.iter().filter(|_| !listed.is_empty()) {
        if tensors.iter().any(|t| t.name == format!("{name}.bias")) {
            return Err(Error::convert(format!("the tensor {name}.bias"), "readers of GGUF pass it over"));
        }
        let layer = tensors.iter().find(|t| t.name == format!("{name}.weight")).ok_or_else(|| {
            Error::convert(format!("the tensor {name}.weight"), "the folder has none that becomes it")
        })?;
        let dim = |i: usize| layer.dims.get(i).copied().unwrap_or(1) as usize;
        keys.set(&format!("{name}_feat_in"), whole("in_features", dim(0))?);
        keys.set(&format!("{name}_feat_out"), whole("out_features", dim(1))?);
    }
    Ok(())
}
