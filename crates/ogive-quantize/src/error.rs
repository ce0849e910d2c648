//! Why a model was not packed.
//!
//! What the file's own parts say is passed on as it is; what is wrong with the whole is said here.

use std::path::PathBuf;

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a model was not packed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A weight or a setting could not be read.
    #[error(transparent)]
    Weights(#[from] ogive_tensor::Error),
    /// A GGUF file could not be read or written.
    #[error(transparent)]
    Gguf(#[from] gguf_file::Error),
    /// The vocabulary could not be read.
    #[error(transparent)]
    Tokenizer(#[from] ogive_tokenizer::TokenizerError),
    /// Something of the model has no place in a GGUF file.
    #[error("converting {what}: {why}")]
    Convert {
        /// What was being converted.
        what: String,
        /// Why it cannot be.
        why: String,
    },
    /// An importance matrix cannot be read, or is none of this model.
    #[error("{doing}: {why}")]
    Importance {
        /// What was being done, and with which file.
        doing: String,
        /// What is wrong with it.
        why: String,
    },
    /// A format's name is not known, or it is one that is only read.
    #[error("the format `{name}` is none that can be written; those that can are {known}")]
    UnknownFormat {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// A rule for tensors by name is none.
    #[error("the tensor rule `{rule}` {why}; write it as PATTERN=FORMAT, as in attn_v=q8_0, or PATTERN=keep")]
    Rule {
        /// The rule.
        rule: String,
        /// What is wrong with it.
        why: String,
    },
    /// A tensor cannot have the type that was asked for.
    #[error(
        "{tensor}: rows of {cols} elements are no whole blocks of {format}; choose another format for it"
    )]
    Blocks {
        /// The tensor.
        tensor: String,
        /// Elements of a row.
        cols: u64,
        /// The format.
        format: &'static str,
    },
    /// A tensor is packed already, and packing it anew was not allowed.
    #[error(
        "{tensor} is packed as {from} already, and packing it again as {to} loses more than packing the original would; \
         start from the f16, bf16 or f32 model, or allow requantizing (`--allow-requantize`)"
    )]
    Requantize {
        /// The tensor.
        tensor: String,
        /// What it is packed as.
        from: &'static str,
        /// What was asked for.
        to: &'static str,
    },
    /// A weight is no number, or too large for the format.
    #[error("{tensor}: element {col} of row {row} is {value}, which {format} cannot hold; {advice}")]
    Value {
        /// The tensor.
        tensor: String,
        /// Which row, through all experts.
        row: usize,
        /// Which element of the row.
        col: usize,
        /// What stands there.
        value: f32,
        /// The format that was asked for.
        format: &'static str,
        /// What to do about it.
        advice: &'static str,
    },
    /// A tensor's type is known to the file and not to any decoder here.
    #[error(
        "{tensor}: its type {ty} can be copied but not decoded; leave it as it is with the rule `{tensor}=keep` \
         (`--tensor-type`)"
    )]
    NotDecoded {
        /// The tensor.
        tensor: String,
        /// Its type.
        ty: &'static str,
    },
    /// A mix, or a rule, gives a tensor a type that is only read.
    #[error(
        "{tensor}: it would get the type {ty}, which is only read; choose another for it (`--tensor-type`)"
    )]
    NotEncoded {
        /// The tensor.
        tensor: String,
        /// Its type.
        ty: &'static str,
    },
    /// There is nothing to pack.
    #[error("{path}: there are no tensors in it; a vocabulary alone cannot be quantized")]
    Empty {
        /// The input.
        path: PathBuf,
    },
    /// The output's name is taken.
    #[error("{path}: there is something of this name already; choose another, or overwrite it with --force")]
    Exists {
        /// The output.
        path: PathBuf,
    },
    /// The output's name is that of the input, or of something that no file may replace.
    #[error("{path}: {why}")]
    Output {
        /// The output.
        path: PathBuf,
        /// Why nothing can be written there.
        why: &'static str,
    },
    /// The caller wanted no more of it.
    #[error("stopped before the file was whole; nothing was left")]
    Stopped,
    /// A thread ended before its work was done.
    #[error("a thread ended early; this is a bug, please report it")]
    Thread,
}

impl Error {
    pub(crate) fn convert(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Convert { what: what.into(), why: why.into() }
    }
}
