//! What Pixtral and Mistral 3.1 see with: an encoder of images of any size, made of Llama's parts, whose patches' heads turn by row and column; in the latter each block
//! of patches becomes one row. Two matrices bring rows to the width of the text.
//!
//! Agrawal et al. 2024, <https://arxiv.org/abs/2410.07073>; transformers' `modeling_pixtral`, `modeling_mistral3` and `modeling_llava`. A prompt has a token of its own
//! behind each row of an image's grid, so that what stands in it of one is cut by whoever writes the prompt.

use super::block::{self, Block, Common, MlpNames, Names};
use super::grid::{Grid, gathered};
use super::merger::merged;
use super::qwen2_vl::merge_of;
use super::{layers_of, place, side, vectors};
use ogive_nn::backend::{Activation, Backend, Rope, Vectors};
use ogive_nn::tensor::{Error, Result};
use ogive_nn::{Config, Linear, Loader, Mlp, Patches, RmsNorm, Step, Tower, activation};

const NAMES: Names = Names {
    norms: ["attention_norm", "ffn_norm"],
    qkv: "attention.qkv_proj",
    each: ["attention.q_proj", "attention.k_proj", "attention.v_proj"],
    out: "attention.o_proj",
    mlp: MlpNames::Gated(["feed_forward.gate_proj", "feed_forward.up_proj", "feed_forward.down_proj"]),
    qk_norms: None,
    scales: None,
};

#[derive(Debug)]
struct Pixtral {
    patch: Linear,
    norm: RmsNorm,
    blocks: Vec<Block>,
    /// Patches of a side of the largest image.
    side: usize,
    merge: Option<Merge>,
    project: Mlp,
}

/// What makes one row of a block of patches.
#[derive(Debug)]
struct Merge {
    norm: RmsNorm,
    /// `[dim, patches of a block * dim]`
    merge: Linear,
    /// Patches of a block's side.
    size: usize,
}

/// Reads Mistral 3.1's tower with Hugging Face's names, under the settings `vision_config`.
///
/// # Errors
/// If `vision_feature_layer` is more than one layer, or none; else as [every `load`](crate#errors).
pub fn load(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Tower>> {
    let l = projector(root)?;
    let (dim, size) = (c.at("vision_config").usize_or("hidden_size", 1024)?, merge_of(c)?);
    let host = l.host("patch_merger.merging_layer")?;
    // Where there are no bytes, nothing bounds the shape.
    if Some(host.shape[2]) != dim.checked_mul(size * size) || host.bytes.is_empty() {
        let why = format!("{:?} is not of blocks of {size} by {size} patches of {dim} elements", host.shape);
        return Err(Error::invalid(&host.name, format!("{why}; do weights and config belong together?")));
    }
    // The file has an element of all patches of a block after the other; here patches stand one after the other.
    let order: Vec<usize> =
        (0..size * size).flat_map(|i| (0..dim).map(move |c| c * size * size + i)).collect();
    let weight = l.weight(&host.transposed()?.reordered(&order)?.transposed()?)?;
    let eps = crate::nested::text_of(c).f32_or("rms_norm_eps", 1e-6)?;
    let merge = Merge { norm: l.rms_norm("norm", eps)?, merge: Linear::new(weight, None), size };
    with(c, root, Some(merge))
}

/// Reads Pixtral's, of a checkpoint of LLaVA's class.
///
/// # Errors
/// If `vision_feature_select_strategy` is not `full`; else as [`load`].
pub(crate) fn load_llava(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Tower>> {
    match c.opt_str("vision_feature_select_strategy")?.unwrap_or("default") {
        "full" => with(c, root, None),
        other => {
            let why = format!(
                "`vision_feature_select_strategy` is `{other}`, and Pixtral has all patches (`full`)"
            );
            Err(Error::unsupported("config", why))
        }
    }
}

fn projector<'a>(root: &Loader<'a>) -> Result<Loader<'a>> {
    place(root, &["model.multi_modal_projector", "multi_modal_projector"], "linear_1")
}

fn with(c: &Config, root: &Loader<'_>, merge: Option<Merge>) -> Result<Box<dyn Tower>> {
    let (v, l) =
        (&c.at("vision_config"), place(root, &["model.vision_tower", "vision_tower"], "patch_conv")?);
    let (dim, act) = (v.usize_or("hidden_size", 1024)?, activation(v, "hidden_act", Activation::Gelu)?);
    let common = Common { rms: true, ..Common::new(dim, v.usize_or("num_attention_heads", 16)?, act, 1e-5)? };
    let theta = v.f32_or("rope_theta", v.at("rope_parameters").f32_or("rope_theta", 10_000.0)?)?;
    let common = Common { rope: Some(rope(common.spec.k_dim, theta)?), ..common };
    let layers = layers_of(c, v.usize_or("num_hidden_layers", 24)?, -1)?;
    Ok(Box::new(Pixtral {
        patch: l.patch_projection("patch_conv", dim)?,
        norm: l.rms_norm("ln_pre", 1e-5)?,
        blocks: common.blocks(&l.at("transformer.layers"), layers, &NAMES)?,
        side: side(v, [1024, 16])?,
        merge,
        project: super::project(&projector(root)?, c)?,
    }))
}

/// Of a head's pairs the first ones turn by row, as fast as every second of them would, the others by column, as fast as those in between.
fn rope(head_dim: usize, theta: f32) -> Result<Rope> {
    if !head_dim.is_multiple_of(2) || theta.is_nan() || theta <= 0.0 {
        let why =
            format!("heads of {head_dim} elements cannot turn in pairs, or not with a theta of {theta}");
        return Err(Error::invalid("config", format!("of the vision tower: {why}")));
    }
    let all = ogive_nn::rope(head_dim, theta).inv_freq;
    let [down, across] = [0, 1].map(|first| all.iter().skip(first).step_by(2).copied().collect::<Vec<_>>());
    let axes = [vec![1; down.len()], vec![2; across.len()]].concat();
    Rope::new([down, across].concat()).axes(&axes)
}

impl Tower for Pixtral {
    fn dim(&self) -> usize {
        self.project.down.weight.shape()[1]
    }

    fn see(&self, b: &dyn Backend, patches: &[f32], grid: [usize; 2]) -> Result<Vectors> {
        let len = self.patch.weight.shape()[2];
        let grid = Grid::of(patches, grid, len)?.within(self.side)?;
        let size = self.merge.as_ref().map_or(1, |merge| merge.size);
        let order = grid.in_blocks(size)?;
        let patches = Patches::new(b, &gathered(patches, len, &order), [grid.rows, grid.cols])?;
        let plan = patches.plan(b, &[order.len()], &grid.places(&order))?;
        let s = &Step::new(b, &plan, patches.cache());
        let x = self.norm.forward(s, &self.patch.forward(s, &patches.values)?)?; // [n, dim]
        let mut x = block::through(&self.blocks, s, x)?;
        if let Some(merge) = &self.merge {
            x = merge.merge.forward(s, &merged(merge.norm.forward(s, &x)?, size * size)?)?; // [rows, dim]
        }
        vectors(b, &self.project.forward(s, &x)?)
    }
}
