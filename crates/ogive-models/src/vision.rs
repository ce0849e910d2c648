//! What lets models see: for each family a page that says what its tower is made of, from patches of an image to the rows that stand in a prompt.
//!
//! A tower gets patches row by row, or in blocks that become one row each (Qwen's image processor gives them so). Where patches become one row later on,
//! they are put next to each other on the host, before anything is computed: who attends to whom does not hang on the order, and merging is then
//! no more than another shape. What is learned of places, and is read at other places for every size of image, stays on the host too.

pub(crate) mod block;
pub mod gemma3;
pub(crate) mod grid;
pub mod idefics3;
pub mod internvl;
pub mod llava;
pub(crate) mod merger;
pub mod pixtral;
pub mod qwen2_vl;
pub mod qwen3_vl;

use ogive_nn::backend::{Activation, Backend, Vectors};
use ogive_nn::tensor::{Error, Result, Tensor};
use ogive_nn::{Config, Loader, Mlp, activation};

/// The first of these places that has `weight`; the last where none has, so that the error names it.
pub(crate) fn place<'a>(root: &Loader<'a>, places: &[&str], weight: &str) -> Result<Loader<'a>> {
    let mut last = root.clone();
    for name in places {
        last = root.at(name);
        if root.optional(last.host(weight))?.is_some() {
            break;
        }
    }
    Ok(last)
}

/// Rows on the host, to stand in a prompt. `[rows, dim]`
pub(crate) fn vectors(b: &dyn Backend, rows: &Tensor) -> Result<Vectors> {
    Vectors::new(b.download(rows)?, rows.shape().cols())
}

/// A setting that sizes are divided by or counted with.
pub(crate) fn above_zero(c: &Config, key: &str, default: usize) -> Result<usize> {
    match c.usize_or(key, default)? {
        0 => Err(Error::invalid("config", format!("`{key}` is 0, and should be above"))),
        n => Ok(n),
    }
}

/// How many patches a side of the images has that a tower was made for, by `image_size` and `patch_size`.
pub(crate) fn side(c: &Config, usual: [usize; 2]) -> Result<usize> {
    /// No tower's images come near it; so its square can be counted.
    const LARGEST: usize = 1 << 16;
    let (image, patch) = (above_zero(c, "image_size", usual[0])?, above_zero(c, "patch_size", usual[1])?);
    match image / patch {
        side @ 1..=LARGEST => Ok(side),
        side => {
            let why =
                format!("`image_size` {image} is {side} patches of {patch}, and should be 1 to {LARGEST}");
            Err(Error::invalid("config", why))
        }
    }
}

/// How many of `n` layers there are up to the one whose output is taken, by `vision_feature_layer`: counted from the input, or from behind as Python does.
pub(crate) fn layers_of(c: &Config, n: usize, usual: i64) -> Result<usize> {
    let said = c.0.get("vision_feature_layer").filter(|said| !said.is_null());
    let layer = match said {
        None => Some(usual),
        // A list of one is that one.
        Some(said) => said
            .as_array()
            .map_or(Some(said), |list| if list.len() == 1 { list.first() } else { None })
            .and_then(|one| one.as_i64()),
    };
    let counted = layer.and_then(|layer| match usize::try_from(layer) {
        Ok(from_input) => Some(from_input),
        Err(_) => n.checked_add(1)?.checked_sub(usize::try_from(layer.unsigned_abs()).ok()?),
    });
    counted.filter(|layers| *layers <= n).ok_or_else(|| {
        let said = said.cloned().unwrap_or_default();
        Error::unsupported(
            "config",
            format!("`vision_feature_layer` is {said}; known is one of the {n} layers"),
        )
    })
}

/// Two matrices to the width of the text, `linear_1` and `linear_2`.
pub(crate) fn project(l: &Loader<'_>, c: &Config) -> Result<Mlp> {
    let activation = activation(c, "projector_hidden_act", Activation::Gelu)?;
    Ok(Mlp { up: l.linear("linear_1")?, down: l.linear("linear_2")?, activation })
}
