//! What a model is known again by: a number that two models share only if a session of one can go on with the other.
//!
//! Taken while the model is loaded, from the weights that it asks for, and not by reading the file: a hash of all bytes would
//! take longer than opening a model that stays mapped. Of a large tensor a sample is enough to tell a fine-tune from its base,
//! as training touches every number of a matrix.

use crate::engine::Digest;
use crate::options::Listener;
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

    /// The number of the model that was loaded. `words` is the size of its vocabulary; `means` what its context came to, as where positions
    /// are scaled by it: then the same token has other keys.
    pub(crate) fn number(self, architecture: &str, config: &Config, words: usize, means: &[u64]) -> u64 {
        let seen = self.seen.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner).samples;
        let mut digest = Digest::new();
        let mut put = |bytes: &[u8]| {
            digest.push(&(bytes.len() as u64).to_le_bytes());
            digest.push(bytes);
        };
        put(architecture.as_bytes());
        put(config.0.to_string().as_bytes());
        put(&(words as u64).to_le_bytes());
        means.iter().for_each(|n| put(&n.to_le_bytes()));
        for (name, sample) in seen {
            put(name.as_bytes());
            put(&sample.to_le_bytes());
        }
        digest.value()
    }
}

/// A tensor's shape, format and length, some of its bytes, and of what stands beside them.
fn sample(w: &HostWeight) -> u64 {
    let mut digest = Digest::new();
    digest.push(w.format.name.as_bytes());
    w.shape.iter().chain([&w.bytes.len()]).for_each(|n| digest.push(&(*n as u64).to_le_bytes()));
    for part in some(&w.bytes, SAMPLE) {
        digest.push(part);
    }
    if let Some(scale) = &w.scale {
        scale.tile.iter().for_each(|n| digest.push(&(*n as u64).to_le_bytes()));
        let values = some(&scale.values, SAMPLE / 4).into_iter().flatten();
        values.for_each(|v| digest.push(&v.to_le_bytes()));
    }
    if let Some(order) = &w.input_perm {
        some(order, SAMPLE / 4).into_iter().flatten().for_each(|i| digest.push(&i.to_le_bytes()));
    }
    digest.value()
}

/// So many from where they begin, and from their middle.
fn some<T>(all: &[T], count: usize) -> [&[T]; 2] {
    [0, all.len() / 2].map(|from| &all[from..all.len().min(from + count)])
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

    fn left_out(&self) -> Vec<String> {
        self.source.left_out()
    }

    fn unused(&self) -> Vec<String> {
        self.source.unused()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::{F8_E4M3, Scale};
    use std::sync::Arc;

    /// Two models may have the same codes and other factors, or columns in another order.
    #[test]
    fn what_stands_beside_elements_counts() {
        let plain = HostWeight::new("w", [1, 4, 4], &F8_E4M3, vec![0x38; 16].into()).unwrap();
        let scaled = |values: [f32; 2], tile| {
            sample(&plain.clone().with_scale(Scale { values: values.into(), tile }).unwrap())
        };
        let ordered = |order: [u32; 4]| sample(&plain.clone().with_input_perm(Arc::new(order)).unwrap());
        let all = [
            sample(&plain),
            scaled([1.0, 2.0], [2, 4]),
            scaled([1.0, 2.0], [4, 2]),
            scaled([1.0, 3.0], [4, 2]),
            ordered([0, 1, 3, 2]),
            ordered([0, 3, 1, 2]),
        ];
        for (i, a) in all.iter().enumerate() {
            assert!(!all[..i].contains(a), "{i}");
        }
    }
}
