//! An architecture added to Ogive from another crate, through the façade alone: GPT-NeoX, which Pythia is.
//!
//! ```no_run
//! # fn main() -> ogive::Result<()> {
//! let model = ogive::Options::new().registry(ogive_example_outside::registry()).open("pythia-160m")?;
//! # Ok(()) }
//! ```
//!
//! This is what docs/ADD-A-MODEL.md walks through. The model is in `gpt_neox.rs`; this file only gives it a name, so that a
//! second architecture has a place beside it.

mod gpt_neox;

pub use gpt_neox::load;

use ogive::nn::Registry;

/// Ogive's own architectures, and this one under the name that its `config.json` has in `architectures`. The tiny model's is one that Ogive does
/// not know, as yours will be; Pythia's it knows by now, and this one takes its place.
pub fn registry() -> Registry {
    ogive::models::registry().with("OwnGPTNeoXForCausalLM", load).with("GPTNeoXForCausalLM", load)
}
