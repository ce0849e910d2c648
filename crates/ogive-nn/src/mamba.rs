//! A selective state space as the first Mamba has it (Gu and Dao 2023, <https://arxiv.org/abs/2312.00752>): a short convolution over what goes in, and for each
//! channel a state of its own, whose decay and step in time are its own too.
//!
//! What is kept of a sequence does not grow with it: the convolution's last inputs and the states, two cache layers. Jamba and Falcon-Mamba norm what steps, writing
//! and reading are made of; whether they have factors the weights say. Sizes have other names in each class, and are given.

use crate::backend::{Activation, LayerCache};
use crate::tensor::{Error, Result, Tensor};
use crate::{Linear, Loader, RmsNorm, Step, mlp::fixed};

/// Sizes of a layer, and what its class has otherwise than others.
#[derive(Clone, Copy, Debug)]
pub struct MambaSpec {
    /// Channels.
    pub inner: usize,
    /// Elements of a channel's state.
    pub state: usize,
    /// Numbers that all channels' steps in time are made of.
    pub rank: usize,
    /// Inputs that the convolution sees.
    pub taps: usize,
    /// After the convolution, and of the gate.
    pub activation: Activation,
    /// Added to the mean squares of what steps in time, writing and reading are made of; `None` where these are not normed.
    pub norm: Option<f32>,
}

impl MambaSpec {
    /// How many elements all states have; few enough to be counted, as all else is.
    fn states(&self) -> Result<usize> {
        let Self { inner, state, rank, .. } = *self;
        let counted = || {
            state.checked_mul(2)?.checked_add(rank)?;
            inner.checked_mul(2)?;
            inner.checked_mul(state).filter(|_| ![inner, state, rank].contains(&0))
        };
        let why =
            || format!("{inner} channels with states of {state}, and {rank} numbers for their steps in time");
        counted().ok_or_else(|| Error::invalid("config", format!("{}, are none or beyond counting", why())))
    }
}

/// Projections and a convolution around the operator.
#[derive(Debug)]
pub struct Mamba {
    layer: usize,
    spec: MambaSpec,
    states: usize,
    /// What is convolved, and the gate of the output.
    inputs: [Linear; 2],
    /// `[width, inner]`
    taps: Tensor,
    /// `[inner]`
    bias: Option<Tensor>,
    /// What steps in time are made of, what states are written by, and what they are read by.
    parts: [Linear; 3],
    norms: Option<[RmsNorm; 3]>,
    dt: Linear,
    /// `[inner, state]`, below 0: what a step in time is multiplied by.
    a: Tensor,
    /// `[inner]`: what of an input is added to the output as it is.
    d: Tensor,
    out: Linear,
}

impl Mamba {
    /// Reads `in_proj`, `conv1d`, `x_proj`, `dt_proj`, `A_log`, `D` and `out_proj`, and where parts are normed `dt_layernorm`, `b_layernorm` and `c_layernorm` if
    /// they are there. `layer` is the first of the two cache layers that it owns.
    ///
    /// # Errors
    /// If the sizes are 0 or more than can be counted, if a tensor is of another size than they need, or if `dt_proj` has no bias; else as
    /// [all that read](Loader#errors).
    pub fn load(l: &Loader<'_>, spec: MambaSpec, layer: usize) -> Result<Self> {
        let (states, b) = (spec.states()?, l.backend());
        let MambaSpec { inner, state, rank, .. } = spec;
        let inputs = fixed("in_proj", l.linear_parts("in_proj", &[inner; 2])?)?;
        let parts = fixed("x_proj", l.linear_parts("x_proj", &[rank, state, state])?)?;
        let numbers = |name: &str, shape: [usize; 2]| {
            let (numbers, wanted) = (l.tensor(name)?.to_vec(), shape[0] * shape[1]);
            l.fits(name, numbers.len(), wanted)?;
            if shape[0] == 1 { b.upload(&numbers, [wanted].into()) } else { b.upload(&numbers, shape.into()) }
        };
        let norm = |eps: f32, name: &str, len: usize| {
            let weight = match l.optional(l.tensor(&format!("{name}.weight")))? {
                Some(_) => numbers(&format!("{name}.weight"), [1, len])?,
                None => b.upload(&vec![1.0; len], [len].into())?,
            };
            Ok::<_, Error>(RmsNorm { weight, eps })
        };
        let norms = |eps: f32| {
            Ok::<_, Error>([
                norm(eps, "dt_layernorm", rank)?,
                norm(eps, "b_layernorm", state)?,
                norm(eps, "c_layernorm", state)?,
            ])
        };
        let (dt, out, taps) = (l.linear("dt_proj")?, l.linear("out_proj")?, l.taps("conv1d", inner)?);
        l.fits("dt_proj", dt.weight.shape()[1], inner)?;
        l.fits("dt_proj", dt.weight.shape()[2], rank)?;
        l.fits("out_proj", out.weight.shape()[2], inner)?;
        // At least over the token itself.
        l.fits("conv1d", taps.shape().rows(), spec.taps.max(1))?;
        if dt.bias.is_none() {
            return Err(Error::missing(&l.name("dt_proj.bias")));
        }
        let decay = b.activate(numbers("A_log", [inner, state])?, Activation::Exp)?;
        Ok(Self {
            layer,
            spec,
            states,
            inputs,
            taps,
            bias: l.optional(numbers("conv1d.bias", [1, inner]))?,
            parts,
            norms: spec.norm.map(norms).transpose()?,
            dt,
            a: b.mul(decay, &l.constant(-1.0)?)?,
            d: numbers("D", [1, inner])?,
            out,
        })
    }

    /// The two cache layers: the convolution's last inputs, and the states.
    pub fn cache(&self) -> [LayerCache; 2] {
        let inputs = self.taps.shape().rows().saturating_sub(1) * self.spec.inner;
        [inputs, self.states].map(|len| LayerCache::State { len })
    }

    /// Goes on with each sequence by this step's rows. `[n, dim] -> [n, dim]`
    ///
    /// # Errors
    /// Those of [all operators](crate::backend::Backend#errors).
    pub fn forward(&self, s: &Step<'_>, x: &Tensor) -> Result<Tensor> {
        let (b, f) = (s.backend, self.spec.activation);
        let [x, gate] = Linear::forward_many(s, x, self.inputs.each_ref())?; // [n, inner] each
        let mut x = b.causal_conv(self.layer, &x, &self.taps, s.cache, s.plan)?;
        if let Some(bias) = &self.bias {
            x = b.add(x, bias)?;
        }
        let x = b.activate(x, f)?;
        let mut parts = Linear::forward_many(s, &x, self.parts.each_ref())?; // [n, rank], [n, state], [n, state]
        for (part, norm) in parts.iter_mut().zip(self.norms.iter().flatten()) {
            *part = norm.forward(s, part)?;
        }
        let [dt, write, read] = parts;
        let dt = b.activate(self.dt.forward(s, &dt)?, Activation::Softplus)?; // [n, inner]
        let y = b.selective_scan(self.layer + 1, &x, &dt, &self.a, &write, &read, s.cache, s.plan)?;
        let y = b.add(y, &b.mul(x, &self.d)?)?;
        self.out.forward(s, &b.gated(gate, &y, f)?)
    }
}
