//! What sessions guess their next tokens by.

use crate::engine::{self, DraftModel, Engine, Lookup};
use crate::tensor::Error as ModelError;
use crate::tokenizer::Tokenizer;
use crate::{Model, Result};

/// Guesses which tokens come next, so that a step computes several of a text at once: speculative decoding. What
/// [`Model::with_draft`] takes.
///
/// The text stays what it would have been, seeds, samplers and grammars included: to the bit on the CPU, and on a GPU as far as its last bits do not
/// depend on how many tokens a step has. Guesses that are wrong cost some time, and those that are right save more: a step is bound by reading
/// the weights, once for all its tokens. [`engine::Draft`](crate::engine::Draft) tells how it is done, and takes guesses of one's own.
#[derive(Clone, Debug)]
pub struct Draft {
    by: Vec<By>,
    max_tokens: usize,
    min_probability: f32,
    min_match: usize,
}

#[derive(Clone, Debug)]
enum By {
    Lookup,
    Model(Model),
}

impl Draft {
    /// By the text itself: what followed its last tokens where they stood before. Takes no model and no memory, and guesses well where an
    /// answer repeats its prompt or itself: summaries, code that is changed, lists.
    pub fn lookup() -> Self {
        Self::by(By::Lookup)
    }

    /// By a smaller model with the same vocabulary, of the same family as a rule: a tenth of the size or less. It may be on another device; on
    /// the same one it best shares the backend ([`Options::backend`](crate::Options::backend)). Each session keeps a cache of both.
    pub fn model(small: &Model) -> Self {
        Self::by(By::Model(small.clone()))
    }

    fn by(by: By) -> Self {
        Self { by: vec![by], max_tokens: 7, min_probability: 0.5, min_match: 2 }
    }

    /// By the text itself where it has something to go by, else by a model.
    #[must_use]
    pub fn or_model(mut self, small: &Model) -> Self {
        self.by.push(By::Model(small.clone()));
        self
    }

    /// Guesses up to so many tokens in each step, instead of 7, with which a step of one text has eight rows: of all sequences of an
    /// [engine](Model::engine) together.
    #[must_use]
    pub fn max_tokens(self, tokens: usize) -> Self {
        Self { max_tokens: tokens, ..self }
    }

    /// How likely a model must find a token to guess it, 0 to 1, instead of 0.5. Of no account where no model guesses.
    #[must_use]
    pub fn min_probability(self, probability: f32) -> Self {
        Self { min_probability: probability, ..self }
    }

    /// How many of the last tokens must have stood there before for the text to be gone by, instead of 2. Of no account where only a model guesses.
    #[must_use]
    pub fn min_match(self, tokens: usize) -> Self {
        Self { min_match: tokens, ..self }
    }

    /// Whether this can guess for `model`.
    pub(crate) fn check(&self, model: &Model) -> Result<()> {
        self.by.iter().try_for_each(|by| match by {
            By::Lookup => Ok(()),
            By::Model(small) => fits(small, model),
        })
    }

    /// Has it guess for `engine`.
    pub(crate) fn guide(&self, engine: &mut Engine) -> Result<()> {
        let mut drafts: Vec<Box<dyn engine::Draft>> = Vec::new();
        for by in &self.by {
            drafts.push(match by {
                By::Lookup => Box::new(Lookup::new().min_match(self.min_match)),
                By::Model(small) => {
                    let own = small.limits();
                    let limits = engine.limits().clone().element(own.element);
                    let limits = limits.context(engine.limits().context.min(own.context));
                    // As far as guesses may have been wrong.
                    let limits = limits.rewind(self.max_tokens.saturating_add(1));
                    let draft = DraftModel::new(small.engine(limits)?)?;
                    Box::new(draft.min_probability(self.min_probability))
                }
            });
        }
        engine.speculate(Some(Box::new(drafts)), self.max_tokens);
        Ok(())
    }
}

/// Whether one model can guess for another.
fn fits(small: &Model, model: &Model) -> Result<()> {
    if small.is_encoder() {
        return Err(ModelError::unsupported("draft model", "it is an encoder and draws no tokens").into());
    }
    DraftModel::check(&**small.layers())?;
    if let (Ok(own), Ok(theirs)) = (model.tokenizer(), small.tokenizer())
        && let Some(why) = difference(own, theirs)
    {
        let why = format!("{why}; take a model of the same family");
        return Err(ModelError::unsupported("draft model", why).into());
    }
    Ok(())
}

/// In what the second vocabulary is another than the first. Models of a family differ in the names of tokens that are kept free for later, and in
/// how many of those there are: of what both have, one in a hundred may be another.
fn difference(one: &Tokenizer, other: &Tokenizer) -> Option<String> {
    let both = one.vocab_size().min(other.vocab_size());
    let ids = (0..both).filter_map(|id| u32::try_from(id).ok());
    let differ: Vec<u32> =
        ids.filter(|id| one.token_bytes(*id).ok() != other.token_bytes(*id).ok()).collect();
    let first = *differ.first().filter(|_| differ.len() > both / 100)?;
    let token =
        |t: &Tokenizer| t.token_bytes(first).map(String::from_utf8_lossy).unwrap_or_default().into_owned();
    let (own, theirs, n) = (token(one), token(other), differ.len());
    Some(format!(
        "its vocabulary is another: of {both} tokens {n} differ, the first is {first}, {theirs:?} and not {own:?}"
    ))
}
