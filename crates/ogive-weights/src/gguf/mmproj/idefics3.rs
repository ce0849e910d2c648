//! `idefics3`: SigLIP's encoder of parts of images, and a matrix from each block of patches to the width of the text. SmolVLM has the same.

use super::{siglip, types};
use crate::gguf::settings::copy;
use crate::gguf::{Header, Rule, Settings, Translation};
use ogive_tensor::{Error, Result};
use serde_json::{Value, json};

pub(super) fn idefics3() -> Translation {
    let t = Translation::mmproj("idefics3", "Idefics3ForConditionalGeneration");
    siglip::encoder(t, "model.vision_model")
        .rule(Rule::new("mm.model.fc.weight", "model.connector.modality_projection.proj.weight"))
        .settings(settings)
}

fn settings(header: &Header<'_>, settings: &mut Settings) -> Result<()> {
    const KEY: &str = "projector.scale_factor";
    types(settings, "idefics3", "idefics3_vision");
    copy(header, settings, &[(KEY, "scale_factor")])?;
    if !settings.contains_key("scale_factor") {
        return Err(Error::missing(&format!("{}.{KEY}", header.architecture())));
    }
    // A part is as large as the tower's images, and the whole is made as long as the file says before it is cut.
    let part = settings.get("vision_config").and_then(|tower| tower.get("image_size")).cloned();
    let whole = header.value("preproc_image_size")?;
    if let Some(images) = settings.get_mut("image_processor").and_then(Value::as_object_mut) {
        images.extend(part.map(|side| ("max_image_size".into(), json!({"longest_edge": side}))));
        images.extend(whole.map(|side| ("size".into(), json!({"longest_edge": side}))));
    }
    Ok(())
}
