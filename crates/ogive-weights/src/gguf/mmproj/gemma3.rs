//! `gemma3`: SigLIP's encoder, squares of whose patches become their mean. The norm behind it is kept as factors and must lose one; the matrix behind
//! that is as Hugging Face has it, with a row for each input.

use super::{siglip, tower, types};
use crate::gguf::settings::whole;
use crate::gguf::{Change, Header, Rule, Settings, Translation};
use ogive_tensor::{Error, Result};

pub(super) fn gemma3() -> Translation {
    let t = Translation::mmproj("gemma3", "Gemma3ForConditionalGeneration");
    siglip::encoder(t, "model.vision_tower.vision_model")
        .rule(Rule::changed(
            ["mm.soft_emb_norm.weight"],
            "model.multi_modal_projector.mm_soft_emb_norm.weight",
            Change::less_one(),
        ))
        .rule(Rule::new(
            "mm.input_projection.weight",
            "model.multi_modal_projector.mm_input_projection_weight",
        ))
        .settings(settings)
}

/// Rows of an image: one of each square of so many patches to a side as the file says, or four.
fn settings(header: &Header<'_>, settings: &mut Settings) -> Result<()> {
    const KEY: &str = "projector.scale_factor";
    let pool = header.usize(KEY)?.unwrap_or(4) as u64;
    types(settings, "gemma3", "siglip_vision_model");
    let mut patches = None;
    tower(settings, |tower| patches = whole(tower, "image_size").zip(whole(tower, "patch_size")));
    let side = patches.and_then(|(image, patch)| image.checked_div(patch)?.checked_div(pool));
    let rows = side.filter(|side| *side > 0).and_then(|side| side.checked_mul(side));
    let why = || Error::invalid(KEY, format!("it is {pool}, and no square of so many patches cuts an image"));
    settings.insert("mm_tokens_per_image".into(), rows.ok_or_else(why)?.into());
    Ok(())
}
