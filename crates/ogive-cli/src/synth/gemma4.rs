//! What Gemma 4's layers have: two kinds of heads, inputs of their own, and keys that the later ones share.
//!
//! A file of its own, as no layer of it is like those of the other families.

use super::plan::{ATTENTION, Fill, Plan, even};
use super::shapes::Shape;

/// Elements of a layer's own input.
pub(crate) const INPUT: usize = 256;
/// Tokens that layers see that do not see all.
pub(crate) const WINDOW: usize = 512;
/// Each so many layers one sees all, with heads as many times as long, a quarter of which turns.
const FULL_EACH: usize = 5;
const LONGER: usize = 2;
/// Pairs that do not turn are divided by this.
const STILL: f32 = 1e30;

/// Whether a layer has a window.
pub(crate) fn slides(shape: &Shape, layer: usize) -> bool {
    !(layer + 1).is_multiple_of(FULL_EACH) && layer + 1 != shape.layers
}

/// The first layer that shares another's keys: 15 of E2B's 35.
pub(crate) fn sharing_from(shape: &Shape) -> usize {
    (shape.layers * 3 / 35 * FULL_EACH).max(FULL_EACH).min(shape.layers)
}

/// Elements of a head where all is seen.
pub(crate) fn long_head(shape: &Shape) -> usize {
    LONGER * shape.head_dim
}

/// How wide a layer's MLP is.
pub(crate) fn width(shape: &Shape, layer: usize) -> usize {
    if layer < sharing_from(shape) { shape.ffn } else { 2 * shape.ffn }
}

/// Factors of the frequencies of long heads, of which a quarter turns.
pub(crate) fn rope_factors(shape: &Shape) -> Vec<f32> {
    let pairs = long_head(shape) / 2;
    (0..pairs).map(|pair| if pair < pairs / 4 { 1.0 } else { STILL }).collect()
}

impl Plan {
    /// Inputs of all layers, half from a table, half from the embeddings.
    pub(crate) fn layer_inputs(&mut self, shape: &Shape) {
        let all = shape.layers * INPUT;
        // A row enters sqrt(INPUT) times as large.
        self.matrix("per_layer_token_embd.weight", all, shape.vocab, even(INPUT));
        self.matrix("per_layer_model_proj.weight", shape.dim, all, even(shape.dim));
        self.vector("per_layer_proj_norm.weight", INPUT, Fill::Near(1.0));
    }

    /// A layer, whose attention gives what has the size `size`.
    pub(crate) fn gemma4_layer(&mut self, shape: &Shape, layer: usize, size: f32) {
        let (dim, ffn) = (shape.dim, width(shape, layer));
        let head = if slides(shape, layer) { shape.head_dim } else { long_head(shape) };
        let (q, kv) = (shape.heads * head, shape.kv_heads * head);
        let name = |part: &str| format!("blk.{layer}.{part}.weight");
        // Scores have no other scale.
        let quarter = Fill::Near((head as f32).powf(-0.25));
        self.vector(&name("attn_norm"), dim, Fill::Near(1.0));
        self.matrix(&name("attn_q"), dim, q, even(dim));
        self.vector(&name("attn_q_norm"), head, quarter.clone());
        if layer < sharing_from(shape) {
            self.matrix(&name("attn_k"), dim, kv, even(dim));
            self.vector(&name("attn_k_norm"), head, quarter);
            self.matrix(&name("attn_v"), dim, kv, even(dim));
        }
        self.matrix(&name("attn_output"), q, dim, even(q));
        self.vector(&name("post_attention_norm"), dim, Fill::Near(size));
        self.vector(&name("ffn_norm"), dim, Fill::Near(1.0));
        self.matrix(&name("ffn_gate"), dim, ffn, even(dim));
        self.matrix(&name("ffn_up"), dim, ffn, even(dim));
        self.matrix(&name("ffn_down"), ffn, dim, even(ffn));
        self.vector(&name("post_ffw_norm"), dim, Fill::Near(1.0));
        self.matrix(&name("inp_gate"), dim, INPUT, even(dim));
        self.matrix(&name("proj"), INPUT, dim, even(INPUT));
        self.vector(&name("post_norm"), dim, Fill::Near(ATTENTION));
        self.vector(&name("layer_output_scale"), 1, Fill::Values(vec![1.0]));
    }
}
