//! `ogive logits`: what the model makes of given tokens, for comparing it with another implementation.

use crate::args::Context;
use crate::error::{Error, Result};
use crate::options::{Machine, ModelPath, spinner};
use crate::{files, npy};
use std::path::PathBuf;

/// Arguments of `ogive logits`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelPath,
    #[command(flatten)]
    machine: Machine,
    /// Token ids, as in 1,403,407
    #[arg(long, value_name = "IDS", value_parser = ids, allow_negative_numbers = true)]
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
    let path = args.model.get(context);
    files::check(&args.out, path)?;
    let model = args.machine.open(path, args.context, context)?;
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
    npy::save(&logits, &args.out)?;
    if patience.over() { Err(Error::Interrupted) } else { Ok(()) }
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
