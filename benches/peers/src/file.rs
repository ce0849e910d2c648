//! What a model's file says of the work a token costs: bytes to read, products to make.

use crate::Result;
use crate::engines::Cache;
use crate::phase::Several;
use gguf_file::{GgmlType, Gguf};
use serde::Serialize;
use std::path::Path;

/// The work of a token.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Work {
    /// Bytes of the tensors that a decoded token touches; of a mixture's experts, of those that it is given to.
    pub(crate) bytes: u64,
    /// Weights that each token of a prompt is multiplied with; the head is only for the last token.
    pub(crate) weights: u64,
    /// Bytes that are read whatever the token is.
    #[serde(skip)]
    pub(crate) always: Stored,
    /// Bytes of all experts.
    #[serde(skip)]
    pub(crate) experts: Stored,
    /// Which part of the experts a token is given to; 1 where there are none.
    #[serde(skip)]
    pub(crate) share: f64,
    /// Bytes of the cache for each token in it, for each that is measured.
    pub(crate) cache: Several<u64>,
    /// Elements of the cache for each token in it.
    #[serde(skip)]
    pub(crate) elements: u64,
    /// What the weights are multiplied in.
    pub(crate) arithmetic: Arithmetic,
}

/// Bytes of weights.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Stored {
    /// As the file has them.
    pub(crate) plain: u64,
    /// The same where F32 weights are rounded to bf16.
    pub(crate) rounded: u64,
}

impl Work {
    /// Bytes of weights that a step reads in which so many sequences have a token each. Which experts are wanted is taken to be drawn anew for each
    /// token, as random weights have it.
    pub(crate) fn touched(&self, tokens: usize, rounded: bool) -> f64 {
        let of = |stored: Stored| if rounded { stored.rounded } else { stored.plain } as f64;
        of(self.always) + of(self.experts) * (1.0 - (1.0 - self.share).powf(tokens as f64))
    }
}

/// Which of the machine's peaks bounds a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Arithmetic {
    /// Packed weights.
    #[default]
    Int8,
    /// BF16 weights.
    Bf16,
    /// F32 and F16 weights, whose products no half precision has exactly.
    F32,
}

/// Reads the file at `path`; keys and values are kept in `caches`.
pub(crate) fn work(path: &Path, caches: &Several<Cache>) -> Result<Work> {
    let file = Gguf::open(path)?;
    let tied = file.tensor("output.weight").is_none();
    let share = share(&file).unwrap_or(1.0);
    let (mut always, mut experts, mut weights) = (Stored::default(), Stored::default(), 0.0);
    let mut largest = (0, Arithmetic::Int8);
    for tensor in file.tensors() {
        let (name, elements) = (tensor.name(), tensor.dims().iter().product::<u64>());
        let embedding = name == "token_embd.weight";
        // All experts of a layer are one tensor.
        let of_experts = name.contains("_exps.");
        if !embedding || tied {
            let stored = file.data(tensor)?.bytes().len() as u64;
            let halved = tensor.dims().len() > 1 && tensor.known_type()? == GgmlType::F32;
            let sum = if of_experts { &mut experts } else { &mut always };
            sum.plain += stored;
            sum.rounded += if halved { stored / 2 } else { stored };
        }
        if tensor.dims().len() < 2 || embedding || name == "output.weight" {
            continue;
        }
        weights += elements as f64 * if of_experts { share } else { 1.0 };
        let arithmetic = match tensor.known_type()? {
            GgmlType::F32 | GgmlType::F16 => Arithmetic::F32,
            GgmlType::BF16 => Arithmetic::Bf16,
            _ => Arithmetic::Int8,
        };
        if elements > largest.0 {
            largest = (elements, arithmetic);
        }
    }
    let elements = cache(&file).unwrap_or(0);
    let cache = Several(caches.0.iter().map(|c| c.bytes(elements)).collect());
    let mut work = Work { always, experts, share, cache, elements, arithmetic: largest.1, ..Work::default() };
    (work.bytes, work.weights) = (work.touched(1, false) as u64, weights as u64);
    Ok(work)
}

/// Which part of its experts a mixture gives a token to.
fn share(file: &Gguf) -> Option<f64> {
    let architecture = file.metadata().str("general.architecture").ok()?;
    let of = |key: &str| file.metadata().u64(&format!("{architecture}.{key}")).ok().filter(|n| *n > 0);
    Some(of("expert_used_count")? as f64 / of("expert_count")? as f64)
}

/// Elements of a token's keys and values in all layers.
fn cache(file: &Gguf) -> Option<u64> {
    let of = |key: &str| {
        let architecture = file.metadata().str("general.architecture").ok()?;
        file.metadata().u64(&format!("{architecture}.{key}")).ok()
    };
    let heads = of("attention.head_count")?;
    let length = of("embedding_length")? / heads.max(1);
    let (k, v) =
        (of("attention.key_length").unwrap_or(length), of("attention.value_length").unwrap_or(length));
    Some(of("block_count")? * of("attention.head_count_kv").unwrap_or(heads) * (k + v))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gguf_file::GgufWriter;

    #[test]
    fn of_a_mixture_the_experts_count_that_tokens_are_given_to() {
        let path = std::env::temp_dir().join(format!("ogive-peers-{}-mixture.gguf", std::process::id()));
        let mut file = GgufWriter::new();
        file.set("general.architecture", "llama").set("llama.expert_count", 8u32);
        file.set("llama.expert_used_count", 2u32);
        let tensors: [(&str, &[u64], GgmlType); 4] = [
            ("token_embd.weight", &[32, 100], GgmlType::F16),
            ("output.weight", &[32, 100], GgmlType::F16),
            ("blk.0.ffn_gate_inp.weight", &[32, 8], GgmlType::F32),
            ("blk.0.ffn_up_exps.weight", &[32, 64, 8], GgmlType::Q8_0),
        ];
        for (name, dims, ty) in tensors {
            file.tensor(name, dims, ty).unwrap();
        }
        let mut data = file.create(&path).unwrap();
        for (bytes, (name, ..)) in [6400, 6400, 1024, 17_408].into_iter().zip(tensors) {
            data.write_data(name, &vec![0; bytes]).unwrap();
        }
        data.finish().unwrap();
        let found = work(&path, &Several(vec![])).unwrap();
        std::fs::remove_file(&path).unwrap();
        // The head and the router, and a quarter of the experts.
        assert_eq!((found.bytes, found.weights), (6400 + 1024 + 17_408 / 4, 256 + 32 * 64 * 2));
        assert_eq!(found.touched(2, true), 6400.0 + 512.0 + 17_408.0 * (1.0 - 0.75 * 0.75));
        assert_eq!(found.touched(100_000, false), 6400.0 + 1024.0 + 17_408.0);
    }
}
