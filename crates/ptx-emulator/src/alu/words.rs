//! The modifiers of one instruction, taken one by one.
//!
//! Whatever is left when the instruction was found is an error: a modifier is understood or refused, never skipped.

use crate::ptx::ast::Type;

/// An opcode and the modifiers not yet taken.
#[derive(Clone, Debug)]
pub(super) struct Words<'a> {
    pub(super) opcode: &'a str,
    left: Vec<&'a str>,
}

impl<'a> Words<'a> {
    pub(super) fn new(opcode: &'a str, modifiers: &[&'a str]) -> Self {
        Self { opcode, left: modifiers.to_vec() }
    }

    /// Takes a modifier if it is there.
    pub(super) fn flag(&mut self, word: &str) -> bool {
        let found = self.left.iter().position(|left| *left == word);
        found.map(|at| self.left.remove(at)).is_some()
    }

    /// Whether a modifier is there; it stays.
    pub(super) fn has(&self, word: &str) -> bool {
        self.left.contains(&word)
    }

    /// Takes the first modifier of a table.
    pub(super) fn one_of<T: Copy>(&mut self, table: &[(&str, T)]) -> Option<T> {
        let (word, value) = table.iter().find(|(word, _)| self.left.contains(word))?;
        self.flag(word);
        Some(*value)
    }

    /// Takes the first modifier of a table; it must be there.
    pub(super) fn choose<T: Copy>(&mut self, what: &str, table: &[(&str, T)]) -> Result<T, String> {
        self.one_of(table).ok_or_else(|| {
            let names: Vec<_> = table.iter().map(|(word, _)| format!(".{word}")).collect();
            format!("{} needs {what}: one of {}", self.opcode, names.join(" "))
        })
    }

    /// Takes the last modifier, which must be a type.
    pub(super) fn ty(&mut self) -> Result<Type, String> {
        let ty = self.left.last().and_then(|word| Type::from_word(word));
        let ty = ty.ok_or_else(|| format!("{} needs a type as its last modifier", self.opcode))?;
        self.left.pop();
        Ok(ty)
    }

    /// Whether the last modifier is this type; nothing is taken.
    pub(super) fn last(&self) -> Option<&'a str> {
        self.left.last().copied()
    }

    /// Takes the last modifier as text.
    pub(super) fn pop(&mut self) -> Option<&'a str> {
        self.left.pop()
    }

    /// A type that the instruction does not take.
    pub(super) fn refuse<T>(&self, ty: Type) -> Result<T, String> {
        Err(format!("{} does not take the type .{}", self.opcode, format!("{ty:?}").to_lowercase()))
    }

    /// Nothing may be left.
    pub(super) fn end(&self) -> Result<(), String> {
        match self.left.first() {
            None => Ok(()),
            Some(word) => Err(format!("{}: the modifier .{word} is not known here", self.opcode)),
        }
    }
}
