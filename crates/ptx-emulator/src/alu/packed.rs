//! Arithmetic on f16 and bf16, one or two to a register.
//!
//! Sums and products go through f32, whose 24 bits are enough that rounding twice is rounding once (2·11 + 2 for f16). `fma` is not so lucky and is made
//! exact: see [`fma_f16`] and [`fma_bf16`].

use super::Alu;
use super::half::{Bf16, F16, Half, flush, halves, join, split, word};
use super::rows::{both, op};
use super::words::Words;
use crate::exec::registers::{Class, Mask, Registers};
use crate::program::Step;

/// Flag: subnormals are zero.
const FTZ: u32 = 1 << 8;
/// Flag: the result is cut to 0 to 1, NaN to 0.
const SAT: u32 = 1 << 12;
/// Flag: a negative result becomes zero.
const RELU: u32 = 1 << 13;

/// An instruction of two or three sources, on one half or on two; with flags by a version that looks at them.
macro_rules! half_op {
    ($format:ty, $packed:expr, $flags:expr, $row:ident, $sources:literal, $f:expr) => {{
        let run = match ($packed, $flags == 0) {
            (false, true) => both!(|r, s, m| $row::<$format, FAST, 32, true>(r, s, m, $f)),
            (false, false) => both!(|r, s, m| $row::<$format, FAST, 32, false>(r, s, m, $f)),
            (true, true) => both!(|r, s, m| $row::<$format, FAST, 64, true>(r, s, m, $f)),
            (true, false) => both!(|r, s, m| $row::<$format, FAST, 64, false>(r, s, m, $f)),
        };
        Alu { flags: $flags, ..Alu::new(run, Class::Word, &[Class::Word; $sources]) }
    }};
}

pub(super) fn lookup(words: &mut Words<'_>) -> Result<Option<Alu>, String> {
    let (bf16, packed) = match words.last() {
        Some("f16") => (false, false),
        Some("f16x2") => (false, true),
        Some("bf16") => (true, false),
        Some("bf16x2") => (true, true),
        _ => return Ok(None),
    };
    let alu = match (words.opcode, bf16) {
        ("add" | "sub" | "mul" | "fma", _) => {
            let rounded = words.flag("rn");
            if words.opcode == "fma" && !rounded {
                return Err("fma of halves needs .rn".into());
            }
            let mut flags = if !bf16 && words.flag("ftz") { FTZ } else { 0 };
            if !bf16 && words.flag("sat") {
                flags |= SAT;
            } else if words.opcode == "fma" && words.flag("relu") {
                flags |= RELU;
            }
            if bf16 { arithmetic_bf16(words, packed, flags) } else { arithmetic_f16(words, packed, flags) }
        }
        ("min" | "max", _) => extreme(words, bf16, packed),
        ("abs" | "neg", _) => {
            let ftz = !bf16 && words.flag("ftz");
            signs(words, packed, ftz)
        }
        _ => return Ok(None),
    };
    words.pop();
    Ok(Some(alu))
}

/// The values of a source; `PLAIN` promises that there are no flags.
#[inline(always)]
fn input<H: Half, const FAST: bool, const N: usize, const PLAIN: bool>(
    r: &Registers,
    s: &Step,
    source: usize,
) -> [f32; N] {
    let mut bits = split::<N>(&r.word(s.src[source]));
    if !PLAIN && s.flags & FTZ != 0 {
        for bits in &mut bits {
            *bits = flush::<H>(*bits);
        }
    }
    H::widen_all::<FAST, N>(&bits)
}

/// What every result goes through.
#[inline(always)]
fn output<H: Half, const FAST: bool, const N: usize, const PLAIN: bool>(
    r: &mut Registers,
    s: &Step,
    values: &[f32; N],
    mask: Mask,
) {
    let mut bits = H::narrow_all::<FAST, N>(values);
    if !PLAIN {
        for bits in &mut bits {
            *bits = limited::<H>(s.flags, *bits);
        }
    }
    r.set_word(s.dst, &join(&bits), mask);
}

#[inline(always)]
fn limited<H: Half>(flags: u32, bits: u16) -> u16 {
    let bits = if flags & FTZ != 0 { flush::<H>(bits) } else { bits };
    let (nan, negative) = (bits & 0x7fff > H::INFINITY, bits >= 0x8000);
    if flags & SAT != 0 {
        return if nan || negative { 0 } else { bits.min(H::ONE) };
    }
    if flags & RELU != 0 && negative && !nan { 0 } else { bits }
}

#[inline(always)]
fn row2<H: Half, const FAST: bool, const N: usize, const PLAIN: bool>(
    r: &mut Registers,
    s: &Step,
    mask: Mask,
    f: impl Fn(f32, f32) -> f32,
) {
    let a = input::<H, FAST, N, PLAIN>(r, s, 0);
    let b = input::<H, FAST, N, PLAIN>(r, s, 1);
    let mut values = [0.0; N];
    for at in 0..N {
        values[at] = f(a[at], b[at]);
    }
    output::<H, FAST, N, PLAIN>(r, s, &values, mask);
}

