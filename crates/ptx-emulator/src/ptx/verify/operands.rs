//! An instruction's operands against its pattern.

use super::super::ast::{Instruction, Operand, Space, Type, Variable};
use super::names::Found;
use super::{Checker, forms, types};

/// Types that no register has: an instruction with one of them says nothing about its operands' types here.
const FOREIGN: [&str; 5] = ["tf32", "e", "ue", "b6", "b4"];

/// Whether a modifier is such a type, `e4m3x2` for example.
fn foreign(modifier: &str) -> bool {
    let digit_after = |prefix: &str| {
        let rest = modifier.strip_prefix(prefix).unwrap_or("");
        rest.starts_with(|c: char| c.is_ascii_digit()) && rest.contains('m')
    };
    modifier == FOREIGN[0]
        || FOREIGN.iter().skip(1).any(|prefix| digit_after(prefix))
        || modifier.ends_with("x2") && modifier.starts_with(['s', 'u', 'f'])
        || modifier.contains('x') && modifier.starts_with('b') && modifier != "bf16x2"
}

/// The types in an opcode and the number of elements of its vectors.
#[derive(Clone, Copy, Debug)]
struct Shape {
    first: Type,
    last: Type,
    vector: usize,
}

fn shape(instruction: &Instruction) -> Option<Shape> {
    let mut found: Option<Shape> = None;
    let mut vector = 1;
    for modifier in &instruction.modifiers {
        match (modifier.as_str(), Type::from_word(modifier)) {
            ("v2", _) => vector = 2,
            ("v4", _) => vector = 4,
            ("v8", _) => vector = 8,
            // Registers of packed integers are plain ones.
            ("s16x2" | "u16x2", _) => {
                found = Some(Shape {
                    first: found.map_or(Type::U32, |shape| shape.first),
                    last: Type::U32,
                    vector,
                });
            }
            (_, Some(ty)) => {
                found = Some(Shape { first: found.map_or(ty, |shape| shape.first), last: ty, vector })
            }
            (word, None) if word != "f16x2" && word != "bf16x2" && foreign(word) => return None,
            _ => {}
        }
    }
    found.map(|shape| Shape { vector, ..shape })
}

impl Checker<'_, '_> {
    /// Checks number and kind of the operands.
    pub(super) fn operands(&self, instruction: &Instruction) -> Result<(), String> {
        let given = &instruction.operands;
        let known =
            matches!(instruction.opcode.as_str(), "mov" | "cvta") || forms::pattern(instruction).is_some();
        if known && !matches!(instruction.opcode.as_str(), "atom" | "setp") && given.contains(&Operand::Sink)
        {
            return Err(format!("{} cannot leave its result out", instruction.opcode));
        }
        match instruction.opcode.as_str() {
            "mov" => return self.mov(instruction),
            "cvta" => return self.cvta(instruction),
            _ => {}
        }
        if let ("cvt", [to, Operand::Name(name)]) = (instruction.opcode.as_str(), given.as_slice())
            && let Some(Found::Special(_)) = self.names.find(name)
        {
            let Some(shape) = shape(instruction) else { return Ok(()) };
            if !types::integer(shape.first) || !types::integer(shape.last) {
                return Err(format!("{name} can only be converted between integers"));
            }
            return self.value(to, shape.first, true, true);
        }
        let Some(pattern) = forms::pattern(instruction) else { return Ok(()) };
        let shape = shape(instruction);
        let words: Vec<&str> = pattern.split(' ').filter(|word| !word.is_empty()).collect();
        let needed = words.iter().filter(|word| !word.ends_with('?')).count();
        if given.len() < needed || given.len() > words.len() {
            let wanted = if needed == words.len() {
                needed.to_string()
            } else {
                format!("{needed} to {}", words.len())
            };
            return Err(format!("{} operands, {} takes {wanted}", given.len(), instruction.opcode));
        }
        for (index, (operand, word)) in given.iter().zip(words).enumerate() {
            let result = index == 0 && returns(instruction);
            self.matches(instruction, operand, word.trim_end_matches('?'), shape, result)?;
        }
        Ok(())
    }

