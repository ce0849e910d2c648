//! Operands to rows.

use std::collections::HashMap;

use crate::exec::registers::{Class, Slot};
use crate::program::{NONE, Step};
use crate::ptx::ast::{Operand, Space, Type};

/// What a name stands for.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Named {
    /// A register; a vector register has several rows, `.b128` two long ones.
    Register { ty: Type, slots: Vec<Slot> },
    /// A variable: its space and its address there.
    Variable { space: Space, address: u64 },
    /// A `.param` that is held in registers' stead: offset in the caller's frame of parameters.
    Param { offset: u64 },
}

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
}

/// The rows of the kernel being lowered, and the scope that names are looked up in.
#[derive(Debug, Default)]
pub(crate) struct Operands<'a> {
    pub(super) scopes: Vec<HashMap<&'a str, Named>>,
    pub(super) rows: [u32; 3],
    pub(super) constants: HashMap<(Class, u64), Slot>,
    pub(super) steps: Vec<Step>,
    pub(super) slots: Vec<Slot>,
    /// Compute capability asked for by the module's target.
    pub(crate) target: u32,
}

impl Class {
    fn index(self) -> usize {
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
        *next - 1
    }

    /// A row that holds a constant in all lanes.
    pub(crate) fn constant(&mut self, class: Class, value: u64) -> Slot {
        if let Some(slot) = self.constants.get(&(class, value)) {
            return *slot;
        }
        let slot = self.fresh(class);
        self.constants.insert((class, value), slot);
        slot
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

    /// A source of the class given.
    pub(crate) fn source(&mut self, operand: &Operand, class: Class) -> Result<Slot, String> {
        let _ = (operand, class);
        Err("not yet".into())
    }

    /// A destination of the class given; `_` gives [`NONE`].
    pub(crate) fn destination(&mut self, operand: &Operand, class: Class) -> Result<Slot, String> {
        let _ = class;
        match operand {
            Operand::Sink => Ok(NONE),
            _ => Err("not yet".into()),
        }
    }

    /// The class of the register that an operand names; `None` for anything else.
    pub(crate) fn class(&self, operand: &Operand) -> Option<Class> {
        let _ = operand;
        None
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
        let _ = operand;
        Err("not yet".into())
    }
}
