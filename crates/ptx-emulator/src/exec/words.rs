//! The modifiers of an instruction, taken one after the other: what is left at the end is refused.

use crate::ptx::ast::Instruction;

/// The modifiers that were not taken yet.
#[derive(Clone, Debug)]
pub(crate) struct Words<'a>(Vec<&'a str>);

impl<'a> Words<'a> {
    /// All modifiers of an instruction.
    pub(crate) fn new(i: &'a Instruction) -> Self {
        Self(i.modifiers.iter().map(String::as_str).collect())
    }

    /// Takes a word out; false if it is not there.
    pub(crate) fn take(&mut self, word: &str) -> bool {
        let at = self.0.iter().position(|w| *w == word);
        at.map(|at| self.0.remove(at)).is_some()
    }

    /// Takes out the first of these words that is there.
    pub(crate) fn take_one(&mut self, words: &[&'a str]) -> Option<&'a str> {
        words.iter().copied().find(|word| self.take(word))
    }

    /// Takes out the word in front.
    pub(crate) fn first(&mut self) -> Option<&'a str> {
        (!self.0.is_empty()).then(|| self.0.remove(0))
    }

    /// Nothing may be left.
    pub(crate) fn end(self) -> Result<(), String> {
        match self.0.first() {
            None => Ok(()),
            Some(word) => Err(format!(".{word} is not a modifier of it that is known here")),
        }
    }
}
