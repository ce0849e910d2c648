//! What follows attention in a block: an MLP, gated or not, or a mixture of such.

use crate::backend::{Activation, Axis, Experts, RouterSpec, Routing, Scoring};
use crate::expert_factors::ExpertFactors;
use crate::tensor::{Config, Error, HostWeight, Result, Tensor};
use crate::{GaussianTopK, Linear, Loader, RmsNorm, Step};

/// The activation that a configuration names under `key`; `default` where it names none.
///
/// # Errors
/// If the setting is no string, or names a function that is not known; the message lists those that are.
pub fn activation(c: &Config, key: &str, default: Activation) -> Result<Activation> {
    Ok(match c.opt_str(key)? {
        None => default,
        Some("silu" | "swish") => Activation::Silu,
        Some("gelu") => Activation::Gelu,
        Some("gelu_new" | "gelu_fast" | "gelu_pytorch_tanh") => Activation::GeluTanh,
        Some("quick_gelu") => Activation::QuickGelu,
        Some("tanh") => Activation::Tanh,
        Some("relu") => Activation::Relu,
        Some("relu2") => Activation::ReluSquared,
        Some(other) => {
            let known = "silu, gelu, gelu_new, gelu_pytorch_tanh, quick_gelu, tanh, relu, relu2";
            return Err(Error::unsupported("config", format!("`{key}` is `{other}`; known are {known}")));
        }
    })
}

/// A list of layers as an array.
pub(crate) fn fixed<T, const N: usize>(name: &str, layers: Vec<T>) -> Result<[T; N]> {
    layers.try_into().map_err(|_| Error::invalid(name, format!("it has not {N} parts")))
}

/// `down(f(up(x)))`, as the first transformers have it (Vaswani et al. 2017, <https://arxiv.org/abs/1706.03762>).
#[derive(Debug)]
pub struct Mlp {
    /// `[ffn, dim]`
    pub up: Linear,
    /// `[dim, ffn]`
    pub down: Linear,
    /// Between the two.
    pub activation: Activation,
}

impl Mlp {
    /// Applies the block. `[n, dim] -> [n, dim]`
    ///
    /// # Errors
    /// If `x` has not as many columns as `up` has inputs; else as [all operators](crate::backend::Backend#errors).
    pub fn forward(&self, s: &Step<'_>, x: &Tensor) -> Result<Tensor> {
        let h = self.up.forward(s, x)?; // [n, ffn]
        self.down.forward(s, &s.backend.activate(h, self.activation)?)
    }
}

/// `down(f(gate(x)) * up(x))` (Shazeer 2020, <https://arxiv.org/abs/2002.05202>).
#[derive(Debug)]
pub struct GatedMlp {
    gate: Linear,
    up: Linear,
    down: Linear,
    activation: Activation,
    /// What is cut off the gate before it is activated.
    sparse: Option<Box<GaussianTopK>>,
}

impl GatedMlp {
    /// Reads `gate_proj`, `up_proj` and `down_proj`; the first two may be one matrix, `gate_up_proj`.
    ///
    /// # Errors
    /// If the one matrix has an odd number of outputs; else as [all that read](Loader#errors).
    pub fn load(l: &Loader<'_>, activation: Activation) -> Result<Self> {
        Self::fused(l, "gate_up_proj", ["gate_proj", "up_proj", "down_proj"], activation)
    }

