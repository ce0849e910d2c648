//! Many sequences on one model: a paged cache, continuous batching with chunked prefill, sessions.
//!
//! The engine speaks tokens and does no I/O; it has no threads and nothing asynchronous, so that a server can be built
//! on it in any runtime. [`Engine::step`] runs one forward pass over whatever is to be done and returns the tokens that
//! were drawn. [`Engine::run`] is the short way for one sequence: an iterator.
//!
//! Memory is bounded by [`Limits`] when the engine is made. When pages run out, the youngest sequence gives its pages
//! back and starts over later from the tokens it has; nothing wedges, and nothing of what it draws changes.

mod compute;
mod digest;
mod embed;
mod engine;
mod evaluate;
mod limits;
mod pool;
mod request;
mod saved;
mod schedule;
mod session;

pub use digest::Digest;
pub use embed::{Embed, Pooling, embed, embed_tokens};
pub use engine::{Engine, Stats};
pub use evaluate::{Evaluate, evaluate, score};
pub use limits::Limits;
pub use ogive_nn::{self as nn, backend, tensor};
pub use ogive_sampler as sampler;
pub use request::{Event, Finish, Request, SeqId};
pub use saved::Loaded;
pub use session::Session;
