//! `ogive rerank`: texts in the order in which they answer a question.
//!
//! A JSON object a line, best first, with the place that the text had: what is looked for is at the top, and a program finds the rest.

use crate::args::Context;
use crate::commands::embed::lines;
use crate::error::{Error, Result};
use crate::options::{Machine, ModelPath, spinner};
use crate::output;
use ogive::Rerank;
use serde_json::json;
use std::num::NonZeroUsize;

/// Arguments of `ogive rerank`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelPath,
    #[command(flatten)]
    machine: Machine,
    /// The question
    query: String,
    /// The texts [default: the lines of stdin, those without text too]
    texts: Vec<String>,
    /// Scores between 0 and 1, by a sigmoid, instead of the model's own
    #[arg(long)]
    sigmoid: bool,
    /// Asks the model for yes or no as Qwen3-Reranker is asked, or does not (--asked=false) [default: what is said beside it]
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    asked: Option<bool>,
    /// What a model that is asked is told to do [default: what Qwen3-Reranker learned with]
    #[arg(long, value_name = "TEXT")]
    instruction: Option<String>,
    /// Cuts texts that are too long, instead of refusing them
    #[arg(long)]
    truncate: bool,
    /// Prints the best N alone
    #[arg(long, value_name = "N")]
    top: Option<NonZeroUsize>,
    /// Tokens that question and text may have together [default: what the model takes, up to 4096]
    #[arg(short, long, value_name = "N")]
    context: Option<usize>,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    let model = args.machine.open(args.model.get(context), args.context, context)?;
    let texts = if args.texts.is_empty() { lines()? } else { args.texts.clone() };
    let mut how = Rerank::new().truncate(args.truncate).sigmoid(args.sigmoid);
    (how.max_tokens, how.asked) = (args.context, args.asked);
    how.instruction.clone_from(&args.instruction);
    let working = spinner(context, format!("reading {} texts", texts.len()));
    let scores = model.rerank(&args.query, &texts, &how);
    working.finish_and_clear();
    let mut all: Vec<_> = scores?.into_iter().zip(texts).enumerate().collect();
    // Of equals the first stays first.
    all.sort_by(|(_, (a, _)), (_, (b, _))| b.total_cmp(a));
    let patience = context.interrupt.patience();
    for (index, (score, text)) in all.into_iter().take(args.top.map_or(usize::MAX, NonZeroUsize::get)) {
        if patience.over() {
            return Err(Error::Interrupted);
        }
        output::line(json!({"index": index, "score": score, "text": text}))?;
    }
    Ok(())
}
