//! What guessed tokens are worth: decoding where every guess is right, and where every guess is wrong.
//!
//! What a draft model or a text that repeats itself brings lies between the two, nearer to the one or the other as its guesses are right.
//! Neither takes time to guess, so that of a draft model comes on top.

use ogive::engine::{Asked, Draft};
use ogive::tensor::Result;

/// Knows how texts go on, and says so or says something else.
#[derive(Debug)]
pub(super) struct Known {
    /// Each from its first token on.
    pub(super) texts: Vec<Vec<u32>>,
    pub(super) right: bool,
}

impl Known {
    fn of(&self, asked: &Asked<'_>) -> Vec<u32> {
        let rest = self.texts.iter().find_map(|text| text.strip_prefix(asked.tokens)).unwrap_or_default();
        let guess = rest.iter().take(asked.max_tokens);
        // Token 0 is in every vocabulary, and 1 in all that can be drawn from.
        guess.map(|token| if self.right { *token } else { u32::from(*token == 0) }).collect()
    }
}

impl Draft for Known {
    fn guess(&mut self, asked: &[Asked<'_>]) -> Result<Vec<Vec<u32>>> {
        Ok(asked.iter().map(|asked| self.of(asked)).collect())
    }
}
