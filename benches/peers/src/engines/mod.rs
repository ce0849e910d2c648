//! The engines that are compared, a file each. To add one: a file with a `Running` in it, and a line in the table.

#[cfg(feature = "candle")]
mod candle;
#[cfg(feature = "llama-cpp")]
mod llama_cpp;
mod ogive;

use crate::Result;
use crate::phase::Phase;
use serde::Serialize;
use std::path::Path;

/// An engine that can be started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Engine {
    /// What it is called on the command line.
    pub(crate) name: &'static str,
    /// Whether it runs without being named.
    pub(crate) usual: bool,
    /// Settings of which the best is taken for each phase.
    pub(crate) settings: &'static [&'static str],
    /// Settings that are started to see how long that takes.
    pub(crate) starts: &'static [&'static str],
    /// What it is measured in.
    pub(crate) phases: &'static [Phase],
    /// Whether it keeps keys and values in what is asked for.
    pub(crate) caches: bool,
    /// Whether it rounds F16 and F32 weights to bf16, and multiplies them as those.
    pub(crate) rounds: bool,
    open: fn(&Path, &Start) -> Result<Box<dyn Running>>,
}

/// How an engine is started.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    pub(crate) threads: usize,
    /// One of the engine's own.
    pub(crate) setting: String,
    /// Tokens of a sequence at most.
    pub(crate) context: usize,
    pub(crate) cache: Cache,
}

/// What keys and values are kept in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Cache {
    #[default]
    F16,
    #[value(name = "q8_0")]
    #[serde(rename = "q8_0")]
    Q8,
}

impl Cache {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::Q8 => "q8_0",
        }
    }

    /// Bytes of so many elements, whole blocks of them.
    pub(crate) const fn bytes(self, elements: u64) -> u64 {
        match self {
            Self::F16 => elements * 2,
            Self::Q8 => elements / 32 * 34,
        }
    }
}

/// All engines. Ratios are the first's to the others.
pub(crate) const ENGINES: &[Engine] = &[
    Engine {
        name: "ogive",
        usual: true,
        settings: &[""],
        starts: &[ogive::BACKGROUND, "", ogive::AS_STORED],
        phases: Phase::ALL,
        caches: true,
        rounds: false,
        open: ogive::open,
    },
    Engine {
        name: "ogive-bf16",
        usual: false,
        settings: &[ogive::BF16],
        starts: &[ogive::BF16],
        phases: Phase::ALL,
        caches: true,
        rounds: true,
        open: ogive::open,
    },
    #[cfg(feature = "llama-cpp")]
    Engine {
        name: "llama.cpp",
        usual: true,
        settings: llama_cpp::SETTINGS,
        starts: llama_cpp::STARTS,
        phases: Phase::ALL,
        caches: true,
        rounds: false,
        open: llama_cpp::open,
    },
    #[cfg(feature = "candle")]
    // At depth and together it would only be slow: its attention copies the whole cache for each token.
    Engine {
        name: "candle",
        usual: true,
        settings: &[""],
        starts: &[""],
        phases: &[Phase::Decode, Phase::Prefill],
        caches: false,
        rounds: false,
        open: candle::open,
    },
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
#[cfg(any(feature = "candle", feature = "llama-cpp"))]
fn best(logits: &[f32]) -> Result<u32> {
    let best = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).ok_or("no logits")?;
    Ok(best.0 as u32)
}
