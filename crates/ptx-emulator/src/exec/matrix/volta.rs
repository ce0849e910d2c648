//! `mma.m8n8k4` of f16: four products at once, each by eight lanes, with fragments of their own kind.
//!
//! Kept apart from the other shapes because nothing of their rule holds here. Lanes `4 q` to `4 q + 3` and the same plus 16 make product `q`.

use super::elements::{f16_bits, f16_value, f32_bits};
use super::forms::Words;
use super::{registers, whole_warp};
use crate::exec::Cx;
use crate::exec::registers::{ALL, Class, Mask};
use crate::lower::Operands;
use crate::program::{Action, Outcome, Results, Step};
use crate::ptx::ast::Instruction;

/// `a` by columns.
const COLUMNS_A: u32 = 1 << 8;
/// `b` by rows.
const ROWS_B: u32 = 1 << 9;
/// `c` as f16.
const PACKED_C: u32 = 1 << 10;
/// `d` as f16.
const PACKED_D: u32 = 1 << 11;

pub(super) fn lower(i: &Instruction, o: &mut Operands<'_>, words: &Words<'_>) -> Result<Step, String> {
    let [d, _, _, c] = words.types;
    if !matches!((d, c), ("f16" | "f32", "f16" | "f32")) || words.saturate {
        return Err(format!("no product m8n8k4 of f16 from {c} to {d}"));
    }
    let [to, a, b, from] = &i.operands[..] else {
        return Err("it takes four operands: d, a, b and c".into());
    };
    let count = |ty| if ty == "f16" { 4 } else { 8 };
    let mut list = Vec::new();
    registers(&mut list, o, to, count(d), Class::Word, true)?;
    registers(&mut list, o, a, 2, Class::Word, false)?;
    registers(&mut list, o, b, 2, Class::Word, false)?;
    registers(&mut list, o, from, count(c), Class::Word, false)?;
    let mut step = Step::new(Action::Together(run));
    let [layout_a, layout_b] = words.layouts;
    for (is, flag) in [
        (layout_a == "col", COLUMNS_A),
        (layout_b == "row", ROWS_B),
        (c == "f16", PACKED_C),
        (d == "f16", PACKED_D),
    ] {
        step.flags |= if is { flag } else { 0 };
    }
    (step.list, step.results) = (o.list(&list), Results::At(0, count(d) as u8));
    Ok(step)
}

/// Row and column of element `i` of an accumulator.
fn sum_at(lane: usize, i: usize, packed: bool) -> (usize, usize) {
    let upper = lane / 16 * 4;
    if packed {
        (lane % 4 + upper, i)
    } else {
        ((lane & 1) + (i & 2) + upper, (i & 4) + (lane & 2) + (i & 1))
    }
}

fn run(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    whole_warp(cx, step, mask)?;
    let grid = cx.grid;
    let packed = |flag| step.flags & flag != 0;
    let (d, rest) = grid.launch.program.list(step).split_at(if packed(PACKED_D) { 4 } else { 8 });
    let (a, rest) = rest.split_at(2);
    let (b, c) = rest.split_at(2);
    let [a, b] = [a, b].map(|slots| [cx.registers.word(slots[0]), cx.registers.word(slots[1])]);
    let element =
        |registers: &[[u32; 32]; 2], lane: usize, i: usize| f16_value(registers[i / 2][lane] >> (i % 2 * 16));
    let mut sums = [[[0f32; 8]; 8]; 4];
    for (index, slot) in c.iter().enumerate() {
        for (lane, word) in cx.registers.word(*slot).into_iter().enumerate() {
            let sums = &mut sums[lane % 16 / 4];
            if packed(PACKED_C) {
                for half in 0..2 {
                    let (row, column) = sum_at(lane, index * 2 + half, true);
                    sums[row][column] = f16_value(word >> (16 * half));
                }
            } else {
                let (row, column) = sum_at(lane, index, false);
                sums[row][column] = f32::from_bits(word);
            }
        }
    }
    let lane_of = |product: usize, n: usize| product * 4 + n % 4 + n / 4 * 16;
    for (product, sums) in sums.iter_mut().enumerate() {
        for (row, sums) in sums.iter_mut().enumerate() {
            for (column, sum) in sums.iter_mut().enumerate() {
                for k in 0..4 {
                    let x = if packed(COLUMNS_A) {
                        element(&a, lane_of(product, row / 4 * 4 + k), row % 4)
                    } else {
                        element(&a, lane_of(product, row), k)
                    };
                    let y = if packed(ROWS_B) {
                        element(&b, lane_of(product, column / 4 * 4 + k), column % 4)
                    } else {
                        element(&b, lane_of(product, column), k)
                    };
                    *sum += x * y;
                }
            }
        }
    }
    for (index, slot) in d.iter().enumerate() {
        let row = std::array::from_fn(|lane| {
            let sum = |i| {
                let (row, column) = sum_at(lane, i, packed(PACKED_D));
                sums[lane % 16 / 4][row][column]
            };
            if packed(PACKED_D) {
                f16_bits(sum(index * 2)) | f16_bits(sum(index * 2 + 1)) << 16
            } else {
                f32_bits(sum(index))
            }
        });
        cx.registers.set_word(*slot, &row, ALL);
    }
    Ok(())
}
