//! What can go wrong in choosing a token. One type for building and for drawing, since a caller who
//! handles one handles both the same way: tell the user which setting or which model is at fault.

use thiserror::Error;

/// Why a chain could not be built, or a token not be drawn.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum SampleError {
    /// A parameter is not a number or outside its range.
    #[error("building a sampler: {name} is {value}, but must be {expected}")]
    Parameter {
        /// The parameter's name, as in [`SamplerParams`](crate::SamplerParams).
        name: &'static str,
        /// What was given.
        value: f32,
        /// What is accepted.
        expected: &'static str,
    },
    /// A token has two biases, and which one holds would be a guess.
    #[error("building a sampler: token {token} has two entries in logit_bias; give one")]
    DuplicateBias {
        /// The token.
        token: u32,
    },
    /// A text names a sampler that there is not.
    #[error("reading a chain of samplers: there is no {name:?}{hint}; known are {known}")]
    UnknownSampler {
        /// As it was written.
        name: String,
        /// The nearest name, as a part of the sentence; empty where none is near.
        hint: String,
        /// All names.
        known: String,
    },
    /// A value in a chain's text is not one.
    #[error("reading a chain of samplers: {name} of {sampler} is {value:?}, but must be {expected}")]
    Value {
        /// The sampler's name.
        sampler: &'static str,
        /// The value's name.
        name: &'static str,
        /// As it was written.
        value: String,
        /// What is accepted.
        expected: &'static str,
    },
    /// A sampler has more values than it takes.
    #[error("reading a chain of samplers: {sampler} has too many values; it takes {takes}")]
    TooManyValues {
        /// The sampler's name.
        sampler: &'static str,
        /// The names of its values.
        takes: String,
    },
    /// A chain's text has nothing between two commas, or at its end.
    #[error(
        "reading a chain of samplers: number {place} is empty; write names with commas between them, such as \
         \"top_k:40,temperature:0.8\""
    )]
    EmptyStage {
        /// Which one, counted from 1.
        place: usize,
    },
    /// What a chain's state was to be restored from does not fit it.
    #[error("restoring a chain of samplers: {problem}")]
    State {
        /// What does not fit.
        problem: String,
    },
    /// Mirostat would not see what is drawn.
    #[error(
        "building a sampler: {after} comes after {name}, which must be the last to know the probability of what \
         is drawn; move or remove one"
    )]
    NotLast {
        /// The one that must be last.
        name: &'static str,
        /// What comes after it.
        after: &'static str,
    },
    /// There is no such version of mirostat.
    #[error("building a sampler: mirostat is {value}, but must be 0 (off), 1 or 2")]
    MirostatVersion {
        /// What was given.
        value: u8,
    },
    /// DRY's sequence breakers are text, and nobody said what tokens they are.
    #[error(
        "building a sampler: dry_sequence_breakers are text, and no vocabulary was given to cut them; build with \
         one, or leave the list empty"
    )]
    NoVocabulary,
    /// A sequence breaker could not be cut into tokens.
    #[error("building a sampler: cutting the sequence breaker {text:?} into tokens: {why}")]
    Breaker {
        /// The breaker.
        text: String,
        /// What the vocabulary said.
        why: String,
    },
    /// There are no logits to choose from.
    #[error("sampling: the list of logits is empty; a model's last logits are expected")]
    Empty,
    /// More candidates than the exact sums have room for.
    #[error("sampling: {count} candidates, but at most {limit} can be weighed; is this one row of logits?")]
    TooMany {
        /// How many were given.
        count: usize,
        /// How many are accepted.
        limit: usize,
    },
    /// A list of candidates names a token twice.
    #[error("sampling: token {token} is twice in the list of candidates; give each token once")]
    DuplicateCandidate {
        /// The token.
        token: u32,
    },
    /// The model said nothing usable.
    #[error(
        "sampling: all {count} logits are NaN or minus infinity; the model's output is broken (look for \
         overflow in its computation or damage in its weights)"
    )]
    NoLogit {
        /// How many logits were given.
        count: usize,
    },
    /// A stage forbade every token, and says why.
    #[error("sampling: the stage {stage} left no token possible: {why}")]
    Stuck {
        /// The stage's name.
        stage: String,
        /// What it said.
        why: String,
    },
    /// The stages forbade every token.
    #[error(
        "sampling: the stages {stages} left no token possible; loosen a ban in logit_bias or a constraint"
    )]
    AllBanned {
        /// Names of the chain's stages, in order.
        stages: String,
    },
}

/// Passes `value` on if `good`, else says what is wrong with it.
pub(crate) fn check(
    name: &'static str,
    value: f32,
    good: bool,
    expected: &'static str,
) -> Result<f32, SampleError> {
    if good { Ok(value) } else { Err(SampleError::Parameter { name, value, expected }) }
}
