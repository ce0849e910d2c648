//! sentence-transformers' layers `Dense`, which a text's pooled vector goes through: a folder each beside the model's own weights.
//!
//! Their weights come with the model's, under the folder's name (`2_Dense.linear.weight`), and what they do as the setting `sentence_dense`, which GGUF's
//! translations give too. They could be a file of their own beside a checkpoint; but then whoever loads, counts memory or packs a
//! model would have two sources to ask.

use crate::formats::Formats;
use crate::safetensors::{Load, Safetensors};
use crate::sentence::json_of;
use ogive_tensor::{HostWeight, Result, Source, WeightInfo, optional};
use serde_json::{Value, json};
use std::path::Path;

/// The setting that lists them, in their order: what weights are called before `.linear.weight`, and an activation by transformers' name or none.
pub(crate) const SETTING: &str = "sentence_dense";

/// What PyTorch's classes are called, and transformers' names of the same.
const ACTIVATIONS: &[(&str, &str)] =
    &[("Tanh", "tanh"), ("ReLU", "relu"), ("GELU", "gelu"), ("SiLU", "silu")];

/// A layer, as the folder's settings have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dense {
    /// The folder's name.
    name: String,
    activation: Option<&'static str>,
}

impl Dense {
    /// Reads what is at `place`, the folder `name` of a model's; why it is not known, if it is not.
    pub(crate) fn read(folder: &Path, place: &Path, name: &str) -> Result<std::result::Result<Self, String>> {
        let config = json_of(&place.join("config.json"))?;
        let class = config["activation_function"].as_str().unwrap_or_default();
        let class = class.rsplit('.').next().unwrap_or_default();
        let known = ACTIVATIONS.iter().find(|(own, _)| *own == class).map(|(_, name)| *name);
        Ok(match (known, class) {
            // The file's own place is the model's.
            _ if place == folder => Err("a layer `Dense` has no folder of its own".into()),
            _ if config["module_input_name"].as_str().is_some_and(|of| of != "sentence_embedding") => {
                Err("a layer `Dense` reads something else than the pooled vector, which is not known".into())
            }
            _ if !place.join("model.safetensors").is_file() => {
                Err("the layer `Dense` has no model.safetensors; other files of weights are not read".into())
            }
            (None, "Identity") => Ok(Self { name: name.to_owned(), activation: None }),
            (Some(activation), _) => Ok(Self { name: name.to_owned(), activation: Some(activation) }),
            (None, other) => {
                let known: Vec<_> = ACTIVATIONS.iter().map(|(own, _)| *own).collect();
                let known = known.join(", ");
                Err(format!("a layer `Dense` has the activation `{other}`; known are Identity, {known}"))
            }
        })
    }

    /// Its entry of the setting.
    pub(crate) fn setting(&self) -> Value {
        json!({"name": self.name, "activation": self.activation})
    }
}

/// A model's weights, and those of the layers behind it.
#[derive(Debug)]
struct WithDense {
    model: Box<dyn Source>,
    layers: Vec<(String, Safetensors)>,
}

/// `model` and the weights of the layers beside it.
///
/// # Errors
/// If a file of them cannot be read.
pub(crate) fn with(
    model: Box<dyn Source>,
    folder: &Path,
    dense: &[Dense],
    load: Load,
    formats: &Formats,
) -> Result<Box<dyn Source>> {
    if dense.is_empty() {
        return Ok(model);
    }
    let mut layers: Vec<(String, Safetensors)> = Vec::new();
    for Dense { name, .. } in dense {
        let prefix = format!("{name}.");
        // A layer may come twice.
        if layers.iter().all(|(known, _)| *known != prefix) {
            let path = folder.join(name).join("model.safetensors");
            layers.push((prefix, Safetensors::open_file(&path, load, formats.clone())?));
        }
    }
    Ok(Box::new(WithDense { model, layers }))
}

impl Source for WithDense {
    fn get(&self, name: &str) -> Result<HostWeight> {
        for (prefix, layer) in &self.layers {
            let Some(own) = name.strip_prefix(&**prefix) else { continue };
            // A folder may be called as a part of the model.
            if let Some(mut weight) = optional(layer.get(own))? {
                name.clone_into(&mut weight.name);
                return Ok(weight);
            }
        }
        self.model.get(name)
    }

    fn tensors(&self) -> Vec<WeightInfo> {
        let named = |prefix: &str, info: WeightInfo| {
            WeightInfo::new(format!("{prefix}{}", info.name), info.shape, info.format)
        };
        let behind = self
            .layers
            .iter()
            .flat_map(|(prefix, layer)| layer.tensors().into_iter().map(move |info| named(prefix, info)));
        self.model.tensors().into_iter().chain(behind).collect()
    }

    fn left_out(&self) -> Vec<String> {
        let behind = self.layers.iter().flat_map(|(prefix, layer)| {
            layer.left_out().into_iter().map(move |name| format!("{prefix}{name}"))
        });
        self.model.left_out().into_iter().chain(behind).collect()
    }

    fn unused(&self) -> Vec<String> {
        self.model.unused()
    }
}
