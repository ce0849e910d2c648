//! The model's sizes, and where each tensor lies in the one long vector of all weights.
//!
//! One vector, so that gradients, moments, checkpoints and sums over shards are one loop each.

use std::ops::Range;

/// A Llama with tied embeddings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) vocab: usize,
    pub(crate) dim: usize,
    pub(crate) layers: usize,
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) head_dim: usize,
    pub(crate) ffn: usize,
    pub(crate) context: usize,
}

/// The model's: rows of 256, so that every packed format can be tried on it; as many weights as 3 MB hold in 8 bits.
pub(crate) const SHAPE: Shape =
    Shape { vocab: 1280, dim: 256, layers: 4, heads: 4, kv_heads: 2, head_dim: 64, ffn: 512, context: 512 };

/// Added to a mean square before the root.
pub(crate) const EPS: f32 = 1e-5;
/// The base of the rotary angles.
pub(crate) const THETA: f32 = 10_000.0;

/// A tensor: its name in GGUF, its sizes, its place.
#[derive(Clone, Debug)]
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) start: usize,
}

impl Tensor {
    pub(crate) fn range(&self) -> Range<usize> {
        self.start..self.start + self.rows * self.cols
    }

    /// Whether it is a matrix within a layer, which Muon trains.
    pub(crate) fn is_hidden_matrix(&self) -> bool {
        self.rows > 1 && self.name.starts_with("blk.")
    }
}

/// The places of a layer's tensors.
#[derive(Clone, Debug)]
pub(crate) struct Layer {
    pub(crate) attn_norm: Range<usize>,
    pub(crate) q: Range<usize>,
    pub(crate) k: Range<usize>,
    pub(crate) v: Range<usize>,
    pub(crate) o: Range<usize>,
    pub(crate) ffn_norm: Range<usize>,
    pub(crate) gate: Range<usize>,
    pub(crate) up: Range<usize>,
    pub(crate) down: Range<usize>,
}

/// Where everything lies.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) tensors: Vec<Tensor>,
    pub(crate) embed: Range<usize>,
    pub(crate) layers: Vec<Layer>,
    pub(crate) norm: Range<usize>,
    pub(crate) len: usize,
}

impl Layout {
    pub(crate) fn new(s: &Shape) -> Self {
        let mut tensors: Vec<Tensor> = Vec::new();
        let mut put = |name: String, rows: usize, cols: usize| {
            let start = tensors.last().map_or(0, |t| t.range().end);
            tensors.push(Tensor { name: format!("{name}.weight"), rows, cols, start });
            start..start + rows * cols
        };
        let embed = put("token_embd".into(), s.vocab, s.dim);
        let kv = s.kv_heads * s.head_dim;
        let layers = (0..s.layers)
            .map(|i| {
                let mut put = |name: &str, rows, cols| put(format!("blk.{i}.{name}"), rows, cols);
                Layer {
                    attn_norm: put("attn_norm", 1, s.dim),
                    q: put("attn_q", s.heads * s.head_dim, s.dim),
                    k: put("attn_k", kv, s.dim),
                    v: put("attn_v", kv, s.dim),
                    o: put("attn_output", s.dim, s.heads * s.head_dim),
                    ffn_norm: put("ffn_norm", 1, s.dim),
                    gate: put("ffn_gate", s.ffn, s.dim),
                    up: put("ffn_up", s.ffn, s.dim),
                    down: put("ffn_down", s.dim, s.ffn),
                }
            })
            .collect();
        let norm = put("output_norm".into(), 1, s.dim);
        let len = norm.end;
        Self { tensors, embed, layers, norm, len }
    }
}
