//! A folder of links under the names by which programs look for NVIDIA's libraries.
//!
//! All names lead to one file: the loader compares files and not names, so driver and cuBLAS share one memory. The folder
//! lies beside the library it leads to, so that two builds never share one.

use std::path::{Path, PathBuf};

use crate::Error;
use crate::wheels::Nvrtc;

/// The file cargo builds.
pub(crate) const FILE: &str = "libptx_emulator.so";
/// Where the loader looks first.
pub(crate) const LOADER_PATH: &str = "LD_LIBRARY_PATH";

/// Names of the emulator without a generation.
const NAMES: [&str; 3] = ["libcuda.so", "libcuda.so.1", "libcublas.so"];

/// The folder, with all its links in place. cuBLAS is of the compiler's generation, as with a toolkit.
pub(crate) fn lay(library: &Path, nvrtc: Nvrtc, compiler: &Path) -> Result<PathBuf, Error> {
    let folder = library.with_file_name(format!("emu-cuda-{nvrtc}"));
    std::fs::create_dir_all(&folder).map_err(|e| Error::files("making", &folder, &e))?;
    for name in NAMES {
        link(library, &folder.join(name))?;
    }
    link(library, &folder.join(format!("libcublas.so.{nvrtc}")))?;
    link(&nvrtc.library(compiler)?, &folder.join("libnvrtc.so"))?;
    Ok(folder)
}

/// Puts a link in place in one step: another process may be using the folder.
fn link(to: &Path, at: &Path) -> Result<(), Error> {
    if std::fs::read_link(at).is_ok_and(|old| old == to) {
        return Ok(());
    }
    let staged = at.with_extension(format!("{}.{:?}", std::process::id(), std::thread::current().id()));
    let failed = |e: std::io::Error| Error::files("linking", at, &e);
    symlink(to, &staged).map_err(failed)?;
    std::fs::rename(&staged, at).map_err(failed)
}

#[cfg(unix)]
fn symlink(to: &Path, at: &Path) -> std::io::Result<()> {
    std::os::unix::fs::symlink(to, at)
}

#[cfg(not(unix))]
fn symlink(_: &Path, _: &Path) -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}
