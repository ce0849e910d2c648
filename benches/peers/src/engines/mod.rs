//! The engines that are compared, a file each. To add one: a file with a `Running` in it, and a line in the table.

mod candle;
#[cfg(feature = "llama-cpp")]
mod llama_cpp;
mod ogive;

use crate::Result;
use crate::phase::Phase;
use std::path::Path;

/// Tokens of a sequence at most.
pub(crate) const CONTEXT: usize = 4096;

/// An engine that can be started.
#[derive(Debug)]
pub(crate) struct Engine {
    /// What it is called on the command line.
    pub(crate) name: &'static str,
    /// Settings of which the best is taken for each phase.
    pub(crate) settings: &'static [&'static str],
    /// What it is measured in.
    pub(crate) phases: &'static [Phase],
    open: fn(&Path, &Start) -> Result<Box<dyn Running>>,
}

/// How an engine is started.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    pub(crate) threads: usize,
    /// One of the engine's own.
    pub(crate) setting: String,
    /// Sequences that will be decoded together.
    pub(crate) sequences: usize,
}

/// All engines. Ratios are the first's to the others.
pub(crate) const ENGINES: &[Engine] = &[
    Engine { name: "ogive", settings: &[""], phases: Phase::ALL, open: ogive::open },
    #[cfg(feature = "llama-cpp")]
    Engine { name: "llama.cpp", settings: llama_cpp::SETTINGS, phases: Phase::ALL, open: llama_cpp::open },
    // At depth and together it would only be slow: its attention copies the whole cache for each token.
    Engine { name: "candle", settings: &[""], phases: &[Phase::Decode, Phase::Prefill], open: candle::open },
];

/// Loads `model` in the engine called `name`.
pub(crate) fn open(name: &str, model: &Path, start: &Start) -> Result<Box<dyn Running>> {
    let engine = ENGINES.iter().find(|e| e.name == name).ok_or("no engine of that name")?;
    (engine.open)(model, start)
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
    /// Reads a prompt for each of several new sequences, then decodes `n` tokens of each, all sequences in each step. The
    /// seconds of the decoding alone.
    fn together(&mut self, _prompts: &[Vec<u32>], _n: usize) -> Result<f64> {
        Err("this engine decodes one sequence".into())
    }
}

/// The place of the largest.
fn best(logits: &[f32]) -> Result<u32> {
    let best = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).ok_or("no logits")?;
    Ok(best.0 as u32)
}
