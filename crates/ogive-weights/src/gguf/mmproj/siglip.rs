//! The names of SigLIP's encoder, which several families have.

use super::mlp;
use crate::gguf::{Rule, Translation};

/// Adds the names of an encoder that is at the place `at`.
pub(super) fn encoder(t: Translation, at: &str) -> Translation {
    let block = |leaf: &str| format!("{at}.encoder.layers.{{}}.{leaf}");
    let names = [
        ("ln1", "layer_norm1"),
        ("ln2", "layer_norm2"),
        ("attn_q", "self_attn.q_proj"),
        ("attn_k", "self_attn.k_proj"),
        ("attn_v", "self_attn.v_proj"),
        ("attn_out", "self_attn.out_proj"),
    ];
    let t = names.into_iter().fold(t, |t, (from, to)| t.rename(&format!("v.blk.{{}}.{from}"), &block(to)));
    let position = format!("{at}.embeddings.position_embedding.weight");
    mlp(t, block("mlp.fc1"), block("mlp.fc2"))
        .rename("v.patch_embd", &format!("{at}.embeddings.patch_embedding"))
        .rule(Rule::new("v.position_embd.weight", position))
        .rename("v.post_ln", &format!("{at}.post_layernorm"))
}
