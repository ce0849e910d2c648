//! `ogive run`: go on from a prompt.
//!
//! Nothing is added to the text, not even a line break at its end, unless stdout is a terminal: what a script reads is
//! what the model wrote.

use crate::answer::{self, Ended, Steps};
use crate::args::Context;
use crate::commands::chat::conversation;
use crate::error::{Doing, Error, Result};
use crate::options::{Machine, ModelPath};
use crate::output;
use crate::sampling::{Sampling, plain_chain};
use ogive::{Generate, Model, Prompt};
use serde_json::json;
use std::io;
use std::path::PathBuf;

/// Arguments of `ogive run`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelPath,
    #[command(flatten)]
    machine: Machine,
    /// Tokens of prompt and answer together [default: the model's, up to 4096]
    #[arg(short, long, value_name = "N")]
    context: Option<usize>,
    /// Plain text in, whatever chat template the model has
    #[arg(long)]
    raw: bool,
    /// Prints one JSON object in the end instead of text as it comes
    #[arg(long)]
    json: bool,
    /// What the assistant is to be, for the chat template
    #[arg(long, value_name = "TEXT", conflicts_with = "raw")]
    system: Option<String>,
    /// A Jinja file instead of the model's chat template
    #[arg(long, value_name = "FILE", conflicts_with = "raw")]
    chat_template: Option<PathBuf>,
    /// What to go on from; an empty text begins with BOS alone, `-` reads stdin
    prompt: String,
    // Last, for its heading holds for all that follows.
    #[command(flatten)]
    sampling: Sampling,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    let path = args.model.get()?;
    let how = args.sampling.generate()?;
    let prompt = match &*args.prompt {
        "-" => io::read_to_string(io::stdin()).doing("reading the prompt from stdin")?,
        text => text.to_owned(),
    };
    let model = args.machine.open(path, args.context, context)?;
    args.sampling.show_seed(&how, context);
    let templated = args.chat_template.is_some() || args.system.is_some() || model.chat_template().is_some();
    if templated && !args.raw && !prompt.is_empty() {
        let mut chat = conversation(&model, args.chat_template.as_deref(), args.system.as_deref())?;
        say(&mut chat.send(prompt, &how)?, &how, args, context)
    } else {
        plain(&model, prompt.into(), &how, args, context)
    }
}

fn plain(model: &Model, prompt: Prompt, how: &Generate, args: &Args, context: &Context) -> Result<()> {
    say(&mut model.session()?.generate(prompt, how)?, how, args, context)
}

fn say(steps: &mut dyn Steps, how: &Generate, args: &Args, context: &Context) -> Result<()> {
    let mut text = String::new();
    let ended = answer::follow(steps, context, |piece| {
        if args.json {
            text.push_str(piece);
            return Ok(());
        }
        output::write(piece.as_bytes())
    })?;
    let generation = steps.generation();
    if args.json {
        let times = generation.times();
        output::line(json!({
            "prompt_ids": generation.prompt_ids(),
            "ids": generation.ids(),
            "text": text,
            "finish": ended.word(),
            "seed": how.sampler.seed,
            "samplers": plain_chain(&how.sampler),
            "prefill_tokens_per_second": times.prefill_rate(),
            "decode_tokens_per_second": times.decode_rate(),
        }))?;
    } else if output::is_terminal() {
        output::write(b"\n")?;
    }
    context.note(answer::figures(generation, ended));
    if ended == Ended::Interrupted { Err(Error::Interrupted) } else { Ok(()) }
}
