//! Why a program cannot be run under the emulator.

use std::path::PathBuf;

/// Why a program cannot be run under the emulator, and what to do about it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Neither Python nor its package manager is there.
    #[error(
        "fetching {wheel}: {python} with pip is not there ({detail}); install python3 and python3-pip, or set PYTHON"
    )]
    NoPip {
        /// What was to be fetched.
        wheel: String,
        /// The interpreter tried.
        python: String,
        /// What it said.
        detail: String,
    },
    /// The package index cannot be reached.
    #[error(
        "fetching {wheel}: the package index cannot be reached; once it was fetched, no network is needed\n{detail}"
    )]
    NoNetwork {
        /// What was to be fetched.
        wheel: String,
        /// The end of what pip said.
        detail: String,
    },
    /// The file is not the one that was pinned.
    #[error(
        "fetching {wheel}: its hash is not the pinned one, so it was thrown away; is the index a mirror that changes files?\n{detail}"
    )]
    WrongHash {
        /// What was to be fetched.
        wheel: String,
        /// The end of what pip said.
        detail: String,
    },
    /// pip failed in another way.
    #[error(
        "fetching {wheel}: pip failed; the versions are pinned in wheels.txt, for x86-64 Linux\n{detail}"
    )]
    Pip {
        /// What was to be fetched.
        wheel: String,
        /// The end of what pip said.
        detail: String,
    },
    /// A fetched wheel lacks what it is for.
    #[error("{wheel}: no {what} in {folder}; delete that folder and run again")]
    Incomplete {
        /// The wheel.
        wheel: String,
        /// The file looked for.
        what: String,
        /// Where it was unpacked.
        folder: PathBuf,
    },
    /// Not a platform with such libraries.
    #[error("the emulator stands in for libraries of x86-64 Linux; this is {platform}")]
    Platform {
        /// The platform.
        platform: String,
    },
    /// No folder for the wheels.
    #[error(
        "no folder for fetched wheels: this program is not in a cargo target folder; set PTX_EMU_CACHE to one"
    )]
    NoCache,
    /// The emulator was not built.
    #[error(
        "the emulator's library {path} is not there; `cargo build -p ptx-emulator` makes it, PTX_EMU_LIBRARY names another"
    )]
    NoLibrary {
        /// Where it should be.
        path: PathBuf,
    },
    /// A file or folder could not be made.
    #[error("{doing} {path}: {error}")]
    Files {
        /// What was being done.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// The system's words.
        error: String,
    },
}

impl Error {
    pub(crate) fn files(doing: &'static str, path: &std::path::Path, error: &std::io::Error) -> Self {
        Self::Files { doing, path: path.to_path_buf(), error: error.to_string() }
    }
}
