//! Patterns that no matcher is written for, run by an engine: linear where that is possible, loud where it is not.
//!
//! Nearly every published pattern needs look-ahead only for its last words, `\s+(?!\S)`: "spaces, but leave one to the next
//! word". Cut to `\s+`, and with one space given back where that branch matched, the rest runs in the `regex` crate, whose time
//! is linear in the text. What remains goes to `fancy-regex`; where it reaches its limit, encoding fails instead of going wrong.

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
    /// Compiles a pattern as `tokenizer.json` writes it (Oniguruma's syntax as far as `regex` and `fancy-regex` share it).
    pub(crate) fn new(source: &str) -> Result<Self> {
        let engine = Self::engine(source)?;
        Ok(Self { source: source.to_owned(), engine })
    }

    fn engine(source: &str) -> Result<Engine> {
        if let Ok(regex) = regex::Regex::new(source) {
            return Ok(Engine::Linear(regex));
        }
        if let Some(rest) = source.strip_suffix(GIVE_BACK) {
            // Groups of the rest would shift the number of ours.
            if let Ok(alone) = regex::Regex::new(rest)
                && alone.captures_len() == 1
                && let Ok(regex) = regex::Regex::new(&format!(r"(?:{rest})|(\s+)"))
            {
                return Ok(Engine::GiveBack(regex));
            }
        }
        match fancy_regex::Regex::new(source) {
            Ok(regex) => Ok(Engine::Backtracking(Box::new(regex))),
            Err(e) => Err(TokenizerError::Pattern { pattern: source.to_owned(), reason: e.to_string() }),
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
