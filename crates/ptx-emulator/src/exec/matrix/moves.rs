//! `ldmatrix`, `stmatrix` and `movmatrix`: matrices of 8 by 8 16-bit elements between shared memory and fragments.
//!
//! A row is read in the name of the lane that gives its address, not of those that receive it: that is the lane whose pointer is wrong
//! when something is.

use super::{registers, whole_warp};
use crate::check::Access;
use crate::exec::registers::{ALL, Class, Mask};
use crate::exec::{Cx, address};
use crate::lower::Operands;
use crate::program::{Action, NONE, Outcome, Results, Step};
use crate::ptx::ast::Instruction;

/// Flag: rows become columns.
const TRANSPOSED: u32 = 1 << 8;
/// Flag: the address is generic.
const GENERIC: u32 = 1 << 9;

/// Eight rows of eight elements.
type Matrix = [[u16; 8]; 8];

/// Lowers `ldmatrix`.
pub(crate) fn lower_ldmatrix(i: &Instruction, o: &mut Operands<'_>) -> Result<Step, String> {
    let (count, flags) = words(i)?;
    let [d, at] = &i.operands[..] else { return Err("it takes a fragment and an address".into()) };
    let mut list = Vec::new();
    address::push(&mut list, o, at)?;
    registers(&mut list, o, d, count, Class::Word, true)?;
    Ok(step(load, flags, &list, count, o))
}

/// Lowers `stmatrix`.
pub(crate) fn lower_stmatrix(i: &Instruction, o: &mut Operands<'_>) -> Result<Step, String> {
    let (count, flags) = words(i)?;
    let [at, s] = &i.operands[..] else { return Err("it takes an address and a fragment".into()) };
    let mut list = Vec::new();
    address::push(&mut list, o, at)?;
    registers(&mut list, o, s, count, Class::Word, false)?;
    Ok(step(store, flags, &list, 0, o))
}

/// Lowers `movmatrix.sync.aligned.m8n8.trans.b16`.
pub(crate) fn lower_movmatrix(i: &Instruction, o: &mut Operands<'_>) -> Result<Step, String> {
    let known = ["sync", "aligned", "m8n8", "trans", "b16"];
    let [d, a] = &i.operands[..] else { return Err("it takes a result and a source".into()) };
    if i.modifiers != known {
        return Err("only .sync.aligned.m8n8.trans.b16 is known".into());
    }
    let mut step = Step::new(Action::Together(transpose));
    step.dst = o.destination(d, Class::Word)?;
    step.src[0] = o.word(a)?;
    if step.dst == NONE { Err("the result cannot be left out".into()) } else { Ok(step) }
}

fn step(run: crate::program::ExecFn, flags: u32, list: &[u32], results: usize, o: &mut Operands<'_>) -> Step {
    let mut step = Step::new(Action::Together(run));
    step.flags = flags;
    (step.list, step.results) = (o.list(list), Results::At(address::PLACES as u8, results as u8));
    step
}

/// How many matrices, and the flags.
fn words(i: &Instruction) -> Result<(usize, u32), String> {
    let mut words: Vec<&str> = i.modifiers.iter().map(String::as_str).collect();
    let mut take = |word: &str| {
        let at = words.iter().position(|w| *w == word);
        at.map(|at| words.remove(at)).is_some()
    };
    let mut flags = 0;
    if !(take("sync") & take("aligned") & take("m8n8") & take("b16")) {
        return Err("only .sync.aligned.m8n8 of .b16 is known".into());
    }
    if take("trans") {
        flags |= TRANSPOSED;
    }
    if !(take("shared") | take("shared::cta")) {
        flags |= GENERIC;
    }
    match words[..] {
        ["x1"] => Ok((1, flags)),
        ["x2"] => Ok((2, flags)),
        ["x4"] => Ok((4, flags)),
        [] => Err("it says .x1, .x2 or .x4".into()),
        [word, ..] => Err(format!(".{word} is not a modifier of it")),
    }
}

/// The register row in which a matrix lies: lane `4 g + t` holds elements `2 t` and `2 t + 1` of row `g`.
#[inline(always)]
fn fragment(matrix: &Matrix, transposed: bool) -> [u32; 32] {
    std::array::from_fn(|lane| {
        let (g, t) = (lane / 4, lane % 4);
        let [low, high] = if transposed {
            [matrix[2 * t][g], matrix[2 * t + 1][g]]
        } else {
            [matrix[g][2 * t], matrix[g][2 * t + 1]]
        };
        u32::from(low) | u32::from(high) << 16
    })
}

