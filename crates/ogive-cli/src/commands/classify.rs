//! `ogive classify`: which of a model's classes texts belong to.
//!
//! A JSON object a line, a text each, in the order of the texts: a list of classes within it, and not a column for each, as models have two of them or
//! thousands.

use crate::args::Context;
use crate::commands::embed::lines;
use crate::error::{Error, Result};
use crate::options::{Machine, ModelPath, spinner};
use crate::output;
use ogive::{Classify, Scores};
use serde_json::json;
use std::num::NonZeroUsize;

/// Arguments of `ogive classify`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelPath,
    #[command(flatten)]
    machine: Machine,
    /// The texts [default: the lines of stdin; those without text too, which is an error where the model puts no token around a text]
    texts: Vec<String>,
    /// What scores are [default: what the model says, or else softmax, and sigmoid of a single class]
    #[arg(long, value_enum)]
    scores: Option<Kind>,
    /// Cuts texts that are too long, instead of refusing them
    #[arg(long)]
    truncate: bool,
    /// Prints the best N classes of each text alone
    #[arg(long, value_name = "N")]
    top: Option<NonZeroUsize>,
    /// Tokens that a text may have [default: what the model takes, up to 4096]
    #[arg(short, long, value_name = "N")]
    context: Option<usize>,
}

/// What is made of a head's numbers.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Kind {
    /// Shares that add up to one
    Softmax,
    /// Each between 0 and 1 by itself
    Sigmoid,
    /// The model's own numbers
    Raw,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    let model = args.machine.open(args.model.get(context), args.context, context)?;
    let texts = if args.texts.is_empty() { lines()? } else { args.texts.clone() };
    let mut how = Classify::new().truncate(args.truncate);
    how.max_tokens = args.context;
    how.scores = args.scores.map(|kind| match kind {
        Kind::Softmax => Scores::Softmax,
        Kind::Sigmoid => Scores::Sigmoid,
        Kind::Raw => Scores::Raw,
    });
    let working = spinner(context, format!("reading {} texts", texts.len()));
    let classes = model.classify_all(&texts, &how);
    working.finish_and_clear();
    let patience = context.interrupt.patience();
    for (text, mut classes) in texts.iter().zip(classes?) {
        if patience.over() {
            return Err(Error::Interrupted);
        }
        // Of equals the first stays first.
        classes.sort_by(|a, b| b.score.total_cmp(&a.score));
        let best = classes.iter().take(args.top.map_or(usize::MAX, NonZeroUsize::get));
        let best: Vec<_> = best.map(|class| json!({"label": class.label, "score": class.score})).collect();
        output::line(json!({"text": text, "classes": best}))?;
    }
    Ok(())
}
