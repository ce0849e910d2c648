//! `ogive logits`: what the model makes of given tokens, for comparing it with another implementation.
//!
//! The file gets its name when it is complete, so that a script never reads half of one.

use crate::args::Context;
use crate::error::{Doing, Error, Result};
use crate::options::{Machine, ModelPath, spinner};
use ndarray_npy::WriteNpyExt;
use ogive::ndarray::Array2;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Arguments of `ogive logits`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelPath,
    #[command(flatten)]
    machine: Machine,
    /// Token ids, as in 1,403,407
    #[arg(long, value_name = "IDS", value_parser = ids, allow_hyphen_values = true)]
    tokens: Ids,
    /// The NumPy file to write
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Tokens the model is set up for, which some rope scalings depend on [default: the model's, up to 4096]
    #[arg(short, long, value_name = "N")]
    context: Option<usize>,
}

/// In a type of its own, for clap takes a list of values for as many arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Ids(Vec<u32>);

fn ids(text: &str) -> Result<Ids, String> {
    if text.trim().is_empty() {
        return Err("give at least one token id".into());
    }
    let id = |part: &str| part.trim().parse().map_err(|_| format!("`{part}` is no token id"));
    text.split(',').map(id).collect::<Result<_, _>>().map(Ids)
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    let Ids(ids) = &args.tokens;
    let folder = folder(&args.out);
    if !folder.is_dir() || args.out.is_dir() {
        // Told before anything is computed.
        let wrong =
            if args.out.is_dir() { "this is a folder; name a file" } else { "there is no such folder" };
        return Err(Error::failed(format_args!("writing {}: {wrong}", args.out.display())));
    }
    let model = args.machine.open(args.model.get()?, args.context, context)?;
    if ids.len() > model.context() {
        let (have, most) = (ids.len(), model.context());
        return Err(Error::failed(format_args!(
            "{have} tokens do not fit the context of {most}; ask for more with --context {have}"
        )));
    }
    let working = spinner(context, format!("computing {} tokens", ids.len()));
    let logits = model.logits(ids);
    working.finish_and_clear();
    let logits = logits?;
    let patience = context.interrupt.patience();
    save(&logits, &args.out).doing(format_args!("writing {}", args.out.display()))?;
    if patience.over() { Err(Error::Interrupted) } else { Ok(()) }
}

/// Where a file lies.
fn folder(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Writes beside the file and renames. What is there and is no plain file, a pipe say, is written to as it is.
fn save(logits: &Array2<f32>, path: &Path) -> io::Result<()> {
    let other = |e: ndarray_npy::WriteNpyError| match e {
        ndarray_npy::WriteNpyError::Io(e) => e,
        e => io::Error::other(e),
    };
    if fs::metadata(path).is_ok_and(|m| !m.is_file() && !m.is_dir()) {
        let mut file = BufWriter::new(File::options().write(true).open(path)?);
        logits.write_npy(&mut file).map_err(other)?;
        return file.flush();
    }
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    {
        // What any new file has, less the process's mask, and not a temporary file's privacy.
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(fs::Permissions::from_mode(0o666));
    }
    let mut file = BufWriter::new(builder.prefix(".ogive-logits").tempfile_in(folder(path))?);
    logits.write_npy(&mut file).map_err(other)?;
    file.into_inner().map_err(io::IntoInnerError::into_error)?.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_numbers_between_commas() {
        assert_eq!(ids("1, 403,4294967295"), Ok(Ids(vec![1, 403, u32::MAX])));
        for bad in ["", " ", "1,", ",1", "1 2", "-1", "4294967296", "1.0", "x"] {
            assert!(ids(bad).is_err(), "{bad}");
        }
    }
}
