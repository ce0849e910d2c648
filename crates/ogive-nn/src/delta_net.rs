//! Linear attention by the gated delta rule (Yang et al. 2024, <https://arxiv.org/abs/2412.06464>), as Qwen3-Next has it: a short convolution
//! over queries, keys and values, queries and keys of length one, and outputs that are normed and gated.
//!
//! What is kept of a sequence does not grow with it: the convolution's last inputs and a matrix for each head, two cache layers.

use crate::backend::{Activation, Axis, LayerCache};
use crate::tensor::{Config, Error, Result, Tensor};
use crate::{Linear, Loader, RmsNorm, Step, mlp::fixed};

/// What is added to the square of a query's or a key's length.
const LENGTH_EPS: f32 = 1e-6;

/// Projections, a convolution and the norm of heads around the operator.
#[derive(Debug)]
pub struct GatedDeltaNet {
    layer: usize,
    sizes: Sizes,
    qkv: Linear,
    gate: Linear,
    beta: Linear,
    dt: Linear,
    /// `[width, channels]`
    conv: Tensor,
    activation: Activation,
    dt_bias: Tensor,
    /// `[heads]`, below 0: what a step in time is multiplied by.
    a: Tensor,
    q_length: RmsNorm,
    k_length: RmsNorm,
    norm: RmsNorm,
    out: Linear,
}

/// Heads and their elements; there are some of each, and they are few enough to be counted.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    key_heads: usize,
    heads: usize,
    k_dim: usize,
    v_dim: usize,
    /// Of all key heads together.
    keys: usize,
    /// Of all heads together.
    values: usize,
    /// What is convolved: queries, keys and values.
    channels: usize,
    /// Of all matrices together.
    state: usize,
}

impl Sizes {
    fn of(c: &Config) -> Result<Self> {
        let [key_heads, heads] =
            [c.usize_or("linear_num_key_heads", 16)?, c.usize_or("linear_num_value_heads", 32)?];
        let [k_dim, v_dim] =
            [c.usize_or("linear_key_head_dim", 128)?, c.usize_or("linear_value_head_dim", 128)?];
        if [key_heads, heads, k_dim, v_dim].contains(&0) || heads % key_heads != 0 {
            let why =
                format!("{heads} heads of {v_dim} elements cannot share {key_heads} key heads of {k_dim}");
            return Err(Error::invalid("config", why));
        }
        let counted = || {
            let (keys, values) = (key_heads.checked_mul(k_dim)?, heads.checked_mul(v_dim)?);
            let channels = keys.checked_mul(2)?.checked_add(values)?;
            // All that is projected at once: the gate besides.
            channels.checked_add(values)?;
            Some((keys, values, channels, values.checked_mul(k_dim)?))
        };
        let why = || format!("{heads} heads of {k_dim} by {v_dim} elements are more than can be counted");
        let (keys, values, channels, state) = counted().ok_or_else(|| Error::invalid("config", why()))?;
        Ok(Self { key_heads, heads, k_dim, v_dim, keys, values, channels, state })
    }
}

