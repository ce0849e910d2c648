//! The vocabulary architectures are written in: a handful of layers, a loader that fills them, and the trait a finished
//! model implements.
//!
//! A model names layers and the order to use them in. It sees no device, element type or stride, and keeps no state
//! between steps: what sequences remember is in the [`Cache`], which comes with each [`Step`].
//!
//! ```
//! use ogive_nn::backend::{Backend, Batch, CacheSpec, Ids, LayerCache};
//! use ogive_nn::tensor::{Config, Error, HostWeight, Result, Source, Tensor, WeightInfo};
//! use ogive_nn::{Embedding, Linear, Loader, Model, Registry, RmsNorm, Step};
//! # use ogive_conformance::Oracle;
//!
//! /// What comes next depends on the last token alone.
//! #[derive(Debug)]
//! struct Bigram {
//!     embed: Embedding,
//!     norm: RmsNorm,
//!     head: Linear,
//! }
//!
//! fn load(c: &Config, file: &Loader<'_>) -> Result<Box<dyn Model>> {
//!     let norm = file.rms_norm("norm", c.f32_or("rms_norm_eps", 1e-6)?)?;
//!     Ok(Box::new(Bigram { embed: file.embedding("embed")?, norm, head: file.linear("head")? }))
//! }
//!
//! impl Model for Bigram {
//!     fn cache_layout(&self) -> Vec<LayerCache> {
//!         Vec::new() // nothing to remember
//!     }
//!     fn hidden(&self, s: &Step<'_>) -> Result<Tensor> {
//!         self.norm.forward(s, &self.embed.of(s, Ids::Tokens)?) // [n, dim]
//!     }
//!     fn head(&self, s: &Step<'_>, hidden: Tensor) -> Result<Tensor> {
//!         self.head.forward(s, &hidden) // [n, vocab]
//!     }
//! }
//! #
//! # /// A file of a 3 by 3 table and what is needed beside it: after token 0 comes 1, after 1 comes 2, after 2 comes 0.
//! # #[derive(Debug)]
//! # struct File;
//! #
//! # impl Source for File {
//! #     fn get(&self, name: &str) -> Result<HostWeight> {
//! #         let (shape, values): (_, &[f32]) = match name {
//! #             "embed.weight" => ([1, 3, 3], &[1., 0., 0., 0., 1., 0., 0., 0., 1.]),
//! #             "norm.weight" => ([1, 1, 3], &[1.; 3]),
//! #             "head.weight" => ([1, 3, 3], &[0., 0., 1., 1., 0., 0., 0., 1., 0.]),
//! #             _ => return Err(Error::missing(name)),
//! #         };
//! #         HostWeight::from_f32(name, shape, values)
//! #     }
//! #     fn tensors(&self) -> Vec<WeightInfo> {
//! #         Vec::new()
//! #     }
//! # }
//!
//! # fn main() -> Result<()> {
//! let machine: &dyn Backend = &Oracle;
//! let registry = Registry::new().with("BigramForCausalLM", load);
//! let model = registry.build("BigramForCausalLM", &Config::default(), &Loader::new(&File, machine))?;
//!
//! let mut batch = Batch::default();
//! batch.push(&[0, 1, 2], 0, Vec::new(), [0, 0]); // three tokens of one sequence, of which nothing was seen
//! batch.want_all();
//! let (plan, cache) = (machine.plan(batch)?, machine.new_cache(&CacheSpec::new(model.cache_layout(), 16, 0, 0))?);
//! let logits = model.logits(&Step::new(machine, &plan, &cache))?; // [3, vocab]
//! assert_eq!(machine.argmax(&logits)?, [1, 2, 0]);
//! # Ok(())
//! # }
//! ```

mod alt_up;
mod attention;
mod classifier;
mod delta_net;
mod expert_factors;
mod head_norm;
pub mod inputs;
mod latent;
mod layers;
mod loader;
mod low_rank;
mod mamba;
mod mamba2;
mod mlp;
mod parts;
mod projected;
mod registry;
mod residual;
mod rope;
mod share;
mod short_conv;
mod step;
#[cfg(test)]
mod testing;
mod top_k;
mod tower;
mod updates;
mod windows;
mod wrapped;

