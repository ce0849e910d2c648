//! NumPy files.
//!
//! A file gets its name when it is complete, so that a script never reads half of one.

use crate::error::{Doing, Error, Result};
use ndarray_npy::WriteNpyExt;
use ogive::ndarray::Array2;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Whether a file could be written there, told before anything is computed.
pub(crate) fn check(path: &Path) -> Result<()> {
    if folder(path).is_dir() && !path.is_dir() {
        return Ok(());
    }
    let wrong = if path.is_dir() { "this is a folder; name a file" } else { "there is no such folder" };
    Err(Error::failed(format_args!("writing {}: {wrong}", path.display())))
}

/// Writes `numbers` as f32 `[rows, cols]`.
pub(crate) fn save(numbers: &Array2<f32>, path: &Path) -> Result<()> {
    write(numbers, path).doing(format_args!("writing {}", path.display()))
}

/// Where a file lies.
fn folder(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Writes beside the file and renames. What is there and is no plain file, a pipe say, is written to as it is.
fn write(numbers: &Array2<f32>, path: &Path) -> io::Result<()> {
    let other = |e: ndarray_npy::WriteNpyError| match e {
        ndarray_npy::WriteNpyError::Io(e) => e,
        e => io::Error::other(e),
    };
    if fs::metadata(path).is_ok_and(|m| !m.is_file() && !m.is_dir()) {
        let mut file = BufWriter::new(File::options().write(true).open(path)?);
        numbers.write_npy(&mut file).map_err(other)?;
        return file.flush();
    }
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    {
        // What any new file has, less the process's mask, and not a temporary file's privacy.
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(fs::Permissions::from_mode(0o666));
    }
    let mut file = BufWriter::new(builder.prefix(".ogive-npy").tempfile_in(folder(path))?);
    numbers.write_npy(&mut file).map_err(other)?;
    file.into_inner().map_err(io::IntoInnerError::into_error)?.persist(path)?;
    Ok(())
}
