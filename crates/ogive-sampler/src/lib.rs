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
//! # The stages
//!
//! Names, meanings, default values and the default order are llama.cpp's; the order below is that order, but that
//! logit bias comes first and mirostat and adaptive-p last. All are set in [`SamplerParams`]; the text is what
//! [`Samplers`] reads and a [`Chain`] prints.
//!
//! | stage | text | settings | off | must see |
//! |---|---|---|---|---|
//! | [`LogitBias`](stages::LogitBias) | `logit_bias` | `logit_bias` | empty | all, or the bans more |
//! | [`Penalties`](stages::Penalties) | `penalties:1.1:0:0:64` | `repeat_penalty` (1), `frequency_penalty` (0), `presence_penalty` (0), `penalty_last_n` (64) | neutral | `last_n` more |
//! | [`Dry`](stages::Dry) | `dry:0.8:1.75:2:64` | `dry_multiplier` (0), `dry_base` (1.75), `dry_allowed_length` (2), `dry_penalty_last_n` (64), `dry_sequence_breakers` | 0 | `last_n` more |
//! | [`TopNSigma`](stages::TopNSigma) | `top_n_sigma:1` | `top_n_sigma` (-1) | 0 and below | all |
//! | [`TopK`](stages::TopK) | `top_k:40` | `top_k` (40) | 0 | k |
//! | [`Typical`](stages::Typical) | `typ_p:0.95` | `typical_p` (1) | 1 | all |
//! | [`TopP`](stages::TopP) | `top_p:0.95` | `top_p` (0.95) | 1 | all |
//! | [`MinP`](stages::MinP) | `min_p:0.05` | `min_p` (0.05) | 0 | what follows |
//! | [`Xtc`](stages::Xtc) | `xtc:0.5:0.1` | `xtc_probability` (0), `xtc_threshold` (0.1) | 0; above 0.5 | all |
//! | [`Temperature`](stages::Temperature) | `temperature:0.8` | `temperature` (0.8) | 1 | all |
//! | [`DynamicTemperature`](stages::DynamicTemperature) | `temperature:0.8:0.5:1` | and `dynatemp_range` (0), `dynatemp_exponent` (1) | range 0 | all |
//! | [`Greedy`](stages::Greedy) | `greedy` | `temperature` 0 | | 1 |
//! | [`Mirostat`](stages::Mirostat) | `mirostat:5:0.1` | `mirostat` 1, `mirostat_tau` (5), `mirostat_eta` (0.1) | 0 | all |
//! | [`MirostatV2`](stages::MirostatV2) | `mirostat_v2:5:0.1` | `mirostat` 2, `mirostat_tau` (5), `mirostat_eta` (0.1) | 0 | all |
//! | [`AdaptiveP`](stages::AdaptiveP) | `adaptive_p:0.5:0.9` | `adaptive_target` (-1), `adaptive_decay` (0.9) | negative | all |
//!
//! llama.cpp's infill sampler is not among them: it needs the spelling of tokens, and no model here fills in.
//!
//! # Extending and sharing the work
//!
//! Any type that implements
//! [`Stage`] can stand in a chain. A device that holds the logits asks [`Chain::needs`] how many of the
//! best it must send, and [`Chain::sample_candidates`] takes those.

mod candidates;
mod chain;
mod error;
mod logprob;
mod mask;
mod math;
mod params;
mod rng;
mod samplers;
mod softmax;
mod stage;
pub mod stages;
mod state;

pub use candidates::{Candidate, Candidates, best};
pub use chain::Chain;
pub use error::SampleError;
pub use logprob::{LogProb, LogProbs};
pub use mask::Mask;
pub use params::SamplerParams;
pub use rng::Rng;
pub use samplers::{Sampler, Samplers, Step};
pub use stage::{Needs, Stage};
