//! Where a grammar is being read: one character ahead, with line and column for messages.

use crate::error::GrammarError;

/// The text and a place in it.
#[derive(Clone, Debug)]
pub(super) struct Cursor<'t> {
    rest: &'t str,
    line: usize,
    column: usize,
}

/// A line and a column, both counted from 1.
pub(super) type Place = (usize, usize);

impl<'t> Cursor<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        // A byte order mark is what some editors put before a text, and no part of it.
        Self { rest: text.strip_prefix('\u{feff}').unwrap_or(text), line: 1, column: 1 }
    }

    pub(super) fn place(&self) -> Place {
        (self.line, self.column)
    }

    pub(super) fn rest(&self) -> &'t str {
        self.rest
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    pub(super) fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.rest = &self.rest[c.len_utf8()..];
        // Lines end as in llama.cpp, by \n, \r or both.
        if c == '\n' || (c == '\r' && !self.rest.starts_with('\n')) {
            self.line += 1;
            self.column = 1;
        } else {
            self.column += 1;
        }
        Some(c)
    }

    /// Steps over `text` if it comes next.
    pub(super) fn eat(&mut self, text: &str) -> bool {
        let found = self.rest.starts_with(text);
        if found {
            for _ in text.chars() {
                self.next();
            }
        }
        found
    }

    /// Steps over all that pass, and gives them.
    pub(super) fn take_while(&mut self, pass: impl Fn(char) -> bool) -> &'t str {
        let start = self.rest;
        while self.peek().is_some_and(&pass) {
            self.next();
        }
        &start[..start.len() - self.rest.len()]
    }

    /// Steps over blanks and comments, and line ends too if `lines`.
    pub(super) fn space(&mut self, lines: bool) {
        loop {
            match self.peek() {
                Some(' ' | '\t') => drop(self.next()),
                Some('\n' | '\r') if lines => drop(self.next()),
                Some('#') => drop(self.take_while(|c| c != '\n' && c != '\r')),
                _ => return,
            }
        }
    }

    /// An error here: what was expected, and what stands there instead.
    pub(super) fn expected(&self, what: &str) -> GrammarError {
        let found = match self.peek() {
            None => "the grammar ends".into(),
            Some('\n' | '\r') => "the line ends".into(),
            Some(c) => format!("there is {c:?}"),
        };
        self.wrong(format!("{found}, but {what} was expected"))
    }

    /// An error here.
    pub(super) fn wrong(&self, what: impl Into<String>) -> GrammarError {
        wrong_at(self.place(), what)
    }
}

/// An error at a place.
pub(super) fn wrong_at((line, column): Place, what: impl Into<String>) -> GrammarError {
    GrammarError::Syntax { line, column, what: what.into() }
}
