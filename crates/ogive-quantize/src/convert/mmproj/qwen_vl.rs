//! Qwen2-VL's, Qwen2.5-VL's and Qwen3-VL's: a convolution of two frames, which GGUF keeps as two of one; queries, keys and values as three matrices, but
//! for Qwen3-VL's; and what is merged of earlier blocks (DeepStack) under the number of its block.

use super::{CLIP, Family, HALVES, Keys, Part, Tower};
use crate::Result;
use crate::convert::{refuse, settings::whole, tensors::of_one};
use ogive_tensor::HostWeight;
use ogive_weights::Change;

const NEEDED: &[&str] = &["v.patch_embd.weight", "v.post_ln.weight", "mm.0.weight", "mm.2.weight"];

pub(super) const QWEN2: Family = Family {
    class: "Qwen2VLForConditionalGeneration",
    tower: None,
    projector: "qwen2vl_merger",
    usual: &[("embed_dim", 1280), ("num_heads", 16), ("depth", 32), ("patch_size", 14)],
    colours: CLIP,
    set: |keys, tower| shared(keys, tower, IMAGE),
    parts,
    needed: NEEDED,
};

pub(super) const QWEN2_5: Family = Family {
    class: "Qwen2_5_VLForConditionalGeneration",
    projector: "qwen2.5vl_merger",
    usual: &[("hidden_size", 3584), ("num_heads", 16), ("depth", 32), ("patch_size", 14)],
    set: set_windows,
    ..QWEN2
};

pub(super) const QWEN3: Family = Family {
    class: "Qwen3VLForConditionalGeneration",
    tower: None,
    projector: "qwen3vl_merger",
    usual: &[("hidden_size", 1152), ("num_heads", 16), ("depth", 27), ("patch_size", 16)],
    colours: HALVES,
    set: set_places,
    parts,
    needed: &[
        "v.patch_embd.weight",
        "v.patch_embd.bias",
        "v.position_embd.weight",
        "v.post_ln.weight",
        "mm.0.weight",
        "mm.2.weight",
    ],
};

pub(super) const QWEN3_MOE: Family = Family { class: "Qwen3VLMoeForConditionalGeneration", ..QWEN3 };
pub(super) const QWEN3_5: Family = Family { class: "Qwen3_5ForConditionalGeneration", ..QWEN3 };
pub(super) const QWEN3_5_MOE: Family = Family { class: "Qwen3_5MoeForConditionalGeneration", ..QWEN3 };

/// Pixels of a side that the converter writes where there is no usual image.
const IMAGE: usize = 560;

/// What all set.
fn shared(keys: &mut Keys<'_>, tower: &Tower<'_>, image: usize) -> Result<()> {
    let v = &tower.vision;
    for (setting, known) in [("spatial_merge_size", 2), ("temporal_patch_size", 2), ("in_channels", 3)] {
        let own = v.usize_or(setting, known)?;
        if own != known {
            return refuse(setting, format!("it is {own}, and readers of GGUF take {known} for granted"));
        }
    }
    keys.set("image_size", whole("image_size", v.usize_or("image_size", image)?)?);
    keys.set("spatial_merge_size", 2_u32);
    // The classes have no setting of it.
    keys.set("attention.layer_norm_epsilon", 1e-6_f32);
    Ok(())
}

fn set_windows(keys: &mut Keys<'_>, tower: &Tower<'_>) -> Result<()> {
    shared(keys, tower, IMAGE)?;
    keys.metadata.set("clip.use_silu", true);
    let full = tower.vision.opt_usizes("fullatt_block_indexes")?.unwrap_or_else(|| vec![7, 15, 23, 31]);
    // What was written is read back; so it is enough to look at the first.
    let Some(first) = full.first() else {
        let why = "no block looks everywhere, and GGUF has it that every so-many-th does";
        return refuse("fullatt_block_indexes", why);
    };
    keys.set("n_wa_pattern", whole("fullatt_block_indexes", first.saturating_add(1))?);
    Ok(())
}

fn set_places(keys: &mut Keys<'_>, tower: &Tower<'_>) -> Result<()> {
    // Learned places are a square of the usual image's patches.
    let places = tower.vision.usize_or("num_position_embeddings", 2304)?;
    let side = places.isqrt();
    if side.saturating_mul(side) != places {
        return refuse("num_position_embeddings", format!("{places} places are no square"));
    }
    shared(keys, tower, side.saturating_mul(tower.patch))?;
    keys.metadata.set("clip.use_gelu", true);
    let (deep, depth) = (deep(tower)?, tower.depth()?);
    // The list is as long as the blocks, which were counted.
    keys.set("is_deepstack_layers", (0..depth).map(|i| deep.contains(&i)).collect::<Vec<bool>>());
    Ok(())
}