pub use alt_up::{AltUp, AltUpEnds};
pub use attention::{Attention, heads_of, spec_of};
pub use classifier::{Classifier, Pooling};
pub use delta_net::GatedDeltaNet;
pub use latent::LatentAttention;
pub use layers::{Embedding, LayerNorm, Linear, RmsNorm};
pub use loader::Loader;
pub use low_rank::LowRank;
pub use mamba::{Mamba, MambaSpec};
pub use mamba2::{Mamba2, Mamba2Spec};
pub use mlp::{FeedForward, GatedMlp, Mlp, Moe, activation};
pub use ogive_backend::{self as backend, tensor};
pub use projected::Projected;
pub use registry::{Build, BuildTower, Registry};
pub use residual::Residual;
pub use rope::{rope, rope_of};
pub use share::{Share, is_head, is_layer_table, is_token_table};
pub use short_conv::ShortConv;
pub use step::{Observer, Step};
pub use tensor::{Config, Source};
pub use top_k::GaussianTopK;
pub use tower::{Patches, Tower};
pub use windows::group_by_window;

use backend::{Cache, LayerCache};
use std::fmt::Debug;
use tensor::{Error, Result, Tensor};

/// A model: weights and the order to use them in. It keeps no state between steps, so one model serves any number of
/// sequences.
pub trait Model: Debug + Send + Sync {
    /// What each cache layer holds.
    fn cache_layout(&self) -> Vec<LayerCache>;
    /// The last layer's output, normed. `[n, dim]`
    ///
    /// # Errors
    /// If an id has no vector, or, where tokens see later ones, if a text is not whole in the step; else as
    /// [all operators](backend::Backend#errors).
    fn hidden(&self, step: &Step<'_>) -> Result<Tensor>;
    /// Logits of any rows of it. `[m, dim] -> [m, vocab]`
    ///
    /// # Errors
    /// If it has no head, as encoders have none; else as [all operators](backend::Backend#errors).
    fn head(&self, step: &Step<'_>, hidden: Tensor) -> Result<Tensor>;
    /// How many token ids it has vectors for, if it says. An engine refuses the others at once; otherwise they fail the
    /// steps they are in.
    fn vocab(&self) -> Option<usize> {
        None
    }
    /// How many elements [vectors in place of tokens](backend::Batch::inputs) have, where it takes such. An engine refuses them for others.
    fn takes_vectors(&self) -> Option<usize> {
        None
    }
    /// Whether a token's result depends on no later one. Encoders say no: a text must be whole in one step, and no engine
    /// draws from them.
    fn causal(&self) -> bool {
        true
    }
    /// Which hidden states of a text its [`classes`](Self::classes) are read from, where the model has such: rerankers do, and others that
    /// judge texts.
    fn judges(&self) -> Option<Pooling> {
        None
    }
    /// The token that is passed over at the end of a text where the [last](Pooling::Last) state is what [judges](Self::judges): it is what the model learned
    /// to take for padding, whoever put it there.
    fn padding(&self) -> Option<u32> {
        None
    }
    /// Scores of classes, from texts' pooled states. `[texts, dim] -> [texts, classes]`
    ///
    /// # Errors
    /// If the model has no classes; else as [all operators](backend::Backend#errors).
    fn classes(&self, _step: &Step<'_>, _pooled: Tensor) -> Result<Tensor> {
        Err(Error::unsupported("model", "it has no head for classes of texts, as rerankers have one"))
    }
    /// Whether texts' pooled states go through [layers](Self::project) before they are vectors (sentence-transformers' `Dense`).
    fn projects(&self) -> bool {
        false
    }
    /// What such layers make of texts' pooled states. `[texts, dim] -> [texts, out]`
    ///
    /// # Errors
    /// As [all operators](backend::Backend#errors).
    fn project(&self, _step: &Step<'_>, pooled: Tensor) -> Result<Tensor> {
        Ok(pooled)
    }
    /// The logits of the rows the step asks for. `[outputs, vocab]`
    ///
    /// # Errors
    /// As [`hidden`](Self::hidden) and [`head`](Self::head).
    fn logits(&self, step: &Step<'_>) -> Result<Tensor> {
        let hidden = self.hidden(step)?;
        self.head(step, step.backend.outputs(&hidden, step.plan)?)
    }
}

/// Copies the blocks a step asks for, before the model runs. Here so that engine and tests do the same.
///
/// # Errors
/// As [`copy_blocks`](backend::Backend::copy_blocks); none where there are none to copy.
pub fn prepare(backend: &dyn backend::Backend, cache: &Cache, plan: &backend::Plan) -> Result<()> {
    if plan.batch().copies.is_empty() { Ok(()) } else { backend.copy_blocks(cache, plan) }
}
