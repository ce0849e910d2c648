//! llguidance's parser, at a place in a text.
//!
//! One parser serves all copies of a constraint and is moved to the place that is asked for, because an engine copies its chain
//! at every step and a parser's copy grows with the text. It can go back cheaply; a copy that has gone another way gets a parser
//! of its own.
//!
//! A walker's copy has a lexer of its own, which `Matcher::clone` does not give: those that share one share its states, of which
//! there may be so many, and what made it fail. A copy of one that has read nothing costs tens of microseconds, so no lexer is
//! worth sharing between texts.
//!
//! llguidance may panic inside. It catches its panics itself and turns them into errors; for that it installs, once, a hook that
//! hands every other panic on to the hook that was there.

use llguidance::Matcher;
use llguidance::api::ParserLimits;
use llguidance::toktrie::SimpleVob;

/// What a grammar may cost. In llguidance's own figures, 14 units of lexer fuel or 20 items take a microsecond: a mask stops at
/// about a quarter of a second, reading a grammar at as much, and the lexer's states at some 100 MB. Where thousands of lexemes are
/// open at one place a unit takes up to twenty times as long: masks of `([^a]*x0|[^b]*x1|...)*` with 3 000 alternatives take up to
/// four seconds.
pub(crate) fn limits() -> ParserLimits {
    ParserLimits {
        max_items_in_row: 20_000,
        initial_lexer_fuel: 10_000_000,
        step_lexer_fuel: 2_000_000,
        step_max_items: 2_000_000,
        max_lexer_states: 50_000,
        max_grammar_size: 1_000_000,
        precompute_large_lexemes: true,
        verbose_errors: false,
    }
}

/// An error's text without the state and the backtrace that llguidance adds for its developers.
pub(crate) fn message(text: &str) -> String {
    let end = ["\n<state>", "\n<non-verbose/>", "\n<backtrace>", "\n<grammar>"]
        .iter()
        .filter_map(|mark| text.find(mark))
        .min();
    let text = text.get(..end.unwrap_or(text.len())).unwrap_or(text).trim();
    let mut short: String = text.chars().take(400).collect();
    if short.len() < text.len() {
        short.push_str("...");
    }
    match short.strip_prefix("panic: ") {
        Some(panic) => {
            format!("the parser behind failed ({panic}); this is a mistake in it, not in the grammar")
        }
        None => short,
    }
}

/// A parser and the tokens it has read.
pub(crate) struct Walker {
    matcher: Matcher,
    tokens: Vec<u32>,
}

impl Walker {
    /// At the beginning.
    pub(crate) fn new(matcher: Matcher) -> Self {
        Self { matcher, tokens: Vec::new() }
    }

    /// Another at the same place, which shares nothing with this one.
    pub(crate) fn copy(&self) -> Self {
        Self { matcher: self.matcher.deep_clone(), tokens: self.tokens.clone() }
    }

    /// How many tokens it would have to go back.
    pub(crate) fn back(&self, to: &[u32]) -> usize {
        self.tokens.len() - self.common(to)
    }

    fn common(&self, to: &[u32]) -> usize {
        self.tokens.iter().zip(to).take_while(|(a, b)| a == b).count()
    }

    /// Whether it has failed, so that it moves no more.
    pub(crate) fn failed(&self) -> bool {
        self.matcher.is_error()
    }

    /// Goes to the place after these tokens.
    pub(crate) fn go_to(&mut self, tokens: &[u32]) -> Result<(), String> {
        let common = self.common(tokens);
        let back = self.tokens.len() - common;
        if back > 0 {
            self.matcher.rollback(back).map_err(|e| message(&e.to_string()))?;
            self.tokens.truncate(common);
        }
        for &token in tokens.get(common..).unwrap_or_default() {
            self.matcher.consume_token(token).map_err(|e| message(&e.to_string()))?;
            self.tokens.push(token);
        }
        Ok(())
    }

    /// Whether these tokens may come.
    pub(crate) fn takes(&mut self, tokens: &[u32]) -> Result<bool, String> {
        let taken = self.matcher.validate_tokens(tokens).map_err(|e| message(&e.to_string()))?;
        if taken == tokens.len() {
            return Ok(true);
        }
        // Where its limits are all that is in the way the mask says so.
        self.go_to(tokens.get(..taken).unwrap_or_default())?;
        self.mask().map(|_| false)
    }

    /// The tokens that may come, and after the last of the vocabulary the end.
    pub(crate) fn mask(&mut self) -> Result<SimpleVob, String> {
        self.matcher.compute_mask_or_eos().map_err(|e| message(&e.to_string()))
    }

    /// Whether the text may end here.
    pub(crate) fn may_end(&mut self) -> Result<bool, String> {
        self.matcher.is_accepting().map_err(|e| message(&e.to_string()))
    }
}
