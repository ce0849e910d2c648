//! The families of models that see, a file each, and which `model_type` is of which.
//!
//! A family is what a processor of the reference is; what several have in common is below [`crate`].

mod gemma3;
mod idefics3;
mod internvl;
mod lfm2_vl;
mod llava;
mod pixtral;
mod qwen_vl;
mod tiles;

use crate::Family;
use crate::settings::Settings;
use ogive_tensor::Result;

/// The family of a checkpoint, if it is known here.
pub(crate) fn load(settings: &Settings) -> Result<Option<Box<dyn Family>>> {
    fn some(family: impl Family + 'static) -> Option<Box<dyn Family>> {
        Some(Box::new(family))
    }
    let tower = settings.vision.opt_str("model_type")?;
    Ok(match settings.config.opt_str("model_type")? {
        Some("gemma3") => some(gemma3::Gemma3::load(settings)?),
        Some("qwen2_vl" | "qwen2_5_vl") => some(qwen_vl::QwenVl::load(settings, &qwen_vl::QWEN2)?),
        Some("qwen3_vl" | "qwen3_vl_moe" | "qwen3_5" | "qwen3_5_moe") => {
            some(qwen_vl::QwenVl::load(settings, &qwen_vl::QWEN3)?)
        }
        Some("mistral3") => some(pixtral::Pixtral::load(settings)?),
        Some("llava") if tower == Some("pixtral") => some(pixtral::Pixtral::load(settings)?),
        Some("idefics3" | "smolvlm") => some(idefics3::Idefics3::load(settings)?),
        Some("internvl") => some(internvl::InternVl::load(settings)?),
        Some("lfm2_vl" | "lfm2-vl") => some(lfm2_vl::Lfm2Vl::load(settings)?),
        Some("llava") if tower == Some("siglip_vision_model") => some(llava::Llava::load(settings, false)?),
        Some("llava") if tower.is_none_or(|tower| tower == "clip_vision_model") => {
            some(llava::Llava::load(settings, true)?)
        }
        _ => None,
    })
}

/// Sides of an image that has such, in whole multiples of `factor`: `near` where that has no fewer pixels than `least` and no more than `most`, else as
/// near to its proportions as it gets within the two. Qwen's and LFM2-VL's processors do it alike ("smart resize").
fn within(sides: [f64; 2], near: [f64; 2], factor: f64, [least, most]: [f64; 2]) -> [usize; 2] {
    let (area, wanted) = (sides[0] * sides[1], near[0] * near[1]);
    let size = if wanted > most {
        let shrink = (area / most).sqrt();
        sides.map(|side| ((side / shrink / factor).floor() * factor).max(factor))
    } else if wanted < least {
        let grow = (least / area).sqrt();
        sides.map(|side| (side * grow / factor).ceil() * factor)
    } else {
        near
    };
    size.map(|side| side as usize)
}
