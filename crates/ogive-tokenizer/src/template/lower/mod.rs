//! Rewrites expressions so that every operation on values is a call of ours.
//!
//! `a + b ~ c[1:]` becomes `a|__add(b)|__cat(c|__slice(1, none, none))`. minijinja then runs control flow, scopes and
//! macros, and nothing else: its own operators know no limits (`s = s ~ s` in a loop fills any memory, a list wrapped
//! in itself a hundred thousand times overflows the stack when dropped) and differ from Python's in small ways. Ours
//! are metered and follow Python. Filters are used and not functions, because a template cannot shadow a filter.

mod operands;

use super::lex::{Fault, Tag, Token};

/// Nested brackets in one expression. minijinja's own parser stops at 150 with two levels for each of ours.
const MAX_DEPTH: u32 = 60;
/// Links of chains (`a.b|c|d`, `a or b or c`) below one expression: minijinja compiles and frees them recursively.
const MAX_HEIGHT: u32 = 400;

/// A lowered expression: text that can stand as an operand, and how tall its syntax tree can be.
#[derive(Debug)]
pub(super) struct Low {
    pub(super) text: String,
    height: u32,
    /// A variable or attributes of one: minijinja reads `text.name` as such.
    path: bool,
}

impl Low {
    fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), height: 1, path: false }
    }
}

/// A cursor over the tokens of one tag.
#[derive(Debug)]
pub(super) struct Parser<'t, 's> {
    tokens: &'t [Token<'s>],
    at: usize,
    line: usize,
    depth: u32,
}

impl<'t, 's> Parser<'t, 's> {
    pub(super) fn new(tag: &'t Tag<'s>) -> Self {
        Self { tokens: &tag.tokens, at: 0, line: tag.line, depth: 0 }
    }

    pub(super) fn line(&self) -> usize {
        self.line
    }

    pub(super) fn fault<T>(&self, message: impl Into<String>) -> Result<T, Fault> {
        Err(Fault::new(self.line, message))
    }

    pub(super) fn peek(&self) -> Option<&'t Token<'s>> {
        self.tokens.get(self.at)
    }

    pub(super) fn at_end(&self) -> bool {
        self.at >= self.tokens.len()
    }

    pub(super) fn is_op(&self, op: &str) -> bool {
        matches!(self.peek(), Some(Token::Op(found)) if *found == op)
    }

    pub(super) fn is_name(&self, name: &str) -> bool {
        matches!(self.peek(), Some(Token::Name(found)) if *found == name)
    }

    pub(super) fn skip_op(&mut self, op: &str) -> bool {
        let found = self.is_op(op);
        self.at += usize::from(found);
        found
    }

    pub(super) fn skip_name(&mut self, name: &str) -> bool {
        let found = self.is_name(name);
        self.at += usize::from(found);
        found
    }

    pub(super) fn expect_op(&mut self, op: &str) -> Result<(), Fault> {
        if self.skip_op(op) { Ok(()) } else { self.unexpected(&format!("{op:?}")) }
    }

    pub(super) fn expect_end(&self) -> Result<(), Fault> {
        if self.at_end() { Ok(()) } else { self.unexpected("the end of the tag") }
    }

