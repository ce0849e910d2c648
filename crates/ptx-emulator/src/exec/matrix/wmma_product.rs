//! `wmma.mma`: the product of fragments that `wmma.load` made.
//!
//! The small integer and double shapes have the same fragments as `mma` and are given to its kernels; the others are computed here, in the
//! order of `mma`: first `c`, then the products by rising `k`.

use super::elements::{Bf16, Element, F16, S8, Sum, Tf32, U8, f16_bits, f16_value, f32_bits};
use super::kernels::SATURATE;
use super::wmma::{ELEMENTS, Layout, Part};
use super::{forms, registers, whole_warp};
use crate::exec::Cx;
use crate::exec::registers::{ALL, Mask, Registers, Slot};
use crate::lower::Operands;
use crate::program::{Action, ExecFn, Outcome, Results, Step};
use crate::ptx::ast::Instruction;

/// `c` holds two f16 in a register.
const PACKED_C: u32 = 1 << 9;
/// `d` does.
const PACKED_D: u32 = 1 << 10;
/// The multiplicands are f16.
const HALVES: u32 = 1 << 11;

/// Lowers `wmma.mma`.
pub(super) fn lower(i: &Instruction, o: &mut Operands<'_>) -> Result<Step, String> {
    let modifiers: Vec<&str> = i.modifiers.iter().map(String::as_str).collect();
    let words = forms::words(&modifiers)?;
    let [d, a, b, c] = words.types;
    if matches!(words.shape, "m8n8k4" | "m8n8k32" | "m8n8k128") {
        if a != "f64" && words.layouts != ["row", "col"] {
            return Err("it is .row.col for elements of less than a byte".into());
        }
        return super::product_step(
            i,
            o,
            &forms::lookup(&forms::Words { layouts: ["row", "col"], ..words })?,
        );
    }
    let parts = [(Part::C, d), (Part::A, a), (Part::B, b), (Part::C, c)];
    let (mut list, mut results) = (Vec::new(), 0);
    let [to, x, y, from] = &i.operands[..] else {
        return Err("it takes four operands: d, a, b and c".into());
    };
    for (index, ((part, ty), operand)) in parts.into_iter().zip([to, x, y, from]).enumerate() {
        let layout = Layout::new(part, words.shape, ty, true)?;
        registers(&mut list, o, operand, layout.registers(), layout.class(), index == 0)?;
        if index == 0 {
            results = list.len();
        }
    }
    let run: ExecFn = match (a, b, d, c) {
        ("f16", "f16", "f16" | "f32", "f16" | "f32") => floats::<F16>,
        ("bf16", "bf16", "f32", "f32") => floats::<Bf16>,
        ("tf32", "tf32", "f32", "f32") => floats::<Tf32>,
        ("s8", "s8", "s32", "s32") => integers::<S8>,
        ("u8", "u8", "s32", "s32") => integers::<U8>,
        _ => return Err(format!("no product of {a} and {b} from {c} to {d}")),
    };
    let mut step = Step::new(Action::Together(run));
    if words.saturate {
        if d != "s32" {
            return Err(".satfinite is for integers".into());
        }
        step.flags |= SATURATE;
    }
    for (is, flag) in [(c == "f16", PACKED_C), (d == "f16", PACKED_D), (a == "f16", HALVES)] {
        step.flags |= if is { flag } else { 0 };
    }
    step.imm = Layout::new(Part::A, words.shape, a, true)?.pack();
    (step.list, step.results) = (o.list(&list), Results::At(0, results as u8));
    Ok(step)
}

/// The fragments of a step.
struct Fragments<'a> {
    d: &'a [Slot],
    a: &'a [Slot],
    b: &'a [Slot],
    c: &'a [Slot],
    layouts: [Layout; 3],
}

