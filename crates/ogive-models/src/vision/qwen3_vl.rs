//! What Qwen3-VL sees with: Qwen2-VL's encoder without windows, with learned places too, read in between for every size of image, and with rows of earlier layers
//! that are added behind the text's first blocks (DeepStack). Qwen3.5's is this one without the last.
//!
//! Bai et al. 2025, <https://arxiv.org/abs/2511.21631>; of DeepStack Meng et al. 2024, <https://arxiv.org/abs/2406.04334>; transformers' `modeling_qwen3_vl`.

use super::block::{Block, Common, MlpNames, Names, Norm};
use super::grid::{Grid, Positions};
use super::merger::Merger;
use super::qwen2_vl::{merge_of, rope};
use super::{place, vectors};
use ogive_nn::backend::{Activation, Backend, Vectors};
use ogive_nn::tensor::{Error, Result};
use ogive_nn::{Config, Linear, Loader, Patches, Step, Tower, activation};

const NAMES: Names = Names {
    norms: ["norm1", "norm2"],
    qkv: "attn.qkv",
    each: ["attn.q", "attn.k", "attn.v"],
    out: "attn.proj",
    mlp: MlpNames::Plain(["mlp.linear_fc1", "mlp.linear_fc2"]),
    qk_norms: None,
    scales: None,
};

#[derive(Debug)]
struct Qwen3Vl {
    patch: Linear,
    positions: Positions,
    blocks: Vec<Block>,
    merger: Merger,
    /// Blocks whose output is merged too, and what merges it.
    deeper: Vec<(usize, Merger)>,
    merge: usize,
}

/// Reads the tower with Hugging Face's names, under the settings `vision_config`.
///
/// # Errors
/// If `num_position_embeddings` is no square, or `deepstack_visual_indexes` has a block that there is not; else as [every `load`](crate#errors).
pub fn load(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Tower>> {
    let v = &c.at("vision_config");
    let (dim, act) = (v.usize_or("hidden_size", 1152)?, activation(v, "hidden_act", Activation::GeluTanh)?);
    let common = Common::new(dim, v.usize_or("num_heads", 16)?, act, 1e-6)?;
    let common = Common { rope: Some(rope(common.spec.k_dim)?), ..common };
    let (merge, depth) = (merge_of(v)?, v.usize_or("depth", 27)?);
    let deeper = v.opt_usizes("deepstack_visual_indexes")?.unwrap_or_default();
    if let Some(beyond) = deeper.iter().find(|i| **i >= depth) {
        let why = format!("`deepstack_visual_indexes` has block {beyond}, and there are {depth}");
        return Err(Error::invalid("config", why));
    }
    let l = place(root, &["model.visual", "visual"], "patch_embed.proj")?;
    let merger =
        |at: &Loader<'_>, norm: Norm| Merger::load(at, norm, ["linear_fc1", "linear_fc2"], merge * merge);
    let deeper = deeper.into_iter().enumerate().map(|(i, block)| {
        let at = l.at("deepstack_merger_list").at(i);
        Ok((block, Merger { whole: true, ..merger(&at, common.norm(&at, "norm")?)? }))
    });
    let at = l.at("merger");
    Ok(Box::new(Qwen3Vl {
        patch: l.patch_projection("patch_embed.proj", dim)?,
        positions: Positions::load(
            &l,
            "pos_embed.weight",
            [v.usize_or("num_position_embeddings", 2304)?, dim],
        )?
        .square()?,
        blocks: common.blocks(&l.at("blocks"), depth, &NAMES)?,
        merger: merger(&at, common.norm(&at, "norm")?)?,
        deeper: deeper.collect::<Result<_>>()?,
        merge,
    }))
}

impl Tower for Qwen3Vl {
    fn dim(&self) -> usize {
        self.merger.dim()
    }

    fn see(&self, b: &dyn Backend, patches: &[f32], grid: [usize; 2]) -> Result<Vectors> {
        let grid = Grid::of(patches, grid, self.patch.weight.shape()[2])?;
        let (merged, order) = (grid.merged(self.merge)?, grid.in_blocks(self.merge)?);
        // They come in this order.
        let patches = Patches::new(b, patches, [grid.rows, grid.cols])?;
        let plan = patches.plan(b, &[grid.len()], &grid.places(&order))?;
        let s = &Step::new(b, &plan, patches.cache());
        let x = self.patch.forward(s, &patches.values)?; // [n, dim]
        let mut x = b.add(x, &self.positions.between(b, grid, &order)?)?;
        let mut deeper = Vec::new();
        for (i, block) in self.blocks.iter().enumerate() {
            x = block.forward(s, x)?;
            for (_, merger) in self.deeper.iter().filter(|(at, _)| *at == i) {
                deeper.push(vectors(b, &merger.forward(s, x.clone())?)?.values);
            }
        }
        let places = merged.places(&(0..merged.len()).collect::<Vec<_>>());
        vectors(b, &self.merger.forward(s, x)?)?.deeper(deeper)?.places(places)
    }
}
