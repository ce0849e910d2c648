//! What names stand for.

use std::collections::HashMap;

use crate::exec::registers::Slot;
use crate::ptx::ast::{Space, Type};

/// What a name stands for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Named {
    /// A register.
    Register {
        /// Its type, or that of its elements.
        ty: Type,
        /// Its rows: one, one for each element of a vector, two for `.b128`.
        slots: Vec<Slot>,
        /// Elements.
        vector: u32,
    },
    /// A variable with an address in its space.
    Variable {
        /// Where it lives.
        space: Space,
        /// Its address there.
        address: u64,
    },
    /// Dynamic shared memory.
    Dynamic,
    /// A parameter of the kernel.
    Param {
        /// Byte offset in the parameter block.
        offset: u64,
    },
    /// A `.param` of a function or of a call: it lives in the frame, in local memory.
    Frame {
        /// Byte offset in local memory.
        offset: u64,
    },
}

impl Named {
    /// The state space an address of it belongs to.
    pub(super) fn space(&self) -> Option<Space> {
        match self {
            Self::Register { .. } => None,
            Self::Variable { space, .. } => Some(*space),
            Self::Dynamic => Some(Space::Shared),
            Self::Param { .. } => Some(Space::Param),
            Self::Frame { .. } => Some(Space::Local),
        }
    }
}

/// One level of names.
#[derive(Debug, Default)]
pub(crate) struct Scope<'a> {
    pub(super) names: HashMap<std::borrow::Cow<'a, str>, Named>,
    /// Labels, by number; steps learn their places in the end.
    pub(super) labels: HashMap<&'a str, u32>,
    /// `.branchtargets` lists.
    pub(super) targets: HashMap<&'a str, &'a [String]>,
    /// A function's body begins: labels are not looked for further out.
    pub(super) function: bool,
}
