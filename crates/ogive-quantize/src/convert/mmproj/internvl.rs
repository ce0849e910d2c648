//! InternVL's: an encoder with a token of its own before the patches, and factors on what blocks add.

use super::{Family, IMAGENET, Keys, Part, Tower};
use crate::Result;
use crate::convert::{refuse, settings::whole};

pub(super) const INTERNVL: Family = Family {
    class: "InternVLForConditionalGeneration",
    tower: None,
    projector: "internvl",
    usual: &[
        ("hidden_size", 1024),
        ("num_attention_heads", 16),
        ("num_hidden_layers", 24),
        ("image_size", 448),
        ("patch_size", 14),
    ],
    colours: IMAGENET,
    set,
    parts,
    needed: &[
        "v.class_embd",
        "v.patch_embd.weight",
        "v.patch_embd.bias",
        "v.position_embd.weight",
        "mm.model.mlp.0.weight",
        "mm.model.mlp.0.bias",
        "mm.model.mlp.1.weight",
        "mm.model.mlp.1.bias",
        "mm.model.mlp.3.weight",
        "mm.model.mlp.3.bias",
    ],
};

/// Elements and blocks of the one tower that readers take to have norms of the mean square alone.
const WITHOUT_MEANS: [usize; 2] = [3200, 45];

fn set(keys: &mut Keys<'_>, tower: &Tower<'_>) -> Result<()> {
    let v = &tower.vision;
    keys.set("image_size", whole("image_size", v.usize("image_size")?)?);
    keys.set("attention.layer_norm_epsilon", v.f32_or("layer_norm_eps", 1e-6)?);
    keys.metadata.set("clip.use_gelu", true);
    let rms = v.opt_str("norm_type")?.unwrap_or("layer_norm") == "rms_norm";
    if rms != ([tower.dim, tower.depth()?] == WITHOUT_MEANS) {
        let [dim, depth] = WITHOUT_MEANS;
        let why = format!(
            "readers of GGUF go by sizes, and only {depth} blocks of {dim} elements have `rms_norm` there"
        );
        return refuse("norm_type", why);
    }
    if tower.blocks_read(-1)? != tower.depth()? {
        return refuse(
            "vision_feature_layer",
            "it is not the last, and GGUF has no other for this projector",
        );
    }
    let block = tower.config.f32_or("downsample_ratio", 0.5)?.recip().round();
    keys.set("projector.scale_factor", whole("downsample_ratio", block as usize)?);
    for (setting, key) in [("min_patches", "preproc_min_tiles"), ("max_patches", "preproc_max_tiles")] {
        if let Some(tiles) = tower.images.opt_usize(setting)? {
            keys.set(key, whole(setting, tiles)?);
        }
    }
    Ok(())
}

fn parts(tower: &Tower<'_>, name: &str) -> Result<Option<Vec<Part>>> {
    // What training covers patches with.
    if name == "model.vision_tower.embeddings.mask_token" {
        return Ok(Some(Vec::new()));
    }
    Ok(tower.convolved(name))
}
