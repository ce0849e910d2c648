//! `ogive embed`: texts to vectors.
//!
//! A text to a line, in and out, so that it stands in a pipe; the texts of stdin are read whole before the first vector is
//! printed, since they share steps.

use crate::args::Context;
use crate::error::{Doing, Error, Result};
use crate::options::{Machine, ModelPath, spinner};
use crate::{npy, output};
use clap::ValueEnum;
use ogive::{Embed, Pooling};
use serde_json::json;
use std::io::{self, Read};
use std::path::PathBuf;

/// Arguments of `ogive embed`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelPath,
    #[command(flatten)]
    machine: Machine,
    /// The texts [default: the lines of stdin]
    texts: Vec<String>,
    /// Which hidden states count [default: what the model says, or else the mean]
    #[arg(long)]
    pooling: Option<How>,
    /// Leaves vectors as long as they are, instead of scaling them to length 1
    #[arg(long)]
    no_normalize: bool,
    /// Writes a NumPy file, f32 [texts, dim], instead of a JSON array a line
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Tokens that a text may have [default: the model's, up to 4096]
    #[arg(short, long, value_name = "N")]
    context: Option<usize>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum How {
    /// The mean of all tokens
    Mean,
    /// The first token
    Cls,
    /// The last token
    Last,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    args.out.as_deref().map_or(Ok(()), npy::check)?;
    let model = args.machine.open(args.model.get(context), args.context, context)?;
    let texts = if args.texts.is_empty() { lines()? } else { args.texts.clone() };
    let mut how = Embed::new().normalize(!args.no_normalize);
    how.pooling = args.pooling.map(|how| match how {
        How::Mean => Pooling::Mean,
        How::Cls => Pooling::Cls,
        How::Last => Pooling::Last,
    });
    let working = spinner(context, format!("reading {} texts", texts.len()));
    let vectors = model.embed_all(texts, &how);
    working.finish_and_clear();
    let vectors = vectors?;
    let patience = context.interrupt.patience();
    match &args.out {
        Some(path) => npy::save(&vectors, path)?,
        None => vectors.rows().into_iter().try_for_each(|row| output::line(json!(row.to_vec())))?,
    }
    if patience.over() { Err(Error::Interrupted) } else { Ok(()) }
}

/// The lines of stdin, without those that are empty.
fn lines() -> Result<Vec<String>> {
    let mut text = String::new();
    io::stdin().lock().read_to_string(&mut text).doing("reading stdin")?;
    let texts: Vec<String> = text.lines().filter(|line| !line.trim().is_empty()).map(Into::into).collect();
    if texts.is_empty() {
        Err(Error::Usage("no text given: name some, or give lines on stdin".into()))
    } else {
        Ok(texts)
    }
}
