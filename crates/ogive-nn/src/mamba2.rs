//! A selective state space as Mamba-2 has it (Dao and Gu 2024, <https://arxiv.org/abs/2405.21060>): a short convolution over what goes into
//! the states, and heads whose states are written and read as linear attention's that forgets.
//!
//! What is kept of a sequence does not grow with it: the convolution's last inputs and a matrix for each head, two cache layers. What all
//! classes call alike is read here by its name; sizes have other names in each, and are given.

use crate::backend::{Activation, Axis, LayerCache};
use crate::tensor::{Error, Result, Tensor};
use crate::{Linear, Loader, RmsNorm, Step, mlp::fixed};

/// Sizes of a layer, and what its class has otherwise than others.
#[derive(Clone, Copy, Debug)]
pub struct Mamba2Spec {
    /// Heads.
    pub heads: usize,
    /// Elements of a head's input and output.
    pub head_dim: usize,
    /// Groups of heads that share what a state is written and read by (`B` and `C`).
    pub groups: usize,
    /// Elements of each of those.
    pub state: usize,
    /// Inputs that the convolution sees.
    pub taps: usize,
    /// After the convolution.
    pub activation: Activation,
    /// The norm of what comes out: parts that are normed apart, and what is added to the mean square; `None` where there is no norm.
    pub norm: Option<(usize, f32)>,
    /// Whether what comes out is normed and then gated.
    pub norm_before_gate: bool,
}

/// How many elements there are of what the sizes make; few enough to be counted.
#[derive(Clone, Copy, Debug)]
struct Counted {
    /// Of all heads together.
    inner: usize,
    /// Of all groups together.
    of_groups: usize,
    /// What is convolved: inputs of heads, and what states are written and read by.
    channels: usize,
    /// Of all matrices together.
    states: usize,
}

impl Mamba2Spec {
    fn counted(&self) -> Result<Counted> {
        let Self { heads, head_dim, groups, state, norm, .. } = *self;
        if [heads, head_dim, groups, state].contains(&0) || heads % groups != 0 {
            let why = format!("{heads} heads of {head_dim} elements cannot share {groups} groups of {state}");
            return Err(Error::invalid("config", why));
        }
        let counted = || {
            let (inner, of_groups) = (heads.checked_mul(head_dim)?, groups.checked_mul(state)?);
            let channels = of_groups.checked_mul(2)?.checked_add(inner)?;
            Some(Counted { inner, of_groups, channels, states: inner.checked_mul(state)? })
        };
        let why = || format!("{heads} heads of {head_dim} by {state} elements are more than can be counted");
        let counted = counted().ok_or_else(|| Error::invalid("config", why()))?;
        match norm {
            Some((parts, _)) if parts == 0 || counted.inner % parts != 0 => {
                let why = format!("{} elements cannot be normed in {parts} parts", counted.inner);
                Err(Error::invalid("config", why))
            }
            _ => Ok(counted),
        }
    }
}

/// Projections, a convolution and a norm around the operator.
#[derive(Debug)]
pub struct Mamba2 {
    layer: usize,
    spec: Mamba2Spec,
    counted: Counted,
    /// The gate of the output, what is convolved, and steps in time.
    inputs: [Linear; 3],
    /// `[width, channels]`
    taps: Tensor,
    /// `[channels]`
    bias: Option<Tensor>,
    /// `[heads]`
    dt_bias: Tensor,
    /// `[heads]`, below 0: what a step in time is multiplied by.
    a: Tensor,
    /// `[inner]`: what of an input is added to the output as it is.
    d: Tensor,
    norm: Option<Norm>,
    out: Linear,
}

/// Parts normed apart, and a factor for each element.
#[derive(Debug)]
struct Norm {
    each: RmsNorm,
    /// `[inner]`, where there are several parts.
    factors: Option<Tensor>,
}

impl Mamba2 {
    /// Reads `in_proj`, `conv1d`, `dt_bias`, `A_log`, `D`, `norm` if there is one, and `out_proj`. `layer` is the first of the two cache layers
    /// that it owns.
    ///
    /// # Errors
    /// If the sizes are 0, cannot be shared evenly or are more than can be counted; if a tensor is of another size than they need; else as
    /// [all that read](Loader#errors).
    pub fn load(l: &Loader<'_>, spec: Mamba2Spec, layer: usize) -> Result<Self> {
        let (counted, b) = (spec.counted()?, l.backend());
        let Counted { inner, channels, .. } = counted;
        let inputs = fixed("in_proj", l.linear_parts("in_proj", &[inner, channels, spec.heads])?)?;
        let numbers = |name: &str, wanted: usize| {
            let numbers = l.tensor(name)?.to_vec();
            l.fits(name, numbers.len(), wanted)?;
            Ok(numbers)
        };
        let vector = |name: &str, wanted: usize| b.upload(&numbers(name, wanted)?, [wanted].into());
        let norm = |(parts, eps): (usize, f32)| {
            let weight = vector("norm.weight", inner)?;
            if parts == 1 {
                return Ok(Norm { each: RmsNorm { weight, eps }, factors: None });
            }
            let ones = b.upload(&vec![1.0; inner / parts], [inner / parts].into())?;
            Ok(Norm { each: RmsNorm { weight: ones, eps }, factors: Some(weight) })
        };
        let d: Vec<f32> = numbers("D", spec.heads)?;
        let d: Vec<f32> = d.iter().flat_map(|d| std::iter::repeat_n(*d, spec.head_dim)).collect();
        let (out, taps) = (l.linear("out_proj")?, l.taps("conv1d", channels)?);
        l.fits("out_proj", out.weight.shape()[2], inner)?;
        // At least over the token itself.
        l.fits("conv1d", taps.shape().rows(), spec.taps.max(1))?;
        Ok(Self {
            layer,
            spec,
            counted,
            inputs,
            taps,
            bias: l.optional(vector("conv1d.bias", channels))?,
            dt_bias: vector("dt_bias", spec.heads)?,
            a: b.mul(b.activate(vector("A_log", spec.heads)?, Activation::Exp)?, &l.constant(-1.0)?)?,
            d: b.upload(&d, [inner].into())?,
            norm: spec.norm.map(norm).transpose()?,
            out,
        })
    }

