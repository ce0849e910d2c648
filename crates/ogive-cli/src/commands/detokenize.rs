//! `ogive detokenize`: token ids to text, the inverse of `ogive tokenize`.
//!
//! It prints the bytes and nothing after them, not even a line break: so the two in a row give back what went in, also
//! where that is no UTF-8.

use crate::args::Context;
use crate::error::{Error, Result};
use crate::files;
use crate::options::ModelPath;
use crate::output;
use serde_json::json;

/// Arguments of `ogive detokenize`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelPath,
    /// Token ids, with spaces or commas between; without any, stdin is read, a JSON array or such a list
    #[arg(value_name = "ID", allow_negative_numbers = true)]
    ids: Vec<String>,
    /// Shows special tokens by their names
    #[arg(long)]
    special: bool,
    /// Prints a JSON string, in which bytes that are no UTF-8 become U+FFFD
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    let text = if args.ids.is_empty() { files::stdin_text()? } else { args.ids.join(" ") };
    let ids = ids(&text).map_err(|why| match args.ids.is_empty() {
        true => Error::failed(format_args!("reading stdin: {why}")),
        false => Error::Usage(why),
    })?;
    let tokenizer = ogive::open_tokenizer(args.model.get(context))?;
    match (args.special, args.json) {
        (true, true) => output::line(json!(tokenizer.decode_with_special(&ids)?)),
        (false, true) => output::line(json!(tokenizer.decode(&ids)?)),
        (true, false) => output::write(&tokenizer.decode_bytes_with_special(&ids)?),
        (false, false) => output::write(&tokenizer.decode_bytes(&ids)?),
    }
}

/// Ids between brackets or without, apart by commas or white space.
fn ids(text: &str) -> Result<Vec<u32>, String> {
    let text = text.trim();
    let inner = match (text.strip_prefix('['), text.ends_with(']')) {
        (Some(inner), true) => inner.strip_suffix(']').unwrap_or(inner),
        (None, false) => text,
        _ => return Err("the list of token ids has one bracket and not the other".into()),
    };
    let words = inner.split(|c: char| c == ',' || c.is_whitespace()).filter(|w| !w.is_empty());
    words.map(|w| w.parse().map_err(|_| format!("`{}` is no token id", shortened(w)))).collect()
}

fn shortened(word: &str) -> String {
    match word.char_indices().nth(40) {
        Some((end, _)) => format!("{}...", word.get(..end).unwrap_or_default()),
        None => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_any_kind() {
        for text in ["[1, 2,3]", "1 2 3", "1,2,3\n", " [1\n2 3 ] ", "1, 2 , 3,"] {
            assert_eq!(ids(text), Ok(vec![1, 2, 3]), "{text:?}");
        }
        assert_eq!((ids(""), ids("[]")), (Ok(vec![]), Ok(vec![])));
        for bad in ["[1", "1]", "-1", "1.5", "x", "[[1]]", "4294967296", "\"1\""] {
            assert!(ids(bad).is_err(), "{bad}");
        }
        assert!(ids(&"9".repeat(1000)).unwrap_err().len() < 80);
    }
}
