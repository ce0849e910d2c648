//! A text that a model reads window by window: the arguments for it, and what they come to. `ogive perplexity` scores the windows, and `ogive
//! imatrix` looks at what matrices are given meanwhile.

use crate::args::Context;
use crate::error::{Error, Result, with_causes};
use crate::files;
use ogive::Model;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::slice::ChunksExact;

/// Windows have so many tokens where nothing else is said, as in llama.cpp.
const WINDOW: usize = 512;
/// Of fewer tokens the library takes no windows.
const LEAST: usize = 4;

/// Which text, and how it is cut.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Windows {
    /// The text, of up to 1 GiB; `-` reads stdin
    #[arg(value_name = "FILE")]
    text: PathBuf,
    /// Tokens of a window [default: 512, or what the model was made for if that is less]
    #[arg(short, long, value_name = "N")]
    pub(crate) context: Option<usize>,
    /// Windows to read at most [default: all]
    #[arg(long, value_name = "N")]
    chunks: Option<NonZeroUsize>,
}

impl Windows {
    /// Refuses what no text could be cut into.
    pub(crate) fn check(&self) -> Result<()> {
        match self.context {
            Some(few @ 1..LEAST) => {
                Err(Error::Usage(format!("--context {few}: a window has at least {LEAST} tokens")))
            }
            _ => Ok(()),
        }
    }

    /// The text, and what it is called; `what` says what is to be given in place of an empty one.
    pub(crate) fn text(&self, what: &str) -> Result<(Vec<u8>, String)> {
        let (text, name) = if self.text.as_os_str() == "-" {
            (files::stdin()?, "stdin".to_owned())
        } else {
            let name = self.text.display().to_string();
            (files::read(&self.text, format_args!("reading {name}"))?, name)
        };
        if text.is_empty() {
            return Err(Error::failed(format_args!("reading {name}: it is empty; give {what}")));
        }
        Ok((text, name))
    }

    /// How many tokens a window has.
    pub(crate) fn size(&self, model: &Model) -> usize {
        self.context.unwrap_or_else(|| model.context().min(WINDOW))
    }

    /// As many of the windows of a text of so many tokens as are to be read; says how many that are, and what is done to them.
    pub(crate) fn first<'i>(
        &self,
        windows: ogive::Result<ChunksExact<'i, u32>>,
        tokens: usize,
        doing: &str,
        context: &Context,
    ) -> Result<Vec<&'i [u32]>> {
        let windows = windows.map_err(|e| too_short(&e, tokens))?;
        let count = self.chunks.map_or(windows.len(), |n| n.get().min(windows.len()));
        let windows: Vec<&[u32]> = windows.take(count).collect();
        let size = windows.first().map_or(0, |window| window.len());
        context.note(format_args!("{tokens} tokens; {doing} {count} windows of {size}"));
        Ok(windows)
    }
}

/// What the library says, and the option that helps.
fn too_short(why: &ogive::Error, tokens: usize) -> Error {
    let help = if tokens < LEAST { String::new() } else { format!(", as with -c {tokens}") };
    Error::failed(format_args!("{}{help}", with_causes(why)))
}
