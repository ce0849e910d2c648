//! Kernels and functions: their heads, parameters and limits.

use super::Error;
use super::ast::{Function, Limits, Linkage, Param, Pointer, Space, Type};
use super::cursor::Cursor;

/// Elements of one parameter: a kernel's may have 32 KiB, and nothing real is larger.
const PARAMETER: u64 = 1 << 20;

impl Cursor<'_> {
    /// `.entry` or `.func`; linkage was taken.
    pub(super) fn function(&mut self, linkage: Linkage) -> Result<Function, Error> {
        let line = self.line();
        let entry = self.is_word(".entry");
        self.bump();
        self.source = None;
        while self.is_word(".attribute") {
            self.attribute()?;
        }
        let returns = if self.is("(") { self.params()? } else { Vec::new() };
        let name = self.new_name("the name of a function")?.to_owned();
        let params = if self.is("(") { self.params()? } else { Vec::new() };
        let mut function = Function {
            name,
            entry,
            linkage,
            params,
            returns,
            limits: Limits::default(),
            noreturn: false,
            body: None,
            line,
        };
        while let Some(word) = self.directive() {
            self.limit(word, &mut function)?;
        }
        if self.eat("{") {
            function.body = Some(self.body()?);
        } else if !self.eat(";") {
            return Err(self.expected("a directive, `{` or `;` after the head of a function"));
        }
        Ok(function)
    }

    fn limit(&mut self, word: &str, function: &mut Function) -> Result<(), Error> {
        self.bump();
        let limits = &mut function.limits;
        match word {
            ".maxntid" => limits.max_threads = Some(self.three()?),
            ".reqntid" => limits.required_threads = Some(self.three()?),
            ".reqnctapercluster" => limits.required_cluster = Some(self.three()?),
            ".minnctapersm" => limits.min_blocks = Some(self.small("a number of blocks")?),
            ".maxnctapersm" => drop(self.small("a number of blocks")?),
            ".maxnreg" => limits.max_registers = Some(self.small("a number of registers")?),
            ".maxclusterrank" => limits.max_cluster = Some(self.small("a number of blocks")?),
            ".explicitcluster" => drop(limits.required_cluster.get_or_insert([1, 1, 1])),
            ".blocksareclusters" => {}
            ".noreturn" => function.noreturn = true,
            ".abi_preserve" | ".abi_preserve_control" => drop(self.small("a number of registers")?),
            ".attribute" => self.attribute_list()?,
            ".pragma" => self.skip_statement()?,
            _ => return Err(self.error(format!("`{word}` is no directive of a function"))),
        }
        Ok(())
    }

    /// `.attribute(.unified(1, 2), …)`: none of them changes what a kernel does here.
    pub(super) fn attribute(&mut self) -> Result<bool, Error> {
        let line = self.line();
        self.bump();
        let managed = self.is("(") && self.then_managed();
        self.attribute_list().map_err(|mut error| {
            error.line = line;
            error
        })?;
        Ok(managed)
    }

    fn attribute_list(&mut self) -> Result<(), Error> {
        self.expect("(")?;
        let mut open = 1;
        while open > 0 {
            if self.is("(") {
                open += 1;
            } else if self.is(")") {
                open -= 1;
            } else if self.at_end() || self.is(";") || self.is("{") {
                return Err(self.expected("`)` after .attribute"));
            }
            self.bump();
        }
        Ok(())
    }

    /// `64`, `64, 2` or `64, 2, 1`.
    fn three(&mut self) -> Result<[u32; 3], Error> {
        let mut values = [1; 3];
        for (index, value) in values.iter_mut().enumerate() {
            if index > 0 && !self.eat(",") {
                break;
            }
            *value = self.small("a number of threads or blocks")?;
        }
        Ok(values)
    }

    fn params(&mut self) -> Result<Vec<Param>, Error> {
        self.expect("(")?;
        let mut params = Vec::new();
        if self.eat(")") {
            return Ok(params);
        }
        loop {
            params.push(self.param()?);
            if self.eat(")") {
                return Ok(params);
            }
            if !self.eat(",") {
                return Err(self.expected("`,` or `)` after a parameter"));
            }
        }
    }

    /// `.param .align 8 .b8 name[24]`, `.param .u64 .ptr .global .align 16 name`, `.reg .b32 %r1`.
    fn param(&mut self) -> Result<Param, Error> {
        let register = match self.directive() {
            Some(".param") => false,
            Some(".reg") => true,
            _ => return Err(self.expected("`.param` or `.reg`")),
        };
        self.bump();
        let (mut align, mut ty, mut pointer) = (None, None, None::<Pointer>);
        while let Some(word) = self.directive() {
            self.bump();
            match word {
                ".align" => {
                    let bytes = self.count("an alignment")?;
                    match pointer.as_mut() {
                        Some(pointer) => pointer.align = bytes,
                        None => align = Some(bytes),
                    }
                }
                ".ptr" => pointer = Some(Pointer { space: None, align: 4 }),
                ".global" | ".const" | ".shared" | ".local" if pointer.is_some() => {
                    let space = Some(space(word).unwrap_or(Space::Global));
                    pointer = pointer.map(|p| Pointer { space, ..p });
                }
                _ => match Type::from_word(word.trim_start_matches('.')) {
                    Some(found) if ty.is_none() => ty = Some(found),
                    _ => {
                        return Err(
                            self.error(format!("`{word}` in a parameter: expected .align, a type or .ptr"))
                        );
                    }
                },
            }
        }
        let ty = ty.ok_or_else(|| self.expected("the type of a parameter"))?;
        let name = self.new_name("the name of a parameter")?.to_owned();
        let (mut len, mut array) = (1, false);
        if self.eat("[") {
            array = true;
            len = if self.is("]") { 0 } else { self.constant_integer("the length of a parameter")? };
            if len > PARAMETER {
                return Err(self.error(format!(
                    "parameter {name} of {len} elements; the most read here is {PARAMETER}"
                )));
            }
            self.expect("]")?;
        }
        Ok(Param { name, register, align: align.unwrap_or(ty.size()), ty, len, array, pointer })
    }
}

/// The state space of a directive.
pub(super) fn space(word: &str) -> Option<Space> {
    Some(match word {
        ".global" => Space::Global,
        ".const" => Space::Const,
        ".shared" => Space::Shared,
        ".local" => Space::Local,
        ".param" => Space::Param,
        _ => return None,
    })
}
