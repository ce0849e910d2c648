//! Copies of registers that are never needed: whoever reads the copy reads what was copied.
//!
//! PTX is full of them, since a float's bits are moved to another register to be shuffled or shifted. Both registers must be written in
//! one place each and never be read before: the original then still holds what the copy would, wherever the copy is read. Constants and
//! special registers always do.

use std::collections::HashMap;

use super::live::Live;
use super::mentions::{self, Mention, Register};
use crate::exec::registers::Slot;
use crate::program::{Action, NONE, Step};

/// What is read instead of each copy.
#[derive(Debug, Default)]
struct Instead(HashMap<Slot, Slot>);

impl Instead {
    /// What `slot` is a copy of in the end, or itself. The path is shortened, since copies are copied in any order.
    fn of(&mut self, slot: Slot) -> Slot {
        let mut end = slot;
        while let Some(&next) = self.0.get(&end) {
            end = next;
        }
        let mut at = slot;
        while let Some(next) = self.0.get_mut(&at) {
            at = std::mem::replace(next, end);
        }
        end
    }

    /// Notes a copy; false if it would be one of itself, as can be in code that is never reached.
    fn insert(&mut self, copy: Slot, from: Slot) -> bool {
        let from = self.of(from);
        from != copy && self.0.insert(copy, from).is_none()
    }
}

/// Takes out copies; steps get new numbers.
pub(super) fn propagate(steps: &mut Vec<Step>, slots: &mut [Slot], live: &Live) {
    let mut writes = vec![0u8; live.registers];
    let mut reads = vec![false; live.registers];
    for step in steps.iter() {
        mentions::of(step, slots, |register, mention| {
            let index = live.index(register);
            match mention {
                Mention::Read => reads[index] = true,
                Mention::Write | Mention::Maybe => writes[index] = writes[index].saturating_add(1),
            }
        });
    }
    let at_entry = live.at_entry();
    let once = |slot: Slot| match Register::of(slot) {
        Some(register) => writes[live.index(register)] == 1 && !at_entry[live.index(register)],
        None => slot != NONE,
    };
    let mut instead = Instead::default();
    let mut kept = Vec::with_capacity(steps.len());
    for step in steps.iter() {
        let [from, ..] = step.src;
        let may_go = step.moves && step.guard == NONE && Register::of(step.dst).is_some();
        kept.push(!(may_go && once(step.dst) && once(from) && instead.insert(step.dst, from)));
    }
    for step in steps.iter_mut() {
        for slot in [&mut step.guard].into_iter().chain(&mut step.src) {
            *slot = instead.of(*slot);
        }
        let unread = |slot: Slot| Register::of(slot).is_some_and(|register| !reads[live.index(register)]);
        if unread(step.dst2) {
            step.dst2 = NONE;
        }
    }
    slots.iter_mut().for_each(|slot| *slot = instead.of(*slot));
    remove(steps, slots, &kept);
}

/// Takes out the steps that are not kept. The last one is.
fn remove(steps: &mut Vec<Step>, slots: &mut [Slot], kept: &[bool]) {
    let mut next = 0;
    let numbers: Vec<u32> = kept
        .iter()
        .map(|&kept| {
            let number = next;
            next += u32::from(kept);
            number
        })
        .collect();
    let number = |old: u32| numbers.get(old as usize).copied().unwrap_or(old);
    for step in steps.iter_mut() {
        match step.action {
            Action::Branch => step.imm = i64::from(number(step.imm as u32)),
            Action::BranchIndexed => {
                let (start, len) = (step.list.0 as usize, step.list.1 as usize);
                if let Some(targets) = slots.get_mut(start..start + len) {
                    targets.iter_mut().for_each(|target| *target = number(*target));
                }
            }
            _ => {}
        }
    }
    let mut kept = kept.iter();
    steps.retain(|_| kept.next().copied().unwrap_or(true));
}
