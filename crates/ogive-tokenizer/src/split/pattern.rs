//! Patterns that no matcher is written for, run by an engine: linear where that is possible, loud where it is not.
//!
//! Nearly every published pattern needs look-ahead only for its last words, `\s+(?!\S)`: "spaces, but leave one to the next
//! word". Cut to `\s+`, and with one space given back where that branch matched, the rest runs in the `regex` crate, whose time
//! is linear in the text. What remains goes to `fancy-regex`; where it reaches its limit, encoding fails instead of going wrong.

use super::ruby::{Translated, translate};
use crate::{Result, TokenizerError};
use std::ops::Range;

#[derive(Debug, Clone)]
enum Engine {
    Linear(regex::Regex),
    /// `(?:rest)|(\s+)`, where group 1 gives its last character back unless the text ends there.
    GiveBack(regex::Regex),
    Backtracking(Box<fancy_regex::Regex>),
}

/// A compiled pattern.
#[derive(Debug, Clone)]
pub(crate) struct Pattern {
    source: String,
    engine: Engine,
}

/// The end of a pattern that asks for the give-back.
const GIVE_BACK: &str = r"|\s+(?!\S)|\s+";

impl Pattern {
    /// Compiles a pattern as `tokenizer.json` writes it (Ruby's syntax as far as `regex` and `fancy-regex` have the same).
    pub(crate) fn new(source: &str) -> Result<Self> {
        let engine = Self::engine(source)?;
        Ok(Self { source: source.to_owned(), engine })
    }

    fn engine(original: &str) -> Result<Engine> {
        let Translated { source, possessive } = translate(original)?;
        if !possessive && let Ok(regex) = regex::Regex::new(&source) {
            return Ok(Engine::Linear(regex));
        }
        if !possessive && let Some(rest) = source.strip_suffix(GIVE_BACK) {
            // Groups of the rest would shift the number of ours.
            if let Ok(alone) = regex::Regex::new(rest)
                && alone.captures_len() == 1
                && let Ok(regex) = regex::Regex::new(&format!(r"(?:{rest})|(\s+)"))
            {
                return Ok(Engine::GiveBack(regex));
            }
        }
        match fancy_regex::Regex::new(&source) {
            Ok(regex) => Ok(Engine::Backtracking(Box::new(regex))),
            Err(e) => Err(TokenizerError::Pattern { pattern: original.to_owned(), reason: e.to_string() }),
        }
    }

    /// A pattern that matches exactly `text`.
    pub(crate) fn literal(text: &str) -> Result<Self> {
        Self::new(&regex::escape(text))
    }

    /// All matches, leftmost first; empty ones are left out.
    pub(crate) fn matches(&self, text: &str) -> Result<Vec<Range<usize>>> {
        let mut found = Vec::new();
        match &self.engine {
            Engine::Linear(regex) => {
                found.extend(regex.find_iter(text).map(|m| m.range()).filter(|r| !r.is_empty()))
            }
            Engine::GiveBack(regex) => {
                let mut at = 0;
                let mut groups = regex.capture_locations();
                while let Some(m) = regex.captures_read_at(&mut groups, text, at) {
                    let (start, mut end) = (m.start(), m.end());
                    if groups.get(1).is_some() && end < text.len() {
                        let last = text[start..end].chars().next_back().map_or(0, char::len_utf8);
                        if end - last > start {
                            end -= last;
                        }
                    }
                    if end > start {
                        found.push(start..end);
                        at = end;
                    } else {
                        at = end + text[end..].chars().next().map_or(1, char::len_utf8);
                    }
                    if at > text.len() {
                        break;
                    }
                }
            }
            Engine::Backtracking(regex) => {
                for m in regex.find_iter(text) {
                    let m = m.map_err(|e| TokenizerError::PatternGaveUp {
                        pattern: self.source.clone(),
                        at: found.last().map_or(0, |r: &Range<usize>| r.end),
                        reason: e.to_string(),
                    })?;
                    if m.end() > m.start() {
                        found.push(m.start()..m.end());
                    }
                }
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    /// `tests/data/ruby.py` records what Hugging Face's library does.
    #[test]
    fn patterns_mean_what_they_mean_in_oniguruma() {
        let data: Value = serde_json::from_str(include_str!("../../tests/data/ruby.json")).unwrap();
        let texts: Vec<&str> =
            data["texts"].as_array().unwrap().iter().map(|t| t.as_str().unwrap()).collect();
        let mut wrong = Vec::new();
        for case in data["cases"].as_array().unwrap() {
            let source = case[0].as_str().unwrap();
            let pattern = Pattern::new(source).unwrap_or_else(|e| panic!("{source}: {e}"));
            for (text, want) in texts.iter().zip(case[1].as_array().unwrap()) {
                let mut got = (*text).to_owned();
                for range in pattern.matches(text).unwrap().into_iter().rev() {
                    got.replace_range(range, "#");
                }
                if got != want.as_str().unwrap() {
                    wrong.push(format!("{source} on {text:?}: {got:?} and not {want}"));
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn what_cannot_be_said_in_rust_is_refused() {
        for (pattern, word) in [("[[:apple:]]", "apple"), ("(", "pattern \"(\"")] {
            let e = Pattern::new(pattern).unwrap_err().to_string();
            assert!(e.contains(word), "{e}");
        }
        assert_eq!(Pattern::literal("^a$").unwrap().matches("^a$").unwrap().first(), Some(&(0..3)));
    }
}
