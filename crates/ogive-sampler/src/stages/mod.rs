//! The stages that come with the crate, a file each.
//!
//! Constructors check their parameters; where llama.cpp takes anything and gives it a meaning (a negative
//! temperature), they refuse, because such a value is nearly always a mistake.

mod adaptive_p;
mod dry;
mod dynamic_temperature;
mod greedy;
mod logit_bias;
mod min_p;
mod mirostat;
mod offered;
mod penalties;
mod temperature;
mod top_k;
mod top_n_sigma;
mod top_p;
mod typical;
mod xtc;

pub use adaptive_p::AdaptiveP;
pub use dry::{Breakers, Dry, Vocabulary};
pub use dynamic_temperature::DynamicTemperature;
pub use greedy::Greedy;
pub use logit_bias::LogitBias;
pub use min_p::MinP;
pub use mirostat::{Mirostat, MirostatV2};
pub use penalties::Penalties;
pub use temperature::Temperature;
pub use top_k::TopK;
pub use top_n_sigma::TopNSigma;
pub use top_p::TopP;
pub use typical::Typical;
pub use xtc::Xtc;
