//! Words, numbers and signs of a PTX text.
//!
//! A word keeps its dots (`ld.global.f32`, `%tid.x`), for a name and its component are one thing to everybody who asks; only a
//! word that begins with a dot is cut at each (`.param`, `.b32`), because directives may be written with or without spaces.
//! The lexer never fails: what it cannot read becomes a [`Kind::Bad`] token, and the parser, which expected something else,
//! says so.

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A name, an opcode with its modifiers, or a directive with its dot.
    Word,
    /// A literal, still text.
    Number,
    /// `"…"`, without the quotes.
    Text,
    /// `{`, `,`, `<<` …
    Sign,
    /// No token: what is wrong.
    Bad(&'static str),
    /// The text is over.
    End,
}

/// A token and its place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'a> {
    pub(super) kind: Kind,
    pub(super) text: &'a str,
    pub(super) line: u32,
}

/// The text not read yet.
#[derive(Clone, Debug)]
pub(super) struct Lexer<'a> {
    text: &'a str,
    at: usize,
    line: u32,
}

/// Signs of two characters; all others have one.
const DOUBLE: [&[u8]; 8] = [b"<<", b">>", b"<=", b">=", b"==", b"!=", b"&&", b"||"];

/// A character that can stand inside a name.
fn follows(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$'
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0, line: 1 }
    }

    fn byte(&self, ahead: usize) -> u8 {
        // A text that holds a zero ends there, as one from C does.
        self.text.as_bytes().get(self.at + ahead).copied().unwrap_or(0)
    }

    /// The next token; [`Kind::End`] again and again after the last.
    pub(super) fn next(&mut self) -> Token<'a> {
        if let Some(message) = self.skip() {
            self.at = self.text.len();
            return Token { kind: Kind::Bad(message), text: "", line: self.line };
        }
        let (start, line) = (self.at, self.line);
        let kind = self.scan();
        let text = self.text.get(start..self.at).unwrap_or("");
        let text = if kind == Kind::Text { text.trim_matches('"') } else { text };
        Token { kind, text, line }
    }

    /// Passes blanks and comments; says what is wrong with a comment that does not end.
    fn skip(&mut self) -> Option<&'static str> {
        loop {
            match (self.byte(0), self.byte(1)) {
                (b'\n', _) => {
                    self.line += 1;
                    self.at += 1;
                }
                (b' ' | b'\t' | b'\r' | b'\x0b' | b'\x0c', _) => self.at += 1,
                (b'/', b'/') => {
                    let rest = self.text.as_bytes().get(self.at..).unwrap_or(&[]);
                    self.at += rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len());
                }
                (b'/', b'*') => {
                    let rest = self.text.get(self.at + 2..).unwrap_or("");
                    let Some(end) = rest.find("*/") else { return Some("a comment without its end */") };
                    let lines = rest.as_bytes().iter().take(end).filter(|&&b| b == b'\n').count();
                    self.line += u32::try_from(lines).unwrap_or(u32::MAX);
                    self.at += 2 + end + 2;
                }
                _ => return None,
            }
        }
    }

    fn scan(&mut self) -> Kind {
        match self.byte(0) {
            0 => {
                self.at = self.text.len();
                Kind::End
            }
            b'"' => self.string(),
            b'.' if self.byte(1).is_ascii_digit() && self.fraction() => self.number(),
            b'.' => {
                self.at += 1;
                self.name();
                Kind::Word
            }
            b'0'..=b'9' => self.number(),
            b'%' if !follows(self.byte(1)) => self.sign(1),
            byte if follows(byte) || byte == b'%' => {
                self.at += 1;
                self.name();
                while self.byte(0) == b'.' && follows(self.byte(1)) {
                    self.at += 1;
                    self.name();
                }
                Kind::Word
            }
            byte if byte.is_ascii_punctuation() => {
                let two = [byte, self.byte(1)];
                self.sign(if DOUBLE.contains(&two.as_slice()) { 2 } else { 1 })
            }
            _ => {
                self.at +=
                    self.text.get(self.at..).and_then(|rest| rest.chars().next()).map_or(1, char::len_utf8);
                Kind::Bad("a character that PTX does not have")
            }
        }
    }

    fn sign(&mut self, length: usize) -> Kind {
        self.at += length;
        Kind::Sign
    }

    /// The rest of a name; `::` belongs to it where another name follows (`shared::cta`).
    fn name(&mut self) {
        loop {
            if follows(self.byte(0)) {
                self.at += 1;
            } else if self.byte(0) == b':' && self.byte(1) == b':' && follows(self.byte(2)) {
                self.at += 2;
            } else {
                return;
            }
        }
    }

    fn string(&mut self) -> Kind {
        let rest = self.text.as_bytes().get(self.at + 1..).unwrap_or(&[]);
        match rest.iter().position(|&b| b == b'"' || b == b'\n') {
            Some(end) if rest.get(end) == Some(&b'"') => {
                self.at += end + 2;
                Kind::Text
            }
            _ => {
                self.at = self.text.len();
                Kind::Bad("a string without its end")
            }
        }
    }

    /// Whether what begins with a dot and a digit is `.5` and not the modifier `.2d`.
    fn fraction(&self) -> bool {
        let rest = self.text.as_bytes().get(self.at + 1..).unwrap_or(&[]);
        rest.iter().take_while(|&&b| follows(b)).all(|&b| b.is_ascii_digit() || b == b'e' || b == b'E')
    }

    fn number(&mut self) -> Kind {
        let start = self.at;
        // `0f…`, `0d…` and `0x…` are written in hexadecimal digits, where an `e` is no exponent.
        let exact = self.byte(0) == b'0' && matches!(self.byte(1), b'f' | b'F' | b'd' | b'D' | b'x' | b'X');
        loop {
            let byte = self.byte(0);
            let exponent = !exact
                && self.at > start
                && matches!(byte, b'e' | b'E')
                && matches!(self.byte(1), b'+' | b'-');
            match byte {
                _ if exponent => self.at += 2,
                b'.' if !exact => self.at += 1,
                _ if byte.is_ascii_alphanumeric() || byte == b'_' => self.at += 1,
                _ => return Kind::Number,
            }
        }
    }
}
