//! Choosing the next token: a chain of stages edits the candidates, then one of them is drawn.
//!
//! The same logits, history and seed give the same tokens on every platform and every run. That rules
//! out the platform's mathematics library: the exponential, the sums and the random numbers are this
//! crate's own, made of operations that IEEE 754 fixes to the last bit, and probabilities are added up
//! as integers, so that no order of summation can matter.
//!
//! ```
//! use ogive_sampler::{Chain, SamplerParams};
//!
//! let logits = [1.0, 4.0, 2.0, f32::NAN];
//! assert_eq!(Chain::greedy().sample(&logits, &[])?, 1);
//!
//! let params = SamplerParams { temperature: 0.7, seed: 42, ..SamplerParams::default() };
//! let mut chain = params.build()?;
//! let mut history = vec![0];
//! for _ in 0..8 {
//!     let token = chain.sample(&logits, &history)?;
//!     history.push(token);
//! }
//! # Ok::<(), ogive_sampler::SampleError>(())
//! ```
//!
//! Names, meanings and the default order of the stages are llama.cpp's. Any type that implements
//! [`Stage`] can stand in a chain. A device that holds the logits asks [`Chain::needs`] how many of the
//! best it must send, and [`Chain::sample_candidates`] takes those.

mod candidates;
mod chain;
mod error;
mod params;
mod rng;
mod softmax;
mod stage;
pub mod stages;

pub use candidates::{Candidate, Candidates, best};
pub use chain::Chain;
pub use error::SampleError;
pub use params::SamplerParams;
pub use rng::Rng;
pub use stage::{Needs, Stage};
