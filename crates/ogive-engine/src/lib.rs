//! Many sequences on one model: a paged cache, continuous batching with chunked prefill, sessions.
//!
//! The engine speaks tokens and does no I/O; it has no threads and nothing asynchronous, so that a server can be built
//! on it in any runtime. [`Engine::step`] runs one forward pass over whatever is to be done and returns the tokens that
//! were drawn. [`Engine::run`] is the short way for one sequence: an iterator.
//!
//! Memory is bounded by [`Limits`] when the engine is made. When pages run out, the sequence that came last gives back its last
//! ones, or all where a model's states or windows leave no way back, and has those tokens computed again later; nothing wedges, and
//! nothing of what it draws changes.
//!
//! ```
//! use ogive_engine::{Engine, Limits, Request, backend::Backend, nn::Loader};
//! use std::sync::Arc;
//!
//! # fn main() -> ogive_engine::tensor::Result<()> {
//! let backend: Arc<dyn Backend> = Arc::new(ogive_conformance::Oracle);
//! let file = ogive_weights::open("../ogive-models/tests/golden/llama")?;
//! let loader = Loader::new(&*file.source, &*backend);
//! let model = ogive_models::registry().build(&file.architecture, &file.config, &loader)?;
//! let mut engine = Engine::new(backend, model.into(), Limits::new(32).sequences(2))?;
//!
//! // One sequence by itself: an iterator.
//! let mut alone = Vec::new();
//! for event in engine.run(Request::new([1, 2, 3], 4))? {
//!     alone.extend(event?.token);
//! }
//!
//! // Two at a time: whoever calls decides when a step is taken, and who hears of its tokens.
//! let first = engine.add(Request::new([1, 2, 3], 4))?;
//! let second = engine.add(Request::new([9, 8], 6))?;
//! let mut drawn = [Vec::new(), Vec::new()];
//! while !engine.is_idle() {
//!     for event in engine.step()? {
//!         drawn[usize::from(event.id == second)].extend(event.token);
//!     }
//! }
//! assert_eq!(drawn[0], alone, "nothing of {first} depends on {second}");
//! assert_eq!(drawn[1].len(), 6);
//! # Ok(())
//! # }
//! ```

mod ahead;
mod classify;
mod compute;
mod digest;
mod draft;
mod embed;
mod engine;
mod evaluate;
mod inputs;
mod limits;
mod pool;
mod request;
mod saved;
mod schedule;
mod session;
mod speculate;

pub use classify::{classify, next_logits};
pub use digest::Digest;
pub use draft::{Asked, Draft, DraftModel, Lookup};
pub use embed::{Embed, embed, embed_after, embed_tokens};
pub use engine::{Engine, Stats};
pub use evaluate::{Evaluate, evaluate, score};
pub use inputs::Placed;
pub use limits::Limits;
pub use nn::Pooling;
pub use ogive_nn::{self as nn, backend, tensor};
pub use ogive_sampler as sampler;
pub use request::{Event, Finish, Request, SeqId};
pub use saved::Loaded;
pub use session::Session;
