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

/// How `c` and `d` lie in registers.
pub(super) trait Carrier<S: Sum> {
    /// Registers for each 8 rows.
    const REGISTERS: usize;
    /// The two elements of one lane from its registers.
    fn load(registers: [u32; 2]) -> [S; 2];
    /// The registers for two elements.
    fn store(sums: [S; 2]) -> [u32; 2];
}

/// One register for each element.
#[derive(Debug)]
pub(super) struct Whole;

/// Two f16 in one register.
#[derive(Debug)]
pub(super) struct Packed;

impl Carrier<f32> for Whole {
    const REGISTERS: usize = 2;
    #[inline(always)]
    fn load(registers: [u32; 2]) -> [f32; 2] {
        registers.map(f32::from_bits)
    }
    #[inline(always)]
    fn store(sums: [f32; 2]) -> [u32; 2] {
        [f32_bits(sums[0]), f32_bits(sums[1])]
    }
}

impl Carrier<i32> for Whole {
    const REGISTERS: usize = 2;
    #[inline(always)]
    fn load(registers: [u32; 2]) -> [i32; 2] {
        registers.map(|bits| bits as i32)
    }
    #[inline(always)]
    fn store(sums: [i32; 2]) -> [u32; 2] {
        sums.map(|sum| sum as u32)
    }
}

impl Carrier<f32> for Packed {
    const REGISTERS: usize = 1;
    #[inline(always)]
    fn load(registers: [u32; 2]) -> [f32; 2] {
        [f16_value(registers[0]), f16_value(registers[0] >> 16)]
    }
    #[inline(always)]
    fn store(sums: [f32; 2]) -> [u32; 2] {
        [f16_bits(sums[0]) | f16_bits(sums[1]) << 16, 0]
    }
}

/// The slots of an `mma`'s registers, in the order in which the instruction names them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operands<'a> {
    pub(super) d: &'a [Slot],
    pub(super) a: &'a [Slot],
    pub(super) b: &'a [Slot],
    pub(super) c: &'a [Slot],
}

