//! `bert` and `nomic-bert`: encoders, with norms after what they norm.
//!
//! A `bert` with word pieces and one of RoBERTa's kin are the same here: the converter cuts the positions off that no token has. One that judges
//! texts is told by its head, as its header says no class.
//!
//! GGUF says nothing of the activations, as each graph of llama.cpp has its own; they are put in here. For BERT that is the
//! error function's GELU, which its models learned with, and not the approximation that llama.cpp computes.

use crate::gguf::settings::copy;
use crate::gguf::{Header, Settings, Translation};
use ogive_tensor::Result;
use serde_json::json;

pub(super) fn bert() -> Translation {
    Translation::new("bert", "BertModel")
        .rename("token_embd", "embeddings.word_embeddings")
        .rename("token_types", "embeddings.token_type_embeddings")
        .rename("position_embd", "embeddings.position_embeddings")
        .rename("token_embd_norm", "embeddings.LayerNorm")
        .rename("blk.{}.attn_q", "encoder.layer.{}.attention.self.query")
        .rename("blk.{}.attn_k", "encoder.layer.{}.attention.self.key")
        .rename("blk.{}.attn_v", "encoder.layer.{}.attention.self.value")
        .rename("blk.{}.attn_qkv", "encoder.layer.{}.attention.self.qkv")
        .rename("blk.{}.attn_output", "encoder.layer.{}.attention.output.dense")
        .rename("blk.{}.attn_output_norm", "encoder.layer.{}.attention.output.LayerNorm")
        .rename("blk.{}.ffn_up", "encoder.layer.{}.intermediate.dense")
        .rename("blk.{}.ffn_down", "encoder.layer.{}.output.dense")
        .rename("blk.{}.layer_output_norm", "encoder.layer.{}.output.LayerNorm")
        .rename("cls", "pooler.dense")
        .rename("cls.output", "classifier")
        .settings(|header, settings| {
            if header.has_tensor("cls.output.weight") {
                settings.insert("architectures".into(), json!(["BertForSequenceClassification"]));
            }
            encoder(header, settings, "gelu")
        })
}

pub(super) fn nomic_bert() -> Translation {
    Translation::new("nomic-bert", "NomicBertModel")
        .rename("token_embd", "embeddings.word_embeddings")
        .rename("token_types", "embeddings.token_type_embeddings")
        .rename("token_embd_norm", "emb_ln")
        .rename("blk.{}.attn_qkv", "encoder.layers.{}.attn.Wqkv")
        .rename("blk.{}.attn_output", "encoder.layers.{}.attn.out_proj")
        .rename("blk.{}.attn_output_norm", "encoder.layers.{}.norm1")
        .rename("blk.{}.ffn_up", "encoder.layers.{}.mlp.fc11")
        .rename("blk.{}.ffn_gate", "encoder.layers.{}.mlp.fc12")
        .rename("blk.{}.ffn_down", "encoder.layers.{}.mlp.fc2")
        .rename("blk.{}.layer_output_norm", "encoder.layers.{}.norm2")
        .settings(|header, settings| encoder(header, settings, "silu"))
}

fn encoder(header: &Header<'_>, settings: &mut Settings, activation: &str) -> Result<()> {
    settings.insert("hidden_act".into(), json!(activation));
    // Every converter writes it; a file without it is an encoder too, by its architecture.
    settings.insert("is_decoder".into(), header.bool("attention.causal")?.unwrap_or(false).into());
    copy(header, settings, &[("attention.layer_norm_epsilon", "layer_norm_eps")])
}
