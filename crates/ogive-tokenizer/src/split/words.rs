//! The patterns of GPT-2, of the cl100k family (Llama 3, Qwen, ...) and of DeepSeek V3.
//!
//! One struct with switches serves the cl100k family: its dozen published variants differ in how many digits make a word, what
//! may trail punctuation and whether marks count as letters, and a function per variant would hide that.

use super::scan::{contraction, newline, peek, run, run_max, spaces};
use crate::unicode::{Class, LETTER, MARK, NUMBER, PUNCT, SPACE, SYMBOL};

/// `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
pub(super) fn gpt2(text: &str, at: usize) -> usize {
    let end = contraction(text, at, false, false);
    if end > at {
        return end;
    }
    let start = if text.as_bytes().get(at) == Some(&b' ') { at + 1 } else { at };
    match peek(text, start) {
        Some((_, k)) if k & LETTER != 0 => run(text, start, |_, k| k & LETTER != 0),
        Some((_, k)) if k & NUMBER != 0 => run(text, start, |_, k| k & NUMBER != 0),
        Some((_, k)) if k & SPACE == 0 => run(text, start, |_, k| k & (SPACE | LETTER | NUMBER) == 0),
        _ => spaces(text, at, false),
    }
}

/// What may follow a run of punctuation within the same word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tail {
    /// `[\r\n]*`
    Lines,
    /// `[\r\n/]*`
    LinesAndSlashes,
    /// Nothing; and `\r\n` are no part of the run either.
    Nothing,
}

impl Tail {
    pub(super) fn end(self, text: &str, at: usize) -> usize {
        match self {
            Self::Lines => run(text, at, |c, _| newline(c)),
            Self::LinesAndSlashes => run(text, at, |c, _| newline(c) || c == '/'),
            Self::Nothing => at,
        }
    }
}

/// `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
/// and its variants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Words {
    /// Digits in a word, at most: 3 for Llama 3, 1 for Qwen.
    pub(crate) digits: usize,
    /// After punctuation.
    pub(crate) tail: Tail,
    /// Marks are part of words (Qwen 3.5).
    pub(crate) marks: bool,
    /// `(?i:'s)`, which by Unicode's folding matches U+017F too, instead of `'[sS]`.
    pub(crate) long_s: bool,
}

impl Words {
    pub(super) fn match_at(&self, text: &str, at: usize) -> usize {
        let end = contraction(text, at, true, self.long_s);
        if end > at {
            return end;
        }
        let word: Class = if self.marks { LETTER | MARK } else { LETTER };
        let Some((first, k)) = peek(text, at) else { return at };
        if k & word != 0 {
            return run(text, at, |_, k| k & word != 0);
        }
        let after = at + first.len_utf8();
        let next = peek(text, after);
        if k & NUMBER == 0 && !newline(first) && next.is_some_and(|(_, k)| k & word != 0) {
            return run(text, after, |_, k| k & word != 0);
        }
        if k & NUMBER != 0 {
            return run_max(text, at, self.digits, |_, k| k & NUMBER != 0);
        }
        let other = |_: char, k: Class| k & (SPACE | NUMBER | word) == 0;
        let start = if first == ' ' { after } else { at };
        let end = run(text, start, other);
        if end > start {
            return self.tail.end(text, end);
        }
        spaces(text, at, true)
    }
}

/// DeepSeek V3's third pattern, run on what its digits and its CJK patterns left:
/// ``[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+``
pub(super) fn deepseek3(text: &str, at: usize) -> usize {
    let Some((first, k)) = peek(text, at) else { return at };
    let after = at + first.len_utf8();
    if first.is_ascii_punctuation() {
        let end = run(text, after, |c, _| c.is_ascii_alphabetic());
        if end > after {
            return end;
        }
    }
    let word = |_: char, k: Class| k & (LETTER | MARK) != 0;
    if word(first, k) {
        return run(text, at, word);
    }
    if k & (PUNCT | SYMBOL) == 0 && !newline(first) {
        let end = run(text, after, word);
        if end > after {
            return end;
        }
    }
    let start = if first == ' ' { after } else { at };
    let end = run(text, start, |_, k| k & (PUNCT | SYMBOL) != 0);
    if end > start {
        return Tail::Lines.end(text, end);
    }
    if k & SPACE != 0 { spaces(text, at, true) } else { at }
}
