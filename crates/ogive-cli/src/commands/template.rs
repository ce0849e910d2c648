//! `ogive template`: the prompt that a chat template makes of a conversation.
//!
//! As in transformers, nothing opens the assistant's turn unless it is asked for: the output can be compared with
//! `apply_chat_template` argument by argument.

use crate::args::Context;
use crate::error::{Doing, Error, Result};
use crate::files;
use crate::options::ModelPath;
use crate::output;
use ogive::tokenizer::Tokenizer;
use ogive::tokenizer::template::{ChatTemplate, DateTime};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// Arguments of `ogive template`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelPath,
    /// A JSON file: a list of messages, or an object with `messages` and other variables (`tools`,
    /// `add_generation_prompt`, `bos_token`, ...)
    #[arg(long, value_name = "FILE")]
    messages: PathBuf,
    /// Opens the assistant's turn, unless FILE says otherwise
    #[arg(long)]
    add_generation_prompt: bool,
    /// What the template takes for the present, as in 2025-01-15T12:34:56 [default: the system's clock, UTC]
    #[arg(long, value_name = "ISO8601", value_parser = date)]
    now: Option<DateTime>,
}

fn date(text: &str) -> Result<DateTime, &'static str> {
    DateTime::parse_iso(text).ok_or("write a date as in 2025-01-15 or 2025-01-15T12:34:56")
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    let path = args.model.get(context);
    let mut variables = Map::new();
    let source = if is_model(path)? {
        let tokenizer = ogive::open_tokenizer(path)?;
        for (name, id) in [("bos_token", tokenizer.bos()), ("eos_token", tokenizer.eos())] {
            if let Some(id) = id {
                variables.insert(name.into(), json!(tokenizer.decode_with_special(&[id])?));
            }
        }
        source(&tokenizer, path)?
    } else {
        read_template(path)?
    };
    if args.add_generation_prompt {
        variables.insert("add_generation_prompt".into(), json!(true));
    }
    variables.extend(read_variables(&args.messages)?);
    let rendered = ChatTemplate::new(&source)?.render(&Value::Object(variables), args.now)?;
    output::write(rendered.as_bytes())
}

fn source(tokenizer: &Tokenizer, path: &Path) -> Result<String> {
    let none = || Error::failed(format_args!("{}: this model has no chat template", path.display()));
    Ok(tokenizer.chat_template().ok_or_else(none)?.to_owned())
}

/// Whether a path is a model's, and not a template's: a folder, GGUF, or one of the files of a folder.
fn is_model(path: &Path) -> Result<bool> {
    let of_folder = path.extension().is_some_and(|e| e == "json" || e == "safetensors");
    Ok(path.is_dir() || of_folder || is_gguf(path)?)
}

/// Whether a file says of itself that it is GGUF, as the one inside Ogive would.
pub(crate) fn is_gguf(path: &Path) -> Result<bool> {
    Ok(ogive::is_demo(path) || ogive::weights::is_gguf(path)?)
}

/// A file that is a template.
pub(crate) fn read_template(path: &Path) -> Result<String> {
    let at = || format!("reading the chat template {}", path.display());
    let bytes = files::read(path, at())?;
    // Of a pipe that cannot be asked before it is read.
    if bytes.starts_with(b"GGUF") {
        let why = "this is a GGUF file and no template; a model that comes out of a pipe has to be written to a file";
        return Err(Error::failed(format_args!("{}: {why}", at())));
    }
    let text = files::text(bytes, at())?;
    // It would render, to nothing, whatever was said.
    if text.trim().is_empty() { Err(Error::failed(format_args!("{}: it is empty", at()))) } else { Ok(text) }
}

fn read_variables(path: &Path) -> Result<Map<String, Value>> {
    let at = || format!("reading messages from {}", path.display());
    let bytes = files::read(path, at())?;
    match serde_json::from_slice(&bytes).doing(at())? {
        messages @ Value::Array(_) => Ok(Map::from_iter([("messages".into(), messages)])),
        Value::Object(variables) => Ok(variables),
        _ => Err(Error::failed(format_args!("{}: it should be a list of messages or an object", at()))),
    }
}
