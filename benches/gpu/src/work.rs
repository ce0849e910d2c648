//! What a model's steps move and compute at least. By its file and its layout alone, so that whoever runs it, another program too, is held to
//! the same bytes and operations.

use crate::Result;
use ogive::Options;
use ogive::backend::{Estimate, LayerCache};
use ogive::nn::{Loader, Share, is_token_table};
use ogive::tensor::{F16, WeightInfo};
use std::path::Path;

/// Rows of a step in which long prompts are read. `llama-bench` reads them so too.
const CHUNK: usize = 2048;

/// Rows of each step in which a prompt is read, and tokens before them.
pub(crate) fn chunks(tokens: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..tokens).step_by(CHUNK).map(move |past| (CHUNK.min(tokens - past), past))
}

/// What a step of a model moves and computes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    /// Bytes of weights that every step reads.
    weights: f64,
    /// Bytes of all experts, and which part of them a token is given to.
    experts: [f64; 2],
    /// Operations of a row, without attention and head.
    row: f64,
    /// Operations of the head for a row whose logits are wanted.
    head: f64,
    /// Bytes of the cache for a token.
    pub(crate) cache: f64,
    /// Operations of attention for a token that is seen.
    seen: f64,
}

impl Work {
    /// Of the model at `path`, of which no weight is read.
    pub(crate) fn of(path: &Path) -> Result<Self> {
        let file = Options::new().checkpoint(path)?;
        // The layers are asked what they cache, and a backend that only counts is enough to have them.
        let counter = Estimate::new();
        let loader = Loader::new(&*file.source, &counter);
        let model = ogive::models::registry().build(&file.architecture, &file.config, &loader)?;
        let heads = file.config.usize("num_attention_heads")?;
        let head = file.config.usize_or("head_dim", file.config.usize("hidden_size")? / heads.max(1))?;
        let share = Share::of(&file.config)?;
        Ok(Self::new(&file.source.tensors(), share, heads * head, &model.cache_layout()))
    }

    /// Of these tensors, of whose experts a token is given to a share, with queries so wide in each layer.
    fn new(tensors: &[WeightInfo], share: Share, queries: usize, layers: &[LayerCache]) -> Self {
        let tied = !tensors.iter().any(|t| t.name == "lm_head.weight");
        let (mut weights, mut experts, mut row, mut head) = (0.0, [0.0, 1.0], 0.0, 0.0);
        for t in tensors {
            let table = is_token_table(&t.name);
            // A step reads a row of the table of tokens; where that is the head too, all of it.
            if table && !tied {
                continue;
            }
            let part = share.of_token(t);
            if part < 1.0 {
                experts = [experts[0] + t.bytes() as f64, part];
            } else {
                weights += t.bytes() as f64;
            }
            let operations = if table || t.name == "lm_head.weight" { &mut head } else { &mut row };
            *operations += 2.0 * t.elements() as f64 * part;
        }
        let token = |layer: &LayerCache| match *layer {
            LayerCache::Paged { k_dim, v_dim, .. } => (F16.row_bytes(k_dim) + F16.row_bytes(v_dim)) as f64,
            _ => 0.0,
        };
        let cache = layers.iter().map(token).sum();
        Self { weights, experts, row, head, cache, seen: 4.0 * (queries * layers.len()) as f64 }
    }

    /// Bytes of weights that a step of so many tokens reads, if each draws its experts anew, as random weights have it.
    fn touched(&self, tokens: f64) -> f64 {
        let [experts, share] = self.experts;
        self.weights + experts * (1.0 - (1.0 - share).powf(tokens))
    }

    /// Bytes and operations of a step that reads `rows` tokens of a sequence after `past`, and wants the last one's logits.
    fn step(&self, rows: usize, past: usize) -> [f64; 2] {
        let (rows, past) = (rows as f64, past as f64);
        let operations = rows * self.row + self.head + seen(rows, past) * self.seen;
        [self.touched(rows) + (past + rows) * self.cache, operations]
    }

    /// Of a prompt: each chunk reads the weights and what is cached of those before it, and wants its last row's logits.
    pub(crate) fn prompt(&self, tokens: usize) -> [f64; 2] {
        let add = |[a, b]: [f64; 2], [c, d]: [f64; 2]| [a + c, b + d];
        chunks(tokens).map(|(rows, past)| self.step(rows, past)).fold([0.0; 2], add)
    }

