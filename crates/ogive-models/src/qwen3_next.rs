//! Qwen3-Next and Qwen3.5: in three of four layers linear attention by the gated delta rule, in the fourth attention whose output is gated. A
//! mixture of experts and one that all tokens share follow, or, in some of Qwen3.5's, one gated MLP.
//!
//! Qwen Team 2025; Yang et al. 2024, <https://arxiv.org/abs/2412.06464>; transformers' `modeling_qwen3_next` and `modeling_qwen3_5`. All are one
//! function: the two differ in how a file cuts projections and experts, which is looked for. Of a checkpoint that also sees, the part that reads
//! and writes text; there a token has one position, so the three that Qwen3.5 counts by are one, but for images (`vision/qwen3_vl.rs`). Layers that foretell more than one token
//! (`mtp`) are not read: logits do not depend on them.

use crate::block::ReadsFeedForward;
use crate::class::{Class, LLAMA};
use crate::{decoder, head::places, hybrid, llama, mixer::Mixer, nested, qwen_moe};
use ogive_nn::tensor::Result;
use ogive_nn::{Attention, Config, GatedDeltaNet, Loader, Model, rope_of, spec_of};

/// Norms are kept less one. The convolution of linear attention has a state, and its rule another.
const QWEN3_NEXT: Class = Class { norm: |l, name, eps| l.rms_norm_less_one(name, eps), caches: 2, ..LLAMA };

/// Reads a checkpoint with Hugging Face's names; experts stacked or one by one.
///
/// # Errors
/// If `layer_types` are more or fewer than the layers or name another kind, or `full_attention_interval` is 0; if heads do not share keys
/// evenly; if gates are off (`attn_output_gate`) or others; else as [every `load`](crate#errors).
pub fn load(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    let c = &hybrid::settled(c)?;
    let (eps, head_dim) = (c.f32_or("rms_norm_eps", 1e-6)?, c.usize("head_dim")?);
    let (heads, kv_heads) = (c.usize("num_attention_heads")?, c.usize("num_key_value_heads")?);
    let (rope, spec) = (rope_of(c, root, head_dim)?, spec_of(c, heads, kv_heads, head_dim)?);
    let linear = hybrid::linear(c)?;
    let feed_forward: Box<ReadsFeedForward<'_>> =
        if c.has("num_experts") { Box::new(qwen_moe::sharing(c)?) } else { Box::new(llama::dense(c)?) };
    let mixer = |l: &Loader<'_>, i: usize| {
        let first = QWEN3_NEXT.caches * i;
        if linear(i) {
            return Ok(Mixer::Delta(GatedDeltaNet::load(&l.at("linear_attn"), c, first)?.into()));
        }
        let l = l.at("self_attn");
        let norm = |name| l.rms_norm_less_one(name, eps);
        let attn = Attention::load_gated(&l, c, first, rope.clone(), spec.clone())?;
        Ok(Mixer::Attention(attn.head_norms(norm("q_norm")?, norm("k_norm")?).into()))
    };
    let (head, model) = places(root)?;
    decoder::load_mixed(&QWEN3_NEXT, c, [&head, &model], &mixer, &*feed_forward)
}

/// Reads Qwen3.5, whose classes have experts in all layers or in none.
///
/// # Errors
/// As [`load`].
pub fn load_qwen3_5(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    load(&hybrid::of_qwen3_5(c), root)
}

/// Reads the text's part of a Qwen3.5 that also sees.
///
/// # Errors
/// As [`load`], of what is below `text_config`.
pub fn load_nested(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    load_qwen3_5(&nested::by_places(nested::text_of(c), true, Some([11, 11, 10])), root)
}
