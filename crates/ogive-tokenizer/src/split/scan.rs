//! Looking at text one character at a time: the few words that the matchers are written in.
//!
//! Byte offsets into a `&str` rather than an array of decoded characters: a megabyte of text needs no second copy, and ASCII,
//! which is most of it, is a table look-up.

use crate::unicode::{Class, class};

/// The character at byte `at` with its class; `None` at the end.
pub(super) fn peek(text: &str, at: usize) -> Option<(char, Class)> {
    match text.as_bytes().get(at) {
        None => None,
        Some(&b) if b < 128 => Some((char::from(b), class(char::from(b)))),
        Some(_) => text[at..].chars().next().map(|c| (c, class(c))),
    }
}

/// The end of the run of characters from `at` on that satisfy `is`.
pub(super) fn run(text: &str, mut at: usize, is: impl Fn(char, Class) -> bool) -> usize {
    while let Some((c, k)) = peek(text, at) {
        if !is(c, k) {
            break;
        }
        at += c.len_utf8();
    }
    at
}

/// Like [`run`], but at most `max` characters.
pub(super) fn run_max(text: &str, mut at: usize, max: usize, is: impl Fn(char, Class) -> bool) -> usize {
    for _ in 0..max {
        match peek(text, at) {
            Some((c, k)) if is(c, k) => at += c.len_utf8(),
            _ => break,
        }
    }
    at
}

/// `\r` or `\n`.
pub(super) fn newline(c: char) -> bool {
    c == '\r' || c == '\n'
}

/// `'s|'t|'re|'ve|'m|'ll|'d` at `at`: its end, or `at`. With `fold`, in either case; with `long_s`, also U+017F for `s`, which
/// Unicode's case folding makes equal to it (so `(?i:'s)` matches it, and `'[sS]` does not).
pub(super) fn contraction(text: &str, at: usize, fold: bool, long_s: bool) -> usize {
    let bytes = text.as_bytes();
    if bytes.get(at) != Some(&b'\'') {
        return at;
    }
    let letter = |i: usize| match bytes.get(at + i) {
        Some(b) if fold => b.to_ascii_lowercase(),
        Some(&b) => b,
        None => 0,
    };
    match (letter(1), letter(2)) {
        (b's' | b't' | b'm' | b'd', _) => at + 2,
        (b'r', b'e') | (b'v', b'e') | (b'l', b'l') => at + 3,
        _ if long_s && text[at + 1..].starts_with('ſ') => at + 1 + 'ſ'.len_utf8(),
        _ => at,
    }
}

/// The tail that nearly all patterns share: `\s*[\r\n]+` (if `lines`), `\s+(?!\S)`, `\s+`.
pub(super) fn spaces(text: &str, at: usize, lines: bool) -> usize {
    let (mut end, mut last, mut newline_end) = (at, at, at);
    while let Some((c, k)) = peek(text, end) {
        if k & crate::unicode::SPACE == 0 {
            // Someone follows: leave the last space to the next word, unless it is the only one.
            let all_but_last = if last > at { last } else { end };
            return if lines && newline_end > at { newline_end } else { all_but_last };
        }
        last = end;
        end += c.len_utf8();
        if newline(c) {
            newline_end = end;
        }
    }
    if lines && newline_end > at { newline_end } else { end }
}
