//! `bert`, `nomic-bert` and `modern-bert`: encoders, the first two with norms after what they norm.
//!
//! A `bert` with word pieces and one of RoBERTa's kin are the same here: the converter cuts the positions off that no token has. One that judges
//! texts is told by its head, as its header says no class.
//!
//! GGUF says nothing of the first two's activations, as each graph of llama.cpp has its own; they are put in here. For BERT that is the
//! error function's GELU, which its models learned with, and not the approximation that llama.cpp computes.

use crate::gguf::settings::{classes, copy};
use crate::gguf::{Header, Settings, Translation};
use ogive_tensor::{Error, Result};
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
            if header.has_tensor("token_types.weight") {
                // One that is not written is one row.
                let rows = header.rows("token_types.weight").unwrap_or(1);
                settings.insert("type_vocab_size".into(), rows.into());
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

pub(super) fn modern_bert() -> Translation {
    Translation::new("modern-bert", "ModernBertModel")
        .rename("token_embd", "embeddings.tok_embeddings")
        .rename("token_embd_norm", "embeddings.norm")
        .rename("blk.{}.attn_norm", "layers.{}.attn_norm")
        .rename("blk.{}.attn_qkv", "layers.{}.attn.Wqkv")
        .rename("blk.{}.attn_output", "layers.{}.attn.Wo")
        .rename("blk.{}.ffn_norm", "layers.{}.mlp_norm")
        .rename("blk.{}.ffn_up", "layers.{}.mlp.Wi")
        .rename("blk.{}.ffn_down", "layers.{}.mlp.Wo")
        .rename("output_norm", "final_norm")
        .rename("cls", "head.dense")
        .rename("cls.norm", "head.norm")
        .rename("cls.output", "classifier")
        .settings(|header, settings| {
            let activation = gated(header.str("hidden_activation")?)?;
            encoder(header, settings, activation)?;
            settings.insert("hidden_activation".into(), json!(activation));
            let numbers = [
                ("attention.layer_norm_epsilon", "norm_eps"),
                ("rope.freq_base", "global_rope_theta"),
                ("rope.freq_base_swa", "local_rope_theta"),
            ];
            copy(header, settings, &numbers)?;
            // Without a window no layer is local.
            let window = header.usize("attention.sliding_window")?.filter(|window| *window > 0);
            let every = header.usize("attention.sliding_window_pattern")?.unwrap_or(3);
            settings.remove("layer_types");
            settings.insert("global_attn_every_n_layers".into(), window.map_or(0, |_| every).into());
            settings.insert("local_attention".into(), window.unwrap_or(0).into());
            let judges = header.has_tensor("cls.output.weight");
            if judges {
                settings.insert("architectures".into(), json!(["ModernBertForSequenceClassification"]));
            }
            let pooling = match header.usize("classifier.pooling_type")? {
                None if !judges => return Ok(()),
                // The first files do not say.
                None | Some(1) => "mean",
                Some(2) => "cls",
                Some(other) => {
                    let why = format!("its head pools by {other}; known are 1 (mean), 2 (cls)");
                    return Err(Error::unsupported("classifier.pooling_type", why));
                }
            };
            settings.insert("classifier_pooling".into(), json!(pooling));
            Ok(())
        })
}

/// The activation of a gated MLP by llama.cpp's names, of which some name the gating too (`llm_ffn_op_type_from_string`). It takes those it does not
/// know for GELU.
fn gated(name: Option<&str>) -> Result<&'static str> {
    Ok(match name {
        None | Some("gelu" | "geglu") => "gelu",
        Some("silu" | "swish" | "swiglu") => "silu",
        Some("relu" | "reglu") => "relu",
        Some(other) => {
            let known = "gelu, geglu, silu, swish, swiglu, relu, reglu";
            return Err(Error::unsupported(
                "hidden_activation",
                format!("it is `{other}`; known are {known}"),
            ));
        }
    })
}

fn encoder(header: &Header<'_>, settings: &mut Settings, activation: &str) -> Result<()> {
    settings.insert("hidden_act".into(), json!(activation));
    classes(header, settings)?;
    // Every converter writes it; a file without it is an encoder too, by its architecture.
    settings.insert("is_decoder".into(), header.bool("attention.causal")?.unwrap_or(false).into());
    copy(header, settings, &[("attention.layer_norm_epsilon", "layer_norm_eps")])
}
