//! Everything that can go wrong, in one type.
//!
//! One type and not one per module: a caller opens a file, asks for keys and reads tensors in one breath, and wants
//! one `?`. Errors of a file on disk are wrapped once in [`Error::File`], which names the path; a parser that reads
//! memory does not know one.

use std::path::PathBuf;

/// Why a GGUF file could not be read, asked, or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused something.
    #[error("{doing} failed: {source}")]
    Io {
        /// What was being done, such as "opening the file".
        doing: &'static str,
        /// The system's reason.
        source: std::io::Error,
    },

    /// An error in a file on disk, with its path.
    #[error("{}: {error}", path.display())]
    File {
        /// The file that was being read or written.
        path: PathBuf,
        /// What was wrong with it.
        error: Box<Self>,
    },

    /// The first four bytes are not `GGUF`.
    #[error(
        "not a GGUF file: {}; check that the download is complete and is no web page or archive",
        begins(found)
    )]
    BadMagic {
        /// The bytes found, at most four, as text where they are ASCII; none of an empty file.
        found: String,
    },

    /// The version is none that this crate reads.
    #[error("GGUF version {version} is unknown; versions 1, 2 and 3 are read in both byte orders")]
    UnknownVersion {
        /// The version, read as little-endian.
        version: u32,
    },

    /// The file ends before something that it announces.
    #[error(
        "reading {what} at byte {at}: {needed} bytes are announced but {left} are left; the file is truncated or damaged"
    )]
    Truncated {
        /// What was being read.
        what: String,
        /// Where in the file.
        at: usize,
        /// How many bytes it takes, at least.
        needed: u64,
        /// How many bytes are left from there.
        left: usize,
    },

    /// A key or tensor name is not UTF-8.
    #[error("reading {what} at byte {at}: it is not UTF-8; the file is damaged")]
    NameNotUtf8 {
        /// Which kind of name.
        what: &'static str,
        /// Where in the file it begins.
        at: usize,
    },

    /// A key or tensor stands in the file twice.
    #[error("{what} `{name}` stands in the file twice")]
    Duplicate {
        /// "metadata key" or "tensor".
        what: &'static str,
        /// Its name.
        name: String,
    },

    /// A metadata value that the format does not allow.
    #[error("metadata key `{key}`: {problem}")]
    BadValue {
        /// The key.
        key: String,
        /// What is wrong with its value and what is allowed.
        problem: String,
    },

    /// A tensor description that makes no sense, or that leaves the file.
    #[error("tensor `{name}`: {problem}")]
    BadTensor {
        /// The tensor.
        name: String,
        /// What is wrong.
        problem: String,
    },

    /// The data of a tensor was asked for whose element type is not known.
    #[error("tensor `{name}` has element type {type_id}{hint}, so its size is not known; known are {known}")]
    UnknownType {
        /// The tensor.
        name: String,
        /// The type's number in the file.
        type_id: u32,
        /// What is known about the number, or nothing.
        hint: String,
        /// Names and numbers of all known types.
        known: String,
    },

    /// A block format of a big-endian file, of which it is not known which bytes would have to be swapped.
    #[error(
        "tensor `{name}` holds {type_name} blocks in big-endian order, which are not converted; use a little-endian file, or `raw_data` for the bytes as they are"
    )]
    BigEndianBlocks {
        /// The tensor.
        name: String,
        /// Its element type.
        type_name: &'static str,
    },

    /// No tensor of that name.
    #[error("the file has no tensor `{name}`")]
    NoSuchTensor {
        /// The name asked for.
        name: String,
    },

    /// A metadata key that was asked for is not there.
    #[error("metadata key `{key}` is missing")]
    MissingKey {
        /// The key asked for.
        key: String,
    },

    /// A metadata key holds another type than was asked for.
    #[error("metadata key `{key}` holds {found}, where {expected} is expected")]
    WrongType {
        /// The key asked for.
        key: String,
        /// What the caller asked for.
        expected: &'static str,
        /// What the file has.
        found: String,
    },

    /// A metadata number does not fit the type that was asked for.
    #[error("metadata key `{key}` is {value}, which does not fit {expected}")]
    OutOfRange {
        /// The key asked for.
        key: String,
        /// The value in the file.
        value: String,
        /// What the caller asked for.
        expected: &'static str,
    },

    /// A metadata string that was asked for as text is not UTF-8.
    #[error("metadata key `{key}` is a string that is not UTF-8; read it as bytes")]
    StringNotUtf8 {
        /// The key asked for.
        key: String,
    },

    /// The parts of a split file do not belong together.
    #[error("opening a split file: {problem}")]
    Split {
        /// What is wrong, and what to do.
        problem: String,
    },

    /// The writer was asked for something it cannot do.
    #[error("writing: {problem}")]
    Write {
        /// What is wrong.
        problem: String,
    },
}

/// What is wrong with a file's first bytes.
fn begins(found: &str) -> String {
    if found.is_empty() {
        return "it is empty".into();
    }
    format!("it begins with \"{found}\", not with \"GGUF\"")
}

impl Error {
    /// An [`Error::Io`] from a system error.
    pub(crate) fn io(doing: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { doing, source }
    }

    /// This error with the path of the file it happened in.
    pub(crate) fn in_file(self, path: &std::path::Path) -> Self {
        match self {
            Self::File { .. } => self,
            other => Self::File { path: path.to_owned(), error: Box::new(other) },
        }
    }

    /// The error itself, without the path that [`Error::File`] adds.
    #[must_use]
    pub fn kind(&self) -> &Self {
        match self {
            Self::File { error, .. } => error.kind(),
            other => other,
        }
    }
}

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