    pub(super) fn name(&mut self) -> Result<&'s str, Fault> {
        match self.peek() {
            Some(Token::Name(name)) => {
                self.at += 1;
                Ok(name)
            }
            _ => self.unexpected("a name"),
        }
    }

    pub(super) fn unexpected<T>(&self, wanted: &str) -> Result<T, Fault> {
        let found = match self.peek() {
            None => "the end of the tag".to_string(),
            Some(Token::Name(name)) => format!("{name:?}"),
            Some(Token::Str(_)) => "a string".to_string(),
            Some(Token::Int(_) | Token::Float(_)) => "a number".to_string(),
            Some(Token::Op(op)) => format!("{op:?}"),
        };
        self.fault(format!("unexpected {found}, expected {wanted}"))
    }

    /// `base|__name(arguments)`, with the height of the tallest part.
    fn chain(&self, base: Low, filter: &str, arguments: &[Low]) -> Result<Low, Fault> {
        let height = arguments.iter().map(|a| a.height).fold(base.height, u32::max) + 1;
        self.check_height(height)?;
        let mut text = base.text;
        text.push('|');
        text.push_str(filter);
        if !arguments.is_empty() {
            text.push('(');
            join(&mut text, arguments);
            text.push(')');
        }
        Ok(Low { text, height, path: false })
    }

    fn check_height(&self, height: u32) -> Result<(), Fault> {
        if height > MAX_HEIGHT { self.fault("expression is too long a chain: split it") } else { Ok(()) }
    }

    /// One level deeper: the only place where this parser recurses without bound otherwise.
    fn nested(&mut self, parse: impl FnOnce(&mut Self) -> Result<Low, Fault>) -> Result<Low, Fault> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return self.fault(format!("expression is nested more than {MAX_DEPTH} levels deep"));
        }
        let out = parse(self);
        self.depth -= 1;
        out
    }

    /// One expression, or several with commas between them, which make a tuple.
    pub(super) fn tuple(&mut self, ternary: bool) -> Result<Low, Fault> {
        let first = if ternary { self.expression()? } else { self.or()? };
        if !self.is_op(",") {
            return Ok(first);
        }
        let mut items = vec![first];
        while self.skip_op(",") {
            if self.at_end() || self.is_op(")") || self.is_op("=") {
                break;
            }
            items.push(if ternary { self.expression()? } else { self.or()? });
        }
        self.sequence("(", items, ",)")
    }

    /// A list or tuple of lowered items, checked when it is built.
    fn sequence(&self, open: &str, items: Vec<Low>, close: &str) -> Result<Low, Fault> {
        let height = items.iter().map(|a| a.height).max().unwrap_or(0) + 1;
        let mut text = open.to_string();
        join(&mut text, &items);
        text.push_str(if items.is_empty() { close.trim_start_matches(',') } else { close });
        self.chain(Low { text, height, path: false }, "__keep", &[])
    }

    /// `a if b else c` and everything that binds tighter.
    pub(super) fn expression(&mut self) -> Result<Low, Fault> {
        self.nested(|p| {
            let mut value = p.or()?;
            while p.skip_name("if") {
                let test = p.or()?;
                let other = if p.skip_name("else") { Some(p.expression()?) } else { None };
                let height = value.height.max(test.height).max(other.as_ref().map_or(0, |o| o.height)) + 1;
                p.check_height(height)?;
                let text = match other {
                    Some(other) => format!("({} if {} else {})", value.text, test.text, other.text),
                    None => format!("({} if {})", value.text, test.text),
                };
                value = Low { text, height, path: false };
            }
            Ok(value)
        })
    }

    /// `a or b or c`. `{% if %}` and `{% for … in %}` start here, because `if` ends them.
    pub(super) fn or(&mut self) -> Result<Low, Fault> {
        self.logical("or", |p| p.logical("and", Self::not))
    }

    fn logical(
        &mut self,
        word: &str,
        operand: impl Fn(&mut Self) -> Result<Low, Fault>,
    ) -> Result<Low, Fault> {
        let mut left = operand(self)?;
        if !self.is_name(word) {
            return Ok(left);
        }
        while self.skip_name(word) {
            let right = operand(self)?;
            left.height = left.height.max(right.height) + 1;
            self.check_height(left.height)?;
            left.text = format!("{} {word} {}", left.text, right.text);
        }
        Ok(Low { text: format!("({})", left.text), height: left.height, path: false })
    }

    fn not(&mut self) -> Result<Low, Fault> {
        if !self.skip_name("not") {
            return self.compare();
        }
        let inner = self.nested(Self::not)?;
        Ok(Low { text: format!("(not {})", inner.text), height: inner.height + 1, path: false })
    }

    fn compare(&mut self) -> Result<Low, Fault> {
        let left = self.sum()?;
        let mut arguments = Vec::new();
        loop {
            let op = match self.peek() {
                Some(Token::Op(op @ ("==" | "!=" | "<" | "<=" | ">" | ">="))) => op,
                Some(Token::Name("in")) => "in",
                Some(Token::Name("not"))
                    if matches!(self.tokens.get(self.at + 1), Some(Token::Name("in"))) =>
                {
                    self.at += 1;
                    "not in"
                }
                _ => break,
            };
            self.at += 1;
            arguments.push(Low::new(format!("\"{op}\"")));
            arguments.push(self.sum()?);
        }
        if arguments.is_empty() { Ok(left) } else { self.chain(left, "__cmp", &arguments) }
    }

    /// `a + b - c`: a run of `+` is one call, so that a long concatenation is copied once.
    fn sum(&mut self) -> Result<Low, Fault> {
        let mut left = self.concat()?;
        loop {
            if self.is_op("+") {
                let mut terms = Vec::new();
                while self.skip_op("+") {
                    terms.push(self.concat()?);
                }
                left = self.chain(left, "__add", &terms)?;
            } else if self.skip_op("-") {
                let right = self.concat()?;
                left = self.chain(left, "__sub", &[right])?;
            } else {
                return Ok(left);
            }
        }
    }

    fn concat(&mut self) -> Result<Low, Fault> {
        let left = self.product()?;
        let mut terms = Vec::new();
        while self.skip_op("~") {
            terms.push(self.product()?);
        }
        if terms.is_empty() { Ok(left) } else { self.chain(left, "__cat", &terms) }
    }

    fn product(&mut self) -> Result<Low, Fault> {
        let mut left = self.power()?;
        loop {
            let filter = match self.peek() {
                Some(Token::Op("*")) => "__mul",
                Some(Token::Op("/")) => "__div",
                Some(Token::Op("//")) => "__floordiv",
                Some(Token::Op("%")) => "__mod",
                _ => return Ok(left),
            };
            self.at += 1;
            let right = self.power()?;
            left = self.chain(left, filter, &[right])?;
        }
    }

    fn power(&mut self) -> Result<Low, Fault> {
        let mut left = self.unary(true)?;
        while self.skip_op("**") {
            let right = self.unary(true)?;
            left = self.chain(left, "__pow", &[right])?;
        }
        Ok(left)
    }

    /// A sign applies to the operand with its attributes; filters and tests apply to the signed value.
    fn unary(&mut self, filters: bool) -> Result<Low, Fault> {
        let sign = match self.peek() {
            Some(Token::Op("-")) => Some("__neg"),
            Some(Token::Op("+")) => Some("__pos"),
            _ => None,
        };
        let mut value = if let Some(sign) = sign {
            self.at += 1;
            let operand = self.nested(|p| p.unary(false))?;
            self.chain(operand, sign, &[])?
        } else {
            self.primary()?
        };
        value = self.postfix(value)?;
        if filters { self.filters(value) } else { Ok(value) }
    }
}

/// Appends `a, b, c`.
pub(super) fn join(text: &mut String, items: &[Low]) {
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            text.push_str(", ");
        }
        text.push_str(&item.text);
    }
}

/// A string literal in minijinja's syntax, on one line.
pub(super) fn quote(value: &str) -> String {
    let mut out = String::with_capacity(value.len() + 2);
    out.push('"');
    for c in value.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            _ => out.push(c),
        }
    }
    out.push('"');
    out
}
