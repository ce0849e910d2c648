//! Sequence breakers: what DRY does not look across.
//!
//! A breaker is text, and text is cut into tokens in more ways than one: `:` is the end of `foo:` as well as a
//! token. So, as KoboldCpp and llama.cpp do it, every token of the vocabulary that holds the breaker is one, and one
//! that ends with its beginning is, where the tokens of the rest follow. The breakers are shared by all clones:
//! there may be thousands, and a chain is cloned for every token.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use crate::error::SampleError;

/// What is used of a breaker, in bytes, as in llama.cpp.
const MAX_TEXT: usize = 40;
/// What is used of the tokens after a breaker's first one, as in llama.cpp.
const MAX_TAIL: usize = 20;

/// What DRY must know of a vocabulary to cut its breakers.
pub trait Vocabulary {
    /// How many tokens there are.
    fn size(&self) -> usize;

    /// What a token stands for, special ones by their names; `None` for an id without a token.
    fn token_bytes(&self, id: u32) -> Option<&[u8]>;

    /// The tokens of a text, nothing added and no special token read from it. The error is a sentence's end: what
    /// was wrong.
    ///
    /// # Errors
    /// If the vocabulary has no token for a part of the text.
    fn tokenize(&self, text: &[u8]) -> Result<Vec<u32>, String>;
}

/// Sequence breakers as tokens. A clone shares them.
#[derive(Clone, Default, PartialEq)]
pub struct Breakers {
    /// Ascending by first token; what must follow it for the breaker to be whole.
    heads: Arc<Vec<(u32, Vec<Vec<u32>>)>>,
}

impl fmt::Debug for Breakers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Breakers({} first tokens)", self.heads.len())
    }
}

impl Breakers {
    /// None at all.
    pub fn none() -> Self {
        Self::default()
    }

    /// From sequences of tokens; empty ones are passed over.
    pub fn from_tokens<S: AsRef<[u32]>>(sequences: impl IntoIterator<Item = S>) -> Self {
        let mut pairs = Vec::new();
        for sequence in sequences {
            if let Some((&head, tail)) = sequence.as_ref().split_first() {
                pairs.push((head, tail.to_vec()));
            }
        }
        Self::from_pairs(pairs)
    }

    /// From texts; empty ones are passed over, and of long ones the first 40 bytes count.
    ///
    /// Looks at every token of the vocabulary once for each text. As in llama.cpp, the rest of a text of which a
    /// token holds the beginning is cut like a text of its own: a vocabulary that puts a space before texts puts one
    /// there too, and then only breakers within one token are found.
    ///
    /// # Errors
    /// If the vocabulary cannot cut the rest of a text.
    pub fn from_text<S: AsRef<str>>(texts: &[S], vocabulary: &dyn Vocabulary) -> Result<Self, SampleError> {
        let mut pairs = Vec::new();
        let mut seen = HashSet::new();
        for text in texts {
            let text = text.as_ref();
            let bytes = text.as_bytes();
            let used = bytes.get(..MAX_TEXT).unwrap_or(bytes);
            // Each costs a look at the whole vocabulary, and a pair for each token that holds it.
            if !seen.insert(used) {
                continue;
            }
            overlaps(used, vocabulary, &mut pairs)
                .map_err(|why| SampleError::Breaker { text: text.to_owned(), why })?;
        }
        Ok(Self::from_pairs(pairs))
    }

    fn from_pairs(mut pairs: Vec<(u32, Vec<u32>)>) -> Self {
        pairs.sort_unstable();
        pairs.dedup();
        let mut heads: Vec<(u32, Vec<Vec<u32>>)> = Vec::new();
        for (head, tail) in pairs {
            match heads.last_mut() {
                Some((last, tails)) if *last == head => tails.push(tail),
                _ => heads.push((head, vec![tail])),
            }
        }
        Self { heads: Arc::new(heads) }
    }

    /// All of them as one list of numbers, each behind how many there are.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> {
        let tails = |(head, tails): &(u32, Vec<Vec<u32>>)| {
            let all =
                tails.iter().flat_map(|tail| std::iter::once(tail.len() as u32).chain(tail.iter().copied()));
            [*head, tails.len() as u32].into_iter().chain(all).collect::<Vec<_>>()
        };
        self.heads.iter().flat_map(tails)
    }

    fn tails(&self, head: u32) -> &[Vec<u32>] {
        let found = self.heads.binary_search_by_key(&head, |(head, _)| *head);
        found.ok().and_then(|at| self.heads.get(at)).map_or(&[], |(_, tails)| tails)
    }

    /// Whether the token is a breaker by itself.
    pub(super) fn is_breaker(&self, token: u32) -> bool {
        self.tails(token).iter().any(Vec::is_empty)
    }

    /// How many tokens follow the last breaker in the window; all where there is none.
    ///
    /// The last breaker is the one that begins last, at its longest, whatever may lie within it.
    pub(super) fn reach(&self, window: &[u32]) -> usize {
        if self.heads.is_empty() {
            return window.len();
        }
        for (at, &head) in window.iter().enumerate().rev() {
            let after = window.get(at + 1..).unwrap_or_default();
            let whole = self.tails(head).iter().filter(|tail| after.starts_with(tail));
            if let Some(longest) = whole.map(Vec::len).max() {
                return after.len() - longest;
            }
        }
        window.len()
    }
}