    /// The same of inputs multiplied by `input`, with what comes out multiplied by `output`, and within with the parts of the input's
    /// projection multiplied by `parts`: the gate, inputs of heads, what states are written and read by, and steps in time.
    ///
    /// # Errors
    /// As [`Linear::scaled`].
    pub fn scaled(self, l: &Loader<'_>, input: f32, parts: [f32; 5], output: f32) -> Result<Self> {
        let Counted { inner, of_groups, .. } = self.counted;
        let ([gate, x, dt], [by_gate, rest @ .., by_dt]) = (self.inputs, parts);
        let widths = [inner, of_groups, of_groups].into_iter();
        let channels: Vec<f32> =
            rest.into_iter().zip(widths).flat_map(|(factor, n)| std::iter::repeat_n(factor, n)).collect();
        let inputs = [
            gate.scaled(l, input, &[by_gate])?,
            x.scaled(l, input, &channels)?,
            dt.scaled(l, input, &[by_dt])?,
        ];
        Ok(Self { inputs, out: self.out.scaled(l, 1.0, &[output])?, ..self })
    }

    /// The two cache layers: the convolution's last inputs, and the matrices.
    pub fn cache(&self) -> [LayerCache; 2] {
        let inputs = self.taps.shape().rows().saturating_sub(1) * self.counted.channels;
        [inputs, self.counted.states].map(|len| LayerCache::State { len })
    }

    /// Goes on with each sequence by this step's rows. `[n, dim] -> [n, dim]`
    ///
    /// # Errors
    /// Those of [all operators](crate::backend::Backend#errors).
    pub fn forward(&self, s: &Step<'_>, x: &Tensor) -> Result<Tensor> {
        let (b, n) = (s.backend, x.shape().rows());
        let Mamba2Spec { heads, head_dim, groups, state, activation, .. } = self.spec;
        let Counted { inner, of_groups, .. } = self.counted;
        let [gate, x, dt] = Linear::forward_many(s, x, self.inputs.each_ref())?;
        let mut x = b.causal_conv(self.layer, &x, &self.taps, s.cache, s.plan)?; // [n, channels]
        if let Some(bias) = &self.bias {
            x = b.add(x, bias)?;
        }
        let x = b.activate(x, activation)?;
        let [x, write, read] = fixed("split", b.split(&x, Axis::Cols, &[inner, of_groups, of_groups])?)?;
        let dt = b.activate(b.add(dt, &self.dt_bias)?, Activation::Softplus)?; // [n, heads]
        let v = b.mul(x.clone().reshape([n * heads, head_dim])?, &dt.clone().reshape([n * heads, 1])?)?;
        let v = v.reshape([n, heads, head_dim])?;
        let [write, read] = [write.reshape([n, groups, state])?, read.reshape([n, groups, state])?];
        let g = b.mul(dt, &self.a)?;
        let y = b.linear_attention(self.layer + 1, &read, &write, &v, &g, None, s.cache, s.plan)?;
        let y = b.add(y.reshape([n, inner])?, &b.mul(x, &self.d)?)?;
        let y = match self.spec.norm_before_gate {
            true => b.gated(gate, &self.normed(s, y)?, Activation::Silu)?,
            false => self.normed(s, b.gated(gate, &y, Activation::Silu)?)?,
        };
        self.out.forward(s, &y)
    }

    /// `[n, inner] -> [n, inner]`
    fn normed(&self, s: &Step<'_>, y: Tensor) -> Result<Tensor> {
        let (n, inner) = (y.shape().rows(), self.counted.inner);
        match &self.norm {
            None => Ok(y),
            Some(Norm { each, factors: None }) => each.forward(s, &y),
            Some(Norm { each, factors: Some(factors) }) => {
                let part = each.weight.shape().len();
                let y = each.forward(s, &y.reshape([n * (inner / part), part])?)?;
                s.backend.mul(y.reshape([n, inner])?, factors)
            }
        }
    }
}
