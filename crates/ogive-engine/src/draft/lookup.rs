//! Guesses from the sequence itself: what followed when its last tokens stood there before.

use super::{Asked, Draft};
use crate::tensor::Result;

/// Guesses that what followed the last tokens earlier in the sequence, prompt included, follows them again (prompt lookup). It computes nothing, and is
/// right where texts repeat themselves: summaries, answers about a document, code that is changed.
///
/// Of all places where the last tokens stood before, that with the most of them in common counts; of equal ones the latest. Saxena 2023,
/// <https://github.com/apoorvumang/prompt-lookup-decoding>.
#[derive(Clone, Copy, Debug)]
pub struct Lookup {
    min_match: usize,
}

impl Lookup {
    /// Tokens in common that are looked for at most: more tell nothing new.
    const MOST: usize = 16;

    /// Where at least two tokens are the same.
    pub fn new() -> Self {
        Self { min_match: 2 }
    }

    /// Where at least so many tokens are the same, at least one: fewer guess more often, and are right less often.
    #[must_use]
    pub fn min_match(self, tokens: usize) -> Self {
        Self { min_match: tokens.max(1) }
    }

    /// Up to `most` tokens that may follow `tokens`.
    fn find(self, tokens: &[u32], most: usize) -> Vec<u32> {
        let mut best = (self.min_match - 1, 0);
        for end in (1..tokens.len()).rev() {
            // How much of what stands before `end` is as what stands at the end of all.
            let alike =
                tokens[..end].iter().rev().zip(tokens.iter().rev()).take(Self::MOST.max(self.min_match));
            let alike = alike.take_while(|(a, b)| a == b).count();
            if alike > best.0 {
                best = (alike, end);
                if alike == Self::MOST {
                    break;
                }
            }
        }
        let (_, from) = best;
        let mut found = Vec::new();
        // What reaches the end of all goes on with what was guessed: a text that goes round.
        while from > 0 && found.len() < most {
            let at = from + found.len();
            found.push(tokens.get(at).copied().unwrap_or_else(|| found[at - tokens.len()]));
        }
        found
    }
}

impl Default for Lookup {
    fn default() -> Self {
        Self::new()
    }
}

impl Draft for Lookup {
    fn guess(&mut self, asked: &[Asked<'_>]) -> Result<Vec<Vec<u32>>> {
        Ok(asked.iter().map(|asked| self.find(asked.tokens, asked.max_tokens)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_followed_before_follows_again() {
        let find = |tokens: &[u32], most| Lookup::new().find(tokens, most);
        assert_eq!(find(&[1, 2, 3, 4, 5, 1, 2], 3), [3, 4, 5]);
        // The longest in common counts, though another is later.
        assert_eq!(find(&[7, 1, 2, 3, 9, 1, 2, 4, 7, 1, 2], 1), [3]);
        // Of equal ones the latest.
        assert_eq!(find(&[1, 2, 3, 1, 2, 4, 1, 2], 1), [4]);
        // Round and round.
        assert_eq!(find(&[8, 1, 2, 1, 2], 5), [1, 2, 1, 2, 1]);
        assert_eq!(find(&[6, 6, 6], 4), [6; 4]);
    }

    #[test]
    fn there_may_be_nothing_to_go_by() {
        for tokens in [&[][..], &[1], &[1, 2, 3, 4], &[1, 2, 3, 2]] {
            assert!(Lookup::new().find(tokens, 4).is_empty(), "{tokens:?}");
        }
        assert_eq!(Lookup::new().min_match(1).find(&[1, 2, 3, 2], 2), [3, 2]);
        assert_eq!(Lookup::new().min_match(0).find(&[1, 2, 3, 2], 1), [3]);
        assert!(Lookup::new().find(&[1, 1, 1], 0).is_empty());
    }
}
