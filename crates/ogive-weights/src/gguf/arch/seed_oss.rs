//! `seed_oss`: Llama's names but for the second norm's. Nothing is reordered.

use crate::gguf::Translation;

pub(super) fn seed_oss() -> Translation {
    Translation::decoder("seed_oss", "SeedOssForCausalLM")
        .without("blk.{}.ffn_norm")
        .rename("blk.{}.post_attention_norm", "model.layers.{}.post_attention_layernorm")
}
