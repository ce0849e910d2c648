//! Arguments that show a model images.

use crate::args::Context;
use crate::error::Result;
use crate::options::Machine;
use ogive::{Image, Model, Options, Prompt};
use std::path::{Path, PathBuf};

/// What a model is shown, and by what it sees.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Seeing {
    /// An image that the model is shown with the text, before it: a PNG, JPEG or WebP file. May be given several times. The model must be one
    /// that sees
    #[arg(long, value_name = "FILE")]
    image: Vec<PathBuf>,
    /// What the model sees by, where that is not beside its weights: a GGUF file of its own (mmproj-….gguf), or a Hugging Face folder
    #[arg(long, value_name = "MODEL")]
    mmproj: Option<PathBuf>,
}

impl Seeing {
    /// Opens a model, to see if images are shown, or `wanted` otherwise.
    pub(crate) fn open(
        &self,
        machine: &Machine,
        path: &Path,
        tokens: Option<usize>,
        wanted: bool,
        context: &Context,
    ) -> Result<Model> {
        let options = machine.options_for(tokens)?;
        let options = match &self.mmproj {
            Some(other) => options.vision_from(other),
            None if wanted || !self.image.is_empty() => Options::vision(options),
            None => options,
        };
        Machine::open_with(&options, path, context)
    }

    /// The images, in order.
    pub(crate) fn images(&self) -> Result<Vec<Image>> {
        Ok(self.image.iter().map(Image::open).collect::<ogive::Result<_>>()?)
    }

    /// Whether any are shown.
    pub(crate) fn any(&self) -> bool {
        !self.image.is_empty()
    }
}

/// A text with images that no chat template places: where it has the model's marker for each, else before it.
pub(crate) fn prompt(model: &Model, text: String, images: Vec<Image>) -> Prompt {
    let marker = model.image_marker().unwrap_or_default();
    let text = if text.contains(marker) { text } else { marker.repeat(images.len()) + &text };
    Prompt::Shown { text, images, rendered: false }
}
