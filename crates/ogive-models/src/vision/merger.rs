//! What makes one row of a block of patches that stand next to each other, in Qwen's towers: a norm and an MLP without a gate over all their elements.

use super::block::Norm;
use ogive_nn::backend::Activation;
use ogive_nn::tensor::{Error, Result, Tensor};
use ogive_nn::{Loader, Mlp, Step};

#[derive(Debug)]
pub(crate) struct Merger {
    pub(crate) norm: Norm,
    pub(crate) mlp: Mlp,
    /// Patches of a block.
    pub(crate) unit: usize,
    /// Whether the norm is of the whole block and not of each patch.
    pub(crate) whole: bool,
}

impl Merger {
    /// Reads the matrices `up` and `down` beside a norm of each patch.
    pub(crate) fn load(l: &Loader<'_>, norm: Norm, [up, down]: [&str; 2], unit: usize) -> Result<Self> {
        let mlp = Mlp { up: l.linear(up)?, down: l.linear(down)?, activation: Activation::Gelu };
        Ok(Self { norm, mlp, unit, whole: false })
    }

    /// Elements of what it makes.
    pub(crate) fn dim(&self) -> usize {
        self.mlp.down.weight.shape()[1]
    }

    /// `[n, dim] -> [n / unit, out]`
    pub(crate) fn forward(&self, s: &Step<'_>, x: Tensor) -> Result<Tensor> {
        let x = match self.whole {
            true => self.norm.forward(s, &merged(x, self.unit)?)?,
            false => merged(self.norm.forward(s, &x)?, self.unit)?,
        };
        self.mlp.forward(s, &x)
    }
}

/// Each `unit` rows as one. `[n, dim] -> [n / unit, unit * dim]`
pub(crate) fn merged(x: Tensor, unit: usize) -> Result<Tensor> {
    let [n, dim] = [x.shape().rows(), x.shape().cols()];
    if unit == 0 || !n.is_multiple_of(unit) {
        return Err(Error::invalid(
            "patches of an image",
            format!("{n} of them are not made of blocks of {unit}"),
        ));
    }
    x.reshape([n / unit, unit * dim])
}
