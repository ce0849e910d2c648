//! `ogive embed`: texts to vectors.
//!
//! A text to a line, in and out, so that it stands in a pipe, and an empty line is a text too: the vector of the tenth line is the tenth.
//! The texts of stdin are read whole before the first vector is printed, since they share steps.

use crate::args::Context;
use crate::error::{Error, Result};
use crate::options::{Machine, ModelPath, spinner};
use crate::{files, npy, output};
use clap::ValueEnum;
use ogive::ndarray::Array2;
use ogive::{Embed, Pooling};
use serde_json::{Value, json};
use std::num::NonZeroUsize;
use std::path::PathBuf;

/// Arguments of `ogive embed`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelPath,
    #[command(flatten)]
    machine: Machine,
    /// The texts [default: the lines of stdin; those without text too, which is an error where the model puts no token around a text]
    texts: Vec<String>,
    /// Which hidden states count [default: what the model says, or else the mean]
    #[arg(long)]
    pooling: Option<How>,
    /// Leaves vectors as long as they are, instead of scaling them to length 1
    #[arg(long)]
    no_normalize: bool,
    /// Puts a prompt of the model before each text, by its name: `query` or `document`, say
    #[arg(long, value_name = "NAME")]
    prompt: Option<String>,
    /// Cuts texts that are too long, instead of refusing them
    #[arg(long)]
    truncate: bool,
    /// Keeps the first N numbers of each vector, for models that were trained for it (Matryoshka)
    #[arg(long, value_name = "N")]
    dimensions: Option<NonZeroUsize>,
    /// Writes a NumPy file, f32 [texts, dim], instead of a JSON array a line; of one text with --pooling none, [tokens, dim]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Tokens that a text may have [default: what the model takes of one, up to 4096]
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
    /// Each token has a vector of its own: a list of them for each text
    None,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    let path = args.model.get(context);
    args.out.as_deref().map_or(Ok(()), |out| files::check(out, path))?;
    let model = args.machine.open(path, args.context, context)?;
    let texts = if args.texts.is_empty() { lines()? } else { args.texts.clone() };
    let mut how = Embed::new().normalize(!args.no_normalize).truncate(args.truncate);
    (how.dimensions, how.prompt) = (args.dimensions.map(NonZeroUsize::get), args.prompt.clone());
    how.max_tokens = args.context;
    how.pooling = match args.pooling {
        Some(How::Mean) => Some(Pooling::Mean),
        Some(How::Cls) => Some(Pooling::Cls),
        Some(How::Last) => Some(Pooling::Last),
        Some(How::None) | None => None,
    };
    let each = matches!(args.pooling, Some(How::None));
    if each && args.out.is_some() && texts.len() > 1 {
        let why = "with --pooling none texts have as many vectors as tokens, and a NumPy file has room for one text";
        return Err(Error::Usage(why.into()));
    }
    let working = spinner(context, format!("reading {} texts", texts.len()));
    let vectors = match each {
        true => model.embed_tokens(texts, &how),
        false => model.embed_all(texts, &how).map(|all| vec![all]),
    };
    working.finish_and_clear();
    let vectors = vectors?;
    let patience = context.interrupt.patience();
    let line = |vector: Value| if patience.over() { Err(Error::Interrupted) } else { output::line(vector) };
    let rows = |all: &Array2<f32>| all.rows().into_iter().map(|row| json!(row.to_vec())).collect::<Vec<_>>();
    match (&args.out, &vectors[..]) {
        (Some(path), [all]) => npy::save(all, path)?,
        (Some(path), _) => npy::save(&Array2::default((0, 0)), path)?,
        (None, all) if each => all.iter().try_for_each(|all| line(json!(rows(all))))?,
        (None, all) => all.iter().flat_map(rows).try_for_each(line)?,
    }
    if patience.over() { Err(Error::Interrupted) } else { Ok(()) }
}

/// The lines of stdin, of which there has to be one.
pub(crate) fn lines() -> Result<Vec<String>> {
    let text = files::stdin_text()?;
    if text.is_empty() {
        return Err(Error::Usage("no text given: name some, or give lines on stdin".into()));
    }
    Ok(text.lines().map(Into::into).collect())
}
