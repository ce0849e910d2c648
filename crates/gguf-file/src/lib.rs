//! GGUF files read and written: header, metadata, tensors; no machine learning.
//!
//! The format is the one that ggml's `docs/gguf.md` describes: versions 1, 2 and 3 in either byte order are read, whole
//! or split into parts; version 3 in little-endian order is written. Of big-endian files the data of plain numbers and of the common
//! block formats are converted; of the others (formats by codebook, ternary ones) there are the bytes as they are.
//!
//! ```
//! use gguf_file::{GgmlType, Gguf, GgufWriter};
//!
//! # fn main() -> gguf_file::Result<()> {
//! # let folder = tempfile::tempdir().expect("a folder");
//! # let path = folder.path().join("tiny.gguf");
//! // Announce everything, then write the data. The file gets its name at `finish`.
//! let mut writer = GgufWriter::new();
//! writer.set("general.architecture", "llama").set("llama.block_count", 2u32);
//! writer.set("llama.feed_forward_length", vec![64i32, 96]);
//! writer.tensor("output.weight", &[2, 3], GgmlType::F32)?; // fastest first: 3 rows of 2
//! let mut data = writer.create(&path)?;
//! let weights: Vec<u8> = (0..6).flat_map(|i| (i as f32).to_le_bytes()).collect();
//! data.write_data("output.weight", &weights)?;
//! data.finish()?;
//!
//! // Opening maps the file: no tensor is read until it is looked at.
//! let file = Gguf::open(&path)?;
//! let meta = file.metadata();
//! assert_eq!(meta.str("general.architecture")?, "llama");
//! assert_eq!(meta.usize("llama.block_count")?, 2); // integers convert where they fit
//! assert_eq!(*meta.array_of_u32("llama.feed_forward_length")?, [64, 96]);
//! assert_eq!(meta.opt_f32("llama.rope.freq_base")?, None);
//!
//! let info = file.tensor("output.weight").expect("it was written");
//! assert_eq!((info.dims(), info.ggml_type()), (&[2, 3][..], Some(GgmlType::F32)));
//! // An owner and a range: the bytes stay valid when `file` is gone.
//! let data = file.data(info)?;
//! drop(file);
//! assert_eq!(data.bytes(), weights);
//! # Ok(())
//! # }
//! ```
//!
//! # What can be relied on
//!
//! - **Nothing in a file is believed.** Counts, lengths and offsets are checked against the bytes that are there before
//!   anything is allocated or touched; tensors that leave the file or overlap, names that stand twice, arrays that nest
//!   without end are errors, and no input makes this crate panic. Memory is at most a small multiple of the file's
//!   metadata.
//! - **Errors name what they are about**: the file, the key with its type and the type asked for, the tensor.
//! - **Tensors are not copied.** [`TensorData`] is a shared owner (the mapped file) and a range.
//! - **A tensor of an unknown element type** does no harm until its data are asked for.
//! - **Metadata strings are bytes** ([`Str`], [`StringArray`]), because vocabularies hold pieces that are not UTF-8;
//!   keys and tensor names are text.
//!
//! The one unsafe operation is the mapping: see [`Gguf::open`] for what it asks of the caller, and
//! [`Gguf::open_in_memory`], [`Gguf::read`] and [`Gguf::from_bytes`] for ways without it.

mod array;
mod cursor;
mod encode;
mod error;
mod file;
mod ggml_type;
mod map;
mod metadata;
mod output;
mod parse;
mod split;
mod swap;
mod tensor;
mod value;
mod writer;

pub use array::{Array, MAX_DEPTH, StringArray};
pub use cursor::ByteOrder;
pub use error::{Error, Result};
pub use file::Gguf;
pub use ggml_type::GgmlType;
pub use map::{Bytes, map_file, read_file};
pub use metadata::Metadata;
pub use parse::DEFAULT_ALIGNMENT;
pub use split::split_file_name;
pub use tensor::{MAX_DIMS, TensorData, TensorInfo};
pub use value::{Str, Value, ValueType};
pub use writer::{DataWriter, GgufWriter};
