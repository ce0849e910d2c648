//! Vectors of texts, to compare them by.
//!
//! How a checkpoint wants its states pooled is asked of it: GGUF files say it in their header, the folders of
//! sentence-transformers in `1_Pooling`. A wrong guess gives vectors that look right and rank badly. Layers which such a
//! folder has after its model (`Dense`) are not known here, so that is an error and not a vector without them.

use crate::engine::{self, Pooling};
use crate::tensor::{Config, Error as ModelError, serde_json as json};
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
}

impl Default for Embed {
    fn default() -> Self {
        Self::new()
    }
}

impl Embed {
    /// Pooled as the checkpoint says, scaled to length 1.
    pub fn new() -> Self {
        Self { pooling: None, normalize: true }
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
}

impl Model {
    /// The vector of a text, of length 1. `[dim]`
    pub fn embed(&self, text: impl Into<Prompt>) -> Result<Vec<f32>> {
        Ok(self.embed_all([text], &Embed::new())?.into_raw_vec_and_offset().0)
    }

    /// The vectors of many texts, which share steps. A text of more tokens than [`context`](Self::context) is an error.
    /// `[texts, dim]`
    pub fn embed_all<P: Into<Prompt>>(
        &self,
        texts: impl IntoIterator<Item = P>,
        how: &Embed,
    ) -> Result<Array2<f32>> {
        let pooling = match how.pooling {
            Some(given) => given,
            None => self.pooling().map_err(|why| ModelError::unsupported("embed", why))?.unwrap_or_default(),
        };
        let context = self.context();
        let fits = |(i, text): (usize, P)| {
            let ids = self.encode(&text.into())?;
            if ids.len() <= context {
                return Ok(ids);
            }
            let why = format!("text {i} has {} tokens, and the context is {context}", ids.len());
            let todo = "cut it, or open the model for a longer context";
            Err(ModelError::invalid("embed", format!("{why}; {todo}")).into())
        };
        let ids = texts.into_iter().enumerate().map(fits).collect::<Result<Vec<_>>>()?;
        let limits = self.limits();
        let mut settings = engine::Embed::new(pooling);
        (settings.normalize, settings.chunk) = (how.normalize, limits.step_tokens);
        settings.element = limits.element;
        Ok(engine::embed(&**self.backend(), &**self.layers(), &ids, &settings)?)
    }
}

/// What a checkpoint says of pooling, or why its vectors cannot be had.
pub(crate) fn pooling_of(config: &Config, folder: Option<&Path>) -> Result<Option<Pooling>, String> {
    // llama.cpp's numbers; 0 is "none", and what ranks (4) has no vector.
    match config.opt_usize("pooling_type").ok().flatten() {
        Some(1) => return Ok(Some(Pooling::Mean)),
        Some(2) => return Ok(Some(Pooling::Cls)),
        Some(3) => return Ok(Some(Pooling::Last)),
        _ => {}
    }
    let read = |name: &str| -> Option<json::Value> {
        json::from_str(&std::fs::read_to_string(folder?.join(name)).ok()?).ok()
    };
    let modules = read("modules.json").unwrap_or_default();
    let kinds = modules.as_array().into_iter().flatten().filter_map(|m| m.get("type")?.as_str());
    for kind in kinds.map(|k| k.rsplit('.').next().unwrap_or(k)) {
        if !["Transformer", "Pooling", "Normalize"].contains(&kind) {
            return Err(format!(
                "the checkpoint goes on with a layer `{kind}` after its model, which is not known; choose a pooling to do without"
            ));
        }
    }
    let pooling = read("1_Pooling/config.json").unwrap_or_default();
    let says =
        |mode: &str| pooling.get(format!("pooling_mode_{mode}")).and_then(json::Value::as_bool) == Some(true);
    Ok(match () {
        () if says("cls_token") => Some(Pooling::Cls),
        () if says("lasttoken") => Some(Pooling::Last),
        () if says("mean_tokens") => Some(Pooling::Mean),
        () => None,
    })
}
