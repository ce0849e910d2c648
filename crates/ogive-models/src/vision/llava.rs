//! What LLaVA 1.5 sees with: CLIP's encoder of square images, with a token of its own before their patches, up to the layer before the last; two matrices
//! bring patches to the width of the text.
//!
//! Liu et al. 2023, <https://arxiv.org/abs/2310.03744>; of the encoder Radford et al. 2021, <https://arxiv.org/abs/2103.00020>; transformers' `modeling_llava`
//! and `modeling_clip`. The class goes with other encoders too, of which Pixtral's is known. The token is computed as a patch of zeros at a place of its
//! own, so that all rows are one product.

use super::block::{self, Block, Common, Norm};
use super::gemma3::SIGLIP;
use super::grid::{Grid, Positions, behind_class};
use super::{layers_of, pixtral, place, project, side, vectors};
use ogive_nn::backend::{Activation, Backend, Vectors};
use ogive_nn::tensor::{Error, Result};
use ogive_nn::{Config, Linear, Loader, Mlp, Patches, Step, Tower, activation};

#[derive(Debug)]
struct Llava {
    patch: Linear,
    positions: Positions,
    norm: Norm,
    blocks: Vec<Block>,
    side: usize,
    /// Whether the token before the patches stands in a prompt too.
    class: bool,
    project: Mlp,
}

/// Reads the tower with Hugging Face's names, under the settings `vision_config`.
///
/// # Errors
/// If it is of a type that is not known, if `vision_feature_layer` is more than one layer, or none; else as [every `load`](crate#errors).
pub fn load(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Tower>> {
    let v = &c.at("vision_config");
    match v.opt_str("model_type")?.unwrap_or("clip_vision_model") {
        "clip_vision_model" => {}
        "pixtral" => return pixtral::load_llava(c, root),
        other => {
            let why = format!("a `vision_config` of type `{other}`; known are clip_vision_model, pixtral");
            return Err(Error::unsupported("config", why));
        }
    }
    let class = match c.opt_str("vision_feature_select_strategy")?.unwrap_or("default") {
        "default" => false,
        "full" => true,
        other => {
            let why = format!("`vision_feature_select_strategy` is `{other}`; known are default, full");
            return Err(Error::unsupported("config", why));
        }
    };
    let (dim, act) = (v.usize_or("hidden_size", 768)?, activation(v, "hidden_act", Activation::QuickGelu)?);
    let heads = v.usize_or("num_attention_heads", 12)?;
    let common = Common::new(dim, heads, act, v.f32_or("layer_norm_eps", 1e-5)?)?;
    let (side, layers) = (side(v, [224, 32])?, layers_of(c, v.usize_or("num_hidden_layers", 12)?, -2)?);
    let places = ["model.vision_tower.vision_model", "model.vision_tower", "vision_tower.vision_model"];
    let l = place(root, &places, "embeddings.patch_embedding")?;
    let positions = Positions::load(&l, "embeddings.position_embedding.weight", [side * side + 1, dim])?;
    Ok(Box::new(Llava {
        patch: l.patch_projection("embeddings.patch_embedding", dim)?,
        positions: positions.with_class(&l.tensor("embeddings.class_embedding")?, None)?,
        // As the checkpoints spell it.
        norm: common.norm(&l, "pre_layrnorm")?,
        blocks: common.blocks(&l.at("encoder.layers"), layers, &SIGLIP)?,
        side,
        class,
        project: project(
            &place(root, &["model.multi_modal_projector", "multi_modal_projector"], "linear_1")?,
            c,
        )?,
    }))
}

impl Tower for Llava {
    fn dim(&self) -> usize {
        self.project.down.weight.shape()[1]
    }

    fn see(&self, b: &dyn Backend, patches: &[f32], grid: [usize; 2]) -> Result<Vectors> {
        let len = self.patch.weight.shape()[2];
        let n = 1 + Grid::of(patches, grid, len)?.only(self.side)?.len();
        let patches = Patches::new(b, &[&vec![0.0; len], patches].concat(), [n, 1])?;
        let plan = patches.plan(b, &[n], &[])?;
        let s = &Step::new(b, &plan, patches.cache());
        let x = self.patch.forward(s, &patches.values)?; // [1 + n, dim]
        let x = b.add(x, &self.positions.rows(b, &(0..n).collect::<Vec<_>>())?)?;
        let x = block::through(&self.blocks, s, self.norm.forward(s, &x)?)?;
        let x = if self.class { x } else { behind_class(s, &x)? };
        vectors(b, &self.project.forward(s, &x)?)
    }
}
