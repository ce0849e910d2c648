//! Arguments that say by what the next tokens are guessed, so that a step may bring several.
//!
//! Names are llama.cpp's, where it has the same.

use crate::args::Context;
use crate::error::Result;
use crate::options::Machine;
use clap::ArgGroup;
use ogive::{Device, Draft, Model};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

/// By what tokens are guessed.
#[derive(Clone, Debug, clap::Args)]
#[command(group = ArgGroup::new("by").multiple(true))]
pub(crate) struct Drafting {
    /// Guesses tokens by a smaller model with the same vocabulary, and computes several in a step: the same answer, sooner
    #[arg(long, value_name = "MODEL", group = "by")]
    model_draft: Option<PathBuf>,
    /// The same by what is there: that what followed the last tokens before follows again. With --model-draft, that model guesses where nothing did
    #[arg(long, group = "by")]
    lookup: bool,
    /// Where the smaller model computes [default: where the model does]
    #[arg(long, value_name = "DEVICE", requires = "model_draft")]
    device_draft: Option<Device>,
    /// Tokens to guess in a step at most [default: 7]
    #[arg(long, value_name = "N", requires = "by")]
    draft_max: Option<NonZeroUsize>,
    /// How likely the smaller model must find a token to guess it [default: 0.5]
    #[arg(long, value_name = "P", requires = "model_draft", value_parser = probability)]
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
        let Some(path) = &self.model_draft else {
            return if self.lookup { self.told(Draft::lookup(), &model) } else { Ok(model) };
        };
        let mut options = machine.options_without_adapters(tokens)?;
        let on_cpu = model.backend().facts().name == "cpu";
        let shared = on_cpu && self.device_draft.is_none_or(|device| device == Device::Cpu);
        if let Some(device) = self.device_draft {
            options = options.device(device);
        }
        if shared {
            options = options.backend(Arc::clone(model.backend()));
        }
        let small = Machine::open_quietly(&options, path, context)?;
        let device = if shared { "on the same threads" } else { small.device() };
        context.note(format_args!("{} guesses, {device}", path.display()));
        small.notes().iter().for_each(|note| context.note(note));
        self.told(if self.lookup { Draft::lookup().or_model(&small) } else { Draft::model(&small) }, &model)
    }

    /// The model that guesses by `draft`, as it is said how.
    fn told(&self, draft: Draft, model: &Model) -> Result<Model> {
        let draft = self.draft_max.into_iter().fold(draft, |draft, n| draft.max_tokens(n.get()));
        let draft = self.draft_p_min.into_iter().fold(draft, Draft::min_probability);
        Ok(model.with_draft(draft)?)
    }
}