/// The tokens that hold `text`, with nothing to follow, and those that end with its beginning, with the tokens of
/// the rest to follow.
fn overlaps(
    text: &[u8],
    vocabulary: &dyn Vocabulary,
    pairs: &mut Vec<(u32, Vec<u32>)>,
) -> Result<(), String> {
    let Some(&first) = text.first() else { return Ok(()) };
    // The rest after so many bytes: many tokens end the same way.
    let mut rests: Vec<Option<Vec<u32>>> = vec![None; text.len()];
    for id in 0..u32::try_from(vocabulary.size()).unwrap_or(u32::MAX) {
        let Some(token) = vocabulary.token_bytes(id) else { continue };
        // Most tokens have nothing of it: the first byte tells, and a search for one byte is quick.
        if !token.contains(&first) {
            continue;
        }
        if token.windows(text.len()).any(|part| part == text) {
            pairs.push((id, Vec::new()));
            continue;
        }
        let from = token.len().saturating_sub(text.len() - 1);
        for (at, _) in token.iter().enumerate().skip(from).filter(|(_, byte)| **byte == first) {
            let end = token.get(at..).unwrap_or_default();
            let Some(rest) = text.strip_prefix(end) else { continue };
            let Some(known) = rests.get_mut(end.len()) else { continue };
            let tail = match known {
                Some(tail) => tail,
                None => {
                    let mut tail = vocabulary.tokenize(rest)?;
                    tail.truncate(MAX_TAIL);
                    known.insert(tail)
                }
            };
            pairs.push((id, tail.clone()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tokens as given; text is cut greedily into the longest that fit, and unknown bytes are an error.
    struct Words(&'static [&'static str]);

    impl Vocabulary for Words {
        fn size(&self) -> usize {
            self.0.len()
        }
        fn token_bytes(&self, id: u32) -> Option<&[u8]> {
            self.0.get(id as usize).map(|w| w.as_bytes()).filter(|w| !w.is_empty())
        }
        fn tokenize(&self, mut text: &[u8]) -> Result<Vec<u32>, String> {
            let mut ids = Vec::new();
            while !text.is_empty() {
                let fits = |w: &&str| !w.is_empty() && text.starts_with(w.as_bytes());
                let word = self.0.iter().filter(|w| fits(w)).max_by_key(|w| w.len());
                let word = word.ok_or_else(|| format!("no token for {text:?}"))?;
                ids.push(self.0.iter().position(|w| w == word).expect("it is there") as u32);
                text = &text[word.len()..];
            }
            Ok(ids)
        }
    }

    #[test]
    fn tokens_that_hold_a_breaker_or_end_with_its_beginning() {
        let words = Words(&["a", "b", "ab", "cab", "abc", "ca", "", "aab", "aa"]);
        let found = Breakers::from_text(&["ab"], &words).expect("cut");
        // "ab", "cab", "abc" and "aab" hold it; "a", "ca" and "aa" want "b" to follow.
        let tails: Vec<_> = found.heads.iter().map(|(id, tails)| (*id, tails.clone())).collect();
        let (whole, begun) = (vec![vec![]], vec![vec![1]]);
        let expected = [
            (0, begun.clone()),
            (2, whole.clone()),
            (3, whole.clone()),
            (4, whole.clone()),
            (5, begun.clone()),
            (7, whole),
            (8, begun),
        ];
        assert_eq!(tails, expected);
        // One token that ends with two beginnings.
        let words = Words(&["a", "b", "xaa"]);
        let found = Breakers::from_text(&["aab"], &words).expect("cut");
        assert_eq!(found.tails(2), [vec![0, 1], vec![1]]);
        assert_eq!(found.tails(0), [vec![0, 1]]);
        assert!(Breakers::from_text(&["", ""], &words).expect("nothing to cut").heads.is_empty());
        let error = Breakers::from_text(&["aq"], &words).expect_err("no token for q");
        assert!(error.to_string().contains("\"aq\""), "{error}");
    }

    #[test]
    fn a_text_that_is_there_again_costs_nothing() {
        use std::cell::Cell;
        struct Counted(Words, Cell<usize>);
        impl Vocabulary for Counted {
            fn size(&self) -> usize {
                self.1.set(self.1.get() + 1);
                self.0.size()
            }
            fn token_bytes(&self, id: u32) -> Option<&[u8]> {
                self.0.token_bytes(id)
            }
            fn tokenize(&self, text: &[u8]) -> Result<Vec<u32>, String> {
                self.0.tokenize(text)
            }
        }
        let words = Counted(Words(&["a", "b", "ab"]), Cell::new(0));
        let many = Breakers::from_text(&vec!["a"; 1000], &words).expect("cut");
        assert_eq!(words.1.get(), 1, "the vocabulary is gone through once");
        assert_eq!(many, Breakers::from_text(&["a"], &words).expect("cut"));
    }

    #[test]
    fn long_breakers_count_as_far_as_they_count_in_llama_cpp() {
        let words = Words(&["z", "zq", "y"]);
        let long = format!("z{}q", "y".repeat(60));
        let found = Breakers::from_text(&[long], &words).expect("cut");
        // 40 bytes, of which 39 follow, of which 20 count; the q at the end is beyond.
        assert_eq!(found.tails(0), [vec![2; 20]]);
        assert_eq!(found.tails(1), [] as [Vec<u32>; 0]);
    }

    #[test]
    fn how_far_back_repetitions_reach() {
        let breakers = Breakers::from_tokens([&[7][..], &[5, 6], &[5, 6, 7, 8], &[]]);
        for (window, reach) in [
            (&[1, 2, 3][..], 3),
            (&[], 0),
            (&[1, 7, 3, 4], 2),
            (&[7], 0),
            (&[1, 5, 6, 2], 1),
            (&[1, 5, 2, 2], 4),
            // Begun only.
            (&[1, 2, 5], 3),
            // The 7 within the longer breaker begins later, and is found first.
            (&[5, 6, 7, 8, 1], 2),
        ] {
            assert_eq!(breakers.reach(window), reach, "{window:?}");
        }
        assert!(breakers.is_breaker(7) && !breakers.is_breaker(5) && !breakers.is_breaker(8));
    }
}
