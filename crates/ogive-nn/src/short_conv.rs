//! A gated short convolution, as LFM2 has it in most layers (Liquid AI 2025, <https://arxiv.org/abs/2511.23404>): each channel looks at its
//! last few inputs, and is gated before and after.
//!
//! The projection is cut into the two gates and what they gate when it is read, as attention's is, and not what it gives in each step.

use crate::backend::LayerCache;
use crate::tensor::{Config, Error, Result, Tensor};
use crate::{Linear, Loader, Step, mlp::fixed};

/// Projections around a convolution of `dim` channels.
#[derive(Debug)]
pub struct ShortConv {
    layer: usize,
    /// The gate before, the gate after, and what is convolved; `[dim, dim]` each.
    inputs: [Linear; 3],
    /// `[width, dim]`
    taps: Tensor,
    /// `[dim]`
    bias: Option<Tensor>,
    out: Linear,
}

impl ShortConv {
    /// Reads `in_proj`, `conv` and `out_proj`, all of them with biases or none. `layer` is the cache layer it owns.
    ///
    /// # Errors
    /// If the settings `conv_L_cache` or `conv_bias` say otherwise than the file: how many inputs a channel looks at, and whether there
    /// are biases; if a tensor is not for `hidden_size` channels; else as [all that read](Loader#errors).
    pub fn load(l: &Loader<'_>, c: &Config, layer: usize) -> Result<Self> {
        let dim = c.usize("hidden_size")?;
        let misfit = |name: &str, why: String| {
            Error::invalid(&l.name(name), format!("{why}; do weights and config belong together?"))
        };
        // More than can be counted are more than any tensor has.
        let inputs: [Linear; 3] = fixed("in_proj", l.linear_parts("in_proj", &[dim; 3])?)?;
        let (taps, out) = (l.taps("conv", dim)?, l.linear("out_proj")?);
        let bias = l.optional(l.numbers("conv.bias"))?;
        let width = taps.shape().rows();
        if let Some(said) = c.opt_usize("conv_L_cache")?.filter(|said| *said != width) {
            return Err(misfit("conv", format!("{width} taps, and `conv_L_cache` says {said}")));
        }
        let [_, to, from] = out.weight.shape();
        if [to, from] != [dim; 2] {
            return Err(misfit("out_proj", format!("{from} inputs and {to} outputs in place of {dim}")));
        }
        if let Some(n) = bias.as_ref().map(|bias| bias.shape().len()).filter(|n| *n != dim) {
            return Err(misfit("conv.bias", format!("{n} biases for {dim} channels")));
        }
        let biased = c.bool_or("conv_bias", bias.is_some())?;
        for (name, has) in [
            ("in_proj", inputs[0].bias.is_some()),
            ("conv", bias.is_some()),
            ("out_proj", out.bias.is_some()),
        ] {
            if has != biased {
                let [has, wanted] = [has, biased].map(|b| if b { "biases" } else { "no biases" });
                return Err(misfit(
                    name,
                    format!("it has {has}, and `conv_bias` or the others are for {wanted}"),
                ));
            }
        }
        Ok(Self { layer, inputs, taps, bias, out })
    }

    /// What is kept of a sequence: the last inputs of the convolution.
    pub fn cache(&self) -> LayerCache {
        let [width, dim] = [self.taps.shape().rows(), self.taps.shape().cols()];
        LayerCache::State { len: (width - 1) * dim }
    }

    /// Goes on with each sequence by this step's rows. `[n, dim] -> [n, dim]`
    ///
    /// # Errors
    /// Those of [all operators](crate::backend::Backend#errors).
    pub fn forward(&self, s: &Step<'_>, x: &Tensor) -> Result<Tensor> {
        let (b, [before, after, x]) = (s.backend, Linear::forward_many(s, x, self.inputs.each_ref())?);
        let mut y = b.causal_conv(self.layer, &b.mul(before, &x)?, &self.taps, s.cache, s.plan)?; // [n, dim]
        if let Some(bias) = &self.bias {
            y = b.add(y, bias)?;
        }
        self.out.forward(s, &b.mul(y, &after)?)
    }
}
