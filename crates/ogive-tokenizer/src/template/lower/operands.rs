//! Operands: literals, attributes, items, calls, filters and tests.

use super::super::lex::{Fault, Token};
use super::super::methods::is_method;
use super::{Low, Parser, join, quote};

impl Parser<'_, '_> {
    pub(super) fn primary(&mut self) -> Result<Low, Fault> {
        let Some(token) = self.peek() else { return self.unexpected("an expression") };
        match token {
            Token::Name("true" | "True") => self.literal("true"),
            Token::Name("false" | "False") => self.literal("false"),
            Token::Name("none" | "None") => self.literal("none"),
            Token::Name("and" | "or" | "not" | "if" | "else" | "in" | "is") => {
                self.unexpected("an expression")
            }
            Token::Name(name) => {
                self.at += 1;
                Ok(Low { text: (*name).to_string(), height: 1, path: true })
            }
            Token::Str(_) => {
                let mut value = String::new();
                while let Some(Token::Str(part)) = self.peek() {
                    value.push_str(part);
                    self.at += 1;
                }
                Ok(Low::new(quote(&value)))
            }
            Token::Int(value) => self.literal(&value.to_string()),
            // Rust's shortest form of a float has no exponent, and minijinja wants a point.
            Token::Float(value) if value.is_finite() => self.literal(&format!("{value:?}")),
            Token::Float(_) => self.fault("float is out of range"),
            Token::Op("(") => {
                self.at += 1;
                if self.skip_op(")") {
                    return Ok(Low::new("()"));
                }
                let inner = self.tuple(true)?;
                self.expect_op(")")?;
                Ok(Low { path: false, ..inner })
            }
            Token::Op("[") => {
                self.at += 1;
                let mut items = Vec::new();
                while !self.skip_op("]") {
                    if !items.is_empty() {
                        self.expect_op(",")?;
                        if self.skip_op("]") {
                            break;
                        }
                    }
                    items.push(self.expression()?);
                }
                self.sequence("[", items, "]")
            }
            Token::Op("{") => self.dict(),
            Token::Op(_) => self.unexpected("an expression"),
        }
    }

    fn literal(&mut self, text: &str) -> Result<Low, Fault> {
        self.at += 1;
        Ok(Low::new(text))
    }

    fn dict(&mut self) -> Result<Low, Fault> {
        self.at += 1;
        let mut text = String::from("{");
        let mut height = 0;
        while !self.skip_op("}") {
            if height > 0 {
                self.expect_op(",")?;
                if self.skip_op("}") {
                    break;
                }
                text.push_str(", ");
            }
            let start = self.at;
            let mut key = self.expression()?;
            let literal = matches!(self.tokens[start..self.at], [Token::Str(_) | Token::Int(_)]);
            if !literal {
                key = self.chain(key, "__key", &[])?;
            }
            self.expect_op(":")?;
            let value = self.expression()?;
            height = height.max(key.height).max(value.height);
            text.push_str(&format!("{}: {}", key.text, value.text));
        }
        text.push('}');
        self.chain(Low { text, height: height + 1, path: false }, "__keep", &[])
    }

    /// Attributes, items, slices and calls.
    pub(super) fn postfix(&mut self, mut value: Low) -> Result<Low, Fault> {
        loop {
            if self.skip_op(".") {
                if let Some(Token::Int(index)) = self.peek() {
                    self.at += 1;
                    value = self.chain(value, "__item", &[Low::new(index.to_string())])?;
                    continue;
                }
                let name = self.name()?;
                if self.is_op("(") {
                    let mut arguments = vec![Low::new(quote(name))];
                    arguments.extend(self.arguments()?);
                    value = self.chain(value, "__call", &arguments)?;
                } else if value.path && !is_method(name) && !matches!(name, "grouper" | "list") {
                    value.height += 1;
                    self.check_height(value.height)?;
                    value.text = format!("{}.{name}", value.text);
                } else {
                    value = self.chain(value, "__attr", &[Low::new(quote(name))])?;
                }
            } else if self.is_op("[") {
                value = self.subscript(value)?;
            } else if self.is_op("(") {
                let mut arguments = self.arguments()?;
                if value.text == "loop" && arguments.len() == 1 {
                    let inner = arguments.remove(0);
                    arguments.push(self.chain(inner, "__iter", &[])?);
                }
                if value.path {
                    let height = arguments.iter().map(|a| a.height).fold(value.height, u32::max) + 1;
                    value.text.push('(');
                    join(&mut value.text, &arguments);
                    value.text.push(')');
                    value = Low { text: value.text, height, path: false };
                    self.check_height(height)?;
                } else {
                    value = self.chain(value, "__invoke", &arguments)?;
                }
            } else {
                return Ok(value);
            }
        }
    }

