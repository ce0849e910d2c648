//! Rust source without its comments and strings, line by line: so that a word in a comment is no finding.
//!
//! A small lexer and no parser: the checks here ask for words and their lines, and a syntax tree would bring a large
//! dependency for that.

/// The code of `text` with comments and the contents of literals blanked out; lines keep their numbers.
pub(crate) fn code_only(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let at = |i: usize| chars.get(i).copied().unwrap_or('\0');
    let mut out = String::with_capacity(text.len());
    let mut i = 0;
    let blank = |out: &mut String, from: usize, to: usize| {
        for c in chars.get(from..to.min(chars.len())).unwrap_or_default() {
            out.push(if *c == '\n' { '\n' } else { ' ' });
        }
    };
    while i < chars.len() {
        let end = match at(i) {
            '/' if at(i + 1) == '/' => (i..chars.len()).find(|&j| at(j) == '\n').unwrap_or(chars.len()),
            '/' if at(i + 1) == '*' => comment_end(&chars, i),
            '"' => string_end(&chars, i),
            'r' if !joined(&chars, i) && raw_hashes(&chars, i + 1).is_some() => raw_end(&chars, i + 1),
            'b' if !joined(&chars, i) && at(i + 1) == '"' => string_end(&chars, i + 1),
            'b' if !joined(&chars, i) && at(i + 1) == 'r' && raw_hashes(&chars, i + 2).is_some() => {
                raw_end(&chars, i + 2)
            }
            '\'' => char_end(&chars, i),
            _ => i,
        };
        if end > i {
            blank(&mut out, i, end);
            i = end;
        } else {
            out.push(at(i));
            i += 1;
        }
    }
    out
}

/// Whether the character before `i` makes it the middle of a word.
fn joined(chars: &[char], i: usize) -> bool {
    i.checked_sub(1).and_then(|i| chars.get(i)).is_some_and(|c| c.is_alphanumeric() || *c == '_')
}

fn comment_end(chars: &[char], start: usize) -> usize {
    let mut depth = 0;
    let mut i = start;
    while i < chars.len() {
        match (chars.get(i), chars.get(i + 1)) {
            (Some('/'), Some('*')) => {
                depth += 1;
                i += 2;
            }
            (Some('*'), Some('/')) => {
                depth -= 1;
                i += 2;
                if depth == 0 {
                    return i;
                }
            }
            _ => i += 1,
        }
    }
    chars.len()
}

fn string_end(chars: &[char], quote: usize) -> usize {
    let mut i = quote + 1;
    while let Some(c) = chars.get(i) {
        match c {
            '\\' => i += 2,
            '"' => return i + 1,
            _ => i += 1,
        }
    }
    chars.len()
}

/// The number of `#` between `r` and its quote, if that is what stands here.
fn raw_hashes(chars: &[char], start: usize) -> Option<usize> {
    let hashes = chars.get(start..)?.iter().take_while(|c| **c == '#').count();
    (chars.get(start + hashes) == Some(&'"')).then_some(hashes)
}

fn raw_end(chars: &[char], start: usize) -> usize {
    let hashes = raw_hashes(chars, start).unwrap_or(0);
    let mut i = start + hashes + 1;
    while i < chars.len() {
        let closes = chars.get(i) == Some(&'"')
            && chars.get(i + 1..i + 1 + hashes).is_some_and(|tail| tail.iter().all(|c| *c == '#'));
        if closes {
            return i + 1 + hashes;
        }
        i += 1;
    }
    chars.len()
}

/// The end of a character literal, or `start` itself for a lifetime.
fn char_end(chars: &[char], start: usize) -> usize {
    if chars.get(start + 1) == Some(&'\\') {
        let tail = chars.get(start + 3..).unwrap_or_default();
        return tail.iter().position(|c| *c == '\'').map_or(chars.len(), |n| start + 3 + n + 1);
    }
    if chars.get(start + 2) == Some(&'\'') { start + 3 } else { start }
}

/// Whether `word` stands in `line` on its own.
pub(crate) fn has_word(line: &str, word: &str) -> bool {
    let joins = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line.get(..at).and_then(|s| s.chars().next_back());
        let after = line.get(at + word.len()..).and_then(|s| s.chars().next());
        !before.is_some_and(joins) && !after.is_some_and(joins)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blank() {
        let text = "a // unsafe\n/* unsafe /* x */ unsafe */ b \"unsafe \\\" unsafe\" c r#\"unsafe\"#\n'u' '\\'' 'a str b\"unsafe\" d";
        let code = code_only(text);
        assert!(!code.contains("unsafe"), "{code}");
        assert_eq!(code.lines().count(), text.lines().count());
        for kept in ["a ", " b ", " c ", "'a str", " d"] {
            assert!(code.contains(kept), "{kept:?} in {code:?}");
        }
        assert_eq!(code_only("/* open"), " ".repeat(7));
        assert_eq!(code_only("for r in x { \"y"), "for r in x {   ");
    }

    #[test]
    fn words_stand_alone() {
        assert!(has_word("x unsafe{", "unsafe"));
        assert!(!has_word("#![forbid(unsafe_code)]", "unsafe"));
        assert!(!has_word("notunsafe", "unsafe"));
    }
}
