//! Gemma 3's: SigLIP's encoder, and a norm that is kept as factors.

use super::{Family, HALVES, Keys, Part, Tower, siglip};
use crate::Result;
use crate::convert::{refuse, settings::whole};

pub(super) const GEMMA3: Family = Family {
    class: "Gemma3ForConditionalGeneration",
    tower: None,
    projector: "gemma3",
    usual: &[
        ("hidden_size", 768),
        ("num_attention_heads", 12),
        ("num_hidden_layers", 12),
        ("image_size", 224),
        ("patch_size", 16),
    ],
    colours: HALVES,
    set,
    parts,
    needed: &[
        "v.patch_embd.weight",
        "v.patch_embd.bias",
        "v.position_embd.weight",
        "v.post_ln.weight",
        "mm.input_projection.weight",
        "mm.soft_emb_norm.weight",
    ],
};

fn set(keys: &mut Keys<'_>, tower: &Tower<'_>) -> Result<()> {
    let image = siglip(keys, tower)?;
    // Patches of the side of a square that becomes one row; readers take silence for four.
    let rows = tower.config.usize_or("mm_tokens_per_image", 256)?.isqrt();
    let pool = image.checked_div(tower.patch).and_then(|side| side.checked_div(rows)).unwrap_or(0);
    if pool == 0 {
        return refuse("mm_tokens_per_image", "no image has so many patches");
    }
    if pool != 4 {
        keys.set("projector.scale_factor", whole("mm_tokens_per_image", pool)?);
    }
    Ok(())
}

fn parts(tower: &Tower<'_>, name: &str) -> Result<Option<Vec<Part>>> {
    // Some versions of transformers leave out the name of the encoder within its tower.
    let within = name.strip_prefix("model.vision_tower.").filter(|rest| !rest.starts_with("vision_model."));
    let name =
        within.map_or_else(|| name.to_owned(), |rest| format!("model.vision_tower.vision_model.{rest}"));
    Ok(tower.convolved(&name))
}
