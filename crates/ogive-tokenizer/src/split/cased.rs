//! The o200k family (GPT-4o, Llama 4, Mistral's Tekken), whose words end where upper case follows lower.
//!
//! `[^\r\n\p{L}\p{N}]?U*W+C|[^\r\n\p{L}\p{N}]?U+W*C|\p{N}{1,n}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+` with
//! `U = [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`, `W = [\p{Ll}\p{Lm}\p{Lo}\p{M}]` and `C` an optional contraction.
//!
//! U and W overlap, so `U*W+` backtracks: but only to the last character of the run that is both, and a matcher can note where
//! that was on its way. llama.cpp runs an approximation (`[^a-z]` for U), because its engine has no such classes; models were
//! trained with the pattern above, so that is what both kinds of file get here.

use super::scan::{contraction, newline, peek, run, run_max, spaces};
use super::words::Tail;
use crate::unicode::{Class, LETTER, LOWER, MARK, NUMBER, SPACE, UPPER};

/// The switches of the family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cased {
    /// Digits in a word, at most.
    pub(crate) digits: usize,
    /// A contraction ends the word that it follows (o200k); without, there are none (Tekken).
    pub(crate) contractions: bool,
    /// See [`super::words::Words::long_s`].
    pub(crate) long_s: bool,
}

fn upper(k: Class) -> bool {
    k & MARK != 0 || k & LETTER != 0 && k & LOWER == 0
}

fn lower(k: Class) -> bool {
    k & MARK != 0 || k & LETTER != 0 && k & UPPER == 0
}

/// `U*W+` at `at`: its end.
fn upper_then_lower(text: &str, at: usize) -> Option<usize> {
    let (mut end, mut both) = (at, None);
    while let Some((c, k)) = peek(text, end) {
        if !upper(k) {
            break;
        }
        end += c.len_utf8();
        if lower(k) {
            both = Some(end);
        }
    }
    let lower_end = run(text, end, |_, k| lower(k));
    if lower_end > end { Some(lower_end) } else { both }
}

/// `U+W*` at `at`: its end. Asked only after `U*W+` failed there, when no W can follow; kept whole so that it reads as it is meant.
fn uppers(text: &str, at: usize) -> Option<usize> {
    let end = run(text, at, |_, k| upper(k));
    (end > at).then(|| run(text, end, |_, k| lower(k)))
}

impl Cased {
    pub(super) fn match_at(&self, text: &str, at: usize) -> usize {
        let Some((first, k)) = peek(text, at) else { return at };
        let after = at + first.len_utf8();
        let prefixed = k & (LETTER | NUMBER) == 0 && !newline(first);
        let word = [upper_then_lower, uppers]
            .into_iter()
            .find_map(|part| prefixed.then(|| part(text, after)).flatten().or_else(|| part(text, at)));
        if let Some(end) = word {
            return if self.contractions { contraction(text, end, true, self.long_s) } else { end };
        }
        if k & NUMBER != 0 {
            return run_max(text, at, self.digits, |_, k| k & NUMBER != 0);
        }
        let start = if first == ' ' { after } else { at };
        let end = run(text, start, |_, k| k & (SPACE | LETTER | NUMBER) == 0);
        if end > start {
            return Tail::LinesAndSlashes.end(text, end);
        }
        spaces(text, at, true)
    }
}
