//! `pixtral`: Pixtral's encoder, made of Llama's parts, whose queries' and keys' rows the converter interleaves as it does Llama's. With a merger of patches
//! it is Mistral 3.1's. The token that ends a row of patches (`v.token_embd.img_break`) is a token of the text here, and is passed over.

use super::{tower, types};
use crate::gguf::{Change, Header, Rule, Settings, Translation};
use ogive_tensor::Result;
use serde_json::json;

pub(super) fn pixtral() -> Translation {
    let block = |leaf: &str| format!("model.vision_tower.transformer.layers.{{}}.{leaf}");
    let names = [
        ("ln1", "attention_norm"),
        ("ln2", "ffn_norm"),
        ("attn_v", "attention.v_proj"),
        ("attn_out", "attention.o_proj"),
        ("ffn_gate", "feed_forward.gate_proj"),
        ("ffn_up", "feed_forward.up_proj"),
        ("ffn_down", "feed_forward.down_proj"),
    ];
    let turned = Change::split_rotary_pairs("num_attention_heads").within("vision_config");
    let t = Translation::mmproj("pixtral", "LlavaForConditionalGeneration");
    let t = names.into_iter().fold(t, |t, (from, to)| t.rename(&format!("v.blk.{{}}.{from}"), &block(to)));
    t.rename_changed("v.blk.{}.attn_q", &block("attention.q_proj"), &turned)
        .rename_changed("v.blk.{}.attn_k", &block("attention.k_proj"), &turned)
        .rename("v.pre_ln", "model.vision_tower.ln_pre")
        .rename("v.patch_embd", "model.vision_tower.patch_conv")
        .rename("mm.1", "model.multi_modal_projector.linear_1")
        .rename("mm.2", "model.multi_modal_projector.linear_2")
        .rule(Rule::new("mm.input_norm.weight", "model.multi_modal_projector.norm.weight"))
        .rename("mm.patch_merger", "model.multi_modal_projector.patch_merger.merging_layer")
        .settings(settings)
}

fn settings(header: &Header<'_>, settings: &mut Settings) -> Result<()> {
    // Either of what merging takes: a file that has lost one is not taken for another's.
    let merges =
        ["mm.patch_merger.weight", "mm.input_norm.weight"].iter().any(|name| header.has_tensor(name));
    types(settings, if merges { "mistral3" } else { "llava" }, "pixtral");
    tower(settings, |tower| {
        // ggml computes it by its tangent, and the class by the error function.
        if tower.get("hidden_act").is_some_and(|own| own == "gelu_pytorch_tanh") {
            tower.insert("hidden_act".into(), json!("gelu"));
        }
        tower.insert("rope_theta".into(), json!(10_000.0));
    });
    settings.insert("projector_hidden_act".into(), json!("gelu"));
    settings.insert("vision_feature_layer".into(), json!(-1));
    if merges {
        settings.insert("architectures".into(), json!(["Mistral3ForConditionalGeneration"]));
        settings.insert("spatial_merge_size".into(), header.usize("spatial_merge_size")?.unwrap_or(1).into());
        // The merger's norm has the text's epsilon, and in a file there is one for all.
        let eps = header.value("attention.layer_norm_epsilon")?;
        settings.extend(eps.map(|eps| ("rms_norm_eps".into(), eps)));
    } else {
        settings.insert("vision_feature_select_strategy".into(), json!("full"));
    }
    Ok(())
}
