//! Who guesses tokens.

mod lookup;
mod model;
mod patience;

pub use lookup::Lookup;
pub use model::DraftModel;
pub(crate) use patience::Patience;

use crate::SeqId;
use crate::tensor::Result;
use std::fmt::Debug;

/// A sequence whose next tokens are to be guessed.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Asked<'a> {
    /// Which one.
    pub id: SeqId,
    /// What it has so far, its prompt included. Between two questions it may have grown, and it may have been cut.
    pub tokens: &'a [u32],
    /// Tokens to guess at most; at least one.
    pub max_tokens: usize,
}

/// Guesses what sequences draw next: what [`Engine::speculate`](crate::Engine::speculate) takes.
///
/// Where a step is bound by reading weights, as decoding is, one more row costs it little: so tokens that are likely to follow are computed before it is
/// known that they do. The engine draws behind each of them with the sequence's own chain, and keeps those it drew itself. What a sequence
/// draws is thus the same whoever guesses and however well, seeds and constraints included, as far as the backend's logits do
/// not depend on the number of rows (the CPU's do not); only the number of steps changes.
///
/// How many tokens are asked for follows how many were right: twice as many after a step in which all were, else one more than were. Where nothing
/// is right again and again, ever more steps pass between two guesses.
///
/// [`Lookup`] finds them in what the sequence has, [`DraftModel`] has a smaller model draw them, and a vector of drafts asks one after the other.
/// Leviathan, Kalman and Matias 2022, <https://arxiv.org/abs/2211.17192>; drawing and comparing, instead of their rejecting by a quotient of
/// probabilities, accepts a guess as often where there is one best token and less often where many are alike, but leaves the text what it would
/// have been.
///
/// ```
/// use ogive_engine::{Asked, Draft, tensor::Result};
///
/// /// Whoever counts goes on counting.
/// #[derive(Debug)]
/// struct Counts;
///
/// impl Draft for Counts {
///     fn guess(&mut self, asked: &[Asked<'_>]) -> Result<Vec<Vec<u32>>> {
///         let next = |a: &Asked<'_>| a.tokens.last().map_or(Vec::new(), |last| vec![last + 1]);
///         Ok(asked.iter().map(next).collect())
///     }
/// }
/// # let asked: &[Asked<'_>] = &[];
/// # assert!(Counts.guess(asked).unwrap().is_empty());
/// ```
pub trait Draft: Debug + Send + Sync {
    /// For each sequence, in their order, the tokens that may follow: none where there is nothing to go by. Those beyond
    /// [`max_tokens`](Asked::max_tokens) are not looked at, nor is any from the first on that the model does not know.
    ///
    /// # Errors
    /// As computing fails. The engine then goes on without guesses, and logs a warning.
    fn guess(&mut self, asked: &[Asked<'_>]) -> Result<Vec<Vec<u32>>>;

    /// A sequence is gone, and will not be asked for again.
    fn forget(&mut self, id: SeqId) {
        let _ = id;
    }
}

/// Several that guess in turn: each is asked for the sequences of which those before it have no guess. One that computes belongs last.
impl Draft for Vec<Box<dyn Draft>> {
    fn guess(&mut self, asked: &[Asked<'_>]) -> Result<Vec<Vec<u32>>> {
        let mut guesses = vec![Vec::new(); asked.len()];
        for draft in self {
            let left: Vec<usize> = (0..asked.len()).filter(|i| guesses[*i].is_empty()).collect();
            if left.is_empty() {
                break;
            }
            let still: Vec<Asked<'_>> = left.iter().map(|i| asked[*i]).collect();
            left.into_iter().zip(draft.guess(&still)?).for_each(|(i, guess)| guesses[i] = guess);
        }
        Ok(guesses)
    }

    fn forget(&mut self, id: SeqId) {
        self.iter_mut().for_each(|draft| draft.forget(id));
    }
}
