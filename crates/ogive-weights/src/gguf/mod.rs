//! GGUF files under Hugging Face's names.
//!
//! A [`Translation`] says, for one architecture, what tensors and settings are called and which tensors must change. All
//! of it is data and functions in values: an architecture of another crate brings its own and forks nothing.

mod arch;
mod change;
mod header;
mod mmproj;
mod rope;
mod settings;
mod source;
mod translation;

pub use arch::translations;
pub use change::Change;
pub use header::Header;
pub use settings::Settings;
pub use source::{GgufSource, Origin};
pub use translation::{Rule, Translation};

pub(crate) use source::read;
pub(crate) use translation::{fill_in, find as find_translation};