    fn matches(
        &self,
        instruction: &Instruction,
        operand: &Operand,
        word: &str,
        shape: Option<Shape>,
        result: bool,
    ) -> Result<(), String> {
        if let Some(first) = word.strip_suffix("|P") {
            let Operand::Pair(value, predicate) = operand else {
                return self.matches(instruction, operand, first, shape, result);
            };
            self.matches(instruction, value, first, shape, result)?;
            return self.value(predicate, Type::Pred, false, result);
        }
        match word {
            "P" => return self.value(operand, Type::Pred, false, result),
            "32" => return self.value(operand, Type::U32, false, result),
            "64" => return self.value(operand, Type::U64, false, result),
            "A" => return self.address(instruction, operand, shape),
            "L" | "N" => return self.label(operand, word == "N"),
            _ => {}
        }
        let Some(shape) = shape else { return Ok(()) };
        let (ty, wide) = match word {
            "U" => (Some(shape.first), false),
            "u" => (Some(shape.first), true),
            "t" => (Some(shape.last), true),
            "W" => (types::doubled(shape.last), false),
            _ => (Some(shape.last), false),
        };
        let ty = ty.ok_or_else(|| format!("{} has no .wide of this type", instruction.opcode))?;
        let vectors = matches!(instruction.opcode.as_str(), "ld" | "st" | "ldu" | "atom" | "red");
        if shape.vector > 1 && vectors {
            return self.vector(operand, ty, wide, shape.vector, result);
        }
        self.value(operand, ty, wide, result)
    }

    fn vector(
        &self,
        operand: &Operand,
        ty: Type,
        wide: bool,
        count: usize,
        result: bool,
    ) -> Result<(), String> {
        match operand {
            Operand::Vector(elements) if elements.len() == count => {
                elements.iter().try_for_each(|element| self.value(element, ty, wide, result))
            }
            Operand::Vector(elements) => {
                Err(format!("a vector of {} where .v{count} takes {count}", elements.len()))
            }
            Operand::Name(name) => match self.names.find(name) {
                Some(Found::Register(register, elements))
                    if elements as usize == count && types::fits(register, ty, wide) =>
                {
                    Ok(())
                }
                _ => Err(format!("{name} is no vector of {count}")),
            },
            _ => Err(format!("expected a vector of {count}, found {operand}")),
        }
    }

    /// One register or constant of a type.
    fn value(&self, operand: &Operand, ty: Type, wide: bool, result: bool) -> Result<(), String> {
        let wrong = |what: &str| Err(format!("{operand} is {what}; expected {}", wanted(ty, wide)));
        if result && !matches!(operand, Operand::Name(_) | Operand::Sink | Operand::Vector(_)) {
            return Err(format!("the result goes to {operand}, which is no register"));
        }
        match operand {
            Operand::Name(name) => match self.names.find(name) {
                Some(Found::Register(register, 1)) if types::fits(register, ty, wide) => Ok(()),
                Some(Found::Register(register, 1)) => wrong(&format!("a .{} register", word(register))),
                Some(Found::Register(_, elements)) => wrong(&format!("a vector of {elements}")),
                Some(Found::Special(_)) if result => Err(format!("{name} cannot be written")),
                Some(Found::Special(_)) => {
                    Err(format!("{name} is a special register, which only mov and cvt read"))
                }
                Some(Found::Variable(_) | Found::Param(_) | Found::Function(_)) => wrong("an address"),
                Some(Found::Label | Found::Targets | Found::Prototype) => wrong("a label"),
                None => Ok(()),
            },
            Operand::Not(inner) if ty == Type::Pred => self.value(inner, ty, wide, result),
            Operand::Not(_) => wrong("negated, which only predicates can be"),
            Operand::Negative(_) => wrong("negated; neg does that"),
            Operand::Integer(_) if types::takes_integer(ty) => Ok(()),
            Operand::Float32(_) if types::takes_float(ty, true) => Ok(()),
            Operand::Float64(_) if types::takes_float(ty, false) => Ok(()),
            Operand::Integer(_) => wrong("an integer"),
            Operand::Float32(_) | Operand::Float64(_) => wrong("a floating-point constant"),
            Operand::Sink if result => Ok(()),
            Operand::Sink => Err("`_` stands for a result that is not wanted".to_owned()),
            Operand::NameOffset(..) => wrong("an address"),
            Operand::Address { .. } => wrong("memory"),
            Operand::Vector(_) | Operand::List(_) => wrong("a list"),
            Operand::Pair(..) => wrong("a pair"),
        }
    }

