//! What a model is known again by: a number that two models share only if a session of one can go on with the other.
//!
//! Taken while the model is loaded, from the weights that it asks for, and not by reading the file: a hash of all bytes would
//! take longer than opening a model that stays mapped. Of a large tensor a sample is enough to tell a fine-tune from its base,
//! as training touches every number of a matrix.

use crate::engine::Digest;
use crate::options::Listener;
use crate::tensor::serde_json::Value;
use crate::tensor::{Config, HostWeight, Result, Source, WeightInfo};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Bytes looked at from where a tensor begins, and from its middle.
const SAMPLE: usize = 256;

/// A source that takes note of what is asked of it, and says so.
#[derive(Debug)]
pub(crate) struct Noted<'s> {
    source: &'s dyn Source,
    seen: Mutex<Seen>,
    listener: Option<&'s Listener>,
    /// Bytes of all tensors.
    total: u64,
}

#[derive(Debug, Default)]
struct Seen {
    samples: BTreeMap<String, u64>,
    bytes: u64,
}

impl<'s> Noted<'s> {
    pub(crate) fn new(source: &'s dyn Source, listener: Option<&'s Listener>) -> Self {
        let total = listener.map_or(0, |_| source.tensors().iter().map(|t| t.bytes() as u64).sum());
        Self { source, seen: Mutex::default(), listener, total }
    }

    /// Says that nothing more will be asked for.
    pub(crate) fn finish(&self) {
        self.say(self.total);
    }

    fn say(&self, bytes: u64) {
        if let Some(listener) = self.listener {
            listener.hear(bytes.min(self.total), self.total);
        }
    }

    /// The number of the model that was loaded. `words` is the size of its vocabulary; `context` counts where positions
    /// are scaled by it, for then the same token has other keys.
    pub(crate) fn number(self, architecture: &str, config: &Config, words: usize, context: usize) -> u64 {
        let seen = self.seen.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner).samples;
        let mut digest = Digest::new();
        let mut put = |bytes: &[u8]| {
            digest.push(&(bytes.len() as u64).to_le_bytes());
            digest.push(bytes);
        };
        put(architecture.as_bytes());
        put(config.0.to_string().as_bytes());
        put(&(words as u64).to_le_bytes());
        let mut turned = Vec::new();
        turns(&config.0, None, context as u64, &mut turned);
        turned.iter().for_each(|n| put(&n.to_le_bytes()));
        for (name, sample) in seen {
            put(name.as_bytes());
            put(&sample.to_le_bytes());
        }
        digest.value()
    }
}

/// What the context changes of how these settings, and those within, turn positions: nothing, unless they scale them by it. `trained` is
/// the context that the settings around them name.
fn turns(settings: &Value, trained: Option<u64>, context: u64, found: &mut Vec<u64>) {
    let Some(settings) = settings.as_object() else { return };
    let number = |key: &str| settings.get(key).and_then(Value::as_f64).map(|n| n as u64);
    let own = number("original_max_position_embeddings").or(number("max_position_embeddings"));
    let trained = own.or(trained);
    for (key, value) in settings {
        if key == "rope_scaling" || key == "rope_parameters" {
            scaled(value, trained, context, found);
        } else {
            turns(value, trained, context, found);
        }
    }
}

/// The same of one scaling, or of one for each kind of layer.
fn scaled(scaling: &Value, trained: Option<u64>, context: u64, found: &mut Vec<u64>) {
    let Some(scaling) = scaling.as_object() else { return };
    let own = scaling.get("original_max_position_embeddings").and_then(Value::as_f64).map(|n| n as u64);
    let trained = own.or(trained);
    // As early checkpoints of Phi-3 call theirs, a scaling with two lists has any name.
    let lists = scaling.contains_key("long_factor").then_some("longrope");
    let name = || ["rope_type", "type"].iter().find_map(|key| scaling.get(*key)).and_then(Value::as_str);
    let kind = lists.or_else(name);
    match kind {
        // A longer context has a larger theta.
        Some("dynamic") => found.push(trained.map_or(context, |trained| context.max(trained))),
        // Of two lists a longer one takes the other.
        Some("longrope" | "su") => {
            found.push(trained.map_or(context, |trained| u64::from(context > trained)));
        }
        _ => scaling.values().for_each(|each| scaled(each, trained, context, found)),
    }
}

/// A tensor's shape, format and length, and some of its bytes.
fn sample(w: &HostWeight) -> u64 {
    let mut digest = Digest::new();
    digest.push(w.format.name.as_bytes());
    w.shape.iter().chain([&w.bytes.len()]).for_each(|n| digest.push(&(*n as u64).to_le_bytes()));
    let some = |from: usize| w.bytes.get(from..w.bytes.len().min(from.saturating_add(SAMPLE)));
    for from in [0, w.bytes.len() / 2] {
        digest.push(some(from).unwrap_or_default());
    }
    digest.value()
}

impl Source for Noted<'_> {
    fn get(&self, name: &str) -> Result<HostWeight> {
        let w = self.source.get(name)?;
        let mut seen = self.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // What was asked for before is with the backend by now.
        let before = seen.bytes;
        if seen.samples.insert(name.to_owned(), sample(&w)).is_none() {
            seen.bytes += w.bytes.len() as u64;
        }
        drop(seen);
        self.say(before);
        Ok(w)
    }

    fn tensors(&self) -> Vec<WeightInfo> {
        self.source.tensors()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::serde_json::json;

    fn at(settings: &Value, context: u64) -> Vec<u64> {
        let mut found = Vec::new();
        turns(settings, None, context, &mut found);
        found
    }

    #[test]
    fn a_context_counts_where_positions_are_scaled_by_it() {
        for kind in ["linear", "yarn", "llama3"] {
            let plain = json!({"rope_scaling": {"type": kind}, "quantization_config": {"dynamic": null}});
            assert!(at(&plain, 40).is_empty());
        }
        let long = json!({"type": "yarn", "long_factor": [2.0]});
        let long = json!({"original_max_position_embeddings": 64, "max_position_embeddings": 512, "rope_scaling": long});
        assert_eq!(at(&long, 40), at(&long, 64));
        assert_ne!(at(&long, 64), at(&long, 65));
        assert_eq!(at(&long, 65), at(&long, 512));
        let dynamic = json!({"rope_type": "dynamic", "factor": 2.0});
        let dynamic =
            json!({"text_config": {"rope_parameters": {"full": dynamic}}, "max_position_embeddings": 64});
        assert_eq!(at(&dynamic, 40), at(&dynamic, 64));
        assert_ne!(at(&dynamic, 65), at(&dynamic, 66));
        // Where nothing says what it was trained for, each context is one of its own.
        let unknown = json!({"rope_scaling": {"rope_type": "longrope"}});
        assert_ne!(at(&unknown, 40), at(&unknown, 41));
    }
}
