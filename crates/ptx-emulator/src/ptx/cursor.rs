//! Where the parser stands: one token, and the one after it.
//!
//! Two tokens of foresight are all PTX needs (a name before a colon is a label), so tokens are made as they are wanted: a file
//! of ten megabytes costs no table of its three million tokens.

use super::Error;
use super::ast::SourceLine;
use super::lexer::{Kind, Lexer, Token};

/// Braces and parentheses inside one another; compilers stay below ten, and the stack holds far more than this.
pub(super) const DEPTH: u32 = 100;

/// Reads a text from left to right.
#[derive(Debug)]
pub(super) struct Cursor<'a> {
    text: &'a str,
    lexer: Lexer<'a>,
    /// Not consumed yet.
    pub(super) token: Token<'a>,
    ahead: Token<'a>,
    /// How deep the parser is in braces and parentheses.
    depth: u32,
    /// The `.loc` in force.
    pub(super) source: Option<SourceLine>,
    /// Zero bytes written between the rows of initialisers so far; see `variable`.
    pub(super) padding: u64,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let mut lexer = Lexer::new(text);
        let (token, ahead) = (lexer.next(), lexer.next());
        Self { text, lexer, token, ahead, depth: 0, source: None, padding: 0 }
    }

    /// Takes the token.
    pub(super) fn bump(&mut self) -> Token<'a> {
        let token = self.token;
        self.token = self.ahead;
        self.ahead = self.lexer.next();
        token
    }

    pub(super) fn line(&self) -> u32 {
        self.token.line
    }

    /// An error at the token.
    pub(super) fn error(&self, message: impl Into<String>) -> Error {
        self.error_at(self.token.line, message)
    }

    pub(super) fn error_at(&self, line: u32, message: impl Into<String>) -> Error {
        Error::at(self.text, line, message)
    }

    /// The error that something else was wanted here.
    pub(super) fn expected(&self, what: &str) -> Error {
        let found = match self.token.kind {
            Kind::End => "the end of the text".to_owned(),
            Kind::Bad(message) if self.token.text.is_empty() => message.to_owned(),
            Kind::Bad(message) => format!("{message}, {:?}", self.token.text),
            Kind::Text => format!("the string {:?}", self.token.text),
            _ => format!("`{}`", self.token.text),
        };
        self.error(format!("expected {what}, found {found}"))
    }

    pub(super) fn at_end(&self) -> bool {
        self.token.kind == Kind::End
    }

    /// Whether the token is this sign.
    pub(super) fn is(&self, sign: &str) -> bool {
        self.token.kind == Kind::Sign && self.token.text == sign
    }

    /// Whether the token after this one is the sign.
    pub(super) fn then(&self, sign: &str) -> bool {
        self.ahead.kind == Kind::Sign && self.ahead.text == sign
    }

    /// Whether the token after this one is a name (`WARP_SZ` is a constant).
    pub(super) fn then_name(&self) -> bool {
        self.ahead.kind == Kind::Word && self.ahead.text != "WARP_SZ"
    }

    /// Whether `.managed` comes next.
    pub(super) fn then_managed(&self) -> bool {
        self.ahead.kind == Kind::Word && self.ahead.text == ".managed"
    }

    /// Takes the sign if it is there.
    pub(super) fn eat(&mut self, sign: &str) -> bool {
        let found = self.is(sign);
        if found {
            self.bump();
        }
        found
    }

    pub(super) fn expect(&mut self, sign: &str) -> Result<(), Error> {
        if self.eat(sign) { Ok(()) } else { Err(self.expected(&format!("`{sign}`"))) }
    }

    /// Whether the token is this directive or word.
    pub(super) fn is_word(&self, word: &str) -> bool {
        self.token.kind == Kind::Word && self.token.text == word
    }

    pub(super) fn eat_word(&mut self, word: &str) -> bool {
        let found = self.is_word(word);
        if found {
            self.bump();
        }
        found
    }

    /// The directive that stands here, with its dot.
    pub(super) fn directive(&self) -> Option<&'a str> {
        (self.token.kind == Kind::Word && self.token.text.starts_with('.')).then_some(self.token.text)
    }

    /// A name: a word without a dot in front.
    pub(super) fn name(&mut self, what: &str) -> Result<&'a str, Error> {
        if self.token.kind == Kind::Word && !self.token.text.starts_with('.') {
            Ok(self.bump().text)
        } else {
            Err(self.expected(what))
        }
    }

    /// A name that is declared here: one without dots in it, for `%v.x` means a part of `%v`.
    pub(super) fn new_name(&mut self, what: &str) -> Result<&'a str, Error> {
        if self.token.text.contains('.') {
            return Err(self.expected(what));
        }
        self.name(what)
    }

    pub(super) fn string(&mut self, what: &str) -> Result<&'a str, Error> {
        if self.token.kind == Kind::Text { Ok(self.bump().text) } else { Err(self.expected(what)) }
    }

    /// A plain number such as a count or a line.
    pub(super) fn count(&mut self, what: &str) -> Result<u64, Error> {
        if self.token.kind != Kind::Number {
            return Err(self.expected(what));
        }
        let value = super::expression::integer(self.token.text).ok_or_else(|| self.expected(what))?;
        self.bump();
        Ok(value)
    }

    /// A number below 2³².
    pub(super) fn small(&mut self, what: &str) -> Result<u32, Error> {
        let line = self.line();
        let value = self.count(what)?;
        u32::try_from(value).map_err(|_| self.error_at(line, format!("{what}: {value} is 2^32 or more")))
    }

    /// Passes everything up to and with the next semicolon.
    pub(super) fn skip_statement(&mut self) -> Result<(), Error> {
        while !self.eat(";") {
            if self.at_end() || matches!(self.token.kind, Kind::Bad(_)) {
                return Err(self.expected("`;`"));
            }
            self.bump();
        }
        Ok(())
    }

    /// Goes one brace or parenthesis deeper; [`Self::leave`] comes back.
    pub(super) fn enter(&mut self) -> Result<(), Error> {
        self.depth += 1;
        if self.depth > DEPTH {
            return Err(self.error(format!("more than {DEPTH} braces or parentheses within one another")));
        }
        Ok(())
    }

    pub(super) fn leave(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }
}
