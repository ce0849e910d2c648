//! The stages that come with the crate, a file each.
//!
//! Constructors check their parameters; where llama.cpp takes anything and gives it a meaning (a negative
//! temperature), they refuse, because such a value is nearly always a mistake.

mod greedy;
mod logit_bias;
mod min_p;
mod penalties;
mod temperature;
mod top_k;
mod top_p;

pub use greedy::Greedy;
pub use logit_bias::LogitBias;
pub use min_p::MinP;
pub use penalties::Penalties;
pub use temperature::Temperature;
pub use top_k::TopK;
pub use top_p::TopP;
