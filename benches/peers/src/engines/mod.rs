//! The engines that are compared, a file each. To add one (llama.cpp by its crate `llama-cpp-2`, say): a file with a
//! `Running` in it, and a line in the table.

mod candle;
mod ogive;

use crate::Result;
use std::path::Path;

/// An engine that can be started.
#[derive(Debug)]
pub(crate) struct Engine {
    /// What it is called on the command line.
    pub(crate) name: &'static str,
    open: fn(&Path, usize) -> Result<Box<dyn Running>>,
}

/// All engines. Ratios are the first's to the others.
pub(crate) const ENGINES: &[Engine] =
    &[Engine { name: "ogive", open: ogive::open }, Engine { name: "candle", open: candle::open }];

/// Loads `model` in the engine called `name`.
pub(crate) fn open(name: &str, model: &Path, threads: usize) -> Result<Box<dyn Running>> {
    let engine = ENGINES.iter().find(|e| e.name == name).ok_or("no engine of that name")?;
    (engine.open)(model, threads)
}

/// A loaded model and one sequence of tokens.
pub(crate) trait Running {
    /// Name and version.
    fn about(&self) -> String;
    /// Tokens in the vocabulary.
    fn vocabulary(&self) -> usize;
    /// Forgets the sequence.
    fn clear(&mut self) -> Result<()>;
    /// Appends tokens to the sequence and gives the best next one.
    fn forward(&mut self, ids: &[u32]) -> Result<u32>;
}
