//! What InternVL sees with: an encoder of square images or parts of them, with a token of its own before their patches and factors on what its blocks add; each block of
//! patches becomes one row, which a norm and two matrices bring to the width of the text.
//!
//! Chen et al. 2023, <https://arxiv.org/abs/2312.14238>; transformers' `modeling_internvl`.

use super::block::{self, Block, Common, MlpNames, Names, Norm};
use super::grid::{Grid, Positions, behind_class, gathered};
use super::merger::merged;
use super::{place, project, vectors};
use ogive_nn::backend::{Activation, Backend, Vectors};
use ogive_nn::tensor::{Error, Result};
use ogive_nn::{Config, LayerNorm, Linear, Loader, Mlp, Patches, Step, Tower, activation};

const NAMES: Names = Names {
    norms: ["layernorm_before", "layernorm_after"],
    qkv: "attention.qkv_proj",
    each: ["attention.q_proj", "attention.k_proj", "attention.v_proj"],
    out: "attention.projection_layer",
    mlp: MlpNames::Plain(["mlp.fc1", "mlp.fc2"]),
    qk_norms: None,
    scales: Some(["lambda_1", "lambda_2"]),
};

#[derive(Debug)]
struct InternVl {
    patch: Linear,
    positions: Positions,
    blocks: Vec<Block>,
    last_norm: Option<Norm>,
    side: usize,
    /// Patches of a block's side.
    merge: usize,
    norm: LayerNorm,
    project: Mlp,
}

/// Reads the tower with Hugging Face's names, under the settings `vision_config`.
///
/// # Errors
/// If images are no squares, if `downsample_ratio` is not that of whole blocks, or if another layer is asked for than the last, or the token before the
/// patches; else as [every `load`](crate#errors).
pub fn load(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Tower>> {
    let v = &c.at("vision_config");
    let (dim, act) = (v.usize_or("hidden_size", 1024)?, activation(v, "hidden_act", Activation::Gelu)?);
    let common =
        Common::new(dim, v.usize_or("num_attention_heads", 16)?, act, v.f32_or("layer_norm_eps", 1e-6)?)?;
    let common = Common { rms: rms(v)?, ..common };
    let names = match v.bool_or("use_qk_norm", false)? {
        true => Names { qk_norms: Some(["attention.q_norm", "attention.k_norm"]), ..NAMES },
        false => NAMES,
    };
    let depth = v.usize_or("num_hidden_layers", 24)?;
    let (layers, strategy) = (super::layers_of(c, depth, -1)?, c.opt_str("vision_feature_select_strategy")?);
    if layers != depth || strategy.is_some_and(|strategy| strategy != "default") {
        let why = "a `vision_feature_layer` or `vision_feature_select_strategy` other than the last layer's patches";
        return Err(Error::unsupported("config", why));
    }
    let (side, merge) = (square(v)?, blocks(c)?);
    let l = place(root, &["model.vision_tower", "vision_tower"], "embeddings.patch_embeddings.projection")?;
    let projector = place(root, &["model.multi_modal_projector", "multi_modal_projector"], "linear_1")?;
    let (at, bias) = (l.at("embeddings"), l.tensor("embeddings.patch_embeddings.projection.bias")?);
    let positions = Positions::load(&at, "position_embeddings", [side * side + 1, dim])?;
    let pooled = v.bool_or("use_mean_pooling", true)?;
    Ok(Box::new(InternVl {
        patch: at.patch_projection("patch_embeddings.projection", dim)?,
        positions: positions.with_class(&at.tensor("cls_token")?, Some(&bias))?,
        blocks: common.blocks(&l.at("encoder.layer"), depth, &names)?,
        last_norm: if pooled { None } else { Some(Norm::Layer(l.layer_norm("layernorm", common.eps)?)) },
        side,
        merge,
        norm: projector.layer_norm("layer_norm", 1e-5)?,
        project: project(&projector, c)?,
    }))
}

fn rms(v: &Config) -> Result<bool> {
    match v.opt_str("norm_type")?.unwrap_or("layer_norm") {
        "layer_norm" => Ok(false),
        "rms_norm" => Ok(true),
        other => Err(Error::unsupported(
            "config",
            format!("`norm_type` is `{other}`; known are layer_norm, rms_norm"),
        )),
    }
}

/// Patches of a side of an image, whose sizes stand in lists of two.
fn square(v: &Config) -> Result<usize> {
    let one = |key: &str| match v.0.get(key).and_then(|list| list.as_array()) {
        Some(list) => {
            let same = list.len() == 2 && list[0] == list[1];
            let first = list.first().filter(|_| same).cloned();
            first.ok_or_else(|| {
                Error::unsupported("config", format!("`{key}` is {list:?}, of which no square is made"))
            })
        }
        None => Ok(v.0.get(key).cloned().unwrap_or_default()),
    };
    let sizes = [("image_size", one("image_size")?), ("patch_size", one("patch_size")?)];
    super::side(&Config(sizes.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()), [448, 14])
}

/// Patches of a block's side, which `downsample_ratio` is one part of.
fn blocks(c: &Config) -> Result<usize> {
    let ratio = c.f32_or("downsample_ratio", 0.5)?;
    let size = ratio.recip().round();
    if !(1.0..=256.0).contains(&size) || (size * ratio - 1.0).abs() > 1e-3 {
        return Err(Error::invalid(
            "config",
            format!("`downsample_ratio` is {ratio}, which is not one part of a whole number"),
        ));
    }
    Ok(size as usize)
}

impl Tower for InternVl {
    fn dim(&self) -> usize {
        self.project.down.weight.shape()[1]
    }

    fn see(&self, b: &dyn Backend, patches: &[f32], grid: [usize; 2]) -> Result<Vectors> {
        let len = self.patch.weight.shape()[2];
        let order = Grid::of(patches, grid, len)?.only(self.side)?.in_blocks(self.merge)?;
        let values = [vec![0.0; len], gathered(patches, len, &order)].concat();
        let patches = Patches::new(b, &values, [order.len() + 1, 1])?;
        let plan = patches.plan(b, &[order.len() + 1], &[])?;
        let s = &Step::new(b, &plan, patches.cache());
        // The token's place is before those of all patches.
        let places: Vec<usize> = std::iter::once(0).chain(order.iter().map(|i| i + 1)).collect();
        let x = b.add(self.patch.forward(s, &patches.values)?, &self.positions.rows(b, &places)?)?; // [1 + n, dim]
        let x = block::through(&self.blocks, s, x)?;
        let x = match &self.last_norm {
            Some(norm) => norm.forward(s, &x)?,
            None => x,
        };
        let x = merged(behind_class(s, &x)?, self.merge * self.merge)?; // [rows, patches of a block * dim]
        vectors(b, &self.project.forward(s, &self.norm.forward(s, &x)?)?)
    }
}
