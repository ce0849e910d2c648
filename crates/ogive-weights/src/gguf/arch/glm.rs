//! `chatglm` and `glm4`: GLM-4 of 2024, and that of 2025 with norms after each block as well. Gate and up are one matrix, in older files q,
//! k and v too. Neighbours turn together in Hugging Face's files as well, so nothing is reordered. And `glm4moe`, GLM-4.5's mixtures.

use super::deepseek::with_experts;
use crate::gguf::Translation;
use crate::gguf::settings::{of_one_dimension, only_sigmoids};

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
        .settings(|header, _| of_one_dimension(header))
}

/// Norms on heads are in the files of the larger model alone.
pub(super) fn glm4_moe() -> Translation {
    with_experts(Translation::decoder("glm4moe", "Glm4MoeForCausalLM"))
        .without("blk.{}.ffn_norm")
        .rename("blk.{}.post_attention_norm", "model.layers.{}.post_attention_layernorm")
        .settings(|header, settings| {
            of_one_dimension(header)?;
            only_sigmoids(header)?;
            // 0 is none.
            if settings.get("routed_scaling_factor").is_some_and(|scale| scale.as_f64() == Some(0.0)) {
                settings.remove("routed_scaling_factor");
            }
            Ok(())
        })
}
