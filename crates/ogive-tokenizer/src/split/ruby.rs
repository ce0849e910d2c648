//! Patterns as Hugging Face's library reads them, which is Oniguruma with Ruby's syntax, in the words of `regex` and
//! `fancy-regex`.
//!
//! Most is the same. What compiles in both and means something else is rewritten here: `^` and `$` stand at every line,
//! `(?m)` lets the dot match line feeds, POSIX classes are Unicode's, and within a class `--` and `~~` are no operators.
//! Left are: after the line feed that ends a text, `^` stands here and not there; `\b` has Rust's idea of a word.

use crate::{Result, TokenizerError};
use std::iter::Peekable;
use std::str::Chars;

/// A pattern in Rust's words.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Translated {
    pub(super) source: String,
    /// It has possessive repetitions (`a++`), which `regex` would read as repetitions of repetitions.
    pub(super) possessive: bool,
}

/// Rewrites a pattern of a `tokenizer.json`.
pub(super) fn translate(pattern: &str) -> Result<Translated> {
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut possessive = false;
    let mut chars = pattern.chars().peekable();
    // What was just read repeats: `Some('}')` by counts.
    let mut repeats = None;
    // Where in `out` what can be repeated begins, and each group that is open.
    let (mut atom, mut groups) = (0, Vec::new());
    while let Some(c) = chars.next() {
        let before = repeats.take();
        if !matches!(c, '?' | '*' | '+' | '{' | ')') {
            atom = out.len();
        }
        match c {
            '\\' => escape(&mut chars, &mut out, false),
            '[' => class(&mut chars, &mut out, pattern)?,
            '^' => out.push_str("(?m:^)"),
            '$' => out.push_str("(?m:$)"),
            '(' => {
                groups.push(atom);
                group(&mut chars, &mut out);
            }
            ')' => {
                atom = groups.pop().unwrap_or_default();
                out.push(c);
            }
            '{' => match count(&mut chars) {
                Some(count) => {
                    out.push_str(&count);
                    repeats = Some('}');
                }
                None => {
                    atom = out.len();
                    out.push(c);
                }
            },
            '+' if matches!(before, Some('?' | '*' | '+')) => {
                possessive = true;
                out.push(c);
            }
            // `a{1,2}+` is a repetition of a repetition, which `fancy-regex` would take for a possessive one.
            '+' if before == Some('}') => {
                out.insert_str(atom, "(?:");
                out.push_str(")+");
            }
            // `a{2}?` is all or nothing; behind another repetition it makes that one lazy.
            '?' if before == Some('}') && !counts_between(&out) => out.push_str("{0,1}"),
            '?' if before.is_some() => out.push(c),
            '?' | '*' | '+' => {
                repeats = Some(c);
                out.push(c);
            }
            _ => out.push(c),
        }
    }
    Ok(Translated { source: out, possessive })
}

/// A count, from behind its `{`; `None`, and nothing read, where it is none.
fn count(chars: &mut Peekable<Chars<'_>>) -> Option<String> {
    let (mut ahead, mut count) = (chars.clone(), "{".to_owned());
    while let Some(c) = ahead.next_if(|c| c.is_ascii_digit() || *c == ',') {
        count.push(c);
    }
    count.push(ahead.next_if_eq(&'}')?);
    *chars = ahead;
    Some(count)
}

/// Whether the count that `out` ends with has two bounds.
fn counts_between(out: &str) -> bool {
    out.rsplit_once('{').is_none_or(|(_, count)| count.contains(','))
}

/// A backslash and what it belongs to.
fn escape(chars: &mut Peekable<Chars<'_>>, out: &mut String, in_class: bool) {
    if let Some(c) = chars.next_if(|c| matches!(c, 'w' | 'W')) {
        // Oniguruma counts no joiners among them, but six numbers of Latin-1 where it stands by itself.
        let (not, more) =
            (if c == 'W' { "^" } else { "" }, if in_class { "" } else { r"\xB2\xB3\xB9\xBC-\xBE" });
        out.push_str(&format!(r"[{not}\w{more}&&[^\x{{200C}}\x{{200D}}]]"));
        return;
    }
    out.push('\\');
    let Some(c) = chars.next() else { return };
    out.push(c);
    // `\p{L}`, `\x{20}`: the brace that ends them ends no count.
    if matches!(c, 'p' | 'P' | 'x' | 'k' | 'g') && chars.peek() == Some(&'{') {
        for c in chars.by_ref() {
            out.push(c);
            if c == '}' {
                return;
            }
        }
    }
}