    fn label(&self, operand: &Operand, list: bool) -> Result<(), String> {
        let what = if list { "a list of .branchtargets" } else { "a label of this function" };
        let Operand::Name(name) = operand else { return Err(format!("expected {what}, found {operand}")) };
        match self.names.find(name) {
            Some(Found::Label) if !list => Ok(()),
            Some(Found::Targets) if list => Ok(()),
            _ => Err(format!("{name} is not {what}")),
        }
    }

    /// `[…]` of a load, a store or an atomic: the base can be an address, and a parameter is not read past its end.
    fn address(
        &self,
        instruction: &Instruction,
        operand: &Operand,
        shape: Option<Shape>,
    ) -> Result<(), String> {
        let Operand::Address { base, offset, .. } = operand else {
            return Err(format!("expected an address in brackets, found {operand}"));
        };
        let space = instruction
            .modifiers
            .iter()
            .map(|m| m.split("::").next().unwrap_or(""))
            .find(|m| ["global", "shared", "local", "const", "param"].contains(m));
        let Operand::Name(name) = &**base else { return Ok(()) };
        let size = shape.map_or(0, |shape| shape.last.size() * shape.vector as u64);
        match self.names.find(name) {
            Some(Found::Register(ty, 1)) => {
                let short = matches!(space, Some("shared" | "local" | "const" | "param"));
                let fine = types::fits(ty, Type::U64, false) || (short && types::fits(ty, Type::U32, false));
                if fine {
                    Ok(())
                } else {
                    Err(format!("{name} is a .{} register and no address of 64 bits", word(ty)))
                }
            }
            Some(Found::Variable(variable)) => {
                within(space, variable.space, name).and_then(|()| bounds(variable, *offset, size))
            }
            Some(Found::Param(param)) => {
                within(space, Space::Param, name)?;
                let bytes = param.ty.size().saturating_mul(param.len);
                inside(name, *offset, size, (param.len > 0).then_some(bytes))
            }
            Some(Found::Function(_) | Found::Special(_)) | None => Ok(()),
            Some(_) => Err(format!("{name} is no address")),
        }
    }

    /// `mov` also takes addresses and packs and unpacks vectors.
    fn mov(&self, instruction: &Instruction) -> Result<(), String> {
        let ([to, from], Some(shape)) = (instruction.operands.as_slice(), shape(instruction)) else {
            return if instruction.operands.len() == 2 {
                Ok(())
            } else {
                Err("mov takes 2 operands".to_owned())
            };
        };
        for (operand, result) in [(to, true), (from, false)] {
            match operand {
                Operand::Vector(elements) => {
                    let bytes = shape.last.size();
                    if types::bits(bytes) != Some(shape.last) {
                        return Err(format!(
                            "a vector needs mov.b{} and not mov.{}",
                            bytes * 8,
                            word(shape.last)
                        ));
                    }
                    let part = types::bits(bytes / (elements.len() as u64).max(1));
                    let Some(part) =
                        part.filter(|p| p.size() * elements.len() as u64 == bytes && elements.len() > 1)
                    else {
                        return Err(format!(
                            "{} elements do not make the {bytes} bytes of mov.{}",
                            elements.len(),
                            word(shape.last)
                        ));
                    };
                    elements.iter().try_for_each(|element| self.value(element, part, false, result))?;
                }
                Operand::Name(name) if !result => match self.names.find(name) {
                    Some(Found::Variable(_) | Found::Param(_) | Found::Function(_) | Found::Label) => {
                        pointer(shape.last)?
                    }
                    Some(Found::Register(register, elements)) if elements > 1 => {
                        let same = self.whole(to).is_some_and(|other| other == (register, elements));
                        if !same && shape.last.size() != register.size() * u64::from(elements) {
                            return Err(format!("{name} is a vector of {elements}"));
                        }
                    }
                    // A special register fits one type of its width; `ptxas` takes `%tid.x` for 16 bits as well.
                    Some(Found::Special(own)) if own.size() == 8 || shape.last.size() == 8 => {
                        if own.size() != shape.last.size() {
                            return Err(format!("{name} is a .{} register", word(own)));
                        }
                    }
                    Some(Found::Special(_)) => {}
                    _ => self.value(operand, shape.last, false, result)?,
                },
                Operand::NameOffset(..) if !result => pointer(shape.last)?,
                _ if result && self.whole(operand).is_some_and(|(_, elements)| elements > 1) => {}
                _ => self.value(operand, shape.last, false, result)?,
            }
        }
        Ok(())
    }