#[inline(always)]
fn row3<H: Half, const FAST: bool, const N: usize, const PLAIN: bool>(
    r: &mut Registers,
    s: &Step,
    mask: Mask,
    f: impl Fn(f32, f32, f32) -> f32,
) {
    let a = input::<H, FAST, N, PLAIN>(r, s, 0);
    let b = input::<H, FAST, N, PLAIN>(r, s, 1);
    let c = input::<H, FAST, N, PLAIN>(r, s, 2);
    let mut values = [0.0; N];
    for at in 0..N {
        values[at] = f(a[at], b[at], c[at]);
    }
    output::<H, FAST, N, PLAIN>(r, s, &values, mask);
}

fn arithmetic_f16(words: &Words<'_>, packed: bool, flags: u32) -> Alu {
    match words.opcode {
        "add" => half_op!(F16, packed, flags, row2, 2, |a, b| a + b),
        "sub" => half_op!(F16, packed, flags, row2, 2, |a, b| a - b),
        "mul" => half_op!(F16, packed, flags, row2, 2, |a, b| a * b),
        _ => half_op!(F16, packed, flags, row3, 3, |a, b, c| fma_f16(a, b, c)),
    }
}

/// `a · b + c` of f16 values, such that rounding it to f16 is the only rounding.
///
/// The product has 22 bits and is exact. The sum is rounded to odd: where bits were lost the last bit is set, so that the value lies on
/// the right side of every number of less precision, and of what is half way between two of them. What was lost is known exactly (Knuth's two-sum).
#[inline(always)]
pub(super) fn fma_f16(a: f32, b: f32, c: f32) -> f32 {
    let product = a * b;
    let sum = product + c;
    let part = sum - product;
    let lost = (product - (sum - part)) + (c - part);
    to_odd(sum, lost)
}

/// Moves a rounded value whose last bit is even by one bit towards what it was rounded from.
#[inline(always)]
fn to_odd(value: f32, lost: f32) -> f32 {
    let bits = value.to_bits();
    let outwards = (lost > 0.0) == (value > 0.0);
    let odd = if outwards { bits.wrapping_add(1) } else { bits.wrapping_sub(1) };
    // Not `!=`: what was lost is NaN where the sum is infinite.
    let inexact = lost.abs() > 0.0;
    f32::from_bits(if inexact && bits & 1 == 0 { odd } else { bits })
}

fn arithmetic_bf16(words: &Words<'_>, packed: bool, flags: u32) -> Alu {
    match words.opcode {
        // The product has 16 bits. Where it is too small for f32 to hold, rounding twice would show only for 65535 · 2^-150, which
        // is no product of two 8-bit numbers.
        "mul" => half_op!(Bf16, packed, flags, row2, 2, |a, b| a * b),
        "add" => half_op!(Bf16, packed, flags, row2, 2, |a, b| a + b),
        "sub" => half_op!(Bf16, packed, flags, row2, 2, |a, b| a - b),
        _ => {
            let run = match (packed, flags == 0) {
                (false, true) => both!(|r, s, m| fma_bf16::<FAST, 32, true>(r, s, m)),
                (false, false) => both!(|r, s, m| fma_bf16::<FAST, 32, false>(r, s, m)),
                (true, true) => both!(|r, s, m| fma_bf16::<FAST, 64, true>(r, s, m)),
                (true, false) => both!(|r, s, m| fma_bf16::<FAST, 64, false>(r, s, m)),
            };
            Alu { flags, ..Alu::new(run, Class::Word, &[Class::Word; 3]) }
        }
    }
}

/// `fma` of bf16 by that of f32, which is wrong only where f32 rounds to a value half way between two bf16: these are put right
/// one by one.
#[inline(always)]
fn fma_bf16<const FAST: bool, const N: usize, const PLAIN: bool>(r: &mut Registers, s: &Step, mask: Mask) {
    let a = input::<Bf16, FAST, N, PLAIN>(r, s, 0);
    let b = input::<Bf16, FAST, N, PLAIN>(r, s, 1);
    let c = input::<Bf16, FAST, N, PLAIN>(r, s, 2);
    let mut values = [0f32; N];
    for at in 0..N {
        values[at] = a[at].mul_add(b[at], c[at]);
    }
    let mut doubtful = 0;
    for value in &values {
        doubtful |= u32::from(value.to_bits() & 0xffff == 0x8000);
    }
    if doubtful != 0 {
        for at in 0..N {
            values[at] = settle(values[at], a[at], b[at], c[at]);
        }
    }
    output::<Bf16, FAST, N, PLAIN>(r, s, &values, mask);
}