/// What follows `(`: flags are Ruby's, other groups begin as they do in Rust.
fn group(chars: &mut Peekable<Chars<'_>>, out: &mut String) {
    out.push('(');
    if chars.next_if_eq(&'?').is_none() {
        return;
    }
    out.push('?');
    while let Some(flag) = chars.next_if(|c| matches!(c, 'i' | 'm' | 'x' | '-')) {
        out.push(if flag == 'm' { 's' } else { flag });
    }
    // `(?=`, `(?<=`, `(?>`, `(?:`, ...: none of these signs is a repetition.
    while let Some(c) = chars.next_if(|c| matches!(c, '=' | '!' | '<' | '>' | ':')) {
        out.push(c);
    }
}

/// A class, from behind its `[` to its `]`.
fn class(chars: &mut Peekable<Chars<'_>>, out: &mut String, pattern: &str) -> Result<()> {
    out.push('[');
    let mut depth = 1;
    let mut first = true;
    while let Some(c) = chars.next() {
        let begins = std::mem::take(&mut first);
        match c {
            '\\' => escape(chars, out, true),
            '[' if chars.peek() == Some(&':') => match posix(chars) {
                Some(Posix::Known(class)) => out.push_str(&class),
                Some(Posix::Unknown(name)) => {
                    let reason = format!("the class [:{name}:] is not known");
                    return Err(TokenizerError::Pattern { pattern: pattern.to_owned(), reason });
                }
                None => {
                    depth += 1;
                    first = true;
                    out.push('[');
                }
            },
            '[' => {
                depth += 1;
                first = true;
                out.push('[');
            }
            '^' if begins => {
                first = true;
                out.push('^');
                // Behind it only a bracket is still special.
                if chars.peek() != Some(&']') {
                    first = false;
                }
            }
            ']' if begins => out.push_str(r"\]"),
            ']' => {
                depth -= 1;
                out.push(']');
                if depth == 0 {
                    return Ok(());
                }
            }
            '-' | '~' if chars.peek() == Some(&c) => {
                out.push('\\');
                out.push(c);
            }
            _ => out.push(c),
        }
    }
    Ok(())
}

enum Posix {
    Known(String),
    Unknown(String),
}

/// `:alpha:]` or `:^alpha:]`, behind a `[`; `None`, and nothing read, where it is none.
fn posix(chars: &mut Peekable<Chars<'_>>) -> Option<Posix> {
    let mut ahead = chars.clone();
    ahead.next_if_eq(&':')?;
    let not = if ahead.next_if_eq(&'^').is_some() { "^" } else { "" };
    let mut name = String::new();
    while let Some(c) = ahead.next_if(char::is_ascii_alphabetic) {
        name.push(c);
    }
    ahead.next_if_eq(&':')?;
    ahead.next_if_eq(&']')?;
    *chars = ahead;
    // As Oniguruma 6.9 has them for UTF-8.
    let class = match name.as_str() {
        "alnum" => r"\p{Alphabetic}\p{Nd}",
        "alpha" => r"\p{Alphabetic}",
        "ascii" => r"\x00-\x7F",
        "blank" => r"\p{Zs}\t",
        "cntrl" => r"\p{Cc}",
        "digit" => r"\p{Nd}",
        "graph" => r"\P{Cn}&&[^\s\p{Cc}]",
        "lower" => r"\p{Lowercase}",
        "print" => r"\P{Cn}&&[^\p{Cc}\p{Zl}\p{Zp}]",
        "punct" => r"\p{P}\p{S}",
        "space" => r"\s",
        "upper" => r"\p{Uppercase}",
        "word" => r"\p{Alphabetic}\p{M}\p{Nd}\p{Pc}",
        "xdigit" => "0-9A-Fa-f",
        _ => return Some(Posix::Unknown(name)),
    };
    Some(Posix::Known(format!("[{not}{class}]")))
}
