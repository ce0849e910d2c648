//! What Qwen2-VL and Qwen2.5-VL see with: an encoder of images of any size, whose patches' heads turn by row and column, and of which each block becomes one row. In
//! the latter most blocks of layers look no further than a window, gated MLPs stand for others, and norms have no means.
//!
//! Wang et al. 2024, <https://arxiv.org/abs/2409.12191>; Bai et al. 2025, <https://arxiv.org/abs/2502.13923>; transformers' `modeling_qwen2_vl` and
//! `modeling_qwen2_5_vl`. Patches come in blocks, as Qwen's image processor gives them. Windows are runs of patches in a plan of their own,
//! for which the host puts blocks in the order of windows, and rows back.

use super::block::{Block, Common, MlpNames, Names};
use super::grid::{Grid, gathered};
use super::merger::Merger;
use super::{above_zero, place, vectors};
use ogive_nn::backend::{Activation, Backend, Rope, Vectors};
use ogive_nn::tensor::{Error, Result};
use ogive_nn::{Config, Linear, Loader, Patches, Step, Tower, activation};

const NAMES: Names = Names {
    norms: ["norm1", "norm2"],
    qkv: "attn.qkv",
    each: ["attn.q", "attn.k", "attn.v"],
    out: "attn.proj",
    mlp: MlpNames::Plain(["mlp.fc1", "mlp.fc2"]),
    qk_norms: None,
    scales: None,
};

#[derive(Debug)]
struct Qwen2Vl {
    patch: Linear,
    blocks: Vec<Block>,
    merger: Merger,
    /// Patches of a block's side.
    merge: usize,
    windows: Option<Windows>,
}

/// Who looks no further than a window.
#[derive(Debug)]
struct Windows {
    /// Blocks of patches of a window's side.
    side: usize,
    /// The layers that look everywhere all the same.
    full: Vec<usize>,
}

/// Reads Qwen2-VL's tower with Hugging Face's names, under the settings `vision_config`.
///
/// # Errors
/// As [every `load`](crate#errors).
pub fn load(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Tower>> {
    let v = &c.at("vision_config");
    let (dim, act) = (v.usize_or("embed_dim", 1280)?, activation(v, "hidden_act", Activation::QuickGelu)?);
    let common = Common::new(dim, v.usize_or("num_heads", 16)?, act, 1e-6)?;
    with(v, root, common, &NAMES, None)
}

/// Reads Qwen2.5-VL's.
///
/// # Errors
/// If `window_size` is less than a block of patches; else as [every `load`](crate#errors).
pub fn load_qwen2_5(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Tower>> {
    let v = &c.at("vision_config");
    let (dim, act) = (v.usize_or("hidden_size", 3584)?, activation(v, "hidden_act", Activation::Silu)?);
    let common = Common { rms: true, ..Common::new(dim, v.usize_or("num_heads", 16)?, act, 1e-6)? };
    let names = Names { mlp: MlpNames::Gated(["mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]), ..NAMES };
    let (window, patch) = (v.usize_or("window_size", 112)?, above_zero(v, "patch_size", 14)?);
    let side = window / above_zero(v, "spatial_merge_size", 2)? / patch;
    if side == 0 {
        return Err(Error::invalid(
            "config",
            format!("`window_size` {window} is less than a block of patches"),
        ));
    }
    let full = v.opt_usizes("fullatt_block_indexes")?.unwrap_or_else(|| vec![7, 15, 23, 31]);
    with(v, root, common, &names, Some(Windows { side, full }))
}

fn with(
    v: &Config,
    root: &Loader<'_>,
    common: Common,
    names: &Names,
    windows: Option<Windows>,
) -> Result<Box<dyn Tower>> {
    let l = place(root, &["model.visual", "visual"], "patch_embed.proj")?;
    let (dim, merge) = (common.dim(), merge_of(v)?);
    let common = Common { rope: Some(rope(common.spec.k_dim)?), ..common };
    let at = l.at("merger");
    Ok(Box::new(Qwen2Vl {
        patch: l.patch_projection("patch_embed.proj", dim)?,
        blocks: common.blocks(&l.at("blocks"), v.usize_or("depth", 32)?, names)?,
        merger: Merger::load(&at, common.norm(&at, "ln_q")?, ["mlp.0", "mlp.2"], merge * merge)?,
        merge,
        windows,
    }))
}

/// `spatial_merge_size`, of which there is no large one.
pub(crate) fn merge_of(v: &Config) -> Result<usize> {
    match above_zero(v, "spatial_merge_size", 2)? {
        merge @ ..=256 => Ok(merge),
        merge => Err(Error::invalid(
            "config",
            format!("`spatial_merge_size` is {merge}, and should be 256 at most"),
        )),
    }
}

/// Of a head's pairs the first half turns by row, the other half by column, both as fast.
pub(crate) fn rope(head_dim: usize) -> Result<Rope> {
    if !head_dim.is_multiple_of(4) {
        let why = format!(
            "heads of {head_dim} elements cannot turn by row and column; they should be quarters of a whole"
        );
        return Err(Error::invalid("config", format!("of the vision tower: {why}")));
    }
    let each = ogive_nn::rope(head_dim / 2, 10_000.0).inv_freq;
    let axes: Vec<u8> = [1, 2].iter().flat_map(|axis| vec![*axis; each.len()]).collect();
    Rope::new([&each[..], &each[..]].concat()).axes(&axes)
}

impl Tower for Qwen2Vl {
    fn dim(&self) -> usize {
        self.merger.dim()
    }

    fn see(&self, b: &dyn Backend, patches: &[f32], grid: [usize; 2]) -> Result<Vectors> {
        let (len, unit) = (self.patch.weight.shape()[2], self.merge * self.merge);
        let grid = Grid::of(patches, grid, len)?;
        let (merged, order) = (grid.merged(self.merge)?, grid.in_blocks(self.merge)?);
        // Blocks window after window, and how many each has.
        let (blocks, lengths) = merged.windows(self.windows.as_ref().map_or(usize::MAX, |of| of.side));
        let places =
            grid.places(&blocks.iter().flat_map(|i| &order[i * unit..][..unit]).copied().collect::<Vec<_>>());
        let patches = Patches::new(b, &gathered(patches, unit * len, &blocks), [grid.rows, grid.cols])?;
        let lengths: Vec<usize> = lengths.iter().map(|blocks| blocks * unit).collect();
        let full = patches.plan(b, &[grid.len()], &places)?;
        let near = if lengths.len() == 1 { full.clone() } else { patches.plan(b, &lengths, &places)? };
        let [full, near] = [&full, &near].map(|plan| Step::new(b, plan, patches.cache()));
        let mut x = self.patch.forward(&full, &patches.values)?; // [n, dim]
        for (i, block) in self.blocks.iter().enumerate() {
            let far = self.windows.as_ref().is_none_or(|of| of.full.contains(&i));
            x = block.forward(if far { &full } else { &near }, x)?;
        }
        let rows = vectors(b, &self.merger.forward(&full, x)?)?;
        let mut back = vec![0; blocks.len()];
        blocks.iter().enumerate().for_each(|(i, block)| back[*block] = i);
        let places = merged.places(&(0..merged.len()).collect::<Vec<_>>());
        Vectors::new(gathered(&rows.values, rows.dim, &back), rows.dim)?.places(places)
    }
}
