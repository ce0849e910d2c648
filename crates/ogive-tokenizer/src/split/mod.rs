//! Cutting text into words before byte-pair merging: linear matchers for the known patterns.
//!
//! Model makers publish their word patterns as regular expressions with look-ahead. Engines that can run those backtrack, and
//! on a run of about a million characters of one kind they hit their limit and, in the `tokenizers` crate, silently leave the
//! rest uncut: other tokens, no error. So each known pattern is a function here that answers "where does the word that starts
//! here end?" by looking at each character a bounded number of times. Patterns nobody listed go to [`pattern`], which uses a
//! linear engine where one suffices, and reports an error where a backtracking one gives up.

pub(crate) mod cased;
pub(crate) mod names;
pub(crate) mod pattern;
mod ruby;
pub(crate) mod runs;
mod scan;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod words;

use crate::Result;
use pattern::Pattern;
use std::ops::Range;

/// One pass over the text. Passes follow each other; each cuts the pieces of the one before and never joins them.
#[derive(Debug, Clone)]
pub(crate) enum Stage {
    /// GPT-2's pattern.
    Gpt2,
    /// The cl100k family: Llama 3, Qwen and many more.
    Words(words::Words),
    /// The o200k family, which looks at case.
    Cased(cased::Cased),
    /// DeepSeek V3's main pattern.
    DeepSeek3,
    /// A run of one class of characters, at least and at most so long.
    Run(runs::Run),
    /// Anything else, by a regular expression.
    Pattern(Pattern),
}

impl Stage {
    /// The end of the match that starts at byte `at`, or `at` if none does. Hand-written stages only.
    fn match_at(&self, text: &str, at: usize) -> usize {
        match self {
            Self::Gpt2 => words::gpt2(text, at),
            Self::Words(w) => w.match_at(text, at),
            Self::Cased(c) => c.match_at(text, at),
            Self::DeepSeek3 => words::deepseek3(text, at),
            Self::Run(r) => r.match_at(text, at),
            Self::Pattern(_) => at,
        }
    }

    /// The matches in `text`, in order, as byte ranges; what lies between them matched nothing.
    pub(crate) fn matches(&self, text: &str) -> Result<Vec<Range<usize>>> {
        if let Self::Pattern(pattern) = self {
            return pattern.matches(text);
        }
        let mut found = Vec::new();
        let mut at = 0;
        while let Some(c) = text[at..].chars().next() {
            let end = self.match_at(text, at);
            if end > at {
                found.push(at..end);
                at = end;
            } else {
                at += c.len_utf8();
            }
        }
        Ok(found)
    }
}

/// Matches and the gaps between them, in order: the pieces that `Isolated` leaves.
pub(crate) fn with_gaps(matches: &[Range<usize>], len: usize) -> Vec<Range<usize>> {
    let mut pieces = Vec::with_capacity(matches.len() * 2 + 1);
    let mut at = 0;
    for m in matches {
        if m.start > at {
            pieces.push(at..m.start);
        }
        pieces.push(m.clone());
        at = m.end;
    }
    if at < len {
        pieces.push(at..len);
    }
    pieces
}

/// Passes `text` through all `stages`; the pieces cover it completely.
#[cfg(test)]
pub(crate) fn split(stages: &[Stage], text: &str) -> Result<Vec<Range<usize>>> {
    let mut pieces = with_gaps(&[], text.len());
    for stage in stages {
        let mut next = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let part = &text[piece.clone()];
            let cuts = with_gaps(&stage.matches(part)?, part.len());
            next.extend(cuts.into_iter().map(|r| r.start + piece.start..r.end + piece.start));
        }
        pieces = next;
    }
    Ok(pieces)
}
