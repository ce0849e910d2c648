//! Run language models: GGUF or safetensors in, tokens out.
//!
//! ```no_run
//! # fn main() -> ogive::Result<()> {
//! let model = ogive::open("model.gguf")?;
//! let mut session = model.session()?;
//! for piece in session.generate("Once upon a time", &ogive::Generate::new())? {
//!     print!("{}", piece?);
//! }
//! # Ok(()) }
//! ```
//!
//! | feature | what it brings |
//! |---|---|
//! | `cpu` (default) | the CPU backend |
//! | `cuda-11`, `cuda-12`, `cuda-13` | NVIDIA GPUs, by that generation of NVIDIA's libraries; they add up, and building needs nothing of CUDA |
//! | `grammar` | answers held to a JSON Schema, a GBNF grammar or a regular expression |
//! | `vision` | images in prompts and conversations, for models that see: `Options::vision` |
//! | `demo-model` | [`DEMO`], which stands for a path too: a small model that is part of Ogive, for first steps and tests |
//!
//! A [`Model`] is immutable, `Send` and `Sync`, and cheap to clone; what a text has seen so far is in a [`Session`] (or a
//! [`Chat`], which renders messages by the model's template). [`Options`] choose the device, the context and the
//! precision, and bring in architectures, weight formats and backends from elsewhere. For many sequences at once there
//! is [`Model::engine`]. Nothing here is global, and nothing prints: progress and warnings go to [`tracing`].
//!
//! All of it is synchronous: give it a thread of its own in an asynchronous program. A model computes with one pool of threads, at which
//! sessions of several threads take turns. Drop a [`Generation`] to cancel it.

mod answer;
mod asking;
mod calibration;
mod calls;
mod chat;
mod classify;
#[cfg(feature = "grammar")]
mod constrained;
mod conversation;
mod demo;
mod device;
mod draft;
mod embed;
mod endless;
mod error;
mod fingerprint;
mod fits;
#[cfg(feature = "grammar")]
mod forced;
mod generate;
mod gpus;
mod logprobs;
mod memory;
mod model;
mod notes;
mod options;
mod perplexity;
mod placement;
mod rerank;
mod saved;
mod session;
mod stop;
#[cfg(feature = "grammar")]
mod strict;
mod thinking;
#[cfg(feature = "vision")]
mod vision;
mod vocabulary;

pub use answer::Answer;
pub use calibration::Calibration;
pub use chat::{Chat, Reply};
pub use classify::{Class, Classify, Scores};
pub use conversation::Conversation;
pub use demo::{DEMO, is_demo, open_gguf};
pub use device::{CudaDevices, Device, cpu_is_forced, device_memory, devices, libraries};
pub use draft::Draft;
pub use embed::Embed;
pub use error::{Error, Result, with_causes};
pub use generate::{Generate, Prompt};
pub use logprobs::{Logprob, TokenLogprobs};
pub use memory::Memory;
pub use model::Model;
pub use options::Options;
pub use perplexity::{Perplexity, Score};
pub use placement::GpuLayers;
pub use rerank::Rerank;
pub use session::{Generation, Session, Times};
pub use thinking::Parts;
#[cfg(feature = "vision")]
pub use vision::Image;
pub use vocabulary::open_tokenizer;

#[cfg(feature = "cpu")]
pub use ogive_cpu as cpu;
#[cfg(feature = "cuda")]
pub use ogive_cuda as cuda;
pub use ogive_engine::{self as engine, Pooling, backend, nn, sampler, tensor};
#[cfg(feature = "grammar")]
pub use ogive_grammar as grammar;
pub use ogive_models as models;
pub use ogive_tokenizer as tokenizer;
pub use ogive_tokenizer::tools::{CallEvent, Tool, ToolCall};
#[cfg(feature = "vision")]
pub use ogive_vision as images;
pub use ogive_weights as weights;

pub use ndarray;

/// Opens the model at `path`, a GGUF file (of a split, the first part), a Hugging Face folder or [`DEMO`], on the
/// best device.
///
/// # Errors
/// As [`Options::open`].
pub fn open(path: impl AsRef<std::path::Path>) -> Result<Model> {
    Options::new().open(path)
}

/// What the model at `path` would take with the settings of [`open`], without loading it.
///
/// # Errors
/// As [`Options::estimate_memory`].
pub fn estimate_memory(path: impl AsRef<std::path::Path>) -> Result<Memory> {
    Options::new().estimate_memory(path)
}