/// The matrix of a register row.
#[inline(always)]
fn matrix(row: &[u32; 32], transposed: bool) -> Matrix {
    let mut out = Matrix::default();
    for (lane, word) in row.iter().enumerate() {
        let (g, t) = (lane / 4, lane % 4);
        let [low, high] = [*word as u16, (*word >> 16) as u16];
        if transposed {
            (out[2 * t][g], out[2 * t + 1][g]) = (low, high);
        } else {
            (out[g][2 * t], out[g][2 * t + 1]) = (low, high);
        }
    }
    out
}

fn load(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    whole_warp(cx, step, mask)?;
    let grid = cx.grid;
    let (places, slots) = grid.launch.program.list(step).split_at(address::PLACES);
    let addresses = cx.addresses(places);
    if step.flags & GENERIC != 0 {
        cx.only_shared(step, given(cx, slots.len()), &addresses)?;
    }
    // Before sm_80 the other lanes' addresses count too: they must be valid.
    if grid.environment.arch < 80 && grid.checked {
        for (lane, address) in addresses.iter().enumerate() {
            cx.shared_bounds(step.place, lane, *address, 16)?;
        }
    }
    let mut rows = [[0; 32]; 4];
    for (index, row) in rows.iter_mut().take(slots.len()).enumerate() {
        // A row's 16 bytes are what four lanes hold.
        for (at, words) in row.chunks_exact_mut(4).enumerate() {
            let lane = index * 8 + at;
            let start = cx.shared(step.place, lane, addresses[lane], 16, Access::Read)?;
            let bytes = cx.block.shared.get(start..start + 16).unwrap_or(&[0; 16]);
            for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(4)) {
                *word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            }
        }
        if step.flags & TRANSPOSED != 0 {
            *row = fragment(&matrix(row, false), true);
        }
    }
    for (slot, row) in slots.iter().zip(&rows) {
        cx.registers.set_word(*slot, row, ALL);
    }
    Ok(())
}

fn store(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    whole_warp(cx, step, mask)?;
    let grid = cx.grid;
    let (places, slots) = grid.launch.program.list(step).split_at(address::PLACES);
    let addresses = cx.addresses(places);
    if step.flags & GENERIC != 0 {
        cx.only_shared(step, given(cx, slots.len()), &addresses)?;
    }
    for (index, slot) in slots.iter().enumerate() {
        let matrix = matrix(&cx.registers.word(*slot), step.flags & TRANSPOSED != 0);
        for (at, elements) in matrix.iter().enumerate() {
            let lane = index * 8 + at;
            let start = cx.shared(step.place, lane, addresses[lane], 16, Access::Write)?;
            let bytes = cx.block.shared.get_mut(start..start + 16).unwrap_or_default();
            for (pair, element) in bytes.chunks_exact_mut(2).zip(elements) {
                pair.copy_from_slice(&element.to_le_bytes());
            }
        }
    }
    Ok(())
}

/// The lanes whose addresses are used.
fn given(cx: &Cx<'_>, matrices: usize) -> Mask {
    let all = cx.grid.environment.arch < 80 && cx.grid.checked;
    if matrices >= 4 || all { ALL } else { (1 << (matrices * 8)) - 1 }
}

fn transpose(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    whole_warp(cx, step, mask)?;
    let row = fragment(&matrix(&cx.registers.word(step.src[0]), false), true);
    cx.registers.set_word(step.dst, &row, ALL);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_by_the_manual() {
        let mut m = Matrix::default();
        for (r, row) in m.iter_mut().enumerate() {
            for (c, element) in row.iter_mut().enumerate() {
                *element = (r * 16 + c) as u16;
            }
        }
        let plain = fragment(&m, false);
        let turned = fragment(&m, true);
        for lane in 0..32u32 {
            let (row, column) = (lane / 4, lane % 4 * 2);
            assert_eq!(plain[lane as usize], (row * 16 + column) | (row * 16 + column + 1) << 16);
            assert_eq!(turned[lane as usize], (column * 16 + row) | ((column + 1) * 16 + row) << 16);
        }
        assert_eq!(matrix(&plain, false), m);
        assert_eq!(matrix(&turned, true), m);
    }
}
