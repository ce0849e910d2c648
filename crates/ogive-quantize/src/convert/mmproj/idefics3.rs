//! Idefics3's and SmolVLM's: SigLIP's encoder of parts of images.

use super::{Family, HALVES, Keys, Part, Tower, siglip};
use crate::Result;
use crate::convert::settings::whole;

pub(super) const IDEFICS3: Family = Family {
    class: "Idefics3ForConditionalGeneration",
    tower: None,
    projector: "idefics3",
    usual: &[
        ("hidden_size", 1152),
        ("num_attention_heads", 16),
        ("num_hidden_layers", 12),
        ("image_size", 224),
        ("patch_size", 32),
    ],
    colours: HALVES,
    set,
    parts,
    needed: &[
        "v.patch_embd.weight",
        "v.patch_embd.bias",
        "v.position_embd.weight",
        "v.post_ln.weight",
        "mm.model.fc.weight",
    ],
};

pub(super) const SMOLVLM: Family = Family { class: "SmolVLMForConditionalGeneration", ..IDEFICS3 };

fn set(keys: &mut Keys<'_>, tower: &Tower<'_>) -> Result<()> {
    siglip(keys, tower)?;
    let scale = tower.config.usize_or("scale_factor", 2)?;
    keys.set("projector.scale_factor", whole("scale_factor", scale)?);
    // What an image is made as long as before it is cut.
    if let Some(side) = tower.images.at("size").opt_usize("longest_edge")? {
        keys.set("preproc_image_size", whole("size.longest_edge", side)?);
    }
    Ok(())
}

fn parts(tower: &Tower<'_>, name: &str) -> Result<Option<Vec<Part>>> {
    Ok(tower.convolved(name))
}
