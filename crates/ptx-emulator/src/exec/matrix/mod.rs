//! Instructions of a whole warp on matrices: `mma`, `wmma`, `ldmatrix`, `stmatrix`, `movmatrix`.
//!
//! All of them are `.aligned`: a warp of which some lanes are missing is refused, because a GPU's results are undefined then.

mod elements;
mod forms;
mod halves;
mod kernels;
mod moves;
mod product;
#[cfg(test)]
pub(super) mod tests;
mod volta;
mod wmma;
mod wmma_product;

pub(crate) use moves::{lower_ldmatrix, lower_movmatrix, lower_stmatrix};
pub(crate) use wmma::lower_wmma;

use crate::exec::Cx;
use crate::exec::registers::{ALL, Class, Mask, Slot};
use crate::fault::Kind;
use crate::lower::Operands;
use crate::program::{Action, Outcome, Results, Step};
use crate::ptx::ast::{Instruction, Operand};

/// Lowers `mma.sync`.
pub(crate) fn lower_mma(i: &Instruction, o: &mut Operands<'_>) -> Result<Step, String> {
    let modifiers: Vec<&str> = i.modifiers.iter().map(String::as_str).collect();
    let words = forms::words(&modifiers)?;
    if words.shape == "m8n8k4" && words.types[1..3] == ["f16", "f16"] {
        return volta::lower(i, o, &words);
    }
    product_step(i, o, &forms::lookup(&words)?)
}

/// The step of a product whose fragments are those of `mma`.
fn product_step(i: &Instruction, o: &mut Operands<'_>, form: &kernels::Form) -> Result<Step, String> {
    let [d, a, b, c] = &i.operands[..] else {
        return Err("it takes four operands: d, a, b and c".into());
    };
    let mut list = Vec::new();
    registers(&mut list, o, d, form.counts[0], form.class, true)?;
    for (operand, count) in [a, b, c].into_iter().zip(&form.counts[1..]) {
        registers(&mut list, o, operand, *count, form.class, false)?;
    }
    let mut step = Step::new(Action::Together(form.run));
    step.flags = form.flags;
    (step.list, step.results) = (o.list(&list), Results::At(0, form.counts[0] as u8));
    Ok(step)
}

/// Appends the registers of a fragment to a list.
fn registers(
    list: &mut Vec<Slot>,
    o: &mut Operands<'_>,
    operand: &Operand,
    count: usize,
    class: Class,
    written: bool,
) -> Result<(), String> {
    let elements = o.vector(operand);
    if elements.len() != count {
        return Err(format!("a fragment of {} registers, where this form has {count}", elements.len()));
    }
    for element in elements {
        if *element == Operand::Sink {
            return Err("a register of a fragment cannot be left out".into());
        }
        list.push(if written { o.destination(element, class)? } else { o.source(element, class)? });
    }
    Ok(())
}

/// Matrix instructions need all 32 lanes.
#[inline(always)]
fn whole_warp(cx: &Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    if mask == ALL { Ok(()) } else { Err(missing(cx, step, mask)) }
}

#[cold]
fn missing(cx: &Cx<'_>, step: &Step, mask: Mask) -> Box<crate::fault::Fault> {
    let lane = mask.trailing_zeros() as usize & 31;
    let message =
        format!("a matrix instruction needs all 32 lanes of a warp, and only {mask:#010x} are there");
    cx.fault(step.place, lane, Kind::WrongMask, message)
}
