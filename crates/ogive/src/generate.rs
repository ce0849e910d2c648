//! What to start from, and how to go on.

use crate::engine::sampler::{SamplerParams, Samplers};
#[cfg(feature = "grammar")]
use ogive_grammar::Grammar;

/// What to start from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Prompt {
    /// Plain text. Nothing in it is taken for a special token, whatever it says.
    Text(String),
    /// Text by hand: special tokens that it spells count, and what the vocabulary begins a text with is added.
    Special(String),
    /// The output of a chat template: special tokens in it count, and none are added.
    Rendered(String),
    /// Token ids, as they are.
    Ids(Vec<u32>),
    /// Text with images, for a [model that sees](crate::Options::vision).
    #[cfg(feature = "vision")]
    Shown {
        /// Text, with the model's [marker](crate::Model::image_marker) where each image stands. Special tokens in it count.
        text: String,
        /// The images, in the order of their markers.
        images: Vec<crate::Image>,
        /// Whether a chat template made the text, and what the vocabulary begins a text with is in it.
        rendered: bool,
    },
}

impl From<&str> for Prompt {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Prompt {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Vec<u32>> for Prompt {
    fn from(ids: Vec<u32>) -> Self {
        Self::Ids(ids)
    }
}

impl From<&[u32]> for Prompt {
    fn from(ids: &[u32]) -> Self {
        Self::Ids(ids.into())
    }
}

/// How to go on from a prompt.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Generate {
    /// Tokens to draw at most; `None` for as many as the context holds.
    pub max_tokens: Option<usize>,
    /// How tokens are drawn.
    pub sampler: SamplerParams,
    /// Text that ends the answer and is not part of it.
    pub stop: Vec<String>,
    /// Whether to go on where the model would end: the tokens that end a text are not drawn then.
    pub ignore_end: bool,
    /// Whether special tokens show in the text.
    pub show_special: bool,
    /// How many of the most likely tokens to tell with each token of the answer, beside its own log probability; `None`
    /// for neither.
    pub logprobs: Option<usize>,
    /// What the answer must be.
    #[cfg(feature = "grammar")]
    pub grammar: Option<Grammar>,
    /// Whether the arguments of calls are held to their tools' schemas.
    #[cfg(feature = "grammar")]
    pub strict: bool,
}

impl Default for Generate {
    fn default() -> Self {
        Self::new()
    }
}

impl Generate {
    /// Draws as llama.cpp does by default, until the model ends or the context is full. The seed is 0, so a program that
    /// changes nothing writes the same text on every run; [`seed`](Self::seed) gives others.
    pub fn new() -> Self {
        let sampler = SamplerParams::default();
        let (stop, ignore_end, show_special) = Default::default();
        Self {
            max_tokens: None,
            sampler,
            stop,
            ignore_end,
            show_special,
            logprobs: None,
            #[cfg(feature = "grammar")]
            grammar: None,
            #[cfg(feature = "grammar")]
            strict: false,
        }
    }

    /// Always the best token.
    pub fn greedy() -> Self {
        Self { sampler: SamplerParams::greedy(), ..Self::new() }
    }

    /// At most so many tokens.
    #[must_use]
    pub fn max_tokens(self, n: usize) -> Self {
        Self { max_tokens: Some(n), ..self }
    }

    /// Other settings of the sampler.
    #[must_use]
    pub fn sampler(self, sampler: SamplerParams) -> Self {
        Self { sampler, ..self }
    }

    /// The same settings with other stages, or in another order.
    ///
    /// ```
    /// # fn main() -> ogive::Result<()> {
    /// let how = ogive::Generate::new().samplers("min_p:0.1,xtc:0.5:0.1,temp:1.2".parse()?);
    /// # assert_eq!(how.sampler.samplers.to_string(), "min_p:0.1,xtc:0.5:0.1,temperature:1.2");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn samplers(mut self, samplers: Samplers) -> Self {
        self.sampler.samplers = samplers;
        self
    }

    /// The same settings with another seed.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.sampler.seed = seed;
        self
    }

    /// One more text that ends the answer.
    #[must_use]
    pub fn stop(mut self, text: impl Into<String>) -> Self {
        self.stop.push(text.into());
        self
    }

    /// Tells how likely each token was, and the `n` most likely ones at its place: see
    /// [`Generation::logprobs`](crate::Generation::logprobs). Changes nothing of what is drawn.
    ///
    /// ```no_run
    /// # fn main() -> ogive::Result<()> {
    /// let mut session = ogive::open("model.gguf")?.session()?;
    /// let how = ogive::Generate::greedy().max_tokens(20).logprobs(3);
    /// let mut story = session.generate("Once upon a time", &how)?;
    /// let mut told = 0;
    /// while let Some(piece) = story.step()? {
    ///     for each in &story.logprobs()[told..] {
    ///         let others: Vec<String> = each.best.iter().map(|b| b.text()).collect();
    ///         println!("{piece:?}: {:.1} %, of {others:?}", 100.0 * each.token.probability());
    ///     }
    ///     told = story.logprobs().len();
    /// }
    /// println!("all of it: {:.2}", story.cumulative_logprob());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn logprobs(self, n: usize) -> Self {
        Self { logprobs: Some(n), ..self }
    }

    /// Shows special tokens in the text.
    #[must_use]
    pub fn show_special(self) -> Self {
        Self { show_special: true, ..self }
    }

    /// Goes on where the model would end: the tokens that end a text are banned, as llama.cpp does. A grammar
    /// still ends the answer where nothing can come after it.
    #[must_use]
    pub fn ignore_end(self) -> Self {
        Self { ignore_end: true, ..self }
    }
}
