//! Vectors of texts, to compare them by.
//!
//! How a checkpoint wants its states pooled is asked of it: GGUF files say it in their header, the folders of
//! sentence-transformers in `modules.json` and what it names. A wrong guess gives vectors that look right and rank badly; so
//! where a checkpoint wants what is not known here (a `Dense` layer, a maximum), that is an error until a pooling is chosen.

use crate::engine::{self, Pooling};
use crate::tensor::{Config, Error as ModelError};
use crate::weights::SentenceSettings;
use crate::{Model, Prompt, Result};
use ndarray::Array2;
use std::path::Path;

/// How to make vectors of texts.
///
/// ```no_run
/// # fn main() -> ogive::Result<()> {
/// let model = ogive::open("model.gguf")?;
/// let vectors = model.embed_all(["a cat", "a dog", "a tax form"], &ogive::Embed::new())?;
/// println!("{}", vectors.row(0).dot(&vectors.row(1))); // the cosine: both are of length 1
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Embed {
    /// Which hidden states count; `None` for what the checkpoint says, or else the mean.
    pub pooling: Option<Pooling>,
    /// Whether vectors are scaled to length 1.
    pub normalize: bool,
    /// Whether a text that is too long is cut, as sentence-transformers does: its beginning counts, closed by what closes
    /// every text (`[SEP]`). Otherwise it is an error.
    pub truncate: bool,
    /// So many numbers, the first of the model's; `None` for all. Only models that were trained for it (Matryoshka) keep their
    /// meaning.
    pub dimensions: Option<usize>,
}

impl Default for Embed {
    fn default() -> Self {
        Self::new()
    }
}

impl Embed {
    /// Pooled as the checkpoint says, scaled to length 1.
    pub fn new() -> Self {
        Self { pooling: None, normalize: true, truncate: false, dimensions: None }
    }

    /// Pooled so, whatever the checkpoint says.
    #[must_use]
    pub fn pooling(self, pooling: Pooling) -> Self {
        Self { pooling: Some(pooling), ..self }
    }

    /// Scaled to length 1 or left as they are.
    #[must_use]
    pub fn normalize(self, normalize: bool) -> Self {
        Self { normalize, ..self }
    }

    /// Texts that are too long are cut or are an error.
    #[must_use]
    pub fn truncate(self, truncate: bool) -> Self {
        Self { truncate, ..self }
    }

    /// Only the first so many numbers of each vector.
    #[must_use]
    pub fn dimensions(self, dimensions: usize) -> Self {
        Self { dimensions: Some(dimensions), ..self }
    }
}

/// What a checkpoint says of its vectors.
#[derive(Clone, Debug)]
pub(crate) struct Says {
    /// How states are pooled, or why that is not possible.
    pooling: Result<Option<Pooling>, String>,
    /// Tokens that texts are cut to.
    max_tokens: Option<usize>,
}

impl Says {
    pub(crate) fn read(config: &Config, folder: Option<&Path>) -> Self {
        let settings = folder.map_or_else(|| Ok(SentenceSettings::default()), SentenceSettings::read);
        let max_tokens = settings.as_ref().ok().and_then(|s| s.max_tokens);
        let number = match (config.opt_usize("pooling_type"), settings) {
            (Ok(Some(number)), _) => Ok(Some(number)),
            (Err(e), _) => Err(format!("{e}; choose a pooling")),
            (_, Ok(settings)) => Ok(settings.pooling_type.map(|n| n as usize)),
            (_, Err(e)) => Err(format!("{e}; choose a pooling to do without")),
        };
        let pooling = number.and_then(|number| match number {
            None => Ok(None),
            Some(0) => Err("the file says that states are not pooled; choose a pooling, or take the vectors of tokens".into()),
            Some(1) => Ok(Some(Pooling::Mean)),
            Some(2) => Ok(Some(Pooling::Cls)),
            Some(3) => Ok(Some(Pooling::Last)),
            Some(4) => Err("the model ranks texts for a question, which has no vectors; choose a pooling to see its states".into()),
            Some(other) => Err(format!("the file names the pooling {other}, which is not known; choose one")),
        });
        Self { pooling, max_tokens }
    }
}

impl Model {
    /// The vector of a text, of length 1. `[dim]`
    pub fn embed(&self, text: impl Into<Prompt>) -> Result<Vec<f32>> {
        Ok(self.embed_all([text], &Embed::new())?.into_raw_vec_and_offset().0)
    }

    /// The vectors of many texts, which share steps; each is the same to the bit as if it came alone. A text of more tokens
    /// than [`context`](Self::context) is an error unless it may be [cut](Embed::truncate). `[texts, dimensions]`
    pub fn embed_all<P: Into<Prompt>>(
        &self,
        texts: impl IntoIterator<Item = P>,
        how: &Embed,
    ) -> Result<Array2<f32>> {
        let pooling = match how.pooling {
            Some(given) => given,
            None => {
                let says = self.embeds().pooling.clone();
                says.map_err(|why| ModelError::unsupported("embed", why))?.unwrap_or_default()
            }
        };
        let (ids, settings) = (self.cut(texts, how)?, self.settings(pooling, how));
        Ok(engine::embed(&**self.backend(), &**self.layers(), &ids, &settings)?)
    }

    /// The vectors of every token of each text, not pooled, those of special tokens among them: for comparing texts token by
    /// token, or for a pooling of one's own. For each text `[tokens, dimensions]`
    pub fn embed_tokens<P: Into<Prompt>>(
        &self,
        texts: impl IntoIterator<Item = P>,
        how: &Embed,
    ) -> Result<Vec<Array2<f32>>> {
        let (ids, settings) = (self.cut(texts, how)?, self.settings(Pooling::default(), how));
        Ok(engine::embed_tokens(&**self.backend(), &**self.layers(), &ids, &settings)?)
    }

    fn settings(&self, pooling: Pooling, how: &Embed) -> engine::Embed {
        let limits = self.limits();
        let mut settings = engine::Embed::new(pooling);
        (settings.normalize, settings.dimensions) = (how.normalize, how.dimensions);
        (settings.chunk, settings.element) = (limits.step_tokens, limits.element);
        settings
    }

    /// The ids of texts, none of which is longer than the context.
    fn cut<P: Into<Prompt>>(&self, texts: impl IntoIterator<Item = P>, how: &Embed) -> Result<Vec<Vec<u32>>> {
        let context = self.context();
        let most = self.embeds().max_tokens.unwrap_or(context).min(context);
        let fits = |(i, text): (usize, P)| {
            let prompt = text.into();
            let mut ids = self.encode(&prompt)?;
            if how.truncate && ids.len() > most {
                // What ends a text ends its beginning too.
                let end = match (&prompt, self.tokenizer()) {
                    (Prompt::Text(_), Ok(tokenizer)) => tokenizer.around()[1],
                    _ => &[],
                };
                ids.truncate(most.saturating_sub(end.len()));
                ids.extend(end.iter().take(most));
            }
            if ids.len() <= context {
                return Ok(ids);
            }
            let why = format!("text {i} has {} tokens, and the context is {context}", ids.len());
            let todo = "cut it, let it be cut (`truncate`), or open the model for a longer context";
            Err(ModelError::invalid("embed", format!("{why}; {todo}")).into())
        };
        texts.into_iter().enumerate().map(fits).collect()
    }
}
