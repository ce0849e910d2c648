//! What a token costs in memory traffic: the bytes of weights and cache that must be read for it.
//!
//! Decoding is bound by memory, so this, and not arithmetic, says how near to the machine's limit it is. It is counted
//! from the file: every weight once a step, but for the embedding table, of which a token reads a row, and for experts
//! that it does not go through. With several sequences a step may touch more experts than that; then it is a lower bound.

use super::measure::Load;
use crate::error::Result;
use ogive::engine::Limits;
use ogive::nn::{Share, is_head, is_layer_table, is_token_table};
use ogive::tensor::{Config, WeightInfo};
use ogive::{Model, Options};
use std::num::NonZeroUsize;
use std::path::Path;

/// Bytes that decoding reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Traffic {
    /// Of weights, for a step of any number of sequences.
    pub(super) weights: u64,
    /// Of the cache, for a sequence halfway through what is measured.
    pub(super) cache: u64,
}

impl Traffic {
    pub(super) fn of(path: &Path, model: &Model, load: &Load) -> Result<Self> {
        let tensors = Options::new().checkpoint(path)?.source.tensors();
        let halfway = load.depth + load.tokens / 2;
        let limits = Limits::new(halfway.max(1)).block_len(1).step_tokens(1).element(load.element);
        let cache = limits.cache_spec(model.layers().cache_layout())?.bytes().unwrap_or(0);
        Ok(Self { weights: weights(&tensors, model.config())?, cache: u64::try_from(cache)? })
    }

    /// For a token, where so many sequences share a step and its weights.
    pub(super) fn per_token(&self, sequences: NonZeroUsize) -> u64 {
        let sequences = u64::try_from(sequences.get()).unwrap_or(u64::MAX);
        (self.weights / sequences).saturating_add(self.cache)
    }

    /// In units of 10⁹ bytes, at so many tokens a second of all sequences together.
    pub(super) fn gigabytes_per_second(&self, tokens_per_second: f64, sequences: usize) -> f64 {
        let step = self.weights as f64 + self.cache as f64 * sequences as f64;
        step * tokens_per_second / sequences as f64 / 1e9
    }
}

fn weights(tensors: &[WeightInfo], config: &Config) -> Result<u64> {
    let share = Share::of(config)?;
    let has_head = tensors.iter().any(|t| is_head(&t.name));
    let is_read = |t: &&WeightInfo| !(has_head && is_token_table(&t.name) || is_layer_table(&t.name));
    let bytes = |t: &WeightInfo| (t.bytes() as f64 * share.of_token(t)) as u64;
    Ok(tensors.iter().filter(is_read).map(bytes).fold(0, u64::saturating_add))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ogive::tensor::F32;
    use serde_json::json;

    #[test]
    fn what_is_not_read_does_not_count() {
        let w = |name: &str, rows| WeightInfo::new(name, [1, rows, 10], &F32);
        let plain = [w("model.embed_tokens.weight", 100), w("model.norm.weight", 1)];
        let none = Config(json!({}));
        assert_eq!(weights(&plain, &none).unwrap(), 4040, "tied: the table is the head");
        let inputs = [plain.to_vec(), vec![w("model.embed_tokens_per_layer.weight", 100)]].concat();
        assert_eq!(weights(&inputs, &none).unwrap(), 4040, "rows of tokens alone");
        let untied = [plain.to_vec(), vec![w("lm_head.weight", 100)]].concat();
        assert_eq!(weights(&untied, &none).unwrap(), 4040);
        let moe = [w("model.layers.0.block_sparse_moe.experts.w1.weight", 80)];
        let config = Config(json!({"num_local_experts": 8, "num_experts_per_tok": 2}));
        assert_eq!(weights(&moe, &config).unwrap(), 800);
    }

    #[test]
    fn sequences_share_the_weights() {
        let t = Traffic { weights: 1_000_000_000, cache: 100_000_000 };
        let per_token = |n| t.per_token(NonZeroUsize::new(n).unwrap());
        assert_eq!([1, 4].map(per_token), [1_100_000_000, 350_000_000]);
        assert!((t.gigabytes_per_second(10.0, 1) - 11.0).abs() < 1e-9);
        assert!((t.gigabytes_per_second(20.0, 4) - 7.0).abs() < 1e-9);
    }
}