    /// Reads gate, up and down from under other names; the first two may be one matrix, `both`.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn fused(l: &Loader<'_>, both: &str, names: [&str; 3], activation: Activation) -> Result<Self> {
        let Some(host) = l.optional(l.host(both))? else { return Self::named(l, names, activation) };
        let [gate, up] = fixed(both, l.linear_parts(both, &[host.shape[1] / 2; 2])?)?;
        Ok(Self { gate, up, down: l.linear(names[2])?, activation, sparse: None })
    }

    /// Reads gate, up and down from under other names.
    ///
    /// # Errors
    /// As [`Loader::linear`], for each of the three.
    pub fn named(l: &Loader<'_>, names: [&str; 3], activation: Activation) -> Result<Self> {
        let [gate, up, down] = names.map(|name| l.linear(name));
        Ok(Self { gate: gate?, up: up?, down: down?, activation, sparse: None })
    }

    /// The same with what the gate's activation is given multiplied by `gate`, and what comes out by `down`.
    ///
    /// # Errors
    /// As [`Linear::scaled`].
    pub fn scaled(self, l: &Loader<'_>, gate: f32, down: f32) -> Result<Self> {
        let (gate, down) = (self.gate.scaled(l, 1.0, &[gate])?, self.down.scaled(l, 1.0, &[down])?);
        Ok(Self { gate, down, ..self })
    }

    /// The same with so much of what the gate's activation is given cut off before; see [`GaussianTopK`].
    ///
    /// # Errors
    /// If the gate's matrix has no inputs; else as [`GaussianTopK::new`].
    pub fn sparse(self, l: &Loader<'_>, sparsity: f32) -> Result<Self> {
        let [_, rows, cols] = self.gate.weight.shape();
        // Where there are no bytes, nothing bounds the shape.
        if cols == 0 {
            return Err(Error::invalid(&l.name("mlp"), "its matrices have no inputs"));
        }
        let sparse = GaussianTopK::new(l, sparsity, rows)?;
        Ok(Self { sparse: Some(sparse.into()), ..self })
    }

    /// Applies the block. `[n, dim] -> [n, dim]`
    ///
    /// # Errors
    /// If `x` has not as many columns as the projections have inputs; else as [all operators](crate::backend::Backend#errors).
    pub fn forward(&self, s: &Step<'_>, x: &Tensor) -> Result<Tensor> {
        let h = if self.gate.is_bare() && self.up.is_bare() && self.sparse.is_none() {
            s.backend.linear_gated(x, &self.gate.weight, &self.up.weight, self.activation)?
        } else {
            let [gate, up] = Linear::forward_many(s, x, [&self.gate, &self.up])?;
            let gate = match &self.sparse {
                Some(sparse) => sparse.forward(s, gate)?,
                None => gate,
            };
            s.backend.gated(gate, &up, self.activation)?
        };
        self.down.forward(s, &h)
    }
}

/// A router and the MLPs it chooses from, gated ones for the most part (Shazeer et al. 2017, <https://arxiv.org/abs/1701.06538>).
#[derive(Debug)]
pub struct Moe {
    router: Linear,
    spec: RouterSpec,
    experts: Experts,
    factors: Option<Box<ExpertFactors>>,
    /// Of what the router is given, and before and after the experts.
    norms: Option<Box<[RmsNorm; 3]>>,
    /// Nothing and one, where shares are of what experts are given and not of what they give.
    of_inputs: Option<[Tensor; 2]>,
}

impl Moe {
    /// Reads the router `gate` and, below `experts`, the projections of `n` experts called `names` (gate, up, down):
    /// stacked, or one of each for experts 0, 1, ...
    ///
    /// # Errors
    /// If there are not `n` of them, and as [`new`](Self::new); else as [all that read](Loader#errors).
    pub fn load(
        l: &Loader<'_>,
        n: usize,
        spec: RouterSpec,
        names: [&str; 3],
        activation: Activation,
    ) -> Result<Self> {
        let stack = |name| l.at("experts").stacked(name, n);
        let experts = Experts::new([stack(names[0])?, stack(names[1])?, stack(names[2])?], activation);
        let place = l.name("");
        Self::new(l.linear("gate")?, spec, experts).map_err(|e| e.within(place.trim_end_matches('.')))
    }

    /// A mixture of these parts, for files that keep them otherwise.
    ///
    /// # Errors
    /// If they do not fit each other, or the router cannot choose so from so many experts.
    pub fn new(router: Linear, spec: RouterSpec, experts: Experts) -> Result<Self> {
        let ([n, ..], [_, found, dim]) = (experts.up.shape(), router.weight.shape());
        if found != n {
            let why = format!("{found} outputs for {n} experts; do weights and config belong together?");
            return Err(Error::invalid("router", why));
        }
        spec.check(n)?;
        experts.check(dim)?;
        Ok(Self { router, spec, experts, factors: None, norms: None, of_inputs: None })
    }

    /// The same with each expert's share multiplied by its factor of `factors`, after shares were made to sum to one.
    ///
    /// # Errors
    /// If there is not a factor for each expert; else as [`Loader::weight`].
    pub fn weighted(self, l: &Loader<'_>, factors: &HostWeight) -> Result<Self> {
        let factors = ExpertFactors::new(l, factors, self.experts.up.shape()[0])?;
        Ok(Self { factors: Some(factors.into()), ..self })
    }

    /// The same with experts that are given their share of the input, and not weighed by it (Llama 4's).
    ///
    /// # Errors
    /// If the backend cannot take two numbers ([`Backend::upload`](crate::backend::Backend::upload)).
    pub fn weighing_inputs(self, l: &Loader<'_>) -> Result<Self> {
        Ok(Self { of_inputs: Some([l.constant(0.0)?, l.constant(1.0)?]), ..self })
    }

    /// The same with a norm of what the router is given, another of what the experts are, and a third of what they give.
    #[must_use]
    pub fn normed(self, router: RmsNorm, before: RmsNorm, after: RmsNorm) -> Self {
        Self { norms: Some([router, before, after].into()), ..self }
    }

