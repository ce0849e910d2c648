//! Operands to rows.
//!
//! While a kernel is lowered, every row has a number above [`FIXED`] that tells its class, so that it can be told from any other number in
//! a list. In the end variables that are never in use at the same time share rows, and those that never change (constants, special
//! registers) stand behind them, so that a block that begins can zero its variables in one sweep.

use std::collections::HashMap;

use super::names::{Named, Scope};
use crate::exec::registers::{Class, Slot};
use crate::exec::specials::{self, Special};
use crate::program::{Action, NONE, Step};
use crate::ptx::ast::{Operand, Space, Type};

/// Numbers of rows begin here until the kernel is complete.
pub(super) const FIXED: Slot = 1 << 30;
/// Where the class of a row stands in its number.
pub(super) const CLASS_SHIFT: u32 = 28;
/// Set in the number of a variable.
pub(super) const VARIABLE: Slot = 1 << 27;

/// An address operand: base row and offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    /// Row of the base.
    pub(crate) base: Slot,
    /// The base is 64 bits wide (else 32).
    pub(crate) wide: bool,
    /// Bytes added to it.
    pub(crate) offset: i64,
    /// The space of the variable that was named, if one was.
    pub(crate) space: Option<Space>,
    /// The address is the same in all lanes.
    pub(crate) uniform: bool,
}

/// What a fixed row holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Fixed {
    /// A constant.
    Constant(u64),
    /// The address of dynamic shared memory, and this.
    Dynamic(u64),
    /// A special register.
    Special(Special),
}

/// The rows of the kernel being lowered, and the scope that names are looked up in.
pub(crate) struct Operands<'a> {
    pub(super) scopes: Vec<Scope<'a>>,
    /// Variables of the module: looked up when a name is in no scope.
    pub(super) globals: &'a dyn Fn(&str) -> Option<Named>,
    pub(super) rows: [u32; 3],
    pub(super) fixed: HashMap<(Class, Fixed), Slot>,
    pub(super) fixed_rows: [u32; 3],
    pub(super) steps: Vec<Step>,
    pub(super) slots: Vec<Slot>,
    /// Bytes of the narrowest access to shared memory so far.
    pub(crate) granule: u32,
    /// The kernel has fences, or accesses with an order.
    pub(crate) fences: bool,
}

impl std::fmt::Debug for Operands<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Operands")
            .field("rows", &self.rows)
            .field("steps", &self.steps.len())
            .finish_non_exhaustive()
    }
}

impl Class {
    pub(super) fn index(self) -> usize {
        match self {
            Self::Word => 0,
            Self::Long => 1,
            Self::Pred => 2,
        }
    }

    /// The class of registers of a type.
    pub(crate) fn of(ty: Type) -> Self {
        match ty {
            Type::Pred => Self::Pred,
            Type::B64 | Type::U64 | Type::S64 | Type::F64 | Type::B128 => Self::Long,
            _ => Self::Word,
        }
    }
}