impl GatedDeltaNet {
    /// Reads `conv1d`, `A_log`, `dt_bias`, `norm`, `out_proj` and what is projected from the input: `in_proj_qkv`, `in_proj_z`, `in_proj_b` and
    /// `in_proj_a`, or `in_proj_qkvz` and `in_proj_ba`, which have all of one key head and then all of the next. `layer` is the first of the two cache
    /// layers that it owns.
    ///
    /// # Errors
    /// If value heads do not share the key heads evenly, or a tensor is of another size than the settings say; else as
    /// [all that read](Loader#errors).
    pub fn load(l: &Loader<'_>, c: &Config, layer: usize) -> Result<Self> {
        let sizes = Sizes::of(c)?;
        let Sizes { key_heads, heads, k_dim, v_dim, values, channels, .. } = sizes;
        let each = values / key_heads;
        let parts = [k_dim, k_dim, each, each];
        // Head by head in one matrix, or each in its own.
        let fused = |name, parts: &[usize], outputs: [usize; 2]| {
            l.optional(l.grouped_parts(name, key_heads, parts, &outputs))?
                .map(|both| fixed(name, both))
                .transpose()
        };
        let [qkv, gate] = match fused("in_proj_qkvz", &parts, [channels, values])? {
            Some(both) => both,
            None => [l.linear("in_proj_qkv")?, l.linear("in_proj_z")?],
        };
        let [beta, dt] = match fused("in_proj_ba", &[heads / key_heads; 2], [heads; 2])? {
            Some(both) => both,
            None => [l.linear("in_proj_b")?, l.linear("in_proj_a")?],
        };
        let out = l.linear("out_proj")?;
        for (name, linear, wanted) in
            [("in_proj_qkv", &qkv, channels), ("in_proj_z", &gate, values), ("in_proj_b", &beta, heads)]
        {
            l.fits(name, linear.weight.shape()[1], wanted)?;
        }
        l.fits("in_proj_a", dt.weight.shape()[1], heads)?;
        l.fits("out_proj", out.weight.shape()[2], values)?;

        let (b, conv) = (l.backend(), l.taps("conv1d", channels)?);
        // At least over the token itself.
        l.fits("conv1d", conv.shape().rows(), c.usize_or("linear_conv_kernel_dim", 4)?.max(1))?;
        let norm = l.rms_norm("norm", c.f32_or("rms_norm_eps", 1e-6)?)?;
        let (dt_bias, a_log) = (l.numbers("dt_bias")?, l.numbers("A_log")?);
        for (name, tensor, wanted) in
            [("norm", &norm.weight, v_dim), ("dt_bias", &dt_bias, heads), ("A_log", &a_log, heads)]
        {
            l.fits(name, tensor.shape().len(), wanted)?;
        }
        // `x / sqrt(|x|² + eps)` is a root-mean-square norm by other factors; queries are scaled besides.
        let length = |factor: f32| -> Result<RmsNorm> {
            let weight = b.upload(&vec![factor; k_dim], [k_dim].into())?;
            Ok(RmsNorm { weight, eps: LENGTH_EPS / k_dim as f32 })
        };
        let one = (k_dim as f32).powf(-0.5);
        Ok(Self {
            layer,
            sizes,
            qkv,
            gate,
            beta,
            dt,
            conv,
            activation: crate::activation(c, "hidden_act", Activation::Silu)?,
            dt_bias,
            a: b.mul(b.activate(a_log, Activation::Exp)?, &l.constant(-1.0)?)?,
            q_length: length((k_dim as f32).recip())?,
            k_length: length(one)?,
            norm,
            out,
        })
    }

    /// The two cache layers: the convolution's last inputs, and the matrices.
    pub fn cache(&self) -> [LayerCache; 2] {
        let inputs = (self.conv.shape().rows() - 1) * self.sizes.channels;
        [inputs, self.sizes.state].map(|len| LayerCache::State { len })
    }

    /// Goes on with each sequence by this step's rows. `[n, dim] -> [n, dim]`
    ///
    /// # Errors
    /// Those of [all operators](crate::backend::Backend#errors).
    pub fn forward(&self, s: &Step<'_>, x: &Tensor) -> Result<Tensor> {
        let (b, n) = (s.backend, x.shape().rows());
        let Sizes { key_heads, heads, k_dim, v_dim, keys, values, .. } = self.sizes;
        let [qkv, gate, beta, dt] =
            Linear::forward_many(s, x, [&self.qkv, &self.gate, &self.beta, &self.dt])?;
        let qkv = b.causal_conv(self.layer, &qkv, &self.conv, s.cache, s.plan)?; // [n, channels]
        let qkv = b.activate(qkv, self.activation)?;
        let mut parts = b.split(&qkv, Axis::Cols, &[keys, keys, values])?.into_iter();
        let mut next = || parts.next().ok_or_else(|| Error::invalid("split", "it gave too few parts"));
        let q = self.q_length.forward(s, &next()?.reshape([n, key_heads, k_dim])?)?;
        let k = self.k_length.forward(s, &next()?.reshape([n, key_heads, k_dim])?)?;
        let v = next()?.reshape([n, heads, v_dim])?;
        let dt = b.activate(b.add(dt, &self.dt_bias)?, Activation::Softplus)?;
        let (g, beta) = (b.mul(dt, &self.a)?, b.activate(beta, Activation::Sigmoid)?); // [n, heads]
        let y = b.linear_attention(self.layer + 1, &q, &k, &v, &g, Some(&beta), s.cache, s.plan)?; // [n, heads, v_dim]
        let y = self.norm.forward(s, &y)?.reshape([n, values])?;
        self.out.forward(s, &b.gated(gate, &y, Activation::Silu)?)
    }
}
