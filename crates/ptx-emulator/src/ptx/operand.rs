//! Operands of instructions.
//!
//! One grammar for all of them, whatever the opcode: which operands an instruction takes is for those to say who know what it
//! does.

use super::Error;
use super::ast::Operand;
use super::cursor::Cursor;
use super::expression::Value;

impl Cursor<'_> {
    /// Operands up to the semicolon, which is taken too. `call` says that parentheses enclose lists and not constants.
    pub(super) fn operands(&mut self, call: bool) -> Result<Vec<Operand>, Error> {
        let mut operands = Vec::new();
        if self.eat(";") {
            return Ok(operands);
        }
        loop {
            operands.push(if call && self.is("(") { self.list()? } else { self.operand()? });
            if self.eat(";") {
                return Ok(operands);
            }
            if !self.eat(",") {
                return Err(self.expected("`,` or `;` after an operand"));
            }
        }
    }

    fn list(&mut self) -> Result<Operand, Error> {
        self.expect("(")?;
        Ok(Operand::List(self.many(")")?))
    }

    /// Operands between commas up to `end`.
    fn many(&mut self, end: &str) -> Result<Vec<Operand>, Error> {
        let mut operands = Vec::new();
        if self.eat(end) {
            return Ok(operands);
        }
        self.enter()?;
        loop {
            operands.push(self.operand()?);
            if self.eat(end) {
                self.leave();
                return Ok(operands);
            }
            if !self.eat(",") {
                return Err(self.expected(&format!("`,` or `{end}` after an operand")));
            }
        }
    }

    fn operand(&mut self) -> Result<Operand, Error> {
        let first = self.single()?;
        if self.eat("|") {
            let second = self.single()?;
            return Ok(Operand::Pair(Box::new(first), Box::new(second)));
        }
        Ok(first)
    }

    fn single(&mut self) -> Result<Operand, Error> {
        if self.eat("{") {
            return Ok(Operand::Vector(self.many("}")?));
        }
        if self.is("[") {
            return self.address();
        }
        // A sign before a name is an operator of the instruction, before anything else one of the constant expression.
        for (sign, make) in [("!", Operand::Not as fn(Box<Operand>) -> Operand), ("-", Operand::Negative)] {
            if self.is(sign) && self.then_name() {
                self.bump();
                return Ok(make(Box::new(Operand::Name(self.name("a register")?.to_owned()))));
            }
        }
        if self.at_constant() || self.is("(") || self.is("!") {
            return Ok(match self.constant()? {
                Value::Signed(value) => Operand::Integer(value.cast_unsigned()),
                Value::Unsigned(value) => Operand::Integer(value),
                Value::Single(bits) => Operand::Float32(bits),
                Value::Double(value) => Operand::Float64(value.to_bits()),
            });
        }
        let name = self.name("an operand (a name, a constant, `[`, `{`)")?;
        if name == "_" {
            return Ok(Operand::Sink);
        }
        if self.is("+") || self.is("-") {
            return Ok(Operand::NameOffset(name.to_owned(), self.offset()?));
        }
        Ok(Operand::Name(name.to_owned()))
    }

    /// `+8`, `-8`, `+-8` or nothing.
    pub(super) fn offset(&mut self) -> Result<i64, Error> {
        if self.is("+") || self.is("-") {
            return Ok(self.constant_integer("the offset of an address")?.cast_signed());
        }
        Ok(0)
    }

    fn address(&mut self) -> Result<Operand, Error> {
        self.expect("[")?;
        self.enter()?;
        let base = if self.at_constant() || self.is("(") {
            Operand::Integer(self.constant_integer("an address")?)
        } else {
            Operand::Name(self.name("an address (a register, a variable or a constant)")?.to_owned())
        };
        let offset = self.offset()?;
        let extra = if self.eat(",") {
            self.many("]")?
        } else {
            self.expect("]")?;
            Vec::new()
        };
        self.leave();
        Ok(Operand::Address { base: Box::new(base), offset, extra })
    }
}
