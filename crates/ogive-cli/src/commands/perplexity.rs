//! `ogive perplexity`: how well a model foretells a text file.
//!
//! The estimate so far goes to stderr after each window, the final one to stdout, so that a script reads one line.

use crate::args::Context;
use crate::error::{Error, Result, with_causes};
use crate::files;
use crate::options::{Machine, ModelPath};
use crate::output;
use ogive::Perplexity;
use serde_json::json;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Instant;

/// Windows have so many tokens where nothing else is said, as in llama.cpp.
const WINDOW: usize = 512;
/// Of fewer tokens the library takes no windows.
const LEAST: usize = 4;

/// Arguments of `ogive perplexity`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelPath,
    #[command(flatten)]
    machine: Machine,
    /// The text, of up to 1 GiB; `-` reads stdin
    #[arg(value_name = "FILE")]
    text: PathBuf,
    /// Tokens of a window [default: 512, or what the model was made for if that is less]
    #[arg(short, long, value_name = "N")]
    context: Option<usize>,
    /// Windows to score at most [default: all]
    #[arg(long, value_name = "N")]
    chunks: Option<NonZeroUsize>,
    /// One JSON object instead of a line
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    let path = args.model.get(context);
    if let Some(few @ 1..LEAST) = args.context {
        return Err(Error::Usage(format!("--context {few}: a window has at least {LEAST} tokens")));
    }
    let text = read(args)?;
    let model = args.machine.open(path, args.context, context)?;
    if model.is_encoder() {
        let why = "the model is an encoder and foretells no tokens; ask for its vectors (`ogive embed`)";
        return Err(Error::failed(why));
    }
    let window = args.context.unwrap_or_else(|| model.context().min(WINDOW));
    let mut perplexity = Perplexity::new(&model, window)?;
    let ids = perplexity.encode(&text)?;
    drop(text);
    let windows = perplexity.windows(&ids).map_err(|e| too_short(&e, ids.len()))?;
    let count = args.chunks.map_or(windows.len(), |n| n.get().min(windows.len()));
    context.note(format_args!("{} tokens; scoring {count} windows of {window}", ids.len()));
    let (start, patience) = (Instant::now(), context.interrupt.patience());
    let mut last = None;
    for (i, window) in windows.take(count).enumerate() {
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
            "context": window,
            "seconds": seconds,
        }));
    }
    output::line(score)
}

fn read(args: &Args) -> Result<Vec<u8>> {
    let (text, doing) = if args.text.as_os_str() == "-" {
        (files::stdin()?, "reading stdin".to_owned())
    } else {
        let doing = format!("reading {}", args.text.display());
        (files::read(&args.text, &doing)?, doing)
    };
    if text.is_empty() {
        return Err(Error::failed(format_args!("{doing}: it is empty; give a text to score")));
    }
    Ok(text)
}

/// What the library says, and the option that helps.
fn too_short(why: &ogive::Error, tokens: usize) -> Error {
    let help = if tokens < LEAST { String::new() } else { format!(", as with -c {tokens}") };
    Error::failed(format_args!("{}{help}", with_causes(why)))
}
