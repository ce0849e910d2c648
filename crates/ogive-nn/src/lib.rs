//! The vocabulary architectures are written in: a handful of layers, a loader that fills them, and the trait a finished
//! model implements.
//!
//! A model names layers and the order to use them in. It sees no device, element type or stride, and keeps no state
//! between steps: what sequences remember is in the [`Cache`], which comes with each [`Step`].

mod attention;
mod layers;
mod loader;
mod mlp;
mod registry;
mod residual;
mod rope;
mod step;

pub use attention::{Attention, group_by_window, heads_of};
pub use layers::{Embedding, LayerNorm, Linear, RmsNorm};
pub use loader::Loader;
pub use mlp::{FeedForward, GatedMlp, Mlp, Moe, activation};
pub use ogive_backend::{self as backend, tensor};
pub use registry::{Build, Registry};
pub use residual::Residual;
pub use rope::{rope, rope_of};
pub use step::{Observer, Step};
pub use tensor::{Config, Source};

use backend::{Cache, LayerCache};
use std::fmt::Debug;
use tensor::{Result, Tensor};

/// A model: weights and the order to use them in. It keeps no state between steps, so one model serves any number of
/// sequences.
pub trait Model: Debug + Send + Sync {
    /// What each cache layer holds.
    fn cache_layout(&self) -> Vec<LayerCache>;
    /// The last layer's output, normed. `[n, dim]`
    fn hidden(&self, step: &Step<'_>) -> Result<Tensor>;
    /// Logits of any rows of it. `[m, dim] -> [m, vocab]`
    fn head(&self, step: &Step<'_>, hidden: Tensor) -> Result<Tensor>;
    /// How many token ids it has vectors for, if it says. An engine refuses the others at once; otherwise they fail the
    /// steps they are in.
    fn vocab(&self) -> Option<usize> {
        None
    }
    /// Whether a token's result depends on no later one. Encoders say no: a text must be whole in one step, and no engine
    /// draws from them.
    fn causal(&self) -> bool {
        true
    }
    /// The logits of the rows the step asks for. `[outputs, vocab]`
    fn logits(&self, step: &Step<'_>) -> Result<Tensor> {
        let hidden = self.hidden(step)?;
        self.head(step, step.backend.outputs(&hidden, step.plan)?)
    }
}

/// Copies the blocks a step asks for, before the model runs. Here so that engine and tests do the same.
pub fn prepare(backend: &dyn backend::Backend, cache: &Cache, plan: &backend::Plan) -> Result<()> {
    if plan.batch().copies.is_empty() { Ok(()) } else { backend.copy_blocks(cache, plan) }
}