impl Operands<'_> {
    /// A fresh row.
    pub(crate) fn fresh(&mut self, class: Class) -> Slot {
        let next = &mut self.rows[class.index()];
        *next += 1;
        FIXED | (class.index() as Slot) << CLASS_SHIFT | VARIABLE | (*next - 1)
    }

    pub(super) fn fixed(&mut self, class: Class, what: Fixed) -> Slot {
        let next = &mut self.fixed_rows[class.index()];
        *self.fixed.entry((class, what)).or_insert_with(|| {
            *next += 1;
            FIXED | (class.index() as Slot) << CLASS_SHIFT | (*next - 1)
        })
    }

    /// A row that holds a constant in all lanes.
    pub(crate) fn constant(&mut self, class: Class, value: u64) -> Slot {
        let value = match class {
            Class::Word => value & 0xffff_ffff,
            Class::Long => value,
            Class::Pred => u64::from(value != 0),
        };
        self.fixed(class, Fixed::Constant(value))
    }

    /// Puts a step before the one being lowered; it gets the same guard and place.
    pub(crate) fn emit(&mut self, step: Step) {
        self.steps.push(step);
    }

    /// Keeps a list of rows; goes into [`Step::list`].
    pub(crate) fn list(&mut self, slots: &[Slot]) -> (u32, u32) {
        let start = self.slots.len() as u32;
        self.slots.extend_from_slice(slots);
        (start, slots.len() as u32)
    }

    /// Notes an access to shared memory of this many bytes: races are looked for at the narrowest width.
    pub(crate) fn shared_access(&mut self, bytes: u32) {
        self.granule = self.granule.min(bytes);
    }

    /// A source of 8 to 32 bits: register, special register or constant.
    pub(crate) fn word(&mut self, operand: &Operand) -> Result<Slot, String> {
        self.source(operand, Class::Word)
    }

    /// A source of 64 bits.
    pub(crate) fn long(&mut self, operand: &Operand) -> Result<Slot, String> {
        self.source(operand, Class::Long)
    }

    /// A predicate source, and whether it is negated (for `Step::flags`).
    pub(crate) fn pred(&mut self, operand: &Operand) -> Result<(Slot, bool), String> {
        match operand {
            Operand::Not(inner) => Ok((self.source(inner, Class::Pred)?, true)),
            other => Ok((self.source(other, Class::Pred)?, false)),
        }
    }

    /// What a name stands for.
    pub(super) fn named(&self, name: &str) -> Option<Named> {
        let found = self.scopes.iter().rev().find_map(|scope| scope.names.get(name).cloned());
        found.or_else(|| {
            let (base, part) = name.rsplit_once('.')?;
            let index = match part {
                "x" | "r" => 0,
                "y" | "g" => 1,
                "z" | "b" => 2,
                "w" | "a" => 3,
                _ => return None,
            };
            match self.scopes.iter().rev().find_map(|scope| scope.names.get(base))? {
                Named::Register { ty, slots, vector } if *vector > 1 => {
                    let slot = *slots.get(index)?;
                    Some(Named::Register { ty: *ty, slots: vec![slot], vector: 1 })
                }
                _ => None,
            }
        })
    }

    /// A source of the class given. A register of another class is an error: `ld`, `st` and `cvt`, which take wider ones, ask for
    /// [`Operands::class`] first.
    pub(crate) fn source(&mut self, operand: &Operand, class: Class) -> Result<Slot, String> {
        match operand {
            Operand::Name(name) => self.named_source(name, 0, class),
            Operand::NameOffset(name, offset) => self.named_source(name, *offset, class),
            Operand::Integer(value) => Ok(self.constant(class, *value)),
            Operand::Float32(bits) => Ok(match class {
                Class::Long => self.constant(class, f64::from(f32::from_bits(*bits)).to_bits()),
                _ => self.constant(class, u64::from(*bits)),
            }),
            Operand::Float64(bits) => Ok(match class {
                Class::Word => self.constant(class, u64::from((f64::from_bits(*bits) as f32).to_bits())),
                _ => self.constant(class, *bits),
            }),
            other => Err(format!("{other:?} where a register or a constant is expected")),
        }
    }

    fn named_source(&mut self, name: &str, offset: i64, class: Class) -> Result<Slot, String> {
        if let Some(named) = self.named(name) {
            return match named {
                Named::Register { ty, slots, .. } if offset == 0 => {
                    match (Class::of(ty) == class, &slots[..]) {
                        (true, [slot]) => Ok(*slot),
                        (true, _) => {
                            Err(format!("{name} is a vector or has 128 bits, where one value is expected"))
                        }
                        (false, _) => Err(format!("{name} has the type {ty:?}, where {class:?} is expected")),
                    }
                }
                Named::Register { .. } => Err(format!("{name}: an offset can only be added inside brackets")),
                other => Ok(self.address_row(&other, offset, class)),
            };
        }
        if name == "WARP_SZ" {
            return Ok(self.constant(class, 32));
        }
        if let Some((special, of, imm)) = specials::lookup(name) {
            return self.special(name, special, of, imm, class);
        }
        if let Some(named) = (self.globals)(name) {
            return Ok(self.address_row(&named, offset, class));
        }
        Err(format!("{name} is not declared (or is a name of the linker that nothing defines)"))
    }

    /// The address of a variable as a fixed row.
    fn address_row(&mut self, named: &Named, offset: i64, class: Class) -> Slot {
        let add = |base: u64| base.wrapping_add_signed(offset);
        match *named {
            Named::Variable { address, .. } => self.constant(class, add(address)),
            Named::Dynamic => self.fixed(class, Fixed::Dynamic(add(0))),
            // Generic from the start, since nothing else distinguishes a kernel's parameters from a function's.
            Named::Param { offset: at } => self.constant(class, add(crate::exec::PARAM_WINDOW + at)),
            Named::Frame { offset: at } => self.constant(class, add(crate::exec::LOCAL_WINDOW + at)),
            Named::Register { .. } => NONE,
        }
    }

    fn special(
        &mut self,
        name: &str,
        special: Special,
        of: Class,
        imm: i64,
        class: Class,
    ) -> Result<Slot, String> {
        let row = if special == Special::Clock {
            let row = self.fresh(of);
            let read = Step { dst: row, imm, ..Step::new(Action::Exec(specials::read_clock)) };
            self.emit(read);
            row
        } else {
            self.fixed(of, Fixed::Special(special))
        };
        if of == class {
            return Ok(row);
        }
        if of == Class::Word && class == Class::Long {
            let wide = self.fresh(Class::Long);
            self.emit(Step {
                dst: wide,
                src: [row, NONE, NONE, NONE],
                ..Step::new(Action::Alu(super::alu::widen))
            });
            return Ok(wide);
        }
        if of == Class::Long && class == Class::Word {
            let low = self.fresh(Class::Word);
            self.emit(Step {
                dst: low,
                src: [row, NONE, NONE, NONE],
                ..Step::new(Action::Alu(super::alu::narrow))
            });
            return Ok(low);
        }
        Err(format!("{name} is no {class:?}"))
    }

    /// A destination of the class given; `_` gives [`NONE`].
    pub(crate) fn destination(&mut self, operand: &Operand, class: Class) -> Result<Slot, String> {
        match operand {
            Operand::Sink => Ok(NONE),
            Operand::Name(name) if name == "_" => Ok(NONE),
            Operand::Name(name) => match self.named(name) {
                Some(Named::Register { ty, slots, .. }) if Class::of(ty) == class => match slots[..] {
                    [slot] => Ok(slot),
                    _ => Err(format!("{name} is a vector or has 128 bits, where one value is expected")),
                },
                Some(Named::Register { ty, .. }) => {
                    Err(format!("{name} has the type {ty:?}, where {class:?} is expected"))
                }
                _ => Err(format!("{name} is no register")),
            },
            other => Err(format!("{other:?} where a register is expected")),
        }
    }

    /// The rows of a register or of a vector of them, and their class; several rows for `{a, b}`, `.v2`, `.b128`.
    pub(crate) fn rows_of(&self, operand: &Operand) -> Option<(Class, Vec<Slot>)> {
        match operand {
            Operand::Name(name) => match self.named(name)? {
                Named::Register { ty, slots, .. } => Some((Class::of(ty), slots)),
                _ => None,
            },
            _ => None,
        }
    }

    /// The class of the register that an operand names; `None` for anything else.
    pub(crate) fn class(&self, operand: &Operand) -> Option<Class> {
        match operand {
            Operand::Name(name) => match self.named(name) {
                Some(Named::Register { ty, .. }) => Some(Class::of(ty)),
                Some(_) => None,
                None => specials::lookup(name).map(|(_, class, _)| class),
            },
            Operand::Not(inner) | Operand::Negative(inner) => self.class(inner),
            _ => None,
        }
    }

    /// An integer constant.
    pub(crate) fn integer(&self, operand: &Operand) -> Option<u64> {
        match operand {
            Operand::Integer(value) => Some(*value),
            Operand::Name(name) if name == "WARP_SZ" => Some(32),
            _ => None,
        }
    }

    /// The elements of `{…}`; a single operand is a list of one.
    pub(crate) fn vector<'o>(&self, operand: &'o Operand) -> &'o [Operand] {
        match operand {
            Operand::Vector(elements) => elements,
            one => std::slice::from_ref(one),
        }
    }

    /// An address in brackets.
    pub(crate) fn address(&mut self, operand: &Operand) -> Result<Address, String> {
        let Operand::Address { base, offset, extra } = operand else {
            return Err(format!("{operand:?} where an address in brackets is expected"));
        };
        if !extra.is_empty() {
            return Err("an address with coordinates (tensors, textures) is not supported".into());
        }
        let (name, more) = match &**base {
            Operand::Name(name) => (name, 0),
            Operand::NameOffset(name, more) => (name, *more),
            Operand::Integer(value) => {
                let base = self.constant(Class::Long, *value);
                return Ok(Address { base, wide: true, offset: *offset, space: None, uniform: true });
            }
            other => return Err(format!("{other:?} is no base of an address")),
        };
        let offset = offset.wrapping_add(more);
        match self.named(name) {
            Some(Named::Register { ty, slots, .. }) => match (Class::of(ty), &slots[..]) {
                (Class::Word, [base]) => {
                    Ok(Address { base: *base, wide: false, offset, space: None, uniform: false })
                }
                (Class::Long, [base]) => {
                    Ok(Address { base: *base, wide: true, offset, space: None, uniform: false })
                }
                _ => Err(format!("{name} cannot be an address")),
            },
            Some(named) => {
                let base = self.address_row(&named, 0, Class::Long);
                Ok(Address { base, wide: true, offset, space: named.space(), uniform: true })
            }
            None => match (self.globals)(name) {
                Some(named) => {
                    let base = self.address_row(&named, 0, Class::Long);
                    Ok(Address { base, wide: true, offset, space: named.space(), uniform: true })
                }
                None => {
                    Err(format!("{name} is not declared (or is a name of the linker that nothing defines)"))
                }
            },
        }
    }
}
