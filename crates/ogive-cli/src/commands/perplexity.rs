//! `ogive perplexity`: how well a model foretells a text file.
//!
//! The estimate so far goes to stderr after each window, the final one to stdout, so that a script reads one line.

use crate::args::Context;
use crate::error::{Error, Result};
use crate::options::{Machine, ModelPath};
use crate::output;
use crate::windows::Windows;
use ogive::Perplexity;
use serde_json::json;
use std::time::Instant;

/// Arguments of `ogive perplexity`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelPath,
    #[command(flatten)]
    machine: Machine,
    #[command(flatten)]
    windows: Windows,
    /// One JSON object instead of a line
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    let path = args.model.get(context);
    args.windows.check()?;
    let (text, _) = args.windows.text("a text to score")?;
    let model = args.machine.open(path, args.windows.context, context)?;
    if model.is_encoder() {
        let why = "the model is an encoder and foretells no tokens; ask for its vectors (`ogive embed`)";
        return Err(Error::failed(why));
    }
    let size = args.windows.size(&model);
    let mut perplexity = Perplexity::new(&model, size)?;
    let ids = perplexity.encode(&text)?;
    drop(text);
    let windows = args.windows.first(perplexity.windows(&ids), ids.len(), "scoring", context)?;
    let count = windows.len();
    let (start, patience) = (Instant::now(), context.interrupt.patience());
    let mut last = None;
    for (i, window) in windows.into_iter().enumerate() {
        let score = perplexity.add(window)?;
        context.note(format_args!("[{}/{count}] {score}", i + 1));
        last = Some(score);
        if patience.over() {
            return Err(Error::Interrupted);
        }
    }
    let Some(score) = last else { return Ok(()) };
    let seconds = start.elapsed().as_secs_f64();
    if args.json {
        return output::line(json!({
            "perplexity": score.perplexity,
            "error": if score.error.is_finite() { json!(score.error) } else { json!(null) },
            "tokens": score.tokens,
            "windows": count,
            "context": size,
            "seconds": seconds,
        }));
    }
    output::line(score)
}