/// `a` as rows of `K`.
#[inline(always)]
pub(super) fn rows<E: Element, const M: usize, const K: usize>(
    registers: &Registers,
    slots: &[Slot],
) -> [[E::Sum; K]; M] {
    let halves = M / 8;
    let per = 32 / E::BITS;
    let mut out = [[E::Sum::default(); K]; M];
    for (index, &slot) in slots.iter().enumerate() {
        let words = registers.word(slot);
        let (half, chunk) = (index % halves, index / halves);
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
pub(super) fn columns<E: Element, const K: usize>(registers: &Registers, slots: &[Slot]) -> [[E::Sum; 8]; K] {
    let per = 32 / E::BITS;
    let mut out = [[E::Sum::default(); 8]; K];
    for (chunk, &slot) in slots.iter().enumerate() {
        let words = registers.word(slot);
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

/// The accumulator as rows of 8.
#[inline(always)]
pub(super) fn accumulator<S: Sum, C: Carrier<S>, const M: usize>(
    registers: &Registers,
    slots: &[Slot],
) -> [[S; 8]; M] {
    let mut out = [[S::default(); 8]; M];
    for half in 0..M / 8 {
        let low = registers.word(slots[half * C::REGISTERS]);
        let high = registers.word(slots[half * C::REGISTERS + C::REGISTERS - 1]);
        for g in 0..8 {
            for t in 0..4 {
                let [first, second] = C::load([low[g * 4 + t], high[g * 4 + t]]);
                out[half * 8 + g][2 * t] = first;
                out[half * 8 + g][2 * t + 1] = second;
            }
        }
    }
    out
}

/// Writes the result back, in all lanes.
#[inline(always)]
pub(super) fn write<S: Sum, D: Carrier<S>, const M: usize>(
    registers: &mut Registers,
    slots: &[Slot],
    sums: &[[S; 8]; M],
) {
    for half in 0..M / 8 {
        let mut low = [0; 32];
        let mut high = [0; 32];
        for g in 0..8 {
            for t in 0..4 {
                let row = &sums[half * 8 + g];
                let [first, second] = D::store([row[2 * t], row[2 * t + 1]]);
                low[g * 4 + t] = first;
                high[g * 4 + t] = second;
            }
        }
        registers.set_word(slots[half * D::REGISTERS], &low, ALL);
        if D::REGISTERS == 2 {
            registers.set_word(slots[half * 2 + 1], &high, ALL);
        }
    }
}

#[inline(always)]
fn add_products<S: Sum, const M: usize, const K: usize>(
    sums: &mut [[S; 8]; M],
    a: &[[S; K]; M],
    b: &[[S; 8]; K],
) {
    for (row, sums) in a.iter().zip(sums) {
        let mut sum = *sums;
        for (&x, column) in row.iter().zip(b) {
            for (s, &y) in sum.iter_mut().zip(column) {
                *s = s.plus_product(x, y);
            }
        }
        *sums = sum;
    }
}

/// Products of floats.
#[inline(always)]
pub(super) fn floats<A, B, C, D, const M: usize, const K: usize>(registers: &mut Registers, at: Operands<'_>)
where
    A: Element<Sum = f32>,
    B: Element<Sum = f32>,
    C: Carrier<f32>,
    D: Carrier<f32>,
{
    let a = rows::<A, M, K>(registers, at.a);
    let b = columns::<B, K>(registers, at.b);
    let mut sums = accumulator::<f32, C, M>(registers, at.c);
    add_products(&mut sums, &a, &b);
    write::<f32, D, M>(registers, at.d, &sums);
}

/// Products of integers; the sum with `c` wraps, or with `saturate` stays at the ends of the range.
#[inline(always)]
pub(super) fn integers<A, B, const M: usize, const K: usize>(
    registers: &mut Registers,
    at: Operands<'_>,
    saturate: bool,
) where
    A: Element<Sum = i32>,
    B: Element<Sum = i32>,
{
    let a = rows::<A, M, K>(registers, at.a);
    let b = columns::<B, K>(registers, at.b);
    let mut sums = [[0i32; 8]; M];
    add_products(&mut sums, &a, &b);
    let c = accumulator::<i32, Whole, M>(registers, at.c);
    for (sum, c) in sums.as_flattened_mut().iter_mut().zip(c.as_flattened()) {
        *sum = if saturate { sum.saturating_add(*c) } else { sum.wrapping_add(*c) };
    }
    write::<i32, Whole, M>(registers, at.d, &sums);
}

/// Products of doubles: `a` and `b` hold one element in each register.
#[inline(always)]
pub(super) fn doubles<const M: usize, const K: usize>(registers: &mut Registers, at: Operands<'_>) {
    let halves = M / 8;
    let mut a = [[0f64; K]; M];
    let mut b = [[0f64; 8]; K];
    let mut sums = [[0f64; 8]; M];
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
    add_products(&mut sums, &a, &b);
    for (index, &slot) in at.d.iter().enumerate() {
        let row =
            std::array::from_fn(|lane| sums[index / 2 * 8 + lane / 4][lane % 4 * 2 + index % 2].to_bits());
        registers.set_long(slot, &row, ALL);
    }
}

/// Products of single bits: the count of ones in `a ^ b` or `a & b`.
#[inline(always)]
pub(super) fn bits<const M: usize, const AND: bool>(registers: &mut Registers, at: Operands<'_>) {
    let halves = M / 8;
    let mut sums = accumulator::<i32, Whole, M>(registers, at.c);
    for (index, &slot) in at.a.iter().enumerate() {
        let (half, chunk) = (index % halves, index / halves);
        let a = registers.word(slot);
        let b = registers.word(at.b[chunk]);
        for g in 0..8 {
            for n in 0..8 {
                for t in 0..4 {
                    let (x, y) = (a[g * 4 + t], b[n * 4 + t]);
                    let ones = if AND { x & y } else { x ^ y }.count_ones();
                    let sum = &mut sums[half * 8 + g][n];
                    *sum = sum.wrapping_add(ones as i32);
                }
            }
        }
    }
    write::<i32, Whole, M>(registers, at.d, &sums);
}
