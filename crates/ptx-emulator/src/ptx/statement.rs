//! The bodies of functions.

use super::Error;
use super::ast::{Guard, Instruction, Label, Registers, SourceLine, Statement, Type};
use super::cursor::Cursor;
use super::lexer::Kind;

/// Registers in one declaration: no compiler comes near it, and whoever makes a table of them must not drown in `%r<4000000000>`.
pub(super) const REGISTERS: u32 = 1 << 20;

impl Cursor<'_> {
    /// Statements up to the closing brace; the opening one was taken.
    pub(super) fn body(&mut self) -> Result<Vec<Statement>, Error> {
        self.enter()?;
        let mut statements = Vec::new();
        while !self.eat("}") {
            if self.at_end() {
                return Err(self.expected("`}` at the end of a body"));
            }
            self.statement(&mut statements)?;
        }
        self.leave();
        Ok(statements)
    }

    fn statement(&mut self, statements: &mut Vec<Statement>) -> Result<(), Error> {
        if self.eat(";") {
            return Ok(());
        }
        if self.eat("{") {
            statements.push(Statement::Block(self.body()?));
            return Ok(());
        }
        if self.is("@") {
            statements.push(Statement::Instruction(self.instruction()?));
            return Ok(());
        }
        match self.directive() {
            Some(".reg") => {
                let registers = self.registers()?;
                statements.extend(registers.into_iter().map(Statement::Registers));
            }
            Some(".loc") => self.location()?,
            Some(".pragma" | ".noreturn" | ".abi_preserve" | ".abi_preserve_control") => {
                self.skip_statement()?
            }
            Some(".file") => return Err(self.error(".file belongs outside functions")),
            Some(".section") => self.section()?,
            Some(".branchtargets" | ".callprototype" | ".calltargets") => {
                return Err(self.error("this directive needs a label before it"));
            }
            Some(_) => {
                let variables = self.variables()?;
                statements.extend(variables.into_iter().map(Statement::Variable));
            }
            None if self.then(":") => {
                let line = self.line();
                let label = Label { name: self.new_name("a label")?.to_owned(), line };
                self.expect(":")?;
                statements.push(self.labelled(label)?);
            }
            None if self.token.kind == Kind::Word => {
                statements.push(Statement::Instruction(self.instruction()?))
            }
            None => return Err(self.expected("an instruction, a directive, a label or `}`")),
        }
        Ok(())
    }

    fn labelled(&mut self, label: Label) -> Result<Statement, Error> {
        match self.directive() {
            Some(".branchtargets") => {
                self.bump();
                let mut targets = Vec::new();
                loop {
                    targets.push(self.name("a label to branch to")?.to_owned());
                    if self.eat(";") {
                        return Ok(Statement::BranchTargets(label, targets));
                    }
                    self.expect(",")?;
                }
            }
            Some(".callprototype" | ".calltargets") => {
                self.skip_statement()?;
                Ok(Statement::CallPrototype(label))
            }
            _ => Ok(Statement::Label(label)),
        }
    }

    /// `.reg .v2 .b32 a, %r<10>;`
    fn registers(&mut self) -> Result<Vec<Registers>, Error> {
        let line = self.line();
        self.bump();
        let mut vector = 1;
        let mut ty = None;
        while let Some(word) = self.directive() {
            match (word, Type::from_word(word.trim_start_matches('.'))) {
                (".v2", _) => vector = 2,
                (".v4", _) => vector = 4,
                (_, Some(found)) if ty.is_none() => ty = Some(found),
                _ => return Err(self.expected("the type of registers (.pred, .b8 … .b128, .u8 … .u64, .s8 … .s64, .f16, .f16x2, .bf16, .bf16x2, .f32, .f64)")),
            }
            self.bump();
        }
        let ty = ty.ok_or_else(|| self.expected("the type of registers"))?;
        let mut names = Vec::new();
        loop {
            let name = self.new_name("the name of a register")?.to_owned();
            let mut count = None;
            if self.eat("<") {
                let given = self.small("the number of registers")?;
                if given > REGISTERS {
                    return Err(self.error(format!(
                        "{given} registers in one declaration; the most read here is {REGISTERS}"
                    )));
                }
                self.expect(">")?;
                count = Some(given);
            }
            names.push((name, count));
            if self.eat(";") {
                return Ok(vec![Registers { ty, vector, names, line }]);
            }
            self.expect(",")?;
        }
    }

    /// `.loc 1 20 3, function_name $L, inlined_at 1 35 9`: the first line is the innermost.
    fn location(&mut self) -> Result<(), Error> {
        self.bump();
        let file = self.small("the file of .loc")?;
        let line = self.small("the line of .loc")?;
        self.small("the column of .loc")?;
        let mut caller = None;
        while self.eat(",") {
            if self.eat_word("function_name") {
                self.name("the label of a function's name")?;
                self.offset()?;
            } else if self.eat_word("inlined_at") {
                let file = self.small("the file of inlined_at")?;
                let line = self.small("the line of inlined_at")?;
                self.small("the column of inlined_at")?;
                caller = (line > 0).then_some((file, line));
            } else {
                return Err(self.expected("`function_name` or `inlined_at`"));
            }
        }
        self.source = (line > 0).then_some(SourceLine { file, line, caller });
        Ok(())
    }

    fn instruction(&mut self) -> Result<Instruction, Error> {
        let guard = if self.eat("@") {
            let negated = self.eat("!");
            Some(Guard { register: self.name("a predicate after `@`")?.to_owned(), negated })
        } else {
            None
        };
        let line = self.line();
        let written = self.name("an instruction")?;
        let mut words = written.split('.').map(str::to_owned);
        let opcode = words.next().unwrap_or_default();
        if !opcode.starts_with(|c: char| c.is_ascii_lowercase()) {
            return Err(self.error_at(line, format!("expected an instruction, found `{written}`")));
        }
        let mut modifiers: Vec<String> = words.collect();
        while let Some(word) = self.directive() {
            modifiers.push(word.trim_start_matches('.').to_owned());
            self.bump();
        }
        let operands = self.operands(opcode == "call")?;
        Ok(Instruction { guard, opcode, modifiers, operands, line, source: self.source })
    }
}
