//! Which of a model's classes a text belongs to: sentiments, topics, languages, whatever it learned.
//!
//! What a head gives are numbers of any size; what is made of them the checkpoint says (`problem_type`, which files of Ogive's making have and
//! others of GGUF have not), and where it is silent transformers'
//! `TextClassificationPipeline` is followed: of one class a sigmoid, of several shares that add up to one.

use crate::engine;
use crate::tensor::Error as ModelError;
use crate::{Error, Model, Prompt, Result};

/// What is made of a head's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scores {
    /// Shares that add up to one: a text belongs to one class.
    Softmax,
    /// Each between 0 and 1 by itself: a text may belong to several, or to none.
    Sigmoid,
    /// The numbers as they are.
    Raw,
}

/// A class, and how much a text belongs to it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Class {
    /// What it is called.
    pub label: String,
    /// By how much.
    pub score: f32,
}

/// How to classify texts.
///
/// ```no_run
/// # fn main() -> ogive::Result<()> {
/// let model = ogive::open("twitter-roberta-base-sentiment")?;
/// for class in model.classify("What a day!")? {
///     println!("{}: {}", class.label, class.score);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Classify {
    /// What is made of the head's numbers; `None` for what the checkpoint says.
    pub scores: Option<Scores>,
    /// Whether texts that are too long are cut. Otherwise they are an error.
    pub truncate: bool,
    /// Tokens of a text at most, special ones among them; `None` for what the checkpoint takes. Never more than the context.
    pub max_tokens: Option<usize>,
}

impl Classify {
    /// As the checkpoint says, of texts that fit.
    pub fn new() -> Self {
        Self::default()
    }

    /// Scores of this kind, whatever the checkpoint says.
    #[must_use]
    pub fn scores(self, scores: Scores) -> Self {
        Self { scores: Some(scores), ..self }
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
}

impl Model {
    /// What the model's classes are called, as far as the checkpoint says (`id2label`, GGUF's `classifier.output_labels`): the first is class 0. It says so of
    /// models without a head for classes, too.
    pub fn labels(&self) -> Vec<String> {
        let named = self.config().0.get("id2label").and_then(|names| names.as_object());
        let name = |i: usize| Some(named?.get(&i.to_string())?.as_str()?.to_owned());
        // Names that skip a number end there.
        (0..).map_while(name).collect()
    }

    /// The classes of a text, in the model's order, with what it scores.
    ///
    /// # Errors
    /// As [`classify_all`](Self::classify_all).
    pub fn classify(&self, text: &str) -> Result<Vec<Class>> {
        Ok(self.classify_all([text], &Classify::new())?.pop().unwrap_or_default())
    }

    /// The same of many texts, which share steps: for each all classes, in the model's order. On the CPU each is the same to the bit as if it came alone; on a GPU
    /// last bits may differ. A class without a name is `LABEL_` and its number.
    ///
    /// # Errors
    /// If the model has no head for classes, or its `problem_type` is not known and `how` says nothing; if what the checkpoint says of lengths cannot be read; if a text
    /// has no token, or more than it may have and may not be cut; if there is no tokenizer; or if computing fails.
    pub fn classify_all<T: AsRef<str>>(
        &self,
        texts: impl IntoIterator<Item = T>,
        how: &Classify,
    ) -> Result<Vec<Vec<Class>>> {
        if !self.judges() {
            let why = "the model has no head for classes of texts";
            return Err(ModelError::unsupported("classify", why).into());
        }
        let ids = texts.into_iter().enumerate().map(|(i, text)| self.whole_or_cut(text.as_ref(), i, how));
        let ids: Vec<(Vec<u32>, Vec<u32>)> = ids.map(|ids| Ok((ids?, Vec::new()))).collect::<Result<_>>()?;
        let limits = self.limits();
        let mut settings = engine::Embed::new(engine::Pooling::default());
        (settings.chunk, settings.element) = (limits.step_tokens, limits.element);
        let scores = engine::classify(&**self.backend(), &**self.layers(), &ids, &settings)?;
        let (kind, labels) = (self.scores(scores.ncols(), how)?, self.labels());
        let classes = |row: Vec<f32>| {
            let named = |(i, score)| Class {
                label: labels.get(i).cloned().unwrap_or_else(|| format!("LABEL_{i}")),
                score,
            };
            kind.of(row).into_iter().enumerate().map(named).collect()
        };
        Ok(scores.rows().into_iter().map(|row| classes(row.to_vec())).collect())
    }

    /// What is made of the numbers of so many classes.
    fn scores(&self, classes: usize, how: &Classify) -> Result<Scores> {
        if let Some(kind) = how.scores {
            return Ok(kind);
        }
        match self.config().opt_str("problem_type")? {
            Some("regression") => Ok(Scores::Raw),
            Some("multi_label_classification") => Ok(Scores::Sigmoid),
            _ if classes == 1 => Ok(Scores::Sigmoid),
            None | Some("single_label_classification") => Ok(Scores::Softmax),
            Some(other) => {
                let known = "single_label_classification, multi_label_classification, regression";
                let why =
                    format!("`problem_type` is `{other}`; known are {known}; or choose what scores are");
                Err(ModelError::unsupported("config", why).into())
            }
        }
    }

    /// The ids of text `i`, with what begins and ends every text.
    fn whole_or_cut(&self, text: &str, i: usize, how: &Classify) -> Result<Vec<u32>> {
        let context = self.context();
        let most = how.max_tokens.or(self.embeds().max_tokens("classify")?).filter(|own| *own <= context);
        // As whoever gives lines counts them.
        let (most, n) = (most.unwrap_or(context), i + 1);
        let wrong = |why: String| Error::from(ModelError::invalid("classify", why));
        let mut ids = match self.encode(&Prompt::Text(text.to_owned())) {
            Err(Error::EmptyPrompt) => return Err(wrong(format!("text {n} is empty; leave it out"))),
            ids => ids?,
        };
        let end = self.tokenizer()?.around()[1];
        if ids.len() > most && how.truncate && end.len() < most {
            ids.truncate(most - end.len());
            ids.extend(end);
        }
        if ids.len() > most {
            let cut =
                "cut it, or let it be cut (`truncate`, --truncate), or allow more (`max_tokens`, --context)";
            return Err(wrong(format!("text {n} has {} tokens, and {most} are allowed; {cut}", ids.len())));
        }
        Ok(ids)
    }
}

impl Scores {
    fn of(self, mut row: Vec<f32>) -> Vec<f32> {
        match self {
            Self::Raw => {}
            Self::Sigmoid => row.iter_mut().for_each(|v| *v = 1.0 / (1.0 + (-*v).exp())),
            Self::Softmax => {
                let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                row.iter_mut().for_each(|v| *v = (*v - most).exp());
                let sum: f32 = row.iter().sum();
                row.iter_mut().for_each(|v| *v /= sum);
            }
        }
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_and_others_stand_alone() {
        let row = vec![1000.0, 1000.0 + 2.0_f32.ln(), f32::NEG_INFINITY];
        let shares = Scores::Softmax.of(row);
        let want = [1.0 / 3.0, 2.0 / 3.0, 0.0];
        // ln 2 beside a thousand has few bits.
        assert!(shares.iter().zip(want).all(|(got, want)| (got - want).abs() < 1e-4), "{shares:?}");
        assert_eq!(Scores::Sigmoid.of(vec![0.0, f32::NEG_INFINITY, 200.0]), [0.5, 0.0, 1.0]);
        assert_eq!(Scores::Raw.of(vec![-3.0, 7.0]), [-3.0, 7.0]);
    }
}
