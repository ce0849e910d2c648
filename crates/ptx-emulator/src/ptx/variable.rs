//! Variables and what they are initialised with.
//!
//! An initialiser becomes bytes at once and the addresses in it a list of places to fill in later: what type the values were
//! written in matters to nobody after this.

use super::Error;
use super::ast::{Linkage, Relocation, Space, Type, Variable};
use super::cursor::Cursor;
use super::expression::Value;
use super::function::space;

/// Zeroes written between the rows of a module's initialisers: a small text must not fill the memory.
const PADDING: u64 = 64 << 20;

/// What has been read of an initialiser.
struct Initialiser<'v> {
    ty: Type,
    /// Elements of one item at each level of braces, outermost first; a `.v4` is a level of its own.
    strides: &'v [u64],
    bytes: Vec<u8>,
    relocations: Vec<Relocation>,
}

impl Cursor<'_> {
    /// Linkage, if any stands here.
    pub(super) fn linkage(&mut self) -> Linkage {
        let linkage = match self.directive() {
            Some(".visible") => Linkage::Visible,
            Some(".extern") => Linkage::Extern,
            Some(".weak") => Linkage::Weak,
            Some(".common") => Linkage::Common,
            _ => return Linkage::Internal,
        };
        self.bump();
        linkage
    }

    /// `.extern .shared .align 16 .b8 a[], b[4];` with its linkage.
    pub(super) fn variables(&mut self) -> Result<Vec<Variable>, Error> {
        let linkage = self.linkage();
        self.variables_of(linkage)
    }

    /// The same, linkage taken.
    pub(super) fn variables_of(&mut self, linkage: Linkage) -> Result<Vec<Variable>, Error> {
        let line = self.line();
        let Some(space) = self.directive().and_then(space) else {
            return Err(self.expected(
                "a directive that is known here (.reg, .global, .const, .shared, .local, .param …)",
            ));
        };
        self.bump();
        let (mut align, mut ty, mut vector, mut managed) = (None, None, 1, false);
        while let Some(word) = self.directive() {
            match (word, Type::from_word(word.trim_start_matches('.'))) {
                (".attribute", _) => {
                    managed |= self.attribute()?;
                    continue;
                }
                (".align", _) => {
                    self.bump();
                    align = Some(self.count("an alignment")?);
                    continue;
                }
                (".v2", _) => vector = 2,
                (".v4", _) => vector = 4,
                (".v8", _) => vector = 8,
                (".texref" | ".samplerref" | ".surfref", _) => {
                    return Err(
                        self.error("textures and surfaces are not known here; read through pointers instead")
                    );
                }
                (_, Some(found)) if ty.is_none() && found != Type::Pred => ty = Some(found),
                _ => return Err(self.expected("the type of a variable, .align, .v2, .v4 or .attribute")),
            }
            self.bump();
        }
        let ty = ty.ok_or_else(|| self.expected("the type of a variable"))?;
        let align = align.unwrap_or_else(|| ty.size().saturating_mul(vector));
        let mut variables = Vec::new();
        loop {
            let name = self.new_name("the name of a variable")?.to_owned();
            let mut variable = Variable {
                name,
                space,
                linkage,
                align,
                ty,
                len: Some(1),
                init: Vec::new(),
                relocations: Vec::new(),
                managed,
                line,
            };
            self.shape(&mut variable, vector)?;
            variables.push(variable);
            if self.eat(";") {
                return Ok(variables);
            }
            if !self.eat(",") {
                return Err(self.expected("`,`, `=` or `;` after the name of a variable"));
            }
        }
    }

    /// Dimensions and initialiser.
    fn shape(&mut self, variable: &mut Variable, vector: u64) -> Result<(), Error> {
        let line = self.line();
        let mut dimensions: Vec<Option<u64>> = Vec::new();
        while self.eat("[") {
            let open = dimensions.is_empty() && self.is("]");
            dimensions.push(if open { None } else { Some(self.constant_integer("the length of an array")?) });
            self.expect("]")?;
        }
        if vector > 1 {
            dimensions.push(Some(vector));
        }
        let large = || self.error_at(line, format!("{} has 2^64 bytes or more", variable.name));
        // Elements below each level of braces, innermost last.
        let mut strides = vec![1; dimensions.len()];
        let mut below = 1_u64;
        for (stride, dimension) in strides.iter_mut().zip(&dimensions).rev() {
            *stride = below;
            below = below.checked_mul(dimension.unwrap_or(1)).ok_or_else(large)?;
        }
        below.checked_mul(variable.ty.size()).ok_or_else(large)?;
        variable.len = if dimensions.first() == Some(&None) { None } else { Some(below) };
        if !self.eat("=") {
            return Ok(());
        }
        if !matches!(variable.space, Space::Global | Space::Const) {
            return Err(self.error("only .global and .const variables can be initialised"));
        }
        let mut init =
            Initialiser { ty: variable.ty, strides: &strides, bytes: Vec::new(), relocations: Vec::new() };
        let limit = variable.len;
        self.initialiser(&mut init, 0, limit)?;
        if variable.len.is_none() {
            let elements = (init.bytes.len() as u64).div_ceil(variable.ty.size());
            variable.len = Some(elements.next_multiple_of(strides.first().copied().unwrap_or(1).max(1)));
        }
        (variable.init, variable.relocations) = (init.bytes, init.relocations);
        Ok(())
    }

    /// `{…}` of level `level`, or one value; `room` elements at most.
    fn initialiser(
        &mut self,
        init: &mut Initialiser<'_>,
        level: usize,
        room: Option<u64>,
    ) -> Result<(), Error> {
        if !self.eat("{") {
            if room == Some(0) {
                return Err(self.error("more values than the variable has elements"));
            }
            return self.value(init);
        }
        self.enter()?;
        let Some(&stride) = init.strides.get(level) else {
            return Err(self.error("more braces than the variable has dimensions"));
        };
        let size = init.ty.size();
        let start = init.bytes.len() as u64;
        // With braces each item begins a row of its own; without, values follow one another.
        while !self.is("}") {
            let used = (init.bytes.len() as u64 - start) / size;
            let braced = self.is("{");
            if braced {
                let begin = used.checked_next_multiple_of(stride.max(1)).and_then(|e| e.checked_mul(size));
                let begin = begin.ok_or_else(|| self.error("more values than the variable has elements"))?;
                self.pad(init, start + begin)?;
            }
            let used = (init.bytes.len() as u64 - start) / size;
            if room.is_some_and(|room| used >= room) {
                return Err(self.error("more values than the variable has elements"));
            }
            let left = room.map(|room| room - used);
            self.initialiser(
                init,
                level + 1,
                if braced { Some(left.unwrap_or(stride).min(stride)) } else { left },
            )?;
            if !self.eat(",") {
                break;
            }
        }
        self.leave();
        self.expect("}")
    }

    fn pad(&mut self, init: &mut Initialiser<'_>, to: u64) -> Result<(), Error> {
        let missing = to.saturating_sub(init.bytes.len() as u64);
        self.padding = self.padding.saturating_add(missing);
        if self.padding > PADDING {
            return Err(
                self.error(format!("initialisers with more than {PADDING} bytes left out of their rows"))
            );
        }
        let to = usize::try_from(to).map_err(|_| self.error("an initialiser larger than memory"))?;
        init.bytes.resize(to.max(init.bytes.len()), 0);
        Ok(())
    }

    fn value(&mut self, init: &mut Initialiser<'_>) -> Result<(), Error> {
        let size = init.ty.size();
        let at = init.bytes.len() as u64;
        let mut shift = 0;
        let mut masked = false;
        if self.at_constant() || self.is("(") || self.is("!") {
            let line = self.line();
            let value = self.constant()?;
            masked = self.eat("(");
            if !masked {
                return encode(init, value).map_err(|message| self.error_at(line, message));
            }
            // `0xFF00(symbol)`: the second byte of its address.
            shift = selected(value, size).ok_or_else(|| {
                self.error_at(
                    line,
                    "the mask of an address must select one element of it, such as 0xFF00 for .b8",
                )
            })?;
        }
        let generic = self.is_word("generic") && self.then("(");
        if generic {
            self.bump();
            self.expect("(")?;
        }
        let symbol = self.name("a constant or the name of a variable")?.to_owned();
        let mut addend = self.offset()?;
        if generic {
            self.expect(")")?;
            addend = addend.wrapping_add(self.offset()?);
        }
        if masked {
            self.expect(")")?;
        }
        let size = u32::try_from(size).unwrap_or(8).min(8);
        init.relocations.push(Relocation { at, size, shift, symbol, addend, generic });
        init.bytes.resize(init.bytes.len() + size as usize, 0);
        Ok(())
    }
}

/// The shift that brings the element which `mask` selects down to bit 0.
fn selected(mask: Value, size: u64) -> Option<u32> {
    let bits = u32::try_from(size * 8).ok().filter(|&bits| bits <= 64)?;
    let mask = mask.integer().filter(|&mask| mask != 0)?;
    let shift = mask.trailing_zeros();
    (shift % bits == 0 && mask >> shift == u64::MAX >> (64 - bits)).then_some(shift)
}

/// Appends a constant as the variable's type has it.
#[allow(clippy::cast_possible_truncation)] // Values are cut to the type, as a compiler's output means it.
fn encode(init: &mut Initialiser<'_>, value: Value) -> Result<(), String> {
    let bits = match (init.ty, value) {
        (Type::F32, Value::Single(bits)) => u64::from(bits),
        (Type::F32, value) => u64::from((value.double() as f32).to_bits()),
        (Type::F64, value) => value.double().to_bits(),
        (_, value) => value
            .integer()
            .ok_or_else(|| "a floating-point value for a variable of another type".to_owned())?,
    };
    let size = init.ty.size() as usize;
    // A `.b128` holds what an integer can give it in its low half.
    init.bytes.extend(u128::from(bits).to_le_bytes().iter().take(size));
    Ok(())
}
