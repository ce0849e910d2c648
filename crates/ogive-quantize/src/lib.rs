//! Packs models: a GGUF file or a Hugging Face folder in, a GGUF file in any weight format out.
//!
//! ```no_run
//! use ogive_quantize::{FileFormat, Quantize};
//!
//! # fn main() -> ogive_quantize::Result<()> {
//! let packed = Quantize::new(FileFormat::find("q4_k_m")?).run("model-f16.gguf", "model-q4_k_m.gguf", |_| true)?;
//! println!("{:.2} bits a weight", packed.bits_per_weight());
//! # Ok(())
//! # }
//! ```
//!
//! # What can be relied on
//!
//! - **The choice of types is llama.cpp's** ([`Mix`]), tensor by tensor, and so are the bytes of the older formats (Q4_0,
//!   Q4_1, Q5_0, Q5_1, Q8_0). K-quants, IQ4, MXFP4 and NVFP4 are searched for a small error, every element's counting alike; of the
//!   tests' weights it is no larger than ggml's. Where a tensor has its type already, its bytes are copied.
//! - **Memory is bounded** by the largest tensor; of most only a few megabytes for each thread are made at a time.
//! - **The same bytes** come out on any number of threads.
//! - **Nothing half-written** is left under the output's name, whatever happens. A weight that is no number is an error that
//!   names it.
//! - **A folder is converted whole or not at all**: what has no place in a GGUF file, or cannot be read, is an error. The vocabulary that was
//!   written is read back and compared with the folder's own on a text before anything else is done.

mod convert;
mod encode;
mod error;
mod format;
mod importance;
mod input;
mod mix;
mod quantize;

pub use error::{Error, Result};
pub use format::{FILE_FORMATS, FileFormat, tensor_type};
pub use gguf_file::{self, GgmlType};
pub use importance::{Importance, Squares};
pub use input::Input;
pub use mix::{Facts, Mix, Rule, Shape};
pub use quantize::{Packed, Progress, Quantize, Summary};
