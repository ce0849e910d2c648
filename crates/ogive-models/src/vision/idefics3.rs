//! What Idefics3 and SmolVLM see with: SigLIP's encoder of parts of images, at places that are stretched over as many patches as there are; each block of patches becomes
//! one row, which a matrix brings to the width of the text.
//!
//! Laurençon et al. 2024, <https://arxiv.org/abs/2408.12637>; Marafioti et al. 2025, <https://arxiv.org/abs/2504.05299>; transformers' `modeling_idefics3` and
//! `modeling_smolvlm`, as they are since version 5: in some before it, the first two patches of a row or column had one place.

use super::block::{self, Block, Common, Norm};
use super::gemma3::SIGLIP;
use super::grid::{Grid, Positions, gathered};
use super::merger::merged;
use super::{above_zero, place, side, vectors};
use ogive_nn::backend::{Activation, Backend, Vectors};
use ogive_nn::tensor::Result;
use ogive_nn::{Config, Linear, Loader, Patches, Step, Tower, activation};

#[derive(Debug)]
struct Idefics3 {
    patch: Linear,
    positions: Positions,
    blocks: Vec<Block>,
    norm: Norm,
    /// Places of a side.
    side: usize,
    /// Patches of a block's side.
    merge: usize,
    project: Linear,
}

/// Reads the tower with Hugging Face's names, under the settings `vision_config`.
///
/// # Errors
/// As [every `load`](crate#errors).
pub fn load(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Tower>> {
    let v = &c.at("vision_config");
    let (dim, act) = (v.usize_or("hidden_size", 1152)?, activation(v, "hidden_act", Activation::GeluTanh)?);
    let heads = v.usize_or("num_attention_heads", 16)?;
    let common = Common::new(dim, heads, act, v.f32_or("layer_norm_eps", 1e-6)?)?;
    let (side, merge) = (side(v, [224, 32])?, above_zero(c, "scale_factor", 2)?);
    let l = place(root, &["model.vision_model", "vision_model"], "embeddings.patch_embedding")?;
    let connector = place(root, &["model.connector", "connector"], "modality_projection.proj")?;
    Ok(Box::new(Idefics3 {
        patch: l.patch_projection("embeddings.patch_embedding", dim)?,
        positions: Positions::load(&l, "embeddings.position_embedding.weight", [side * side, dim])?,
        blocks: common.blocks(&l.at("encoder.layers"), v.usize_or("num_hidden_layers", 12)?, &SIGLIP)?,
        norm: common.norm(&l, "post_layernorm")?,
        side,
        merge,
        project: connector.linear("modality_projection.proj")?,
    }))
}

impl Tower for Idefics3 {
    fn dim(&self) -> usize {
        self.project.weight.shape()[1]
    }

    fn see(&self, b: &dyn Backend, patches: &[f32], grid: [usize; 2]) -> Result<Vectors> {
        let len = self.patch.weight.shape()[2];
        let grid = Grid::of(patches, grid, len)?.square()?;
        let order = grid.in_blocks(self.merge)?;
        let patches = Patches::new(b, &gathered(patches, len, &order), [grid.rows, grid.cols])?;
        let plan = patches.plan(b, &[order.len()], &[])?;
        let s = &Step::new(b, &plan, patches.cache());
        let at = |i: usize| i * self.side / grid.cols;
        let places: Vec<usize> =
            order.iter().map(|i| at(i / grid.cols) * self.side + at(i % grid.cols)).collect();
        let x = b.add(self.patch.forward(s, &patches.values)?, &self.positions.rows(b, &places)?)?; // [n, dim]
        let x = self.norm.forward(s, &block::through(&self.blocks, s, x)?)?;
        let x = merged(x, self.merge * self.merge)?; // [rows, patches of a block * dim]
        vectors(b, &self.project.forward(s, &x)?)
    }
}
