//! How well texts answer a question, by a model that reads both together.
//!
//! Scores are the model's own, numbers of any size, and not made to lie between 0 and 1 unless that is asked for: the order is the same, and some
//! models learned with the one and some with the other.

use crate::engine;
use crate::tensor::Error as ModelError;
use crate::tokenizer::EncodeOptions;
use crate::{Error, Model, Result};

/// How to score texts.
///
/// ```no_run
/// # fn main() -> ogive::Result<()> {
/// let model = ogive::open("bge-reranker-v2-m3")?;
/// let texts = ["Paris is the capital of France.", "A giraffe eats leaves."];
/// let scores = model.rerank("What is the capital of France?", texts, &ogive::Rerank::new())?;
/// assert!(scores[0] > scores[1]);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Rerank {
    /// Whether a question and a text that are too long together are cut, the longer of the two first, as transformers does. Otherwise they are an
    /// error.
    pub truncate: bool,
    /// Tokens of both together at most, special ones among them; `None` for what the checkpoint takes. Never more than the context.
    pub max_tokens: Option<usize>,
    /// Whether scores go through a sigmoid, so that they lie between 0 and 1.
    pub sigmoid: bool,
}

impl Rerank {
    /// Scores as the model gives them, of texts that fit.
    pub fn new() -> Self {
        Self::default()
    }

    /// What is too long is cut or is an error.
    #[must_use]
    pub fn truncate(self, truncate: bool) -> Self {
        Self { truncate, ..self }
    }

    /// So many tokens, whatever the checkpoint says.
    #[must_use]
    pub fn max_tokens(self, tokens: usize) -> Self {
        Self { max_tokens: Some(tokens), ..self }
    }

    /// Scores between 0 and 1, or as they are.
    #[must_use]
    pub fn sigmoid(self, sigmoid: bool) -> Self {
        Self { sigmoid, ..self }
    }
}

impl Model {
    /// Whether the model has classes for texts, as rerankers have one.
    pub fn judges(&self) -> bool {
        self.layers().judges().is_some()
    }

    /// A score for each of `texts`, in their order: the greater, the better it answers `query`. They share steps. On the CPU each is the same to the bit as
    /// if it came alone; on a GPU last bits may differ.
    ///
    /// # Errors
    /// If the model is no reranker: if it has no head for classes, or several classes; if its tokenizer does not say how two texts are one; if what
    /// the checkpoint says of lengths cannot be read; if a text and `query` have more tokens than the checkpoint takes, or than [`context`](Self::context), and may not be cut; or if computing
    /// fails.
    pub fn rerank<T: AsRef<str>>(
        &self,
        query: &str,
        texts: impl IntoIterator<Item = T>,
        how: &Rerank,
    ) -> Result<Vec<f32>> {
        if !self.judges() {
            let why = "the model is no reranker: it has no head for classes of texts; compare vectors of texts (`embed`)";
            return Err(ModelError::unsupported("rerank", why).into());
        }
        let encode =
            |text: &str| -> Result<Vec<u32>> { Ok(self.tokenizer()?.encode(text, EncodeOptions::TEXT)?) };
        let query = encode(query)?;
        let pairs =
            texts.into_iter().enumerate().map(|(i, text)| self.pair(&query, encode(text.as_ref())?, i, how));
        let pairs = pairs.collect::<Result<Vec<_>>>()?;
        let limits = self.limits();
        let mut settings = engine::Embed::new(engine::Pooling::default());
        (settings.chunk, settings.element) = (limits.step_tokens, limits.element);
        let scores = engine::classify(&**self.backend(), &**self.layers(), &pairs, &settings)?;
        if scores.ncols() > 1 {
            let why = format!("the model tells {} classes apart, and a reranker has one", scores.ncols());
            return Err(ModelError::unsupported("rerank", why).into());
        }
        let squashed = |score: f32| 1.0 / (1.0 + (-score).exp());
        Ok(scores.iter().map(|score| if how.sigmoid { squashed(*score) } else { *score }).collect())
    }

    /// Ids and types of the question and text `i` as one.
    fn pair(
        &self,
        query: &[u32],
        mut text: Vec<u32>,
        i: usize,
        how: &Rerank,
    ) -> Result<(Vec<u32>, Vec<u32>)> {
        let tokenizer = self.tokenizer()?;
        let of = |query: &[u32], text: &[u32]| {
            let unknown = "the vocabulary does not say how two texts become one";
            let pair =
                tokenizer.pair(query, text).ok_or_else(|| ModelError::unsupported("rerank", unknown))?;
            Ok::<_, Error>(match self.embeds().one_type {
                true => (pair.0, Vec::new()),
                false => pair,
            })
        };
        let context = self.context();
        let most = how.max_tokens.or(self.embeds().max_tokens()?).filter(|own| *own <= context);
        let most = most.unwrap_or(context);
        let (ids, types) = of(query, &text)?;
        if ids.len() <= most {
            return Ok((ids, types));
        }
        let around = ids.len() - query.len() - text.len();
        if !how.truncate || around > most {
            // As whoever gives lines counts them.
            let why =
                format!("the question and text {} have {} tokens, and {most} are allowed", i + 1, ids.len());
            let cut = "cut them, or let them be cut (`truncate`, --truncate), or allow more (`max_tokens`, --context)";
            return Err(ModelError::invalid("rerank", format!("{why}; {cut}")).into());
        }
        let [query_len, text_len] = cut([query.len(), text.len()], most - around);
        text.truncate(text_len);
        of(&query[..query_len], &text)
    }
}

/// How long two texts are that have `room` together, of which the longer is cut first. Source: `LongestFirst` of the `tokenizers` crate.
fn cut([first, second]: [usize; 2], room: usize) -> [usize; 2] {
    let (half, short) = (room / 2, first.min(second));
    let [short, long] = if short <= half { [short, room - short] } else { [half, room - half] };
    if first <= second { [short, long] } else { [long, short] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_text_is_cut_first() {
        for (lens, room, want) in [
            ([3, 20], 10, [3, 7]),
            ([20, 3], 10, [7, 3]),
            ([8, 9], 11, [5, 6]),
            ([9, 8], 11, [6, 5]),
            ([0, 9], 4, [0, 4]),
            ([6, 6], 0, [0, 0]),
        ] {
            assert_eq!(cut(lens, room), want, "{lens:?} in {room}");
        }
    }
}
