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
