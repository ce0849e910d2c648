//! Ogive's own model, under a name that stands where a path does.
//!
//! A name and not a function of its own: whatever takes a path, with whatever options, then takes this model too.

use crate::tensor::Error as ModelError;
use crate::weights::gguf_file::{self, Gguf};
use crate::{Error, Result};
use std::path::Path;

/// What to [`open`](crate::open) for the model that is part of Ogive, `ogive-demo-model`: less than three megabytes, in the
/// program's own memory, and not copied. It tells short stories and knows the capitals of a hundred countries; it is for
/// trying things, and for tests. Needs the feature `demo-model`.
///
/// ```
/// # fn main() -> ogive::Result<()> {
/// # if !cfg!(feature = "demo-model") { return Ok(()) }
/// let model = ogive::open(ogive::DEMO)?;
/// let how = ogive::Generate::greedy();
/// let answer = model.chat()?.send("What is the capital of France?", &how)?.text()?;
/// assert_eq!(answer, "The capital of France is Paris.");
/// # Ok(()) }
/// ```
pub const DEMO: &str = "ogive:demo";

/// Opens the file at `path`, or the one behind [`DEMO`], as far as its metadata.
///
/// # Errors
/// If there is no GGUF file, or it is damaged.
pub fn open_gguf(path: impl AsRef<Path>) -> Result<Gguf> {
    let path = path.as_ref();
    if is_demo(path) { demo() } else { Gguf::open(path).map_err(failed) }
}

fn failed(e: gguf_file::Error) -> Error {
    ModelError::other("opening a model", e).into()
}

/// Whether a path is [`DEMO`] and no file. (A file may have any name; it comes first.)
pub fn is_demo(path: &Path) -> bool {
    path == Path::new(DEMO) && !path.exists()
}

#[cfg(feature = "demo-model")]
fn demo() -> Result<Gguf> {
    Gguf::from_bytes(ogive_demo_model::GGUF).map_err(failed)
}

#[cfg(not(feature = "demo-model"))]
fn demo() -> Result<Gguf> {
    let why = "this build of Ogive does not carry it; build with the feature `demo-model`, or give a path";
    Err(ModelError::unsupported(DEMO, why).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_there_if_it_was_built_in_and_says_so_if_not() {
        match open_gguf(DEMO) {
            Ok(file) => assert!(cfg!(feature = "demo-model") && file.tensor("token_embd.weight").is_some()),
            Err(e) => assert!(
                !cfg!(feature = "demo-model") && e.to_string().contains("feature `demo-model`"),
                "{e}"
            ),
        }
        assert!(!is_demo(Path::new("demo")) && open_gguf("ogive:other").is_err());
    }
}
