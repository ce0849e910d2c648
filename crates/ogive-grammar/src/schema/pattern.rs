//! Regular expressions of a schema, which are ECMA-262's, in the syntax of the `regex` crate that llguidance reads.
//!
//! Both look alike and differ in what they mean: there `&&`, `--`, `~~` and `[` in a class are more than characters, a dot takes all
//! but a line feed, and `\s` is Unicode's white space. Only the text is gone through, for what is wrong with it is llguidance's to say.

use std::iter::Peekable;
use std::str::Chars;

/// What a dot takes: all but the ends of lines.
const DOT: &str = r"[^\n\r\x{2028}\x{2029}]";
/// What `\s` takes, as a part of a class.
const SPACES: &str = r"\t-\r \x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}\x{feff}";
/// What `[^]` takes.
const ALL: &str = r"\x{0}-\x{10ffff}";

/// The same expression for llguidance, which still makes ASCII of `\d` and `\w`.
pub(super) fn translated(text: &str) -> Result<String, String> {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text.chars().peekable());
    while let Some(c) = rest.next() {
        match c {
            '.' => out.push_str(DOT),
            '[' => class(&mut rest, &mut out)?,
            '\\' => match escaped(&mut rest)? {
                's' => out.extend(["[", SPACES, "]"]),
                'S' => out.extend(["[^", SPACES, "]"]),
                other => out.extend(['\\', other]),
            },
            other => out.push(other),
        }
    }
    Ok(out)
}

fn escaped(rest: &mut Peekable<Chars<'_>>) -> Result<char, String> {
    rest.next().ok_or_else(|| "a pattern ends in a backslash with nothing after it; write two for one".into())
}

/// Reads a class after its bracket. One without an end stays so.
fn class(rest: &mut Peekable<Chars<'_>>, out: &mut String) -> Result<(), String> {
    let negated = rest.next_if_eq(&'^').is_some();
    if rest.next_if_eq(&']').is_some() {
        out.extend([if negated { "[" } else { "[^" }, ALL, "]"]);
        return Ok(());
    }
    out.push_str(if negated { "[^" } else { "[" });
    while let Some(c) = rest.next() {
        if c == ']' {
            out.push(c);
            return Ok(());
        }
        let one = member(c, rest, out)?;
        let mut ahead = rest.clone();
        let range = one && ahead.next() == Some('-') && ahead.peek().is_some_and(|&c| c != ']');
        if range {
            rest.next();
            let next = rest.next().unwrap_or_default();
            let mut high = String::new();
            // Before a set, as in `[a-\d]`, it is a character.
            out.push_str(if member(next, rest, &mut high)? { "-" } else { "\\-" });
            out.push_str(&high);
        }
    }
    Ok(())
}

/// Writes what `c` begins in a class. Whether that is one character, and may begin a range.
fn member(c: char, rest: &mut Peekable<Chars<'_>>, out: &mut String) -> Result<bool, String> {
    match c {
        '\\' => match escaped(rest)? {
            's' => out.push_str(SPACES),
            'S' => out.extend(["[^", SPACES, "]"]),
            'b' => {
                out.push_str("\\x08");
                return Ok(true);
            }
            set @ ('d' | 'D' | 'w' | 'W') => out.extend(['\\', set]),
            property @ ('p' | 'P') => {
                out.extend(['\\', property]);
                let mut next = rest.next();
                let braced = next == Some('{');
                while let Some(c) = next {
                    out.push(c);
                    next = if braced && c != '}' { rest.next() } else { None };
                }
            }
            // Digits of a number come after it, as characters that stay what they are.
            other => {
                out.extend(['\\', other]);
                return Ok(true);
            }
        },
        '[' | '&' | '~' | '-' | '^' => {
            out.extend(['\\', c]);
            return Ok(true);
        }
        other => {
            out.push(other);
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_sets_of_characters() {
        for (text, same) in [
            ("^[^a&&b]$", r"^[^a\&\&b]$"),
            ("[a-z--b]", r"[a-z\--b]"),
            ("[a-]x-[-a]", r"[a\-]x-[\-a]"),
            ("[[a~~^]", r"[\[a\~\~\^]"),
            (r"[\d-x]", r"[\d\-x]"),
            (r"[a-\w.]", r"[a\-\w.]"),
            (r"[\x41-\u0043\]\b]", r"[\x41-\u0043\]\x08]"),
            (r"[\p{L}-\pN\/]", r"[\p{L}\-\pN\/]"),
            ("[]a[^]", r"[^\x{0}-\x{10ffff}]a[\x{0}-\x{10ffff}]"),
            (r"\.\\.", r"\.\\[^\n\r\x{2028}\x{2029}]"),
            ("[a", "[a"),
        ] {
            assert_eq!(translated(text).unwrap(), same, "{text}");
        }
        for text in ["a\\", "[a\\", "[a-\\"] {
            assert!(translated(text).unwrap_err().contains("ends in a backslash"), "{text}");
        }
    }
}
