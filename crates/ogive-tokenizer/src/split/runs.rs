//! Runs of one class of characters: the digit, punctuation and script passes that go before or after a main pattern.

use super::scan::run_max;
use crate::unicode::{Class, NUMBER, PUNCT};

/// A class of characters that some pattern isolates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `\p{N}`
    Number,
    /// `[0-9]`
    AsciiDigit,
    /// ``[\p{P}\$\+<=>\^~\|]``
    PunctAndMath,
    /// The same with the grave accent (Falcon).
    PunctAndMathAndGrave,
    /// `[一-龥぀-ゟ゠-ヿ]`: Han, Hiragana, Katakana (DeepSeek V3).
    HanAndKana,
    /// `\r` or `\n`
    Newline,
    /// Everything but `\n`.
    NotNewline,
    /// `\n`
    LineFeed,
}

impl Kind {
    fn has(self, c: char, k: Class) -> bool {
        match self {
            Self::Number => k & NUMBER != 0,
            Self::AsciiDigit => c.is_ascii_digit(),
            Self::PunctAndMath => {
                k & PUNCT != 0 || matches!(c, '$' | '+' | '<' | '=' | '>' | '^' | '~' | '|')
            }
            Self::PunctAndMathAndGrave => c == '`' || Self::PunctAndMath.has(c, k),
            Self::HanAndKana => matches!(c, '\u{4e00}'..='\u{9fa5}' | '\u{3040}'..='\u{30ff}'),
            Self::Newline => super::scan::newline(c),
            Self::NotNewline => c != '\n',
            Self::LineFeed => c == '\n',
        }
    }
}

/// `[kind]{min,max}`, greedy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) kind: Kind,
    /// Characters, at least one.
    pub(crate) min: usize,
    /// Characters, at most.
    pub(crate) max: usize,
}

impl Run {
    pub(super) fn match_at(&self, text: &str, at: usize) -> usize {
        let end = run_max(text, at, self.max, |c, k| self.kind.has(c, k));
        let long_enough = self.min <= 1 || text[at..end].chars().take(self.min).count() == self.min;
        if long_enough { end } else { at }
    }
}
