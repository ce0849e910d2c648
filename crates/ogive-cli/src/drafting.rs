//! Arguments that say by what the next tokens are guessed, so that a step may bring several.
//!
//! Names are llama.cpp's, where it has the same.

use crate::args::Context;
use crate::error::Result;
use crate::options::Machine;
use ogive::{Draft, Model};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

/// By what tokens are guessed.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Drafting {
    /// Guesses tokens by a smaller model with the same vocabulary, and computes several in a step: the same answer, sooner
    #[arg(long, value_name = "MODEL", group = "by")]
    model_draft: Option<PathBuf>,
    /// The same by what is there: that what followed the last tokens before follows again
    #[arg(long, group = "by")]
    lookup: bool,
    /// Tokens to guess in a step at most [default: 4]
    #[arg(long, value_name = "N", requires = "by")]
    draft_max: Option<NonZeroUsize>,
    /// How likely the smaller model must find a token to guess it [default: 0.5]
    #[arg(long, value_name = "P", requires = "by", conflicts_with = "lookup", value_parser = probability)]
    draft_p_min: Option<f32>,
}

fn probability(text: &str) -> Result<f32, String> {
    let number = text.parse().ok().filter(|number| (0.0..=1.0).contains(number));
    number.ok_or_else(|| "it is to be a number from 0 to 1".into())
}

impl Drafting {
    /// The model that guesses so, if at all. A smaller one is opened as the model was, and on the CPU computes with its threads.
    pub(crate) fn over(
        &self,
        model: Model,
        machine: &Machine,
        tokens: Option<usize>,
        context: &Context,
    ) -> Result<Model> {
        let mut draft = match &self.model_draft {
            Some(path) => {
                let mut options = machine.options_without_adapters(tokens)?;
                if model.backend().facts().name == "cpu" {
                    options = options.backend(Arc::clone(model.backend()));
                }
                Draft::model(&Machine::open_with(&options, path, context)?)
            }
            None if self.lookup => Draft::lookup(),
            None => return Ok(model),
        };
        draft = self.draft_max.into_iter().fold(draft, |draft, n| draft.most(n.get()));
        draft = self.draft_p_min.into_iter().fold(draft, Draft::sure);
        Ok(model.with_draft(draft)?)
    }
}