    /// Of `count` sequences that each draw `tokens` after `past`, in steps of one token of each.
    pub(crate) fn decode(&self, count: usize, tokens: usize, past: usize) -> [f64; 2] {
        let (count, tokens, past) = (count as f64, tokens as f64, past as f64);
        let seen = count * seen(tokens, past);
        let operations = count * tokens * (self.row + self.head) + seen * self.seen;
        [tokens * self.touched(count) + seen * self.cache, operations]
    }
}

/// How many tokens `rows` of a sequence after `past` see together: each those before it and itself.
fn seen(rows: f64, past: f64) -> f64 {
    rows * (past + (rows + 1.0) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ogive::tensor::{Config, F32, serde_json::json};

    /// A layer of two heads of two, for four numbers and ten tokens.
    fn tensors() -> Vec<WeightInfo> {
        let table = WeightInfo::new("model.embed_tokens.weight", [1, 10, 4], &F32); // 160 bytes
        vec![table, WeightInfo::new("model.layers.0.self_attn.q_proj.weight", [1, 4, 4], &F32)] // 64 bytes
    }

    fn work(tensors: &[WeightInfo]) -> Work {
        // 16 bytes of cache for a token, and 16 operations for one that is seen.
        let mixture = Config(json!({"num_experts": 4, "num_experts_per_tok": 1}));
        Work::new(tensors, Share::of(&mixture).unwrap(), 4, &[LayerCache::full(4, 4)])
    }

    #[test]
    fn of_experts_what_the_tokens_choose_counts() {
        let mut tensors = tensors();
        tensors.push(WeightInfo::new("model.layers.0.mlp.experts.up_proj", [4, 4, 4], &F32)); // 256 bytes
        let (dense, mixture) = (work(&tensors[..2]), work(&tensors));
        let more = |a: [f64; 2], b: [f64; 2]| [a[0] - b[0], a[1] - b[1]];
        assert_eq!(more(mixture.decode(1, 1, 3), dense.decode(1, 1, 3)), [64.0, 32.0]);
        assert_eq!(more(mixture.decode(2, 1, 3), dense.decode(2, 1, 3)), [256.0 * (1.0 - 0.75 * 0.75), 64.0]);
        assert_eq!(more(mixture.step(2, 0), dense.step(2, 0)), [256.0 * (1.0 - 0.75 * 0.75), 64.0]);
    }

    #[test]
    fn the_head_counts_where_logits_are_wanted() {
        let mut tensors = tensors();
        tensors.push(WeightInfo::new("lm_head.weight", [1, 10, 4], &F16)); // 80 bytes
        let untied = work(&tensors);
        // Three rows see 3, 4 and 5 tokens; one head.
        assert_eq!(untied.step(3, 2), [144.0 + 5.0 * 16.0, 3.0 * 32.0 + 80.0 + 12.0 * 16.0]);
        // Two heads, of one token after three each.
        assert_eq!(untied.decode(2, 1, 3), [144.0 + 8.0 * 16.0, 2.0 * (32.0 + 80.0 + 4.0 * 16.0)]);
        // Two steps, which see four tokens and five.
        assert_eq!(untied.decode(1, 2, 3), [288.0 + 9.0 * 16.0, 2.0 * 112.0 + 9.0 * 16.0]);
        // Two chunks, the second of one row: two heads, and 2049 · 2050 / 2 tokens that are seen.
        let operations = 2049.0 * 32.0 + 2.0 * 80.0 + 2_100_225.0 * 16.0;
        assert_eq!(untied.prompt(2049), [288.0 + (2048.0 + 2049.0) * 16.0, operations]);
    }

    #[test]
    fn a_tied_table_is_the_head() {
        let tied = work(&tensors());
        assert_eq!(tied.step(3, 2), [224.0 + 5.0 * 16.0, 3.0 * 32.0 + 80.0 + 12.0 * 16.0]);
        assert_eq!(tied.decode(2, 1, 3), [224.0 + 8.0 * 16.0, 2.0 * (32.0 + 80.0 + 4.0 * 16.0)]);
    }
}