/// The blocks behind which something is merged.
fn deep(tower: &Tower<'_>) -> Result<Vec<usize>> {
    Ok(tower.vision.opt_usizes("deepstack_visual_indexes")?.unwrap_or_default())
}

fn parts(tower: &Tower<'_>, name: &str) -> Result<Option<Vec<Part>>> {
    if name == "model.visual.patch_embed.proj.weight" {
        let frame = |i: usize, name: &str| Part {
            name: name.into(),
            change: Some(frame(i)),
            dims: Some(tower.convolution()),
        };
        return Ok(Some(vec![frame(0, "v.patch_embd.weight"), frame(1, "v.patch_embd.weight.1")]));
    }
    if let Some(rest) = name.strip_prefix("model.visual.deepstack_merger_list.") {
        return of_block(tower, rest);
    }
    // One matrix in the last, which has learned places.
    let Some((at, leaf)) =
        name.split_once(".attn.qkv.").filter(|_| tower.family.projector != QWEN3.projector)
    else {
        return Ok(tower.renamed(name).map(|part| vec![part]));
    };
    let third = |i: usize, part: &str| {
        let part = tower.renamed(&format!("{at}.attn.{part}.{leaf}"))?;
        Some(Part { change: Some(third(i)), ..part })
    };
    Ok(["q", "k", "v"].into_iter().enumerate().map(|(i, part)| third(i, part)).collect())
}

/// What is merged of an earlier block: `0.norm.weight` and the like, where the first number is a place in the list of blocks.
fn of_block(tower: &Tower<'_>, rest: &str) -> Result<Option<Vec<Part>>> {
    let named = || {
        let (i, leaf) = rest.split_once('.')?;
        let (leaf, kind) = leaf.rsplit_once('.')?;
        let to = match leaf {
            "norm" => "norm",
            "linear_fc1" => "fc1",
            "linear_fc2" => "fc2",
            _ => return None,
        };
        Some((i.parse::<usize>().ok()?, to, kind))
    };
    let Some((i, leaf, kind)) = named() else { return Ok(None) };
    let blocks = deep(tower)?;
    let Some(block) = blocks.get(i) else {
        let why = format!("it has {} blocks, and there are weights of number {i}", blocks.len());
        return refuse("deepstack_visual_indexes", why);
    };
    Ok(Some(vec![Part { name: format!("v.deepstack.{block}.{leaf}.{kind}"), change: None, dims: None }]))
}

/// The convolution of one of two frames: `[outputs, 3, 2, p, p]` becomes `[outputs, 3, p, p]`.
fn frame(which: usize) -> Change {
    let misfit = || ogive_tensor::Error::invalid("patch_embed.proj", "it is no convolution of two frames");
    let shape =
        |[kernels, rows, cols]: [usize; 3]| kernels.is_multiple_of(2).then_some([kernels / 2, rows, cols]);
    of_one(misfit, shape, move |w, shape| {
        // Of kernels that follow each other, one frame's and the other's.
        let size = shape[1] * shape[2] * w.format.block_bytes;
        if size == 0 || w.format.block_len != 1 || !w.is_plain() {
            return Err(misfit());
        }
        let own = w.bytes.chunks_exact(size).skip(which).step_by(2);
        HostWeight::new(&*w.name, shape, w.format, own.collect::<Vec<_>>().concat().into())
    })
}

/// Queries, keys or values: one of three parts of the rows of a matrix, or of a bias's elements.
fn third(which: usize) -> Change {
    let misfit =
        || ogive_tensor::Error::invalid("attn.qkv", "its rows are not those of queries, keys and values");
    // Rows of a part, and what each is long.
    let shape = |shape: [usize; 3]| match shape {
        [1, 1, n] if n.is_multiple_of(3) => Some([1, 1, n / 3]),
        [1, n, cols] if n.is_multiple_of(3) => Some([1, n / 3, cols]),
        _ => None,
    };
    of_one(misfit, shape, move |w, part| {
        if w.format.block_len != 1 {
            return Err(misfit());
        }
        if w.shape[1] > 1 {
            return w.rows(which * part[1]..(which + 1) * part[1]);
        }
        let n = w.bytes.len() / 3;
        HostWeight::new(&*w.name, part, w.format, w.bytes.part(which * n..(which + 1) * n)?)
    })
}
