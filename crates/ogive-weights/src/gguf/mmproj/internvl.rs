//! `internvl`: InternVL's encoder with a token of its own before the patches; a norm and two matrices lead from each block of patches to the text.
//!
//! Which norms it has, tensors say: those of the mean square alone have no biases.

use super::{mlp, tower, types};
use crate::gguf::settings::copy;
use crate::gguf::{Header, Rule, Settings, Translation};
use ogive_tensor::{Error, Result};
use serde_json::{Value, json};

pub(super) fn internvl() -> Translation {
    let at = |leaf: &str| format!("model.vision_tower.{leaf}");
    let block = |leaf: &str| at(&format!("encoder.layer.{{}}.{leaf}"));
    let names = [
        ("ln1", "layernorm_before"),
        ("ln2", "layernorm_after"),
        ("attn_q", "attention.q_proj"),
        ("attn_k", "attention.k_proj"),
        ("attn_v", "attention.v_proj"),
        ("attn_q_norm", "attention.q_norm"),
        ("attn_k_norm", "attention.k_norm"),
        ("attn_out", "attention.projection_layer"),
    ];
    let t = Translation::mmproj("internvl", "InternVLForConditionalGeneration");
    let t = names.into_iter().fold(t, |t, (from, to)| t.rename(&format!("v.blk.{{}}.{from}"), &block(to)));
    let t = ["layer_norm", "linear_1", "linear_2"].into_iter().zip([0, 1, 3]).fold(t, |t, (to, i)| {
        t.rename(&format!("mm.model.mlp.{i}"), &format!("model.multi_modal_projector.{to}"))
    });
    mlp(t, block("mlp.fc1"), block("mlp.fc2"))
        .rule(Rule::new("v.blk.{}.ls1.weight", block("lambda_1")))
        .rule(Rule::new("v.blk.{}.ls2.weight", block("lambda_2")))
        .rule(Rule::new("v.class_embd", at("embeddings.cls_token")))
        .rename("v.patch_embd", &at("embeddings.patch_embeddings.projection"))
        .rule(Rule::new("v.position_embd.weight", at("embeddings.position_embeddings")))
        .rename("v.post_ln", &at("layernorm"))
        .settings(settings)
}

fn settings(header: &Header<'_>, settings: &mut Settings) -> Result<()> {
    const KEY: &str = "projector.scale_factor";
    types(settings, "internvl", "internvl_vision");
    let norm = if header.has_tensor("v.blk.0.ln1.bias") { "layer_norm" } else { "rms_norm" };
    tower(settings, |tower| {
        // ggml computes it by its tangent, and the class by the error function.
        if tower.get("hidden_act").is_some_and(|own| own == "gelu_pytorch_tanh") {
            tower.insert("hidden_act".into(), json!("gelu"));
        }
        tower.insert("norm_type".into(), json!(norm));
        tower.insert("use_qk_norm".into(), header.has_tensor("v.blk.0.attn_q_norm.weight").into());
        tower.insert("use_mean_pooling".into(), (!header.has_tensor("v.post_ln.weight")).into());
    });
    let block = header.usize(KEY)?.filter(|block| *block > 0);
    let block =
        block.ok_or_else(|| Error::invalid(KEY, "it is 0 or missing, and patches are merged in blocks"))?;
    settings.insert("downsample_ratio".into(), (1.0 / block as f64).into());
    settings.insert("projector_hidden_act".into(), json!("gelu"));
    settings.insert("vision_feature_layer".into(), json!(-1));
    settings.insert("vision_feature_select_strategy".into(), json!("default"));
    if let Some(images) = settings.get_mut("image_processor").and_then(Value::as_object_mut) {
        let tiles = [("preproc_min_tiles", "min_patches"), ("preproc_max_tiles", "max_patches")];
        copy(header, images, &tiles)?;
    }
    Ok(())
}