    /// Reads an expert that all rows go through: below `name` its projections `names` (gate, up, down), and in `router` what the
    /// sigmoid of weighs its output. It is a mixture of one, which backends have an operator for, and not a gated MLP with
    /// products around it.
    ///
    /// # Errors
    /// Those of [all that read](Loader#errors).
    pub fn shared(
        l: &Loader<'_>,
        router: &str,
        name: &str,
        names: [&str; 3],
        activation: Activation,
    ) -> Result<Self> {
        let [gate, up, down] = names.map(|part| {
            let host = l.at(name).host(part)?;
            l.weight(&host)
        });
        let experts = Experts::new([gate?, up?, down?], activation);
        let spec = RouterSpec::new(1, Scoring::Sigmoid).unnormalised(1.0);
        Ok(Self { router: l.linear(router)?, spec, experts, factors: None, norms: None, of_inputs: None })
    }

    /// Applies the block. `[n, dim] -> [n, dim]`
    ///
    /// # Errors
    /// If the router has fewer outputs than a row has experts, or sends one to an expert that there is not; else as
    /// [all operators](crate::backend::Backend#errors).
    pub fn forward(&self, s: &Step<'_>, x: &Tensor) -> Result<Tensor> {
        let Some([router, before, after]) = self.norms.as_deref() else {
            return self.mixed(s, x, &self.router.forward(s, x)?);
        };
        let logits = self.router.forward(s, &router.forward(s, x)?)?;
        after.forward(s, &self.mixed(s, &before.forward(s, x)?, &logits)?)
    }

    /// What the experts give. `[n, dim], [n, experts] -> [n, dim]`
    fn mixed(&self, s: &Step<'_>, x: &Tensor, logits: &Tensor) -> Result<Tensor> {
        if let Some(numbers) = &self.of_inputs {
            return self.of_shares(s, x, s.backend.route(logits, &self.spec)?, numbers);
        }
        let Some(factors) = &self.factors else {
            return s.backend.moe(x, logits, &self.spec, &self.experts);
        };
        let routing = factors.weigh(s, s.backend.route(logits, &self.spec)?)?;
        s.backend.experts(x, &routing, &self.experts)
    }

    /// What experts give that are given shares of `x`, each of which is a row of its own. `[n, dim] -> [n, dim]`
    fn of_shares(
        &self,
        s: &Step<'_>,
        x: &Tensor,
        routing: Routing,
        [nothing, one]: &[Tensor; 2],
    ) -> Result<Tensor> {
        let (b, dim) = (s.backend, x.shape().cols());
        let (n, k) = (routing.ids.shape().first(), routing.ids.shape().cols());
        let shares = b.split(&routing.weights, Axis::Cols, &vec![1; k])?; // [n, 1] each
        let parts = shares.iter().map(|share| b.mul(x.clone(), share)).collect::<Result<Vec<_>>>()?;
        let all = b.concat(&parts.iter().collect::<Vec<_>>(), Axis::Cols)?.reshape([n * k, dim])?;
        let weights = b.add(b.mul(routing.weights.reshape([n * k, 1])?, nothing)?, one)?;
        let each = Routing { ids: routing.ids.reshape([n * k, 1])?, weights };
        let y = b.experts(&all, &each, &self.experts)?.reshape([n, k * dim])?;
        let mut parts = b.split(&y, Axis::Cols, &vec![dim; k])?.into_iter();
        let first = parts.next().ok_or_else(|| Error::invalid("experts", "no row has any"))?;
        parts.try_fold(first, |sum, part| b.add(sum, &part))
    }
}

/// One of them, for architectures that come with several.
#[derive(Debug)]
pub enum FeedForward {
    /// One without a gate.
    Plain(Mlp),
    /// One gated MLP.
    Dense(GatedMlp),
    /// A mixture of them.
    Moe(Moe),
    /// A mixture, and beside it what all rows share; their outputs are added.
    Shared(Moe, Box<Self>),
    /// Another between two norms.
    Normed(RmsNorm, Box<Self>, RmsNorm),
}

impl FeedForward {
    /// Applies the block. `[n, dim] -> [n, dim]`
    ///
    /// # Errors
    /// Those of the one it is.
    pub fn forward(&self, s: &Step<'_>, x: &Tensor) -> Result<Tensor> {
        match self {
            Self::Plain(mlp) => mlp.forward(s, x),
            Self::Dense(mlp) => mlp.forward(s, x),
            Self::Moe(moe) => moe.forward(s, x),
            Self::Shared(moe, shared) => {
                let y = moe.forward(s, x)?;
                s.backend.add(y, &shared.forward(s, x)?)
            }
            Self::Normed(before, inner, after) => {
                after.forward(s, &inner.forward(s, &before.forward(s, x)?)?)
            }
        }
    }
}
