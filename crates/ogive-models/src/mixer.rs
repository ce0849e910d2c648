//! What mixes the tokens of a sequence in a block: attention of some kind, a layer that carries on a state which does not grow, or both beside
//! each other. Where blocks are one thing each, also what mixes none.
//!
//! An enum, as what follows it in a block (`FeedForward`), so that one decoder serves models whose blocks differ in this. A kind that is
//! added is a variant here and a function that reads it; see `qwen3_next.rs`.

use ogive_nn::backend::LayerCache;
use ogive_nn::tensor::{Result, Tensor};
use ogive_nn::{Attention, FeedForward, GatedDeltaNet, LatentAttention, Mamba, Mamba2, ShortConv, Step};

/// One of them.
#[derive(Debug)]
pub(crate) enum Mixer {
    Attention(Box<Attention>),
    Latent(Box<LatentAttention>),
    Delta(Box<GatedDeltaNet>),
    Mamba(Box<Mamba2>),
    /// The first Mamba's state space.
    Space(Box<Mamba>),
    Conv(Box<ShortConv>),
    /// Two beside each other, on the same input. Their outputs are added.
    Both(Box<(Attention, Mamba2)>),
    /// What elsewhere follows one of them.
    Alone(Box<FeedForward>),
}

impl Mixer {
    /// What Hugging Face's classes call its place in a block, as a rule.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Attention(_) | Self::Latent(_) => "self_attn",
            Self::Delta(_) => "linear_attn",
            Self::Mamba(_) | Self::Space(_) => "mamba",
            Self::Conv(_) => "conv",
            Self::Both(_) => "self_attn+mamba",
            Self::Alone(_) => "mlp",
        }
    }

    /// Whether tokens see earlier ones only.
    pub(crate) fn causal(&self) -> bool {
        match self {
            Self::Attention(attn) => attn.causal(),
            Self::Both(both) => both.0.causal(),
            Self::Latent(_)
            | Self::Delta(_)
            | Self::Mamba(_)
            | Self::Space(_)
            | Self::Conv(_)
            | Self::Alone(_) => true,
        }
    }

    /// The `n` cache layers of its block, of which the first is number `first`: its own, and behind them such as share the first. All
    /// blocks of a model have as many, so that it is split by its blocks.
    pub(crate) fn cache(&self, first: usize, n: usize) -> Vec<LayerCache> {
        let mut layers = match self {
            Self::Attention(attn) => vec![attn.cache()],
            Self::Latent(attn) => vec![attn.cache()],
            Self::Delta(delta) => delta.cache().into(),
            Self::Mamba(mamba) => mamba.cache().into(),
            Self::Space(space) => space.cache().into(),
            Self::Conv(conv) => vec![conv.cache()],
            Self::Both(both) => [both.0.cache()].into_iter().chain(both.1.cache()).collect(),
            // The cache layers are numbered alike all the same.
            Self::Alone(_) => vec![LayerCache::State { len: 0 }],
        };
        layers.resize(n.max(layers.len()), LayerCache::Shares(first));
        layers
    }

    /// `[n, dim] -> [n, dim]`
    pub(crate) fn forward(&self, s: &Step<'_>, x: &Tensor) -> Result<Tensor> {
        match self {
            Self::Attention(attn) => attn.forward(s, x),
            Self::Latent(attn) => attn.forward(s, x),
            Self::Delta(delta) => delta.forward(s, x),
            Self::Mamba(mamba) => mamba.forward(s, x),
            Self::Space(space) => space.forward(s, x),
            Self::Conv(conv) => conv.forward(s, x),
            Self::Both(both) => s.backend.add(both.0.forward(s, x)?, &both.1.forward(s, x)?),
            Self::Alone(mlp) => mlp.forward(s, x),
        }
    }
}
