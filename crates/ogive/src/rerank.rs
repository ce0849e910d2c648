//! How well texts answer a question, by a model that reads both together.
//!
//! Scores are the model's own, numbers of any size, and not made to lie between 0 and 1 unless that is asked for: the order is the same, and some
//! models learned with the one and some with the other. Of a model that says `yes` or `no` the score is by how much the logit of the one is above the other's, whose
//! sigmoid is how likely `yes` is among both.

use crate::asking::{ANSWERS, Asking, answers};
use crate::engine;
use crate::tensor::Error as ModelError;
use crate::tokenizer::EncodeOptions;
use crate::{Error, Model, Result};
use ndarray::ArrayView1;

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
    /// Whether a question and a text that are too long together are cut, the longer of the two first, as transformers does; of a model that is
    /// [asked](Self::asked) the text alone, and a question that leaves no room for it is an error. Otherwise all that is too long is an error.
    pub truncate: bool,
    /// Tokens of both together at most, special ones among them; `None` for what the checkpoint takes. Never more than the context.
    pub max_tokens: Option<usize>,
    /// Whether scores go through a sigmoid, so that they lie between 0 and 1.
    pub sigmoid: bool,
    /// Whether the model is asked as Qwen3-Reranker is, and answers yes or no, or reads a question and a text alone; `None` for what is said beside it.
    /// That it is asked say a heading `# Qwen3-Reranker` in the folder's README and, of a Qwen3 with a head for classes, classes `yes` and `no` or a file's template
    /// `rerank`. Of a Qwen3 with another head nobody can know it (Qwen3-Reranker is converted to one of a single class, and classifiers and reward models are the
    /// same class), so that is an error until it is said here; every other model is not asked.
    pub asked: Option<bool>,
    /// What a model that is asked is told to do, in place of what it learned with: "Given a web search query, retrieve relevant passages that answer
    /// the query".
    pub instruction: Option<String>,
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

    /// Asked for yes or no, or not, whatever is said beside the model.
    #[must_use]
    pub fn asked(self, asked: bool) -> Self {
        Self { asked: Some(asked), ..self }
    }

    /// Told to do so.
    #[must_use]
    pub fn instruction(self, instruction: impl Into<String>) -> Self {
        Self { instruction: Some(instruction.into()), ..self }
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
    /// If the model is no reranker: if it has no head for classes and is not one that is [asked](Rerank::asked), or has several classes that are not `yes` and
    /// `no`; if nobody says whether it is asked, and it may be; if there is an instruction for one that takes none; if its tokenizer does not say how two texts are one, or lacks what it is asked with; if what
    /// the checkpoint says of lengths cannot be read; if a text and `query` have more tokens than the checkpoint takes, or than [`context`](Self::context), and may not be cut; or if computing
    /// fails.
    pub fn rerank<T: AsRef<str>>(
        &self,
        query: &str,
        texts: impl IntoIterator<Item = T>,
        how: &Rerank,
    ) -> Result<Vec<f32>> {
        let asking = self.asking(how)?;
        let encode =
            |text: &str| -> Result<Vec<u32>> { Ok(self.tokenizer()?.encode(text, EncodeOptions::TEXT)?) };
        let ids = if asking.is_none() { encode(query)? } else { Vec::new() };
        let pair = |(i, text): (usize, T)| match &asking {
            Some(asking) => Ok((self.question(asking, query, text.as_ref(), i, how)?, Vec::new())),
            None => self.pair(&ids, encode(text.as_ref())?, i, how),
        };
        let pairs = texts.into_iter().enumerate().map(pair).collect::<Result<Vec<_>>>()?;
        let limits = self.limits();
        let mut settings = engine::Embed::new(engine::Pooling::default());
        (settings.chunk, settings.element) = (limits.step_tokens, limits.element);
        let (b, layers) = (&**self.backend(), &**self.layers());
        let (scores, [yes, no]) = if self.judges() {
            let scores = engine::classify(b, layers, &pairs, &settings)?;
            let labels = self.labels();
            let of = |answer: &str| labels.iter().position(|label| label == answer);
            let both = [of(ANSWERS[0]), of(ANSWERS[1])];
            (scores, both)
        } else {
            let texts: Vec<Vec<u32>> = pairs.into_iter().map(|(ids, _)| ids).collect();
            let tokens = answers(self.tokenizer()?)?;
            (engine::next_logits(b, layers, &texts, &tokens, &settings)?, [Some(0), Some(1)])
        };
        let score = |row: ArrayView1<'_, f32>| match (row.len(), yes, no) {
            (1, ..) => Ok(row[0]),
            (2, Some(yes), Some(no)) if yes < 2 && no < 2 => Ok(row[yes] - row[no]),
            (several, ..) => {
                let why = format!(
                    "the model tells {several} classes apart, and a reranker has one, or `yes` and `no`"
                );
                Err(Error::from(ModelError::unsupported("rerank", why)))
            }
        };
        let squashed = |score: f32| if how.sigmoid { 1.0 / (1.0 + (-score).exp()) } else { score };
        scores.rows().into_iter().map(|row| score(row).map(squashed)).collect()
    }

    /// How the model is asked, if it is.
    fn asking(&self, how: &Rerank) -> Result<Option<Asking>> {
        let asked = match how.asked {
            Some(asked) => asked,
            None if self.embeds().asked => true,
            None if self.judges() && self.architecture().starts_with("Qwen3") => {
                let labels = self.labels();
                let answers = ANSWERS.iter().all(|answer| labels.iter().any(|label| label == answer));
                if !answers && self.tokenizer()?.chat_template_named("rerank").is_none() {
                    let why = "nothing beside the model says whether it is asked for yes or no, as Qwen3-Reranker is, or reads a question and a text alone; \
                         say which (`asked`, --asked or --asked=false)";
                    return Err(ModelError::unsupported("rerank", why).into());
                }
                true
            }
            None => false,
        };
        if asked {
            return Asking::new(self.tokenizer()?, how.instruction.as_deref()).map(Some);
        }
        let why = if !self.judges() {
            "the model is no reranker: it has no head for classes of texts; compare vectors of texts (`embed`), or, if it answers yes or no as \
             Qwen3-Reranker does, say so (`asked`, --asked)"
        } else if how.instruction.is_some() {
            "the model takes no instruction: it reads a question and a text alone"
        } else {
            return Ok(None);
        };
        Err(ModelError::unsupported("rerank", why).into())
    }

    /// Tokens that a question and a text may have together.
    fn most(&self, how: &Rerank) -> Result<usize> {
        let context = self.context();
        let most = how.max_tokens.or(self.embeds().max_tokens("rerank")?).filter(|own| *own <= context);
        Ok(most.unwrap_or(context))
    }

    /// Ids of what the model is asked about text `i`.
    fn question(&self, asking: &Asking, query: &str, text: &str, i: usize, how: &Rerank) -> Result<Vec<u32>> {
        let most = self.most(how)?;
        match asking.ids(self.tokenizer()?, query, text, most)? {
            (Some(ids), whole) if how.truncate || whole <= most => Ok(ids),
            (None, whole) if how.truncate => {
                let why =
                    format!("the question and text {} have {whole} tokens, and {most} are allowed", i + 1);
                let cut = "nothing would be left of the text if it were cut: ask with fewer words, or allow more (`max_tokens`, --context)";
                Err(ModelError::invalid("rerank", format!("{why}; {cut}")).into())
            }
            (_, whole) => Err(too_long(i, whole, most)),
        }
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
        let most = self.most(how)?;
        let (ids, types) = of(query, &text)?;
        if ids.len() <= most {
            return Ok((ids, types));
        }
        let around = ids.len() - query.len() - text.len();
        if !how.truncate || around > most {
            return Err(too_long(i, ids.len(), most));
        }
        let [query_len, text_len] = cut([query.len(), text.len()], most - around);
        text.truncate(text_len);
        of(&query[..query_len], &text)
    }
}

/// The error for a question and text `i`, of so many tokens together.
fn too_long(i: usize, tokens: usize, most: usize) -> Error {
    // As whoever gives lines counts them.
    let why = format!("the question and text {} have {tokens} tokens, and {most} are allowed", i + 1);
    let cut =
        "cut them, or let them be cut (`truncate`, --truncate), or allow more (`max_tokens`, --context)";
    ModelError::invalid("rerank", format!("{why}; {cut}")).into()
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