    fn subscript(&mut self, value: Low) -> Result<Low, Fault> {
        self.at += 1;
        let mut bounds: Vec<Low> = Vec::new();
        let mut slice = false;
        loop {
            let missing = self.is_op(":") || self.is_op("]");
            bounds.push(if missing { Low::new("none") } else { self.tuple_in_brackets(slice)? });
            if self.skip_op("]") {
                break;
            }
            self.expect_op(":")?;
            slice = true;
            if bounds.len() == 3 {
                return self.fault("a slice has at most three parts");
            }
        }
        if !slice {
            let missing = matches!(self.tokens.get(self.at.wrapping_sub(2)), Some(Token::Op("[")));
            return if missing {
                self.fault("empty subscript")
            } else {
                self.chain(value, "__item", &bounds)
            };
        }
        while bounds.len() < 3 {
            bounds.push(Low::new("none"));
        }
        self.chain(value, "__slice", &bounds)
    }

    fn tuple_in_brackets(&mut self, slice: bool) -> Result<Low, Fault> {
        let first = self.expression()?;
        if slice || !self.is_op(",") {
            return Ok(first);
        }
        let mut items = vec![first];
        while self.skip_op(",") {
            items.push(self.expression()?);
        }
        self.sequence("(", items, ",)")
    }

    /// `(a, *b, name=c, **d)`.
    pub(in crate::template) fn arguments(&mut self) -> Result<Vec<Low>, Fault> {
        self.expect_op("(")?;
        let mut out: Vec<Low> = Vec::new();
        while !self.skip_op(")") {
            if !out.is_empty() {
                self.expect_op(",")?;
                if self.skip_op(")") {
                    break;
                }
            }
            let mut prefix = String::new();
            if self.skip_op("**") {
                prefix.push_str("**");
            } else if self.skip_op("*") {
                prefix.push('*');
            } else if let (Some(Token::Name(name)), Some(Token::Op("="))) =
                (self.peek(), self.tokens.get(self.at + 1))
            {
                self.at += 2;
                prefix = format!("{name}=");
            }
            let mut value = self.expression()?;
            if prefix == "**" {
                value = self.chain(value, "__keywords", &[])?;
            }
            out.push(Low { text: format!("{prefix}{}", value.text), ..value });
        }
        Ok(out)
    }

    /// `|name(arguments)` and `is [not] name [argument]`.
    pub(super) fn filters(&mut self, mut value: Low) -> Result<Low, Fault> {
        loop {
            if self.skip_op("|") {
                let name = self.filter_name()?;
                let arguments = if self.is_op("(") { self.arguments()? } else { Vec::new() };
                value = self.chain(value, &name, &arguments)?;
            } else if self.skip_name("is") {
                let negated = self.skip_name("not");
                let name = self.filter_name()?;
                let mut arguments = vec![Low::new(quote(&name))];
                if self.is_op("(") {
                    arguments.extend(self.arguments()?);
                } else if self.starts_test_argument() {
                    let argument = self.nested(|p| {
                        let primary = p.primary()?;
                        p.postfix(primary)
                    })?;
                    arguments.push(argument);
                }
                value = self.chain(value, "__is", &arguments)?;
                if negated {
                    value =
                        Low { text: format!("(not {})", value.text), height: value.height + 1, path: false };
                }
            } else if self.is_op("(") {
                // Jinja calls what a filter returned; minijinja has no word for it.
                let arguments = self.arguments()?;
                value = self.chain(value, "__invoke", &arguments)?;
            } else {
                return Ok(value);
            }
        }
    }

    pub(in crate::template) fn filter_name(&mut self) -> Result<String, Fault> {
        let mut name = self.name()?.to_string();
        while self.skip_op(".") {
            name = format!("{name}.{}", self.name()?);
        }
        if name.starts_with("__") { self.fault(format!("unknown filter {name:?}")) } else { Ok(name) }
    }

    fn starts_test_argument(&self) -> bool {
        match self.peek() {
            Some(Token::Name(name)) => {
                !matches!(*name, "else" | "or" | "and" | "is" | "if" | "in" | "not" | "recursive")
            }
            Some(Token::Str(_) | Token::Int(_) | Token::Float(_)) => true,
            Some(Token::Op(op)) => matches!(*op, "[" | "{"),
            None => false,
        }
    }
}