    /// The register an operand is, with the number of its elements.
    fn whole(&self, operand: &Operand) -> Option<(Type, u32)> {
        let Operand::Name(name) = operand else { return None };
        match self.names.find(name)? {
            Found::Register(ty, elements) => Some((ty, elements)),
            _ => None,
        }
    }

    fn cvta(&self, instruction: &Instruction) -> Result<(), String> {
        let ([to, from], Some(shape)) = (instruction.operands.as_slice(), shape(instruction)) else {
            return Err("cvta takes 2 operands and a type".to_owned());
        };
        let words = instruction.modifiers.iter().filter(|m| *m != "to").count();
        if shape.last != Type::U64 || words != 2 {
            return Err("cvta takes one space and .u64".to_owned());
        }
        self.value(to, shape.last, false, true)?;
        match from {
            _ if instruction.modifiers.iter().any(|m| m == "to") => {
                self.value(from, shape.last, false, false)
            }
            Operand::NameOffset(..) => Ok(()),
            Operand::Name(name)
                if matches!(self.names.find(name), Some(Found::Variable(_) | Found::Param(_))) =>
            {
                Ok(())
            }
            _ => self.value(from, shape.last, false, false),
        }
    }
}

/// Whether the first operand is a result.
fn returns(instruction: &Instruction) -> bool {
    match instruction.opcode.as_str() {
        "st" | "red" | "bra" | "brx" | "nanosleep" => false,
        "bar" | "barrier" => instruction.modifiers.iter().any(|m| m == "red"),
        _ => true,
    }
}

/// An address goes into 64 bits, or 32 where it is one of shared memory.
fn pointer(ty: Type) -> Result<(), String> {
    let fine = types::takes_integer(ty) && ty != Type::Pred && ty.size() >= 4;
    if fine { Ok(()) } else { Err(format!("an address does not go into .{}", word(ty))) }
}

fn wanted(ty: Type, wide: bool) -> String {
    format!("a .{} register{}", word(ty), if wide { " or a wider one of its kind" } else { "" })
}

/// The type as PTX writes it.
pub(super) fn word(ty: Type) -> String {
    format!("{ty:?}").to_ascii_lowercase()
}

/// A variable is reached through its own space or a generic address.
fn within(given: Option<&str>, space: Space, name: &str) -> Result<(), String> {
    let own = match space {
        Space::Global => "global",
        Space::Const => "const",
        Space::Shared => "shared",
        Space::Local => "local",
        Space::Param => "param",
    };
    match given {
        Some(given) if given != own => Err(format!("{name} is in .{own} and not in .{given}")),
        _ => Ok(()),
    }
}

fn bounds(variable: &Variable, offset: i64, size: u64) -> Result<(), String> {
    // What lies beyond a variable of memory is the checker's business at run time; parameters of calls have no addresses.
    if variable.space != Space::Param {
        return Ok(());
    }
    inside(&variable.name, offset, size, variable.len.map(|len| len.saturating_mul(variable.ty.size())))
}

fn inside(name: &str, offset: i64, size: u64, bytes: Option<u64>) -> Result<(), String> {
    let end = u64::try_from(offset).ok().and_then(|offset| offset.checked_add(size));
    match (end, bytes) {
        (_, None) => Ok(()),
        (Some(end), Some(bytes)) if end <= bytes => Ok(()),
        (_, Some(bytes)) => Err(format!("{size} bytes at {offset} reach out of {name}, which has {bytes}")),
    }
}
