//! Mamba: no attention at all. Each block owns two cache layers, both states:
//! the convolution's last inputs, and the scan's `h`.
//!
//! Gu and Dao 2023, <https://arxiv.org/abs/2312.00752>

use ogive_nn::backend::{Activation, Axis, LayerCache};
use ogive_nn::tensor::{Result, Tensor};
use ogive_nn::{Config, Embedding, Linear, Loader, Model, Residual, RmsNorm, Step};

#[derive(Debug)]
struct Mamba {
    embed: Embedding,
    blocks: Vec<(RmsNorm, Mixer)>,
    norm: RmsNorm,
}

#[derive(Debug)]
struct Mixer {
    layer: usize,
    dims: [usize; 3], // inner, rank of dt, state
    input: Linear,
    conv: Tensor, // [width, inner]
    conv_bias: Tensor,
    x_proj: Linear,
    dt_proj: Linear,
    a: Tensor, // [inner, state]
    d: Tensor, // [inner]
    output: Linear,
}

/// Reads a checkpoint with Hugging Face's names.
pub(crate) fn load(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    let (eps, l) = (c.f32_or("layer_norm_epsilon", 1e-5)?, root.at("backbone"));
    let blocks = (0..c.usize("num_hidden_layers")?)
        .map(|i| {
            let l = l.at("layers").at(i);
            Ok((l.rms_norm("norm", eps)?, Mixer::load(c, &l.at("mixer"), 2 * i)?))
        })
        .collect::<Result<_>>()?;
    Ok(Box::new(Mamba { embed: l.embedding("embeddings")?, blocks, norm: l.rms_norm("norm_f", eps)? }))
}

impl Mixer {
    fn load(c: &Config, l: &Loader<'_>, layer: usize) -> Result<Self> {
        let (b, minus) = (l.backend(), l.constant(-1.0)?);
        Ok(Self {
            layer,
            dims: [c.usize("intermediate_size")?, c.usize("time_step_rank")?, c.usize("state_size")?],
            input: l.linear("in_proj")?,
            conv: l.upload(&l.host("conv1d")?.transposed()?)?,
            conv_bias: l.numbers("conv1d.bias")?,
            x_proj: l.linear("x_proj")?,
            dt_proj: l.linear("dt_proj")?,
            a: b.mul(b.activate(l.numbers("A_log")?, Activation::Exp)?, &minus)?,
            d: l.numbers("D")?,
            output: l.linear("out_proj")?,
        })
    }

    fn forward(&self, s: &Step<'_>, x: &Tensor) -> Result<Tensor> {
        let (b, [inner, rank, state]) = (s.backend, self.dims);
        let parts = b.split(&self.input.forward(s, x)?, Axis::Cols, &[inner, inner])?;
        let (x, gate) = (&parts[0], parts[1].clone()); // [n, inner]
        let x = b.add(b.causal_conv(self.layer, x, &self.conv, s.cache, s.plan)?, &self.conv_bias)?;
        let x = b.activate(x, Activation::Silu)?;
        let parts = b.split(&self.x_proj.forward(s, &x)?, Axis::Cols, &[rank, state, state])?;
        let dt = b.activate(self.dt_proj.forward(s, &parts[0])?, Activation::Softplus)?;
        let y = b.selective_scan(self.layer + 1, &x, &dt, &self.a, &parts[1], &parts[2], s.cache, s.plan)?;
        let y = b.add(y, &b.mul(x, &self.d)?)?;
        self.output.forward(s, &b.gated(gate, &y, Activation::Silu)?)
    }
}

impl Model for Mamba {
    fn cache_layout(&self) -> Vec<LayerCache> {
        let states = |(_, m): &(RmsNorm, Mixer)| {
            [(m.conv.shape().rows() - 1) * m.dims[0], m.dims[0] * m.dims[2]]
                .map(|len| LayerCache::State { len })
        };
        self.blocks.iter().flat_map(states).collect()
    }

    fn hidden(&self, s: &Step<'_>) -> Result<Tensor> {
        let mut x = Residual::new(self.embed.forward(s)?);
        let mut h;
        for (norm, mixer) in &self.blocks {
            (x, h) = x.normed(s, norm)?;
            x = x.add(s, mixer.forward(s, &h)?)?;
        }
        (_, h) = x.normed(s, &self.norm)?;
        Ok(h)
    }

    fn head(&self, s: &Step<'_>, hidden: Tensor) -> Result<Tensor> {
        self.embed.tied().forward(s, &hidden)
    }
}
