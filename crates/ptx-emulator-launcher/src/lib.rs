//! Runs CUDA programs on the emulator: fetches the compilers, lays out the libraries, sets the environment.
//!
//! The emulator is found as a driver is found, by its file's name on the loader's path. So a program needs no change and no
//! feature, at the price of a process of its own: the loader reads its path once, when a process starts. `cargo xtask emu` is
//! this crate with a command line; [`mod@test`] is it inside `cargo test`.
//!
//! ```
//! use ptx_emulator_launcher::{Error, Launcher, Nvrtc};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let launcher = Launcher::new().nvrtc(Nvrtc::V13).set("PTX_EMU_SEED", "7");
//! # let launcher = launcher.library("nowhere/libptx_emulator.so");
//! match launcher.command("target/debug/my-cuda-program", &|work| println!("{work}")) {
//!     Ok(mut program) => assert!(program.status()?.success()),
//!     // What is missing is named, and how it comes there.
//!     Err(Error::NoLibrary { path }) => println!("no {}: `cargo build -p ptx-emulator`", path.display()),
//!     Err(other) => return Err(other.into()),
//! }
//! # let missing = launcher.command("x", &|_| ()).unwrap_err();
//! # assert!(missing.to_string().contains("cargo build -p ptx-emulator"), "{missing}");
//! # Ok(())
//! # }
//! ```

mod error;
mod links;
pub mod test;
mod wheels;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

pub use error::Error;
pub use wheels::Nvrtc;

/// Where a wheel's files are kept, instead of `emu` in cargo's target folder.
pub const CACHE: &str = "PTX_EMU_CACHE";
/// The emulator's library, instead of the one cargo built.
pub const LIBRARY: &str = "PTX_EMU_LIBRARY";

/// Of which CUDA the emulator's cuBLAS says it is: the compiler's, unless it is [`set`](Launcher::set).
const CUBLAS: &str = "PTX_EMU_CUBLAS";

/// Few tests take so long; one that does mostly waits for something that never comes.
const PATIENCE: Duration = Duration::from_secs(120);

/// What runs under the emulator sees these of its settings. The table of all is in the emulator's README.
#[derive(Clone, Debug)]
pub struct Launcher {
    nvrtc: Nvrtc,
    every_nvrtc: bool,
    library: Option<PathBuf>,
    cache: Option<PathBuf>,
    settings: Vec<(OsString, OsString)>,
    patience: Duration,
}

impl Default for Launcher {
    fn default() -> Self {
        Self::new()
    }
}

impl Launcher {
    /// NVRTC 12, cuBLAS of the same generation, and every other setting as the environment has it.
    #[must_use]
    pub fn new() -> Self {
        Self {
            nvrtc: Nvrtc::V12,
            every_nvrtc: false,
            library: None,
            cache: None,
            settings: Vec::new(),
            patience: PATIENCE,
        }
    }

    /// Which compiler the program finds as `libnvrtc.so`.
    #[must_use]
    pub fn nvrtc(mut self, nvrtc: Nvrtc) -> Self {
        self.nvrtc = nvrtc;
        self
    }

    /// The emulator's library, where it is not the one beside the running test.
    #[must_use]
    pub fn library(mut self, library: impl Into<PathBuf>) -> Self {
        self.library = Some(library.into());
        self
    }

    /// The folder for fetched wheels, where it is not the one in cargo's target folder.
    #[must_use]
    pub fn cache(mut self, cache: impl Into<PathBuf>) -> Self {
        self.cache = Some(cache.into());
        self
    }

    /// One of the emulator's settings: a variable of the program's environment (`PTX_EMU_SEED`).
    #[must_use]
    pub fn set(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.settings.push((name.into(), value.into()));
        self
    }

    /// How long a [`mod@test`]'s process may take, where two minutes are not enough.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// All compilers shall be there, for a program that opens them by their folders.
    #[must_use]
    pub fn every_nvrtc(mut self) -> Self {
        self.every_nvrtc = true;
        self
    }

