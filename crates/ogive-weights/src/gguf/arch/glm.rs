//! `chatglm` and `glm4`: GLM-4 of 2024, and that of 2025 with norms after each block as well. Gate and up are one matrix, in older files q,
//! k and v too. Neighbours turn together in Hugging Face's files as well, so nothing is reordered.

use crate::gguf::Translation;
use ogive_tensor::Error;

fn any(architecture: &str, class: &str) -> Translation {
    Translation::decoder(architecture, class)
        .rename("blk.{}.attn_qkv", "model.layers.{}.self_attn.qkv_proj")
        .rename("blk.{}.ffn_up", "model.layers.{}.mlp.gate_up_proj")
}

pub(super) fn chatglm() -> Translation {
    any("chatglm", "GlmForCausalLM")
}

pub(super) fn glm4() -> Translation {
    any("glm4", "Glm4ForCausalLM")
        .rename("blk.{}.post_attention_norm", "model.layers.{}.post_self_attn_layernorm")
        .rename("blk.{}.post_ffw_norm", "model.layers.{}.post_mlp_layernorm")
        .settings(|header, _| {
            let key = "rope.dimension_sections";
            if header.value(key)?.is_none() {
                return Ok(());
            }
            // Of a model that also sees, whose rows the converter reorders.
            Err(Error::unsupported(key, "the file has positions of several dimensions, which are not known"))
        })
}
