//! Where weights come from. Here and not beside the loader, so that a crate that reads files depends on no machine.

use crate::{Format, HostWeight, Result};
use std::fmt::Debug;

/// What a file says of a weight, without its bytes.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct WeightInfo {
    /// In Hugging Face's names.
    pub name: String,
    /// `[experts, rows, cols]`, as in [`HostWeight`].
    pub shape: [usize; 3],
    /// How it is packed.
    pub format: &'static Format,
}

impl WeightInfo {
    /// A weight's name, shape and format.
    pub fn new(name: impl Into<String>, shape: [usize; 3], format: &'static Format) -> Self {
        Self { name: name.into(), shape, format }
    }
    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }
    /// Bytes the packed elements take.
    pub fn bytes(&self) -> usize {
        self.shape[0] * self.shape[1] * self.format.row_bytes(self.shape[2])
    }
}

/// A weight file: names and packed bytes. Safetensors and GGUF implement it, GGUF by translating its names to Hugging
/// Face's.
pub trait Source: Debug + Send + Sync {
    /// The tensor called `name`; a vector has one row.
    ///
    /// # Errors
    /// If there is none; the error [says so](crate::Error::is_missing). If there is one that cannot be given, as its type is not known or
    /// its bytes do not fill its shape.
    fn get(&self, name: &str) -> Result<HostWeight>;
    /// Every tensor that [`get`](Self::get) can give, in the order of the file. Tensors that cannot be given (of an
    /// unknown type, say) are left out here and an error there.
    fn tensors(&self) -> Vec<WeightInfo>;
    /// The names of those that [`tensors`](Self::tensors) leaves out, for whoever must not lose any without a word: what is
    /// wrong with one, [`get`](Self::get) says. None, unless a source knows of some.
    fn left_out(&self) -> Vec<String> {
        Vec::new()
    }
    /// The names of matrices (without `.weight`) that this source adds something to (an adapter's update, as `NAME.lora_A.weight` and
    /// `NAME.lora_B.weight`) that nobody asked it for so far: if there are any once a model is loaded, it goes without them. None, unless a
    /// source knows of some.
    fn unused(&self) -> Vec<String> {
        Vec::new()
    }
}