impl<'a> Fragments<'a> {
    fn new(step: &Step, list: &'a [Slot]) -> Self {
        let a = Layout::unpack(step.imm);
        let b = Layout::build(Part::B, a.mnk(), a.bits(), a.bits(), step.flags & HALVES != 0, true);
        let of_sums = |packed| {
            let bits = if packed { 16 } else { 32 };
            Layout::build(Part::C, a.mnk(), bits, bits, false, true)
        };
        let c = of_sums(step.flags & PACKED_C != 0);
        let d = of_sums(step.flags & PACKED_D != 0);
        let (to, rest) = list.split_at(d.registers());
        let (x, rest) = rest.split_at(a.registers());
        let (y, from) = rest.split_at(b.registers());
        Self { d: to, a: x, b: y, c: from, layouts: [a, b, c] }
    }

    /// `sums + a * b`, by rows.
    fn add_products<E: Element>(&self, registers: &Registers, sums: &mut [E::Sum; ELEMENTS]) {
        let [layout_a, layout_b, _] = &self.layouts;
        let (m, n, k) = layout_a.mnk();
        let mut a = [E::Sum::default(); ELEMENTS];
        let mut b = [E::Sum::default(); ELEMENTS];
        let per = 32 / E::BITS;
        for (slots, layout, out, width) in [(self.a, layout_a, &mut a, k), (self.b, layout_b, &mut b, n)] {
            for (index, slot) in slots.iter().enumerate() {
                for (lane, word) in registers.word(*slot).into_iter().enumerate() {
                    for e in 0..per {
                        let (row, column) = layout.at(lane, index * per + e);
                        out[row * width + column] = E::value(word >> (e * E::BITS));
                    }
                }
            }
        }
        for (row, sums) in a.chunks(k).zip(sums.chunks_mut(n)).take(m) {
            for (x, column) in row.iter().zip(b.chunks(n)) {
                for (sum, y) in sums.iter_mut().zip(column) {
                    *sum = sum.plus_product(*x, *y);
                }
            }
        }
    }

    /// Row-major place of accumulator element `e` of a lane.
    fn sum_at(&self, lane: usize, e: usize) -> usize {
        let (row, column) = self.layouts[2].at(lane, e);
        row * self.layouts[2].mnk().1 + column
    }
}

fn floats<E: Element<Sum = f32>>(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    whole_warp(cx, step, mask)?;
    let fragments = Fragments::new(step, cx.grid.launch.program.list(step));
    let mut sums = [0f32; ELEMENTS];
    for (index, slot) in fragments.c.iter().enumerate() {
        for (lane, word) in cx.registers.word(*slot).into_iter().enumerate() {
            if step.flags & PACKED_C != 0 {
                sums[fragments.sum_at(lane, index * 2)] = f16_value(word);
                sums[fragments.sum_at(lane, index * 2 + 1)] = f16_value(word >> 16);
            } else {
                sums[fragments.sum_at(lane, index)] = f32::from_bits(word);
            }
        }
    }
    fragments.add_products::<E>(cx.registers, &mut sums);
    for (index, slot) in fragments.d.iter().enumerate() {
        let row = std::array::from_fn(|lane| {
            if step.flags & PACKED_D != 0 {
                let low = f16_bits(sums[fragments.sum_at(lane, index * 2)]);
                low | f16_bits(sums[fragments.sum_at(lane, index * 2 + 1)]) << 16
            } else {
                f32_bits(sums[fragments.sum_at(lane, index)])
            }
        });
        cx.registers.set_word(*slot, &row, ALL);
    }
    Ok(())
}

fn integers<E: Element<Sum = i32>>(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    whole_warp(cx, step, mask)?;
    let fragments = Fragments::new(step, cx.grid.launch.program.list(step));
    let mut sums = [0i32; ELEMENTS];
    fragments.add_products::<E>(cx.registers, &mut sums);
    for (index, (to, from)) in fragments.d.iter().zip(fragments.c).enumerate() {
        let c = cx.registers.word(*from);
        let row = std::array::from_fn(|lane| {
            let (sum, c) = (sums[fragments.sum_at(lane, index)], c[lane] as i32);
            (if step.flags & SATURATE != 0 { sum.saturating_add(c) } else { sum.wrapping_add(c) }) as u32
        });
        cx.registers.set_word(*to, &row, ALL);
    }
    Ok(())
}
