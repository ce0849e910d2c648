//! The block of vision transformers, whose patches see each other to both sides (Dosovitskiy et al. 2020, <https://arxiv.org/abs/2010.11929>): attention
//! and an MLP, each behind a norm and added to the stream. Families differ in what they call its parts and in a few that they have or have not.
//!
//! It is not `decoder.rs`'s block: nothing is cached, norms may have means, and matrices have biases.

use ogive_nn::backend::{Activation, AttnSpec, Rope};
use ogive_nn::tensor::{Error, Result, Tensor};
use ogive_nn::{FeedForward, GatedMlp, LayerNorm, Linear, Loader, Mlp, RmsNorm, Step};

/// A norm of either kind.
#[derive(Debug)]
pub(crate) enum Norm {
    Layer(LayerNorm),
    Rms(RmsNorm),
}

impl Norm {
    /// `[.., d] -> [.., d]`
    pub(crate) fn forward(&self, s: &Step<'_>, x: &Tensor) -> Result<Tensor> {
        match self {
            Self::Layer(norm) => norm.forward(s, x),
            Self::Rms(norm) => norm.forward(s, x),
        }
    }
}

/// What a family calls the parts of a block.
pub(crate) struct Names {
    /// The norms before attention and before the MLP.
    pub(crate) norms: [&'static str; 2],
    /// Queries, keys and values where they are one matrix.
    pub(crate) qkv: &'static str,
    /// The same where each has its own.
    pub(crate) each: [&'static str; 3],
    /// What attention's heads go through.
    pub(crate) out: &'static str,
    pub(crate) mlp: MlpNames,
    /// Norms of all of a row's queries and keys, if there are any.
    pub(crate) qk_norms: Option<[&'static str; 2]>,
    /// Factors on what attention and an MLP without a gate give, where there are any.
    pub(crate) scales: Option<[&'static str; 2]>,
}

/// What a block's MLP is, and what its matrices are called.
pub(crate) enum MlpNames {
    /// Up and down.
    Plain([&'static str; 2]),
    /// Gate, up and down.
    Gated([&'static str; 3]),
}

/// What all blocks of a tower have in common.
pub(crate) struct Common {
    pub(crate) spec: AttnSpec,
    pub(crate) rope: Option<Rope>,
    pub(crate) activation: Activation,
    /// Whether norms are of the mean square alone.
    pub(crate) rms: bool,
    pub(crate) eps: f32,
}

impl Common {
    /// Blocks of `dim` elements whose heads cut that evenly, with norms that have means.
    pub(crate) fn new(dim: usize, heads: usize, activation: Activation, eps: f32) -> Result<Self> {
        /// No model's heads come near it; it bounds what a false configuration can make us allocate.
        const LARGEST: usize = 1 << 16;
        if heads == 0 || dim == 0 || !dim.is_multiple_of(heads) || dim / heads > LARGEST {
            let why = format!("{dim} elements cannot be cut into {heads} heads of {LARGEST} at most");
            return Err(Error::invalid("config", format!("of the vision tower: {why}")));
        }
        let spec = AttnSpec::new(heads, heads, dim / heads, dim / heads);
        Ok(Self { spec, rope: None, activation, rms: false, eps })
    }

    /// Elements of a row.
    pub(crate) fn dim(&self) -> usize {
        self.spec.heads * self.spec.k_dim
    }

    /// The norm `name`.
    pub(crate) fn norm(&self, l: &Loader<'_>, name: &str) -> Result<Norm> {
        Ok(match self.rms {
            true => Norm::Rms(l.rms_norm(name, self.eps)?),
            false => Norm::Layer(l.layer_norm(name, self.eps)?),
        })
    }

    /// Blocks 0, 1, ... of so many below `l`. They are read one by one: a false number ends at the first that is missing.
    pub(crate) fn blocks(&self, l: &Loader<'_>, n: usize, names: &Names) -> Result<Vec<Block>> {
        (0..n).map(|i| Block::load(self, &l.at(i), names)).collect()
    }
}

#[derive(Debug)]
pub(crate) struct Block {
    norms: [Norm; 2],
    qkv: [Linear; 3],
    qk_norms: Option<[RmsNorm; 2]>,
    out: Linear,
    mlp: FeedForward,
    spec: AttnSpec,
    rope: Option<Rope>,
}

impl Block {
    fn load(common: &Common, l: &Loader<'_>, names: &Names) -> Result<Self> {
        let Common { spec, rope, activation, .. } = common;
        let [before, between] = names.norms.map(|name| common.norm(l, name));
        let qk_norms = match names.qk_norms {
            // InternVL's, whose epsilon is no setting.
            Some([q, k]) => Some([l.rms_norm(q, 1e-6)?, l.rms_norm(k, 1e-6)?]),
            None => None,
        };
        let scale = |i: usize, linear: Linear| match names.scales {
            Some(scales) => linear.scaled(l, 1.0, &l.tensor(scales[i])?.to_vec()),
            None => Ok(linear),
        };
        let mlp = match names.mlp {
            MlpNames::Plain([up, down]) => FeedForward::Plain(Mlp {
                up: l.linear(up)?,
                down: scale(1, l.linear(down)?)?,
                activation: *activation,
            }),
            MlpNames::Gated(names) => FeedForward::Dense(GatedMlp::named(l, names, *activation)?),
        };
        Ok(Self {
            norms: [before?, between?],
            qkv: l.linears(names.qkv, names.each, [common.dim(); 3])?,
            qk_norms,
            out: scale(0, l.linear(names.out)?)?,
            mlp,
            spec: spec.clone(),
            rope: rope.clone(),
        })
    }

    /// `[n, dim] -> [n, dim]`, where patches see those of their span.
    pub(crate) fn forward(&self, s: &Step<'_>, x: Tensor) -> Result<Tensor> {
        let (b, n, spec, [before, between]) = (s.backend, x.shape().rows(), &self.spec, &self.norms);
        let [mut q, mut k, v] = Linear::forward_many(s, &before.forward(s, &x)?, self.qkv.each_ref())?; // [n, dim] each
        if let Some([q_norm, k_norm]) = &self.qk_norms {
            (q, k) = (q_norm.forward(s, &q)?, k_norm.forward(s, &k)?);
        }
        let [mut q, mut k] = [q, k].map(|x| x.reshape([n, spec.heads, spec.k_dim]));
        if let Some(rope) = &self.rope {
            [q, k] = [q, k].map(|x| b.rope(x?, rope, s.plan));
        }
        let h = b.attend(&q?, &k?, &v, spec, s.plan)?; // [n, dim]
        let x = b.add(x, &self.out.forward(s, &h)?)?;
        let h = self.mlp.forward(s, &between.forward(s, &x)?)?;
        b.add(x, &h)
    }
}

/// The stream behind all of `blocks`. `[n, dim] -> [n, dim]`
pub(crate) fn through(blocks: &[Block], s: &Step<'_>, mut x: Tensor) -> Result<Tensor> {
    for (i, block) in blocks.iter().enumerate() {
        x = block.forward(s, x)?;
        s.observe(|| format!("vision.blocks.{i}"), &x);
    }
    Ok(x)
}