/// The fused sum moved off the half-way value, to the side where the exact one is.
#[inline(never)]
fn settle(value: f32, a: f32, b: f32, c: f32) -> f32 {
    if value.to_bits() & 0xffff != 0x8000 {
        return value;
    }
    // In f64 the product is exact; the sum is either already on one side, or equal and what it lost tells.
    let (product, c) = (f64::from(a) * f64::from(b), f64::from(c));
    let sum = product + c;
    let part = sum - product;
    let lost = (product - (sum - part)) + (c - part);
    let above = sum - f64::from(value);
    let side = if above == 0.0 { lost } else { above };
    to_odd(
        value,
        if side > 0.0 {
            1.0
        } else if side < 0.0 {
            -1.0
        } else {
            0.0
        },
    )
}

/// Flags of `min` and `max`.
const GREATER: u32 = 1 << 9;
const NAN_WINS: u32 = 1 << 10;
const XORSIGN: u32 = 1 << 11;

fn extreme(words: &mut Words<'_>, bf16: bool, packed: bool) -> Alu {
    let mut flags = if words.opcode.starts_with("max") { GREATER } else { 0 };
    flags |= if !bf16 && words.flag("ftz") { FTZ } else { 0 };
    flags |= if words.flag("NaN") { NAN_WINS } else { 0 };
    let xorsign = words.has("xorsign") && words.has("abs") && words.flag("xorsign") && words.flag("abs");
    flags |= if xorsign { XORSIGN } else { 0 };
    let run = match (bf16, packed) {
        (false, false) => both!(|r, s, m| pick_row::<F16, 32>(r, s, m)),
        (true, false) => both!(|r, s, m| pick_row::<Bf16, 32>(r, s, m)),
        (false, true) => both!(|r, s, m| pick_row::<F16, 64>(r, s, m)),
        (true, true) => both!(|r, s, m| pick_row::<Bf16, 64>(r, s, m)),
    };
    Alu { flags, ..Alu::new(run, Class::Word, &[Class::Word; 2]) }
}

#[inline(always)]
fn pick_row<H: Half, const N: usize>(r: &mut Registers, s: &Step, mask: Mask) {
    let (a, b) = (split::<N>(&r.word(s.src[0])), split::<N>(&r.word(s.src[1])));
    let mut d = [0; N];
    for at in 0..N {
        d[at] = pick::<H>(s.flags, a[at], b[at]);
    }
    r.set_word(s.dst, &join(&d), mask);
}

/// The lesser or greater of two; a NaN gives way to a number, and -0.0 is less than 0.0.
#[inline(always)]
fn pick<H: Half>(flags: u32, a: u16, b: u16) -> u16 {
    let (a, b) = if flags & FTZ != 0 { (flush::<H>(a), flush::<H>(b)) } else { (a, b) };
    let nan = |x: u16| x & 0x7fff > H::INFINITY;
    let (nan_a, nan_b) = (nan(a), nan(b));
    let sign = if flags & XORSIGN != 0 { (a ^ b) & 0x8000 } else { 0 };
    let (a, b) = if flags & XORSIGN != 0 { (a & 0x7fff, b & 0x7fff) } else { (a, b) };
    // Magnitudes of negative numbers turned over: the order of integers is that of floats.
    let key = |x: u16| (x ^ ((x as i16 >> 15) as u16 & 0x7fff)) as i16;
    let first = if flags & GREATER != 0 { key(a) > key(b) } else { key(a) < key(b) };
    let value = if (first || nan_b) && !nan_a { a } else { b };
    let both_count = flags & NAN_WINS != 0;
    let is_nan = if both_count { nan_a || nan_b } else { nan_a && nan_b };
    if is_nan { H::NAN } else { value | sign }
}

/// `abs` and `neg` change the sign bit, of NaN too.
fn signs(words: &Words<'_>, packed: bool, ftz: bool) -> Alu {
    match (words.opcode, packed, ftz) {
        ("abs", false, false) => op!(u16 => u16, |a| a & 0x7fff),
        ("abs", false, true) => op!(u16 => u16, |a| flush::<F16>(a) & 0x7fff),
        ("abs", true, false) => op!(u32 => u32, |a| a & 0x7fff_7fff),
        ("abs", true, true) => op!(u32 => u32, |a| flush2(a) & 0x7fff_7fff),
        (_, false, false) => op!(u16 => u16, |a| a ^ 0x8000),
        (_, false, true) => op!(u16 => u16, |a| flush::<F16>(a) ^ 0x8000),
        (_, true, false) => op!(u32 => u32, |a| a ^ 0x8000_8000),
        (_, true, true) => op!(u32 => u32, |a| flush2(a) ^ 0x8000_8000),
    }
}

#[inline(always)]
fn flush2(a: u32) -> u32 {
    let (low, high) = halves(a);
    word(flush::<F16>(low), flush::<F16>(high))
}
