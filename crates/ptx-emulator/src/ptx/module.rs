//! A whole text: directives of the module, one after the other.

use super::Error;
use super::ast::Module;
use super::cursor::Cursor;

/// Reads PTX text.
///
/// # Errors
///
/// The first place that is not PTX, or not PTX that is known here, with its line.
pub fn parse(text: &str) -> Result<Module, Error> {
    let mut cursor = Cursor::new(text);
    let mut module = Module { address_size: 32, ..Module::default() };
    if !cursor.is_word(".version") {
        return Err(cursor.expected("`.version` at the beginning of PTX"));
    }
    while !cursor.at_end() {
        cursor.item(&mut module)?;
    }
    if module.target.is_empty() {
        return Err(cursor.error("the text has no .target"));
    }
    Ok(module)
}

impl Cursor<'_> {
    fn item(&mut self, module: &mut Module) -> Result<(), Error> {
        if self.eat(";") {
            return Ok(());
        }
        match self.directive() {
            Some(".version") => self.version(module)?,
            Some(".target") => {
                self.bump();
                loop {
                    module.target.push(self.name("a target such as sm_80")?.to_owned());
                    if !self.eat(",") {
                        break;
                    }
                }
            }
            Some(".address_size") => {
                self.bump();
                module.address_size = self.small("32 or 64")?;
            }
            Some(".file") => self.file(module)?,
            Some(".section") => self.section()?,
            Some(".pragma") => self.skip_statement()?,
            Some(".alias") => {
                self.bump();
                let name = self.name("a name for a function")?.to_owned();
                self.expect(",")?;
                module.aliases.push((name, self.name("the function it stands for")?.to_owned()));
                self.expect(";")?;
            }
            Some(_) => {
                let linkage = self.linkage();
                if self.is_word(".entry") || self.is_word(".func") {
                    module.functions.push(self.function(linkage)?);
                } else {
                    module.variables.extend(self.variables_of(linkage)?);
                }
            }
            None => return Err(self.expected("a directive of a module (.entry, .func, .global …)")),
        }
        Ok(())
    }

    /// `.version 8.7`: the lexer has read a decimal fraction.
    fn version(&mut self, module: &mut Module) -> Result<(), Error> {
        self.bump();
        let parts = self.token.text.split_once('.');
        let parts = parts.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
        module.version = parts.ok_or_else(|| self.expected("a version such as 8.7"))?;
        self.bump();
        Ok(())
    }

    /// `.file 1 "kernel.cu", 1700000000, 4096`
    fn file(&mut self, module: &mut Module) -> Result<(), Error> {
        self.bump();
        let number = self.small("the number of a file")?;
        let name = self.string("the name of a file")?.to_owned();
        module.files.insert(number, name);
        while self.eat(",") {
            self.count("the time or the size of a file")?;
        }
        Ok(())
    }

    /// `.section .debug_info { … }`: debuggers read it, nobody here.
    pub(super) fn section(&mut self) -> Result<(), Error> {
        self.bump();
        if self.directive().is_some() {
            self.bump();
        } else {
            self.name("the name of a section")?;
        }
        self.expect("{")?;
        let mut open = 1_u32;
        while open > 0 {
            if self.is("{") {
                open += 1;
            } else if self.is("}") {
                open -= 1;
            } else if self.at_end() {
                return Err(self.expected("`}` at the end of a section"));
            }
            self.bump();
        }
        Ok(())
    }
}
