//! Norms on queries, keys and values: of each head, or of all of a token's heads at once.
//!
//! Which of the two a root-mean-square norm is, its number of factors says, as models keep both under one name.

use crate::tensor::{Error, Result, Tensor};
use crate::{LayerNorm, Loader, RmsNorm, Step};

/// A norm of queries, keys or values.
#[derive(Debug)]
pub(crate) enum HeadNorm {
    /// Of each head, or of all of a row, as it has factors for.
    Rms(RmsNorm),
    /// Of each head, with a factor for each of its elements, or besides one for each element of all heads.
    Layer(Box<(LayerNorm, Option<Tensor>)>),
}

impl HeadNorm {
    /// Reads a layer norm of each of so many heads: `name`, or one for each, `name.norms.0`, ...
    pub(crate) fn layer(l: &Loader<'_>, name: &str, [heads, dim]: [usize; 2], eps: f32) -> Result<Self> {
        let norm = match l.optional(l.layer_norm(name, eps))? {
            Some(norm) => norm,
            None => {
                let (l, mut all) = (l.at(name).at("norms"), Vec::new());
                for head in 0..heads {
                    all.extend(l.host(&head.to_string())?.to_vec());
                }
                LayerNorm { weight: l.backend().upload(&all, [all.len()].into())?, bias: None, eps }
            }
        };
        let factors = norm.weight.shape().len();
        if factors == dim {
            return Ok(Self::Layer((norm, None).into()));
        }
        l.fits(&format!("{name}.weight"), factors, heads.saturating_mul(dim))?;
        if norm.bias.is_some() {
            let why = "it has summands and factors for each head by itself, which is not known";
            return Err(Error::unsupported(&l.name(name), why));
        }
        let factors = Some(norm.weight.reshape([factors])?);
        let weight = l.backend().upload(&vec![1.0; dim], [dim].into())?;
        Ok(Self::Layer((LayerNorm { weight, ..norm }, factors).into()))
    }

    /// `[n, heads * dim]` or as `cut` says, `[n, heads, dim]`, `-> [n, heads, dim]`
    pub(crate) fn forward(&self, s: &Step<'_>, x: Tensor, cut: [usize; 3]) -> Result<Tensor> {
        let [n, heads, dim] = cut;
        let row = [n, heads * dim];
        match self {
            Self::Rms(norm) if norm.weight.shape().len() == heads * dim => {
                norm.forward(s, &x.reshape(row)?)?.reshape(cut)
            }
            Self::Rms(norm) => norm.forward(s, &x.reshape(cut)?),
            Self::Layer(layer) => {
                let (norm, factors) = &**layer;
                let normed = norm.forward(s, &x.reshape(cut)?)?;
                match factors {
                    Some(factors) => s.backend.mul(normed.reshape(row)?, factors)?.reshape(cut),
                    None => Ok(normed),
                }
            }
        }
    }
}

/// Queries or keys cut into heads, and normed if there is a norm. `[n, heads * dim] -> [n, heads, dim]`
pub(crate) fn in_heads(
    s: &Step<'_>,
    x: Tensor,
    norm: Option<&HeadNorm>,
    heads: usize,
    dim: usize,
) -> Result<Tensor> {
    let cut = [x.shape().rows(), heads, dim];
    match norm {
        Some(norm) => norm.forward(s, x, cut),
        None => x.reshape(cut),
    }
}
