//! `d = a * b + c` over fragments in registers.
//!
//! The fragments of every `mma` shape from m8n8k16 to m16n8k64 follow one rule, which this file uses instead of a table for each
//! shape: with `g = lane / 4` and `t = lane % 4`, a row of `a` and a column of `b` are 4 or 8 registers' worth of elements, of which
//! lane `t` of group `g` holds word `t` (and `t + 4`). Tests compare it with the tables of the PTX ISA, shape by shape.
//!
//! Sums of floats begin with `c` and add products in the order of `k`, each with one rounding to f32. Tensor cores add several
//! products at once with truncation, in an undocumented order, so that the last bits differ there and between architectures.

use super::elements::{Element, Sum, f16_bits, f16_value, f32_bits};
use crate::exec::registers::{ALL, Registers, Slot};

/// The slots of an `mma`'s registers, in the order in which the instruction names them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operands<'a> {
    pub(super) d: &'a [Slot],
    pub(super) a: &'a [Slot],
    pub(super) b: &'a [Slot],
    pub(super) c: &'a [Slot],
}

/// Rows and depth of a product.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) m: usize,
    pub(super) k: usize,
}

/// Most rows of a product.
const ROWS: usize = 16;

/// `a`, by rows.
#[inline(always)]
fn rows<E: Element, const K: usize, const FAST: bool>(
    registers: &Registers,
    slots: &[Slot],
    size: Size,
) -> [[E::Sum; K]; ROWS] {
    let halves = size.m / 8;
    let per = 32 / E::BITS;
    let mut out = [[E::Sum::default(); K]; ROWS];
    for (index, &slot) in slots.iter().enumerate() {
        let words = registers.word(slot);
        let (half, chunk) = (index % halves, index / halves);
        if E::BITS == 16 {
            for (row, from) in out[half * 8..].iter_mut().zip(E::rows::<FAST>(&words)) {
                row[chunk * 8..chunk * 8 + 8].copy_from_slice(&from);
            }
            continue;
        }
        for g in 0..8 {
            for t in 0..4 {
                for e in 0..per {
                    out[half * 8 + g][(chunk * 4 + t) * per + e] =
                        E::value(words[g * 4 + t] >> (e * E::BITS));
                }
            }
        }
    }
    out
}

/// `b` as rows of 8, one for each `k`.
#[inline(always)]
fn columns<E: Element, const K: usize, const FAST: bool>(
    registers: &Registers,
    slots: &[Slot],
) -> [[E::Sum; 8]; K] {
    let per = 32 / E::BITS;
    let mut out = [[E::Sum::default(); 8]; K];
    for (chunk, &slot) in slots.iter().enumerate() {
        let words = registers.word(slot);
        if E::BITS == 16 {
            out[chunk * 8..chunk * 8 + 8].copy_from_slice(&E::columns::<FAST>(&words));
            continue;
        }
        for t in 0..4 {
            for e in 0..per {
                for n in 0..8 {
                    out[(chunk * 4 + t) * per + e][n] = E::value(words[n * 4 + t] >> (e * E::BITS));
                }
            }
        }
    }
    out
}

/// The words of an accumulator as rows of 8. Where they are `packed`, two f16 stand in one register.
#[inline(always)]
fn accumulator(registers: &Registers, slots: &[Slot], packed: bool) -> [[u32; 8]; ROWS] {
    let mut out = [[0; 8]; ROWS];
    for (index, &slot) in slots.iter().enumerate() {
        let words = registers.word(slot);
        for g in 0..8 {
            for t in 0..4 {
                let word = words[g * 4 + t];
                if packed {
                    out[index * 8 + g][2 * t] = word & 0xffff;
                    out[index * 8 + g][2 * t + 1] = word >> 16;
                } else {
                    out[index / 2 * 8 + g][2 * t + index % 2] = word;
                }
            }
        }
    }
    out
}

/// Writes the words of the result back, in all lanes.
#[inline(always)]
fn write(registers: &mut Registers, slots: &[Slot], sums: &[[u32; 8]; ROWS], packed: bool) {
    for (index, &slot) in slots.iter().enumerate() {
        let mut words = [0; 32];
        for g in 0..8 {
            for t in 0..4 {
                words[g * 4 + t] = if packed {
                    sums[index * 8 + g][2 * t] | sums[index * 8 + g][2 * t + 1] << 16
                } else {
                    sums[index / 2 * 8 + g][2 * t + index % 2]
                };
            }
        }
        registers.set_word(slot, &words, ALL);
    }
}