    /// The folder with NVRTC's library, fetched if need be.
    ///
    /// # Errors
    /// See [`Error`]; where fetching failed a moment ago, the same error at once.
    pub fn nvrtc_folder(&self, nvrtc: Nvrtc, say: &dyn Fn(&str)) -> Result<PathBuf, Error> {
        nvrtc.folder(&self.cache_folder()?, say)
    }

    /// nvcc's folder (`bin`, `include`, `nvvm`), fetched if need be. It wants a C++ compiler of the machine beside it.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn nvcc_folder(&self, say: &dyn Fn(&str)) -> Result<PathBuf, Error> {
        wheels::nvcc(&self.cache_folder()?, say)
    }

    /// Everything the program needs in its environment, after fetching what is missing. `say` hears of work that takes a while.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn environment(&self, say: &dyn Fn(&str)) -> Result<Vec<(OsString, OsString)>, Error> {
        let library = self.find_library()?;
        if self.every_nvrtc {
            Nvrtc::ALL.into_iter().try_for_each(|nvrtc| self.nvrtc_folder(nvrtc, say).map(drop))?;
        }
        let compiler = self.nvrtc_folder(self.nvrtc, say)?;
        let links = links::lay(&library, self.nvrtc, &compiler)?;
        let mut path = OsString::from(&links);
        path.push(":");
        path.push(&compiler);
        if let Some(old) = std::env::var_os(links::LOADER_PATH).filter(|old| !old.is_empty()) {
            path.push(":");
            path.push(old);
        }
        let mut all = vec![
            (links::LOADER_PATH.into(), path),
            (CACHE.into(), self.cache_folder()?.into_os_string()),
            (LIBRARY.into(), library.into_os_string()),
            (CUBLAS.into(), self.nvrtc.cuda().into()),
        ];
        all.extend(self.settings.iter().cloned());
        Ok(all)
    }

    /// `program`, to be run under the emulator.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn command(&self, program: impl AsRef<OsStr>, say: &dyn Fn(&str)) -> Result<Command, Error> {
        let mut command = Command::new(program);
        command.envs(self.environment(say)?);
        Ok(command)
    }

    /// The folder for what is fetched and made from it.
    ///
    /// # Errors
    /// [`Error::NoCache`] if nothing says where.
    pub fn cache_folder(&self) -> Result<PathBuf, Error> {
        if let Some(cache) = &self.cache {
            return Ok(cache.clone());
        }
        if let Some(cache) = std::env::var_os(CACHE).filter(|cache| !cache.is_empty()) {
            return Ok(cache.into());
        }
        target_folder().map(|target| target.join("emu")).ok_or(Error::NoCache)
    }

    /// The library named, or the one cargo built beside this executable: the tests' own build, never an older one.
    fn find_library(&self) -> Result<PathBuf, Error> {
        let named = self
            .library
            .clone()
            .or_else(|| std::env::var_os(LIBRARY).filter(|l| !l.is_empty()).map(PathBuf::from));
        let found = named.or_else(|| {
            let beside = std::env::current_exe().ok()?;
            let folder = beside.parent()?;
            [
                folder.join(links::FILE),
                folder.join("deps").join(links::FILE),
                folder.parent()?.join(links::FILE),
            ]
            .into_iter()
            .find(|path| path.is_file())
        });
        if found.is_none() {
            // Building it would not help there.
            wheels::here()?;
        }
        let library = found.ok_or(Error::NoLibrary { path: links::FILE.into() })?;
        std::path::absolute(&library)
            .ok()
            .filter(|path| path.is_file())
            .ok_or(Error::NoLibrary { path: library })
    }
}

/// Cargo's target folder: the nearest one above this executable that cargo marked as a cache.
fn target_folder() -> Option<PathBuf> {
    let exe = std::env::current_exe().ok()?;
    exe.ancestors().find(|folder| folder.join("CACHEDIR.TAG").is_file()).map(Path::to_path_buf)
}
