//! What Gemma 3 sees with: SigLIP's encoder of square images, of whose patches each square becomes their mean, and one matrix to the width of the text.
//!
//! Gemma Team 2025, <https://arxiv.org/abs/2503.19786>; of the encoder Zhai et al. 2023, <https://arxiv.org/abs/2303.15343>; transformers'
//! `modeling_gemma3` and `modeling_siglip`. Rows of an image see each other to both sides. So they do in layers with a window too, further back than that
//! as well; no image is longer than the windows there are, and one that is gets refused.

use super::block::{self, Block, Common, MlpNames, Names, Norm};
use super::grid::{Grid, Positions, gathered};
use super::{above_zero, place, side, vectors};
use ogive_nn::backend::{Activation, Axis, Backend, Vectors};
use ogive_nn::tensor::{Error, Result, Tensor};
use ogive_nn::{Config, Linear, Loader, Patches, RmsNorm, Step, Tower, activation};

/// SigLIP's, and what else has its names.
pub(crate) const SIGLIP: Names = Names {
    norms: ["layer_norm1", "layer_norm2"],
    qkv: "self_attn.qkv_proj",
    each: ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
    out: "self_attn.out_proj",
    mlp: MlpNames::Plain(["mlp.fc1", "mlp.fc2"]),
    qk_norms: None,
    scales: None,
};

#[derive(Debug)]
struct Gemma3 {
    patch: Linear,
    positions: Positions,
    blocks: Vec<Block>,
    last_norm: Norm,
    /// Patches of a side of an image, and of a square that becomes one row.
    side: usize,
    pool: usize,
    part: Tensor,
    norm: RmsNorm,
    project: Linear,
}

/// Reads the tower of a checkpoint with Hugging Face's names, under the settings `vision_config`.
///
/// # Errors
/// If `mm_tokens_per_image` is no square that cuts an image evenly, or more than the window of the text's layers; else as
/// [every `load`](crate#errors).
pub fn load(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Tower>> {
    let v = &c.at("vision_config");
    let (side, rows) = (side(v, [224, 16])?, above_zero(c, "mm_tokens_per_image", 256)?);
    let pooled = rows.isqrt();
    let window = c.at("text_config").usize_or("sliding_window", 4096)?;
    if pooled * pooled != rows || !side.is_multiple_of(pooled) || (window > 0 && rows > window) {
        let why = format!(
            "`mm_tokens_per_image` is {rows}; it should be a square that cuts {side} by {side} patches"
        );
        return Err(Error::invalid(
            "config",
            format!("{why} evenly, and no more than the window of {window}"),
        ));
    }
    let (dim, heads) = (v.usize_or("hidden_size", 768)?, v.usize_or("num_attention_heads", 12)?);
    let eps = v.f32_or("layer_norm_eps", 1e-6)?;
    let common = Common::new(dim, heads, activation(v, "hidden_act", Activation::GeluTanh)?, eps)?;
    let places = ["model.vision_tower.vision_model", "model.vision_tower", "vision_tower.vision_model"];
    let l = place(root, &places, "embeddings.patch_embedding")?;
    let projector =
        place(root, &["model.multi_modal_projector", "multi_modal_projector"], "mm_soft_emb_norm")?;
    let weight = projector.tensor("mm_input_projection_weight")?.transposed()?;
    let pool = side / pooled;
    Ok(Box::new(Gemma3 {
        patch: l.patch_projection("embeddings.patch_embedding", dim)?,
        positions: Positions::load(&l, "embeddings.position_embedding.weight", [side * side, dim])?,
        blocks: common.blocks(&l.at("encoder.layers"), v.usize_or("num_hidden_layers", 12)?, &SIGLIP)?,
        last_norm: common.norm(&l, "post_layernorm")?,
        side,
        pool,
        part: l.constant(((pool * pool) as f32).recip())?,
        norm: projector.rms_norm_less_one("mm_soft_emb_norm", eps)?,
        project: Linear::new(projector.weight(&weight)?, None),
    }))
}

impl Tower for Gemma3 {
    fn dim(&self) -> usize {
        self.project.weight.shape()[1]
    }

    fn see(&self, b: &dyn Backend, patches: &[f32], grid: [usize; 2]) -> Result<Vectors> {
        let len = self.patch.weight.shape()[2];
        let order = Grid::of(patches, grid, len)?.only(self.side)?.in_blocks(self.pool)?;
        let patches = Patches::new(b, &gathered(patches, len, &order), grid)?;
        let plan = patches.plan(b, &[order.len()], &[])?;
        let s = &Step::new(b, &plan, patches.cache());
        let x = b.add(self.patch.forward(s, &patches.values)?, &self.positions.rows(b, &order)?)?; // [n, dim]
        let x = self.last_norm.forward(s, &block::through(&self.blocks, s, x)?)?;
        let x = self.norm.forward(s, &self.mean(s, x)?)?; // [rows, dim]
        Ok(vectors(b, &self.project.forward(s, &x)?)?.mutual())
    }
}

impl Gemma3 {
    /// The mean of each square. `[n, dim] -> [rows, dim]`
    fn mean(&self, s: &Step<'_>, x: Tensor) -> Result<Tensor> {
        let (b, each, [n, dim]) = (s.backend, self.pool * self.pool, [x.shape().rows(), x.shape().cols()]);
        let x = x.reshape([n / each, each * dim])?;
        let mut parts = b.split(&x, Axis::Cols, &vec![dim; each])?.into_iter();
        drop(x);
        let first = parts.next().ok_or_else(|| Error::invalid("split", "the backend gave no parts"))?;
        let sum = parts.try_fold(first, |sum, part| b.add(sum, &part))?;
        b.mul(sum, &self.part)
    }
}