#[inline(always)]
fn add_products<S: Sum, const K: usize>(
    sums: &mut [[S; 8]; ROWS],
    a: &[[S; K]; ROWS],
    b: &[[S; 8]; K],
    size: Size,
) {
    for (row, sums) in a.iter().zip(sums).take(size.m) {
        let mut sum = *sums;
        for (&x, column) in row.iter().zip(b).take(size.k) {
            for (s, &y) in sum.iter_mut().zip(column) {
                *s = s.plus_product(x, y);
            }
        }
        *sums = sum;
    }
}

/// Products of floats; `packed` says whether `c` and whether `d` are f16.
#[inline(always)]
pub(super) fn floats<A, B, const K: usize, const FAST: bool>(
    registers: &mut Registers,
    at: Operands<'_>,
    size: Size,
    packed: [bool; 2],
) where
    A: Element<Sum = f32>,
    B: Element<Sum = f32>,
{
    let a = rows::<A, K, FAST>(registers, at.a, size);
    let b = columns::<B, K, FAST>(registers, at.b);
    let c = accumulator(registers, at.c, packed[0]);
    let mut sums = c.map(|row| if packed[0] { row.map(f16_value) } else { row.map(f32::from_bits) });
    add_products(&mut sums, &a, &b, size);
    let d = sums.map(|row| if packed[1] { row.map(f16_bits) } else { row.map(f32_bits) });
    write(registers, at.d, &d, packed[1]);
}

/// Products of integers; the sum with `c` wraps, or with `saturate` stays at the ends of the range.
#[inline(always)]
pub(super) fn integers<A, B, const K: usize, const FAST: bool>(
    registers: &mut Registers,
    at: Operands<'_>,
    size: Size,
    saturate: bool,
) where
    A: Element<Sum = i32>,
    B: Element<Sum = i32>,
{
    let a = rows::<A, K, FAST>(registers, at.a, size);
    let b = columns::<B, K, FAST>(registers, at.b);
    let mut sums = [[0i32; 8]; ROWS];
    add_products(&mut sums, &a, &b, size);
    let mut d = accumulator(registers, at.c, false);
    for (c, sum) in d.as_flattened_mut().iter_mut().zip(sums.as_flattened()) {
        let with = *c as i32;
        *c = (if saturate { sum.saturating_add(with) } else { sum.wrapping_add(with) }) as u32;
    }
    write(registers, at.d, &d, false);
}

/// Products of doubles: `a` and `b` hold one element in each register.
#[inline(always)]
pub(super) fn doubles(registers: &mut Registers, at: Operands<'_>, size: Size) {
    let halves = size.m / 8;
    let mut a = [[0f64; 16]; ROWS];
    let mut b = [[0f64; 8]; 16];
    let mut sums = [[0f64; 8]; ROWS];
    for (index, &slot) in at.a.iter().enumerate() {
        let row = registers.long(slot).map(f64::from_bits);
        for (lane, value) in row.into_iter().enumerate() {
            a[index % halves * 8 + lane / 4][index / halves * 4 + lane % 4] = value;
        }
    }
    for (chunk, &slot) in at.b.iter().enumerate() {
        let row = registers.long(slot).map(f64::from_bits);
        for (lane, value) in row.into_iter().enumerate() {
            b[chunk * 4 + lane % 4][lane / 4] = value;
        }
    }
    for (index, &slot) in at.c.iter().enumerate() {
        let row = registers.long(slot).map(f64::from_bits);
        for (lane, value) in row.into_iter().enumerate() {
            sums[index / 2 * 8 + lane / 4][lane % 4 * 2 + index % 2] = value;
        }
    }
    add_products(&mut sums, &a, &b, size);
    for (index, &slot) in at.d.iter().enumerate() {
        let row =
            std::array::from_fn(|lane| sums[index / 2 * 8 + lane / 4][lane % 4 * 2 + index % 2].to_bits());
        registers.set_long(slot, &row, ALL);
    }
}

/// Products of single bits: the count of ones in `a ^ b` or `a & b`.
#[inline(always)]
pub(super) fn bits(registers: &mut Registers, at: Operands<'_>, size: Size, and: bool) {
    let halves = size.m / 8;
    let mut sums = accumulator(registers, at.c, false);
    for (index, &slot) in at.a.iter().enumerate() {
        let (half, chunk) = (index % halves, index / halves);
        let a = registers.word(slot);
        let b = registers.word(at.b[chunk]);
        for g in 0..8 {
            for n in 0..8 {
                for t in 0..4 {
                    let (x, y) = (a[g * 4 + t], b[n * 4 + t]);
                    let ones = if and { x & y } else { x ^ y }.count_ones();
                    let sum = &mut sums[half * 8 + g][n];
                    *sum = sum.wrapping_add(ones);
                }
            }
        }
    }
    write(registers, at.d, &sums, false);
}
