//! f32 sums and products rounded down, up or to zero.
//!
//! Through f64 and not by integers as the rest of directed rounding: compilers write `fma.rm` and `add.rz` in `expf` and `roundf`. The product of two f32
//! is exact in f64; a sum is rounded to odd there (its last bit is set where bits were lost), which leaves it on the right side of every f32.

use super::Alu;
use super::float::{FTZ, SAT, canonical, flush, result};
use super::rounding::Rounding;
use super::rows::{both, map2, map3};
use crate::exec::registers::Class;

const ZERO: u8 = 0;
const DOWN: u8 = 1;
const UP: u8 = 2;

/// A function for each direction.
macro_rules! each {
    ($mode:expr, $run:expr) => {
        match $mode {
            Rounding::Down => each!(@ DOWN, $run),
            Rounding::Up => each!(@ UP, $run),
            _ => each!(@ ZERO, $run),
        }
    };
    (@ $mode:ident, $run:expr) => {{
        const MODE: u8 = $mode;
        $run
    }};
}

/// `add sub mul fma mad` of f32, in any direction but to nearest.
pub(super) fn arithmetic(opcode: &str, mode: Rounding, flags: u32) -> Alu {
    let (run, sources) = match opcode {
        "add" => (
            each!(
                mode,
                both!(|r, s, m| map2(r, s, m, |a: f32, b: f32| {
                    output(s.flags, sum::<MODE>(input(s.flags, a), input(s.flags, b)))
                }))
            ),
            2,
        ),
        "sub" => (
            each!(
                mode,
                both!(|r, s, m| map2(r, s, m, |a: f32, b: f32| {
                    output(s.flags, sum::<MODE>(input(s.flags, a), -input(s.flags, b)))
                }))
            ),
            2,
        ),
        "mul" => (
            each!(
                mode,
                both!(|r, s, m| map2(r, s, m, |a: f32, b: f32| {
                    output(s.flags, narrow::<MODE>(input(s.flags, a) * input(s.flags, b)))
                }))
            ),
            2,
        ),
        _ => (
            each!(
                mode,
                both!(|r, s, m| map3(r, s, m, |a: f32, b: f32, c: f32| {
                    output(s.flags, sum::<MODE>(input(s.flags, a) * input(s.flags, b), input(s.flags, c)))
                }))
            ),
            3,
        ),
    };
    Alu { flags, ..Alu::new(run, Class::Word, &[Class::Word; 3][..sources]) }
}

#[inline(always)]
fn input(flags: u32, a: f32) -> f64 {
    f64::from(if flags & FTZ != 0 { flush::<true>(a) } else { a })
}

#[inline(always)]
fn output(flags: u32, a: f32) -> f32 {
    let a = if flags & SAT != 0 { result::<false, true>(a) } else { canonical(a) };
    if flags & FTZ != 0 { flush::<true>(a) } else { a }
}

/// `a + b` of f32 values and products of two of them.
#[inline(always)]
fn sum<const MODE: u8>(a: f64, b: f64) -> f32 {
    let sum = a + b;
    let part = sum - a;
    let lost = (a - (sum - part)) + (b - part);
    let bits = sum.to_bits();
    let outwards = (lost > 0.0) == (sum > 0.0);
    let odd = if outwards { bits.wrapping_add(1) } else { bits.wrapping_sub(1) };
    // Not `!=`: what was lost is NaN where the sum is infinite.
    let inexact = lost.abs() > 0.0;
    let value = f64::from_bits(if inexact && bits & 1 == 0 { odd } else { bits });
    // Downwards, what cancels is -0.0.
    let cancels = MODE == DOWN && sum == 0.0 && (a.is_sign_negative() || b.is_sign_negative());
    narrow::<MODE>(if cancels { -0.0 } else { value })
}

/// To the nearest f32, and from there to its neighbour if that was the wrong side.
#[inline(always)]
fn narrow<const MODE: u8>(value: f64) -> f32 {
    let nearest = value as f32;
    let (back, bits) = (f64::from(nearest), nearest.to_bits());
    let (inwards, outwards) = (bits.wrapping_sub(1), bits.wrapping_add(1));
    let negative = bits >> 31 != 0;
    let moved = match MODE {
        DOWN if back > value => {
            if negative {
                outwards
            } else {
                inwards
            }
        }
        UP if back < value => {
            if negative {
                inwards
            } else {
                outwards
            }
        }
        ZERO if back.abs() > value.abs() => inwards,
        _ => bits,
    };
    f32::from_bits(moved)
}
