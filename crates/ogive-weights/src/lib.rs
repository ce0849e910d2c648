//! Weight files under one naming scheme, Hugging Face's: GGUF, safetensors, AWQ, GPTQ, `config.json`.
//!
//! [`open`] takes what users have, a GGUF file or a folder, and gives a [`Checkpoint`]: settings, the architecture's
//! name, and a [`Source`](ogive_tensor::Source) of packed tensors. No model has to ask which kind of file it was: GGUF's
//! names, keys and orders of rows are translated, by rules that are values ([`Translation`]), so that another crate can
//! add an architecture of its own.
//!
//! ```no_run
//! # fn main() -> ogive_tensor::Result<()> {
//! let checkpoint = ogive_weights::open("model.gguf")?;
//! println!("{}, {} layers", checkpoint.architecture, checkpoint.config.usize("num_hidden_layers")?);
//! let q = checkpoint.source.get("model.layers.0.self_attn.q_proj.weight")?;
//! println!("{:?} in {:?}", q.shape, q.format); // nothing was read or decoded yet
//! # Ok(())
//! # }
//! ```
//!
//! # What can be relied on
//!
//! - **Nothing is copied** that can be used as it is: a weight's bytes are a range of the mapped file. What must change
//!   (Llama's q and k rows in GGUF, Gemma's norms) is made when it is asked for, weights packed for PyTorch when they are read.
//! - **Nothing is lost**: AutoGPTQ's, AutoAWQ's and compressed-tensors' weights (`quantization_config`) are given as Q4_0, Q5_0 or
//!   Q8_0, which every backend has kernels for, with the same values to the bit. 8 bits whose zero points are not 128, scales that are
//!   no halves and groups that are no multiple of 32 fit none of those and are given as F32, of four to sixteen times their size.
//!   Columns that act-order moved are told by [`HostWeight::input_perm`](ogive_tensor::HostWeight::input_perm).
//! - **Nothing in a file is believed**: lengths, offsets and shapes are checked against the bytes that are there, and no
//!   input makes this crate panic or allocate more than a small multiple of a file's header, or for a packed weight of its bytes.
//! - **A tensor of an unknown format** does no harm until it is asked for; the error then names the tensor, its format
//!   and the formats that are known. A format of another crate is added with [`OpenOptions::format`].
//! - A mapped file **must not be changed or truncated** while anything of it is in use; where that cannot be promised,
//!   [`OpenOptions::mmap`] reads it instead.

mod adapter;
mod bytes;
mod classes;
mod dense;
mod files;
mod formats;
mod gguf;
mod huggingface;
mod json;
mod open;
mod packed;
mod safetensors;
mod sentence;

pub use ::gguf_file;
pub use bytes::bytes_of;
pub use files::is_of_model;
pub use gguf::{Change, GgufSource, Header, Origin, Rule, Settings, Translation, translations};
pub use ogive_tensor as tensor;
pub use open::{Checkpoint, OpenOptions, is_gguf, is_piped, open, read_piped};
pub use packed::is_float8;
pub use safetensors::Safetensors;
pub use sentence::SentenceSettings;
