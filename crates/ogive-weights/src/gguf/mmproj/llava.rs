//! `mlp`: LLaVA 1.5's, CLIP's encoder up to the block before the last, and two matrices to the width of the text.
//!
//! Files of LLaVA 1.6, whose images are cut, and of Yi's, whose projector has norms, have the same name; they are refused.

use super::{siglip, types};
use crate::gguf::{Header, Rule, Settings, Translation};
use ogive_tensor::{Error, Result};
use serde_json::json;

pub(super) fn llava() -> Translation {
    let at = "model.vision_tower.vision_model";
    let t = Translation::mmproj("mlp", "LlavaForConditionalGeneration");
    siglip::encoder(t, at)
        .rule(Rule::new("v.class_embd", format!("{at}.embeddings.class_embedding")))
        // As the checkpoints spell it.
        .rename("v.pre_ln", &format!("{at}.pre_layrnorm"))
        .rename("mm.0", "model.multi_modal_projector.linear_1")
        .rename("mm.2", "model.multi_modal_projector.linear_2")
        .settings(settings)
}

fn settings(header: &Header<'_>, settings: &mut Settings) -> Result<()> {
    if header.has_tensor("mm.3.weight") {
        return Err(Error::unsupported(
            "mm.3.weight",
            "a projector with norms between its matrices is not known",
        ));
    }
    if header.list("image_grid_pinpoints")?.is_some() || header.has_tensor("model.image_newline") {
        let why = "images that are cut as LLaVA 1.6 does it are not known";
        return Err(Error::unsupported("clip.vision.image_grid_pinpoints", why));
    }
    let of_tower =
        if header.has_tensor("v.class_embd") { "clip_vision_model" } else { "siglip_vision_model" };
    types(settings, "llava", of_tower);
    // A block is counted by what goes into it; silence means that the last is left out.
    let layer = match header.list("feature_layer")?.as_deref() {
        None | Some([]) => json!(-2),
        Some([layer]) => layer.clone(),
        Some(several) => {
            let why = format!("it has {}, and what several blocks give is not known", several.len());
            return Err(Error::unsupported("clip.vision.feature_layer", why));
        }
    };
    settings.insert("vision_feature_layer".into(), layer);
    settings.insert("vision_feature_select_strategy".into(), json!("default"));
    settings.insert("projector_hidden_act".into(), json!("gelu"));
    Ok(())
}
