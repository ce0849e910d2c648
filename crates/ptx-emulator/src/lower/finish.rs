//! The end of lowering: labels become step numbers, copies go, registers become rows with the fixed ones behind.

use super::Error;
use super::function::Lowering;
use super::live::Live;
use super::mentions::Register;
use super::operands::{CLASS_SHIFT, FIXED, Fixed};
use super::{allocate, copies};
use crate::exec::registers::Slot;
use crate::program::{Action, ParamSlot, Program, Step};
use crate::ptx::ast::Function;

/// The rows of a class's registers, and how many there are.
type Rows = (Vec<Slot>, u32);

/// Of each class, rows that are left out: the first predicate is the carry flag.
const RESERVED: [u32; 3] = [0, 0, 1];

#[cfg(test)]
thread_local! {
    /// Makes every register have a row of its own and keeps every copy, so that tests can compare.
    pub(crate) static PLAIN: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

fn plain() -> bool {
    #[cfg(test)]
    return PLAIN.get();
    #[cfg(not(test))]
    false
}

/// The definition that sharing is compared with.
fn each_its_own(registers: [u32; 3]) -> [Rows; 3] {
    [0, 1, 2].map(|class: usize| {
        let (count, reserved) = (registers[class], RESERVED[class]);
        ((reserved..reserved + count).collect(), reserved + count)
    })
}

/// Takes out copies and lets registers share rows.
fn shared_rows(steps: &mut Vec<Step>, slots: &mut [Slot], registers: [u32; 3]) -> [Rows; 3] {
    let live = Live::new(steps, slots, registers);
    copies::propagate(steps, slots, &live);
    let intervals = Live::new(steps, slots, registers).intervals(steps, slots);
    let mut rest = &intervals[..];
    [0, 1, 2].map(|class: usize| {
        let (of, behind) = rest.split_at(registers[class] as usize);
        rest = behind;
        allocate::rows(of, RESERVED[class])
    })
}

impl Lowering<'_> {
    /// The finished kernel.
    pub(super) fn complete(
        mut self,
        function: &Function,
        params: Vec<ParamSlot>,
        param_bytes: u32,
    ) -> Result<Program, Error> {
        let labels: Vec<u32> = self.labels.iter().map(|place| place.unwrap_or(u32::MAX)).collect();
        let steps = &mut self.rows.steps;
        let end = steps.len().saturating_sub(1) as u32;
        // A label without a place cannot be jumped to (it was declared with its scope); the last step, an exit, is where all paths end.
        let place = |label: u32| labels.get(label as usize).copied().unwrap_or(end).min(end);
        for step in steps.iter_mut() {
            match step.action {
                Action::Branch => step.imm = i64::from(place(step.imm as u32)),
                Action::BranchIndexed => {
                    let (start, len) = (step.list.0 as usize, step.list.1 as usize);
                    if let Some(targets) = self.rows.slots.get_mut(start..start + len) {
                        targets.iter_mut().for_each(|target| *target = place(*target));
                    }
                }
                _ => {}
            }
        }
        let slots = &mut self.rows.slots;
        let rows =
            if plain() { each_its_own(self.rows.rows) } else { shared_rows(steps, slots, self.rows.rows) };
        let [words, longs, preds] = &rows;
        let variables = [words.1, longs.1, preds.1];
        let rows = [&words.0[..], &longs.0[..], &preds.0[..]];
        let settle = |slot: &mut Slot| settle(slot, &rows, variables);
        for step in steps.iter_mut() {
            for slot in [&mut step.guard, &mut step.dst, &mut step.dst2].into_iter().chain(&mut step.src) {
                settle(slot);
            }
        }
        slots.iter_mut().for_each(settle);
        let shared = self.shared.borrow();
        let dynamic_base = shared.bytes.next_multiple_of(shared.dynamic_align.max(1));
        let (mut constants, mut specials) = (Vec::new(), Vec::new());
        for (&(class, what), &slot) in &self.rows.fixed {
            let mut slot = slot;
            settle(&mut slot);
            match what {
                Fixed::Constant(value) => constants.push((class, slot, value)),
                Fixed::Dynamic(offset) => constants.push((class, slot, dynamic_base.wrapping_add(offset))),
                Fixed::Special(special) => specials.push((special, slot)),
            }
        }
        constants.sort_unstable_by_key(|(class, slot, _)| (class.index(), *slot));
        specials.sort_unstable_by_key(|(_, slot)| *slot);
        let too_large = |what: &str| {
            Self::error(function.line, function.name.clone(), format!("more than 4 GiB of {what}"))
        };
        let fixed = self.rows.fixed_rows;
        Ok(Program {
            name: function.name.clone(),
            steps: std::mem::take(&mut self.rows.steps),
            places: std::mem::take(&mut self.places),
            slots: std::mem::take(&mut self.rows.slots),
            rows: [0, 1, 2].map(|class| variables[class] + fixed[class]),
            variables,
            specials,
            constants,
            params,
            granule: self.rows.granule,
            fences: self.rows.fences,
            param_bytes,
            static_shared: u32::try_from(shared.bytes).map_err(|_| too_large("shared memory"))?,
            dynamic_base: u32::try_from(dynamic_base).map_err(|_| too_large("shared memory"))?,
            local_bytes: u32::try_from(self.frame).map_err(|_| too_large("local memory"))?,
            limits: function.limits.clone(),
        })
    }
}

/// From a number of lowering to a row: a variable's own, or behind the variables of its class. Lists also hold plain numbers; none of them is
/// in the range of rows (offsets of a gigabyte and more).
fn settle(slot: &mut Slot, rows: &[&[Slot]; 3], variables: [u32; 3]) {
    if let Some(Register { class, number }) = Register::of(*slot) {
        *slot = rows.get(class).and_then(|rows| rows.get(number)).copied().unwrap_or(0);
    } else if *slot >> 30 == FIXED >> 30 {
        let class = (*slot >> CLASS_SHIFT & 3) as usize;
        *slot = (*slot & ((1 << CLASS_SHIFT) - 1)) + variables.get(class).copied().unwrap_or(0);
    }
}
