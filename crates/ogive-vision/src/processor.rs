//! What a model makes of an image: the seam between files and the program that asks a model.

use crate::settings::Settings;
use crate::{Image, MAX_VALUES, Tile, family};
use ogive_tensor::{Config, Error, Result};
use std::fmt;
use std::sync::Arc;

/// Most rows of an image: more than the longest context that is in use.
pub const MAX_ROWS: usize = 1 << 18;

/// What is made of an image.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Picture {
    /// What the prompt says where the [marker](Processor::marker) was: row tokens, and what stands between and around them. It may
    /// hold the marker itself, so markers are replaced once, from left to right, and not until there are none.
    pub text: String,
    /// What the tower is given, one after another; their rows follow each other in the prompt.
    pub tiles: Vec<Tile>,
}

impl Picture {
    /// A picture of these tiles.
    ///
    /// # Errors
    /// If there are none, or more than [`MAX_ROWS`] or [`MAX_VALUES`] in all. Who makes them looks before they are made.
    pub fn new(text: String, tiles: Vec<Tile>) -> Result<Self> {
        let picture = Self { text, tiles };
        let values = picture.tiles.iter().map(|tile| tile.patches.len()).sum();
        check(picture.tiles.len(), picture.rows(), values)?;
        Ok(picture)
    }

    /// How many rows the tower makes of all tiles: how often the row token stands in the text.
    pub fn rows(&self) -> usize {
        self.tiles.iter().map(|tile| tile.rows).sum()
    }
}

/// Whether an image may become so many tiles, rows and values.
pub(crate) fn check(tiles: usize, rows: usize, values: usize) -> Result<()> {
    if tiles == 0 || rows == 0 || rows > MAX_ROWS || values > MAX_VALUES {
        let why = format!(
            "it becomes {tiles} tiles with {values} values, which stand for {rows} rows of a prompt; there should be some, and at most {MAX_VALUES} and {MAX_ROWS}. Make the image smaller, or look at the settings of the processor"
        );
        return Err(Error::invalid("image", why));
    }
    Ok(())
}

/// How the models of one family read images. [`Processor::load`] finds those that are known here by a checkpoint's settings; another is
/// made a processor by [`Processor::new`].
pub trait Family: fmt::Debug + Send + Sync {
    /// See [`Processor::marker`].
    fn marker(&self) -> &str;

    /// See [`Processor::row_token`].
    fn row_token(&self) -> &str;

    /// Cuts an image, and says what stands for it.
    ///
    /// # Errors
    /// If the image cannot be read by the model: it is too long and narrow, or takes more than the limits of a [`Picture`].
    fn prepare(&self, image: &Image) -> Result<Picture>;
}

/// How a model's images are cut and what the prompt says in their place. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Processor(Arc<dyn Family>);

impl Processor {
    /// A processor of a family of one's own.
    pub fn new(family: impl Family + 'static) -> Self {
        Self(Arc::new(family))
    }

    /// The processor of a checkpoint, by its files: `config` is `config.json`; `settings` is `preprocessor_config.json`, or what
    /// `processor_config.json` holds under `image_processor`; `processor` is `processor_config.json` itself. The last two may be missing: then what the
    /// configuration says, under `image_processor` where it is of a GGUF file, and else the family's defaults, hold.
    ///
    /// `None` where the model does not see (there is no `vision_config`), or is of no family that is [known here](crate#families).
    ///
    /// # Errors
    /// If a setting is of the wrong type or out of range, if files contradict each other, or if they ask for what is not done here.
    pub fn load(
        config: &Config,
        settings: Option<&Config>,
        processor: Option<&Config>,
    ) -> Result<Option<Self>> {
        if !config.has("vision_config") {
            return Ok(None);
        }
        let settings = Settings::new(config, settings, processor);
        let family = family::load(&settings).map_err(|e| e.within("image settings"))?;
        Ok(family.map(|family| Self(family.into())))
    }

    /// What chat templates write for an image, or of that the part that is replaced (of `<|vision_start|><|image_pad|><|vision_end|>`
    /// the middle).
    pub fn marker(&self) -> &str {
        self.0.marker()
    }

    /// The special token that stands once in the prompt for each row (vector) that the tower makes.
    pub fn row_token(&self) -> &str {
        self.0.row_token()
    }

    /// Cuts an image as the model's tower reads it, and makes the text that stands for it.
    ///
    /// # Errors
    /// If the model cannot read the image: it is too long and narrow, or takes more than the limits of a [`Picture`].
    pub fn prepare(&self, image: &Image) -> Result<Picture> {
        self.0.prepare(image)
    }
}
