//! `gptneox`: Pythia and its kin, with queries, keys and values in one matrix, all heads of one kind before those of the next. In Hugging Face's
//! files they come head by head, so rows are put in order.
//!
//! Which GELU is meant GGUF does not say, and llama.cpp takes the approximation for all. Here silence is the exact one, which is the class's default
//! and Pythia's; GPT-NeoX-20B has the other, for which files of Ogive have a key of their own.

use crate::gguf::settings::copy;
use crate::gguf::{Change, Header, Settings, Translation};
use ogive_tensor::{Error, Result};
use serde_json::json;

pub(super) fn gptneox() -> Translation {
    Translation::new("gptneox", "GPTNeoXForCausalLM")
        .rename("token_embd", "gpt_neox.embed_in")
        .rename("output_norm", "gpt_neox.final_layer_norm")
        .rename("output", "embed_out")
        .rename("blk.{}.attn_norm", "gpt_neox.layers.{}.input_layernorm")
        .rename("blk.{}.ffn_norm", "gpt_neox.layers.{}.post_attention_layernorm")
        .rename_changed(
            "blk.{}.attn_qkv",
            "gpt_neox.layers.{}.attention.query_key_value",
            &Change::head_by_head(),
        )
        .rename("blk.{}.attn_output", "gpt_neox.layers.{}.attention.dense")
        .rename("blk.{}.ffn_up", "gpt_neox.layers.{}.mlp.dense_h_to_4h")
        .rename("blk.{}.ffn_down", "gpt_neox.layers.{}.mlp.dense_4h_to_h")
        .settings(settings)
}

fn settings(header: &Header<'_>, settings: &mut Settings) -> Result<()> {
    const ACTIVATION: &str = "ogive.hidden_act";
    settings.insert("hidden_act".into(), header.global(ACTIVATION)?.unwrap_or_else(|| json!("gelu")));
    if settings.get("num_key_value_heads") != settings.get("num_attention_heads") {
        let why = "query heads share key heads, which is not known of this architecture";
        return Err(Error::unsupported("attention.head_count_kv", why));
    }
    let keys = [
        ("attention.layer_norm_epsilon", "layer_norm_eps"),
        ("use_parallel_residual", "use_parallel_residual"),
    ];
    copy(header, settings, &keys)
}
