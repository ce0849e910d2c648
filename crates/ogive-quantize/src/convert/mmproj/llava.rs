//! LLaVA 1.5's: CLIP's encoder, whose last norm is not read, and two matrices.

use super::{CLIP, Family, Keys, Part, Tower};
use crate::Result;
use crate::convert::{refuse, settings::whole};

pub(super) const LLAVA: Family = Family {
    class: "LlavaForConditionalGeneration",
    tower: Some("clip_vision_model"),
    projector: "mlp",
    usual: &[
        ("hidden_size", 768),
        ("num_attention_heads", 12),
        ("num_hidden_layers", 12),
        ("image_size", 224),
        ("patch_size", 32),
    ],
    colours: CLIP,
    set,
    parts,
    needed: &[
        "v.class_embd",
        "v.patch_embd.weight",
        "v.position_embd.weight",
        "v.pre_ln.weight",
        "mm.0.weight",
        "mm.0.bias",
        "mm.2.weight",
        "mm.2.bias",
    ],
};

fn set(keys: &mut Keys<'_>, tower: &Tower<'_>) -> Result<()> {
    let v = &tower.vision;
    keys.set("image_size", whole("image_size", v.usize("image_size")?)?);
    keys.set("attention.layer_norm_epsilon", v.f32_or("layer_norm_eps", 1e-5)?);
    match v.opt_str("hidden_act")?.unwrap_or("quick_gelu") {
        "quick_gelu" => {}
        "silu" => _ = keys.metadata.set("clip.use_silu", true),
        // Others are found when what was written is read back.
        _ => _ = keys.metadata.set("clip.use_gelu", true),
    }
    let depth = tower.depth()?;
    let blocks = tower.blocks_read(-2)?;
    // Readers take silence for all but the last.
    if blocks + 1 != depth {
        let layer = i32::try_from(blocks).ok().filter(|n| *n > 0);
        let Some(layer) = layer else { return refuse("vision_feature_layer", "there is no block before it") };
        keys.set("feature_layer", vec![layer]);
    }
    Ok(())
}

fn parts(tower: &Tower<'_>, name: &str) -> Result<Option<Vec<Part>>> {
    // The norm behind the last block is of the token before the patches, and readers would take it for theirs.
    if name.contains(".post_layernorm.") {
        return Ok(Some(Vec::new()));
    }
    Ok(tower.convolved(name))
}
