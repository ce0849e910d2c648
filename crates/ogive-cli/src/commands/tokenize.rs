//! `ogive tokenize`: stdin to token ids.
//!
//! All of stdin is one text, its last line break too, and bytes that are no UTF-8 count: what goes in can be had back.

use crate::args::Context;
use crate::error::Result;
use crate::files;
use crate::options::ModelPath;
use crate::output;
use ogive::tokenizer::EncodeOptions;
use serde_json::json;

/// Arguments of `ogive tokenize`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelPath,
    /// Adds BOS and the like, and reads special tokens that the text spells
    #[arg(long)]
    special: bool,
    /// Prints a JSON array, which is what happens anyhow
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    let tokenizer = ogive::open_tokenizer(args.model.get(context))?;
    let text = files::stdin()?;
    let options = EncodeOptions { add_special: args.special, parse_special: args.special };
    output::line(json!(tokenizer.encode_bytes(&text, options)?))
}
