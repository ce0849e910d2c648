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
    /// Bytes of the tensors that a decoded token touches.
    pub(crate) bytes: u64,
    /// The same where F32 weights are rounded to bf16.
    #[serde(skip)]
    pub(crate) rounded: u64,
    /// Weights that each token of a prompt is multiplied with; the head is only for the last token.
    pub(crate) weights: u64,
    /// Bytes of the cache for each token in it, for each that is measured.
    pub(crate) cache: Several<u64>,
    /// Elements of the cache for each token in it.
    #[serde(skip)]
    pub(crate) elements: u64,
    /// What the weights are multiplied in.
    pub(crate) arithmetic: Arithmetic,
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
    let (mut bytes, mut rounded, mut weights) = (0, 0, 0);
    let mut largest = (0, Arithmetic::Int8);
    for tensor in file.tensors() {
        let (name, elements) = (tensor.name(), tensor.dims().iter().product::<u64>());
        let embedding = name == "token_embd.weight";
        if !embedding || tied {
            let stored = file.data(tensor)?.bytes().len() as u64;
            let halved = tensor.dims().len() > 1 && tensor.known_type()? == GgmlType::F32;
            bytes += stored;
            rounded += if halved { stored / 2 } else { stored };
        }
        if tensor.dims().len() < 2 || embedding || name == "output.weight" {
            continue;
        }
        weights += elements;
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
    Ok(Work { bytes, rounded, weights, cache, elements, arithmetic: largest.1 })
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
