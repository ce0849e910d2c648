//! Pixtral's and Mistral 3.1's: Llama's parts, with queries' and keys' rows interleaved as Llama's are. Readers want the vector of the token that ends a
//! row of patches beside them, which is one of the text's.

use super::{CLIP, Family, Keys, Part, Tower, json};
use crate::convert::{refuse, settings::whole};
use crate::{Error, Result};
use ogive_tensor::{Source, WeightInfo};
use ogive_weights::Change;
use std::path::Path;

/// The token, and what its vector is called.
const BREAK: &str = "[IMG_BREAK]";
const VECTOR: &str = "v.token_embd.img_break";

const USUAL: &[(&str, usize)] = &[
    ("hidden_size", 1024),
    ("num_attention_heads", 16),
    ("num_hidden_layers", 24),
    ("image_size", 1024),
    ("patch_size", 16),
];

pub(super) const PIXTRAL: Family = Family {
    class: "LlavaForConditionalGeneration",
    tower: Some("pixtral"),
    projector: "pixtral",
    usual: USUAL,
    colours: CLIP,
    set,
    parts,
    needed: &["v.patch_embd.weight", "v.pre_ln.weight", "mm.1.weight", "mm.2.weight"],
};

pub(super) const MISTRAL3: Family = Family {
    class: "Mistral3ForConditionalGeneration",
    needed: &[
        "v.patch_embd.weight",
        "v.pre_ln.weight",
        "mm.1.weight",
        "mm.2.weight",
        "mm.input_norm.weight",
        "mm.patch_merger.weight",
    ],
    ..PIXTRAL
};

/// What readers take for granted, of the class and of what is merged.
const EPS: f32 = 1e-5;

fn set(keys: &mut Keys<'_>, tower: &Tower<'_>) -> Result<()> {
    let v = &tower.vision;
    keys.set("image_size", whole("image_size", v.usize("image_size")?)?);
    keys.set("attention.layer_norm_epsilon", EPS);
    let act = v.opt_str("hidden_act")?.unwrap_or("gelu");
    keys.metadata.set(if act == "silu" { "clip.use_silu" } else { "clip.use_gelu" }, true);
    if tower.family.class == MISTRAL3.class {
        let merge = tower.config.usize_or("spatial_merge_size", 2)?;
        keys.set("spatial_merge_size", whole("spatial_merge_size", merge)?);
        let eps = tower.config.at("text_config").f32_or("rms_norm_eps", 1e-6)?;
        if (eps - EPS).abs() > EPS * 1e-3 {
            return refuse(
                "text_config.rms_norm_eps",
                format!("it is {eps}, and readers of GGUF have {EPS} for all norms"),
            );
        }
    }
    if tower.blocks_read(-1)? != tower.depth()? {
        return refuse(
            "vision_feature_layer",
            "it is not the last, and GGUF has no other for this projector",
        );
    }
    Ok(())
}

fn parts(tower: &Tower<'_>, name: &str) -> Result<Option<Vec<Part>>> {
    Ok(tower.convolved(name))
}

/// The vector of the token that ends a row of patches, of the text's table.
pub(super) fn row_end(source: &dyn Source, folder: &Path) -> Result<(WeightInfo, Part)> {
    let is_table = |info: &&WeightInfo| info.name.ends_with("embed_tokens.weight");
    let tensors = source.tensors();
    let none = || Error::convert(format!("the tensor {VECTOR}"), "the text has no token embedding");
    let table = tensors.iter().find(is_table).ok_or_else(none)?;
    let id = id_of(folder)?.filter(|id| *id < table.shape[1]);
    let id = id.ok_or_else(|| {
        let why = format!("the vocabulary has no token `{BREAK}`, or the table of tokens ends before it");
        Error::convert(format!("the tensor {VECTOR}"), why)
    })?;
    let row = |of: &WeightInfo| WeightInfo::new(&*of.name, [1, 1, of.shape[2]], of.format);
    let missing = || ogive_tensor::Error::missing("embed_tokens");
    let change = Change::new(
        move |of, _| of.first().map(row).ok_or_else(missing),
        move |of, _| of.first().ok_or_else(missing)?.rows(id..id + 1),
    );
    Ok((table.clone(), Part { name: VECTOR.into(), change: Some(change), dims: None }))
}

/// The token's number, by what was added to the vocabulary.
fn id_of(folder: &Path) -> Result<Option<usize>> {
    let settings = json(&folder.join("tokenizer_config.json"))?.unwrap_or_default();
    let added = settings.get("added_tokens_decoder").and_then(|added| added.as_object());
    let own = added.into_iter().flatten().find(|(_, token)| token["content"] == BREAK);
    if let Some(id) = own.and_then(|(id, _)| id.parse().ok()) {
        return Ok(Some(id));
    }
    let vocabulary = json(&folder.join("tokenizer.json"))?.unwrap_or_default();
    let added = vocabulary.get("added_tokens").and_then(|added| added.as_array());
    let own = added.into_iter().flatten().find(|token| token["content"] == BREAK);
    Ok(own.and_then(|token| usize::try_from(token["id"].as_u64()?).ok()))
}
