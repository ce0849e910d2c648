//! Addresses among an instruction's operands, for instructions that have several of them.
//!
//! An address takes three places in the step's list (row, offset, width) and not the step's own fields: `cp.async.bulk` has three
//! addresses, and one way to write them down is easier to read than two.

use super::Cx;
use super::registers::{Mask, Slot};
use crate::fault::{Fault, Kind};
use crate::lower::Operands;
use crate::program::Step;
use crate::ptx::ast::Operand;

/// Places that an address takes in a list.
pub(crate) const PLACES: usize = 3;

/// Appends an address operand to a list that is to go into [`Step::list`].
pub(crate) fn push(list: &mut Vec<Slot>, o: &mut Operands<'_>, operand: &Operand) -> Result<(), String> {
    let address = o.address(operand)?;
    let offset = i32::try_from(address.offset)
        .map_err(|_| format!("the offset {} does not fit 32 bits", address.offset))?;
    list.extend([address.base, offset as u32, u32::from(address.wide)]);
    Ok(())
}

impl Cx<'_> {
    /// The addresses of all lanes from the places [`push`] made.
    #[inline]
    pub(crate) fn addresses(&self, places: &[Slot]) -> [u64; 32] {
        let &[base, offset, wide] = places else { return [0; 32] };
        if wide != 0 {
            let offset = i64::from(offset as i32) as u64;
            self.registers.long(base).map(|address| address.wrapping_add(offset))
        } else {
            self.registers.word(base).map(|address| u64::from(address.wrapping_add(offset)))
        }
    }

    /// Refuses generic addresses that do not lead to shared memory, for instructions that reach nothing else.
    pub(crate) fn only_shared(
        &self,
        step: &Step,
        mask: Mask,
        addresses: &[u64; 32],
    ) -> Result<(), Box<Fault>> {
        match super::registers::lanes(mask).find(|&lane| addresses[lane] >> 56 != 1) {
            None => Ok(()),
            Some(lane) => {
                let message = format!(
                    "the address {:#x} is not in shared memory, and this instruction reaches nothing else",
                    addresses[lane]
                );
                Err(self.fault(step.place, lane, Kind::OutOfBounds, message))
            }
        }
    }
}
