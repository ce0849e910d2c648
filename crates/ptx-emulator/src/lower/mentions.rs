//! Which registers a step reads and writes.
//!
//! Asked of the finished steps and not noted while they are made: an instruction's lowering then cannot forget it. What a list holds
//! only its instruction knows; one that does not say ([`Results::Unknown`]) is taken to read and write all of it, which is never wrong.

use super::operands::{CLASS_SHIFT, FIXED, VARIABLE};
use crate::exec::registers::Slot;
use crate::program::{Action, NONE, Results, Step};

/// A register: its class and its number within that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Register {
    pub(super) class: usize,
    pub(super) number: usize,
}

impl Register {
    /// The register that a slot names; `None` for constants, special registers and plain numbers.
    pub(super) fn of(slot: Slot) -> Option<Self> {
        let tagged = slot >> 30 == FIXED >> 30 && slot & VARIABLE != 0;
        let class = (slot >> CLASS_SHIFT & 3) as usize;
        (tagged && class < 3).then_some(Self { class, number: (slot & (VARIABLE - 1)) as usize })
    }
}

/// What a step does with a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mention {
    /// Reads it.
    Read,
    /// Writes it, in all lanes that get here.
    Write,
    /// Writes it, or not.
    Maybe,
}

/// Tells of each register of a step, reads first.
pub(super) fn of(step: &Step, slots: &[Slot], mut tell: impl FnMut(Register, Mention)) {
    let mut see = |slot: Slot, mention| {
        if let Some(register) = Register::of(slot) {
            tell(register, mention);
        }
    };
    let (start, len) = (step.list.0 as usize, step.list.1 as usize);
    let list = match step.action {
        Action::BranchIndexed => &[],
        _ => slots.get(start..start + len).unwrap_or_default(),
    };
    let (written, unknown) = match step.results {
        Results::Unknown => (0..0, true),
        Results::At(first, count) => (first as usize..(first + count) as usize, false),
    };
    see(step.guard, Mention::Read);
    for &slot in &step.src {
        see(slot, Mention::Read);
    }
    for (at, &slot) in list.iter().enumerate() {
        if !written.contains(&at) {
            see(slot, Mention::Read);
        }
    }
    let write = if step.guard == NONE { Mention::Write } else { Mention::Maybe };
    see(step.dst, write);
    see(step.dst2, write);
    for (at, &slot) in list.iter().enumerate() {
        if unknown {
            see(slot, Mention::Maybe);
        } else if written.contains(&at) {
            see(slot, write);
        }
    }
}

/// Whether all that a step reads is read before anything is written, so that a result may take the place of a source.
pub(super) fn reads_first(step: &Step) -> bool {
    matches!(step.action, Action::Alu(_)) && step.dst2 == NONE
}
