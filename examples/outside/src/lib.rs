//! An architecture added to Ogive from another crate, through the façade alone: GPT-2.
//!
//! ```no_run
//! # fn main() -> ogive::Result<()> {
//! let model = ogive::Options::new().registry(ogive_example_outside::registry()).open("gpt2")?;
//! # Ok(()) }
//! ```
//!
//! This is what docs/ADD-A-MODEL.md walks through. The model is in `gpt2.rs`; this file only gives it a name, so that a
//! second architecture has a place beside it.

mod gpt2;

pub use gpt2::load;

use ogive::nn::Registry;

/// Ogive's own architectures, and GPT-2 under the name that its `config.json` has in `architectures`.
pub fn registry() -> Registry {
    ogive::models::registry().with("GPT2LMHeadModel", load)
}
