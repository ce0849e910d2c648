//! Finding added tokens (special ones and user-defined ones) in text, before anything else looks at it.
//!
//! Leftmost-longest, by one automaton for all of them, as the `tokenizers` crate does. llama.cpp searches token by token, the
//! longest first; the two differ only where two added tokens overlap in the text and the later one is longer, and one pass
//! over the text instead of one per token is worth that.

use crate::{Result, TokenizerError};
use aho_corasick::{AhoCorasick, MatchKind};
use std::ops::Range;

/// A token that is found in text as it stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Added {
    pub(crate) id: u32,
    pub(crate) content: String,
    /// Found only where special tokens are parsed.
    pub(crate) special: bool,
    /// Takes the white space before it.
    pub(crate) lstrip: bool,
    /// Takes the white space after it.
    pub(crate) rstrip: bool,
    /// Found only between characters that are no letters, digits or underscores.
    pub(crate) single_word: bool,
}

/// Part of a text: an added token, or what lies between two.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fragment {
    Token(u32),
    Text(Range<usize>),
}

/// An automaton over some added tokens.
#[derive(Debug, Default)]
struct Finder {
    tokens: Vec<Added>,
    automaton: Option<AhoCorasick>,
}

impl Finder {
    fn new(tokens: Vec<Added>) -> Result<Self> {
        if tokens.is_empty() {
            return Ok(Self::default());
        }
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(tokens.iter().map(|t| &t.content))
            .map_err(|e| {
                TokenizerError::Vocabulary(format!("its added tokens cannot be searched for: {e}"))
            })?;
        Ok(Self { tokens, automaton: Some(automaton) })
    }

    fn fragments(&self, text: &str) -> Vec<Fragment> {
        let mut out = Vec::new();
        let mut done = 0;
        for m in self.automaton.iter().flat_map(|a| a.find_iter(text)) {
            let Some(token) = self.tokens.get(m.pattern().as_usize()) else { continue };
            let (mut start, mut end) = (m.start(), m.end());
            // A token before may have taken spaces that this one begins with.
            if start < done {
                continue;
            }
            if token.single_word && (text[..start].ends_with(is_word) || text[end..].starts_with(is_word)) {
                continue;
            }
            if token.lstrip {
                start = done + text[done..start].trim_end().len();
            }
            if token.rstrip {
                end = text.len() - text[end..].trim_start().len();
            }
            if start > done {
                out.push(Fragment::Text(done..start));
            }
            out.push(Fragment::Token(token.id));
            done = end;
        }
        if done < text.len() {
            out.push(Fragment::Text(done..text.len()));
        }
        out
    }
}

/// `\w` as far as it matters beside a token.
fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || crate::unicode::class(c) & crate::unicode::MARK != 0
}

/// Added tokens, searchable with and without the special ones.
#[derive(Debug, Default)]
pub(crate) struct AddedTokens {
    all: Finder,
    plain: Finder,
}

impl AddedTokens {
    /// Tokens with empty content are left out; of two with the same content, the first counts.
    pub(crate) fn new(tokens: impl IntoIterator<Item = Added>) -> Result<Self> {
        let mut seen = ahash::AHashSet::new();
        let all: Vec<Added> =
            tokens.into_iter().filter(|t| !t.content.is_empty() && seen.insert(t.content.clone())).collect();
        let plain = Finder::new(all.iter().filter(|t| !t.special).cloned().collect())?;
        Ok(Self { all: Finder::new(all)?, plain })
    }

    /// Cuts `text`; the fragments cover it but for what stripping took.
    pub(crate) fn fragments(&self, text: &str, special: bool) -> Vec<Fragment> {
        if special { self.all.fragments(text) } else { self.plain.fragments(text) }
    }

    /// Contents and ids.
    pub(crate) fn names(&self) -> impl Iterator<Item = (String, u32)> {
        self.all.tokens.iter().map(|t| (t.content.clone(), t.id))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.tokens.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::Fragment::{Text, Token};
    use super::*;

    fn token(id: u32, content: &str) -> Added {
        Added { id, content: content.into(), ..Added::default() }
    }

    #[test]
    fn finds_the_leftmost_and_of_those_the_longest() {
        let t = AddedTokens::new([token(1, "<a>"), token(2, "<a><b>"), token(3, "\n"), token(4, "\n\n")])
            .unwrap();
        assert_eq!(
            t.fragments("x<a><b><a>\n\n\ny", false),
            [Text(0..1), Token(2), Token(1), Token(4), Token(3), Text(13..14)]
        );
        assert_eq!(t.fragments("", true), []);
    }

    #[test]
    fn special_tokens_are_text_unless_parsed() {
        let t = AddedTokens::new([Added { special: true, ..token(7, "<s>") }, token(8, "<u>")]).unwrap();
        assert_eq!(t.fragments("<s><u>", true), [Token(7), Token(8)]);
        assert_eq!(t.fragments("<s><u>", false), [Text(0..3), Token(8)]);
    }

    #[test]
    fn strips_and_asks_for_whole_words() {
        let t = AddedTokens::new([
            Added { lstrip: true, rstrip: true, ..token(1, "<m>") },
            Added { single_word: true, ..token(2, "yes") },
        ])
        .unwrap();
        assert_eq!(t.fragments("a \t<m>\n b", true), [Text(0..1), Token(1), Text(8..9)]);
        assert_eq!(t.fragments("yes,yesno yes", true), [Token(2), Text(3..10), Token(2)]);
    }
}
