//! GGUF files read and written: header, metadata, tensors; no machine learning.
//!
//! The format is the one ggml's `docs/gguf.md` describes: versions 1, 2 and 3, in both byte orders, whole or split.

mod array;
mod cursor;
mod error;
mod file;
mod ggml_type;
mod map;
mod metadata;
mod parse;
mod split;
mod tensor;
mod value;

pub use array::{Array, MAX_DEPTH, StringArray};
pub use cursor::ByteOrder;
pub use error::{Error, Result};
pub use file::Gguf;
pub use ggml_type::GgmlType;
pub use map::Bytes;
pub use metadata::Metadata;
pub use parse::DEFAULT_ALIGNMENT;
pub use split::split_file_name;
pub use tensor::{MAX_DIMS, TensorData, TensorInfo};
pub use value::{Str, Value, ValueType};
