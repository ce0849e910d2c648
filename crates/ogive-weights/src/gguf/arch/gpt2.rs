//! `gpt2`: its own names throughout, settings too, and matrices that Hugging Face keeps as `[in, out]`.
//!
//! Turning them back decodes them. That is dear for a large packed model, but GPT-2's are small, and one naming scheme
//! with one meaning is worth more than their bytes.

use crate::gguf::settings::copy;
use crate::gguf::{Change, Translation};
use serde_json::json;

pub(super) fn gpt2() -> Translation {
    let turned = Change::transposed();
    Translation::new("gpt2", "GPT2LMHeadModel")
        .rename("token_embd", "transformer.wte")
        .rename("position_embd", "transformer.wpe")
        .rename("output_norm", "transformer.ln_f")
        .rename("output", "lm_head")
        .rename("blk.{}.attn_norm", "transformer.h.{}.ln_1")
        .rename("blk.{}.ffn_norm", "transformer.h.{}.ln_2")
        .rename_changed("blk.{}.attn_qkv", "transformer.h.{}.attn.c_attn", &turned)
        .rename_changed("blk.{}.attn_output", "transformer.h.{}.attn.c_proj", &turned)
        .rename_changed("blk.{}.ffn_up", "transformer.h.{}.mlp.c_fc", &turned)
        .rename_changed("blk.{}.ffn_down", "transformer.h.{}.mlp.c_proj", &turned)
        .settings(|header, settings| {
            settings.insert("activation_function".into(), json!("gelu_new"));
            copy(
                header,
                settings,
                &[
                    ("block_count", "n_layer"),
                    ("embedding_length", "n_embd"),
                    ("feed_forward_length", "n_inner"),
                    ("context_length", "n_positions"),
                    ("attention.head_count", "n_head"),
                    ("attention.layer_norm_epsilon", "layer_norm_epsilon"),
                ],
            )
        })
}
