//! `gemma`, `gemma2`, `gemma3`, `gemma-embedding`: the norms are kept as factors and must lose one; some settings follow from the size.

use crate::dense::SETTING;
use crate::gguf::settings::{layer_types, whole};
use crate::gguf::{Change, Settings, Translation};
use serde_json::json;

fn any(architecture: &str, class: &str) -> Translation {
    Translation::decoder(architecture, class).settings(|_, settings| {
        // The key that these classes read; Llama's is `hidden_act`.
        settings.insert("hidden_act".into(), json!("gelu_pytorch_tanh"));
        settings.insert("hidden_activation".into(), json!("gelu_pytorch_tanh"));
        Ok(())
    })
}

pub(super) fn gemma() -> Translation {
    any("gemma", "GemmaForCausalLM").change_all("norm.weight", &Change::less_one()).settings(|_, settings| {
        // What the class passes over, and the first checkpoints have another name in: the error function's, which none was trained with.
        settings.remove("hidden_act");
        Ok(())
    })
}

/// Norms after each block as well as before it.
fn sandwich(architecture: &str, class: &str) -> Translation {
    any(architecture, class)
        .rename("blk.{}.post_attention_norm", "model.layers.{}.post_attention_layernorm")
        .rename("blk.{}.ffn_norm", "model.layers.{}.pre_feedforward_layernorm")
        .rename("blk.{}.post_ffw_norm", "model.layers.{}.post_feedforward_layernorm")
        .change_all("norm.weight", &Change::less_one())
}

pub(super) fn gemma2() -> Translation {
    sandwich("gemma2", "Gemma2ForCausalLM").settings(|header, settings| {
        score_scale(settings, 46);
        // llama.cpp's defaults, which are the class's too.
        settings.entry("attn_logit_softcapping").or_insert(json!(50.0));
        settings.entry("final_logit_softcapping").or_insert(json!(30.0));
        layer_types(header, settings, 4096, 2)
    })
}

pub(super) fn gemma3() -> Translation {
    third("gemma3", "Gemma3ForCausalLM", 62)
}

/// EmbeddingGemma: an encoder, perhaps with the layers that its vectors go through.
pub(super) fn gemma_embedding() -> Translation {
    let dense = [("dense_2", "2_Dense"), ("dense_3", "3_Dense")];
    let t = third("gemma-embedding", "Gemma3TextModel", u64::MAX);
    dense.into_iter().fold(t, |t, (from, name)| t.rename(from, &format!("{name}.linear"))).settings(
        move |header, settings| {
            settings.insert("use_bidirectional_attention".into(), json!(true));
            // It is an encoder by its architecture, whatever else is said.
            settings.remove("is_causal");
            let there = dense.iter().filter(|(from, _)| header.has_tensor(&format!("{from}.weight")));
            let layers: Vec<_> = there.map(|(_, name)| json!({"name": name, "activation": null})).collect();
            if !layers.is_empty() {
                settings.insert(SETTING.into(), layers.into());
            }
            Ok(())
        },
    )
}

/// What Gemma 3 has, whose largest model is known by so many layers.
fn third(architecture: &str, class: &str, layers_of_27b: u64) -> Translation {
    sandwich(architecture, class).settings(move |header, settings| {
        score_scale(settings, layers_of_27b);
        let local = header.value("rope.freq_base_swa")?.unwrap_or_else(|| json!(10_000.0));
        settings.insert("rope_local_base_freq".into(), local);
        if header.f32("rope.freq_base")?.is_none() {
            settings.insert("rope_theta".into(), json!(1_000_000.0));
        }
        // A file that names no window has none (Rnj-1's), where the class would take one for granted.
        layer_types(header, settings, 0, 6)
    })
}

/// What the scores are divided by the root of: the head size, but in the 27B models, known by their layers, the model's
/// width per head.
fn score_scale(settings: &mut Settings, layers_of_27b: u64) {
    let per_head = whole(settings, "hidden_size").zip(whole(settings, "num_attention_heads"));
    let scalar = if whole(settings, "num_hidden_layers") == Some(layers_of_27b) {
        per_head.and_then(|(size, heads)| size.checked_div(heads))
    } else {
        whole(settings, "head_dim")
    };
    if let Some(scalar) = scalar {
        settings.insert("query_pre_attn_scalar".into(), scalar.into());
    }
}
