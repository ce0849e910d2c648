//! f32 and f64: sums, products, quotients, roots, minima.
//!
//! To nearest by the processor, in the other directions by [`directed`] and [`rounding`](super::rounding). Every NaN that comes out of an f32 instruction is 0x7fffffff,
//! as on a GPU; for f64, where a GPU lets the bits of a NaN through, it is 0xfff8000000000000 always, so that results do not depend on the order in
//! which the host's compiler puts the operands.

use super::rounding::{F32, F64, MODES, Rounding};
use super::rows::{both, map1, map2, map3, once, op};
use super::words::Words;
use super::{Alu, directed};
use crate::exec::registers::{Class, Mask, Registers};
use crate::program::Step;

/// Flag: subnormals are zero.
pub(super) const FTZ: u32 = 1 << 8;
/// Flag: the result is cut to 0 to 1, NaN to 0.
pub(super) const SAT: u32 = 1 << 9;

/// What f32 instructions give for NaN.
const NAN32: u32 = 0x7fff_ffff;
/// What f64 instructions give for NaN.
const NAN64: u64 = 0xfff8_0000_0000_0000;

/// An instruction with the constants `FLUSH` and `CUT` set as the arguments say.
macro_rules! modified {
    ($ftz:expr, $sat:expr, $op:expr) => {
        match ($ftz, $sat) {
            (false, false) => modified!(false, false => $op),
            (true, false) => modified!(true, false => $op),
            (false, true) => modified!(false, true => $op),
            (true, true) => modified!(true, true => $op),
        }
    };
    ($ftz:literal, $sat:literal => $op:expr) => {{
        const FLUSH: bool = $ftz;
        #[allow(unused)]
        const CUT: bool = $sat;
        $op
    }};
}

pub(super) use modified;

/// A subnormal becomes a zero of its sign.
#[inline(always)]
pub(super) fn flush<const FLUSH: bool>(a: f32) -> f32 {
    if FLUSH && a.abs() < f32::MIN_POSITIVE { f32::from_bits(a.to_bits() & 1 << 31) } else { a }
}

/// What every f32 result goes through.
#[inline(always)]
pub(super) fn result<const FLUSH: bool, const CUT: bool>(a: f32) -> f32 {
    if CUT {
        let a = if a > 0.0 { a } else { 0.0 };
        return flush::<FLUSH>(if a < 1.0 { a } else { 1.0 });
    }
    flush::<FLUSH>(canonical(a))
}

/// Any NaN becomes the one that a GPU gives.
///
/// By integers: of floats the compiler takes one NaN to be as good as another and leaves the test out.
#[inline(always)]
pub(super) fn canonical(a: f32) -> f32 {
    let bits = a.to_bits();
    f32::from_bits(if bits & 0x7fff_ffff > f32::INFINITY.to_bits() { NAN32 } else { bits })
}

#[inline(always)]
pub(super) fn result64(a: f64) -> f64 {
    let bits = a.to_bits();
    f64::from_bits(if bits & !(1 << 63) > f64::INFINITY.to_bits() { NAN64 } else { bits })
}

pub(super) fn lookup(words: &mut Words<'_>) -> Result<Option<Alu>, String> {
    let single = match words.last() {
        Some("f32") => true,
        Some("f64") => false,
        _ => return Ok(None),
    };
    let alu = match (words.opcode, single) {
        ("add" | "sub" | "mul" | "fma" | "mad", true) => arithmetic32(words)?,
        ("add" | "sub" | "mul" | "fma" | "mad", false) => arithmetic64(words)?,
        ("div" | "rcp" | "sqrt", _) if words.has("approx") || words.has("full") => return Ok(None),
        ("div" | "rcp" | "sqrt", true) => quotient32(words)?,
        ("div" | "rcp" | "sqrt", false) => quotient64(words)?,
        ("min" | "max" | "min3" | "max3", true) => extreme32(words),
        ("min", false) => op!(f64, f64 => f64, |a, b| result64(less64(a, b))),
        ("max", false) => op!(f64, f64 => f64, |a, b| result64(-less64(-a, -b))),
        ("abs", true) if words.flag("ftz") => op!(f32 => f32, |a| flush::<true>(a.abs())),
        ("neg", true) if words.flag("ftz") => op!(f32 => f32, |a| flush::<true>(-a)),
        ("abs", true) => op!(u32 => u32, |a| a & !(1 << 31)),
        ("neg", true) => op!(u32 => u32, |a| a ^ 1 << 31),
        ("abs", false) => op!(u64 => u64, |a| a & !(1 << 63)),
        ("neg", false) => op!(u64 => u64, |a| a ^ 1 << 63),
        ("copysign", true) => op!(u32, u32 => u32, |a, b| a & 1 << 31 | b & !(1 << 31)),
        ("copysign", false) => op!(u64, u64 => u64, |a, b| a & 1 << 63 | b & !(1 << 63)),
        _ => return Ok(None),
    };
    words.pop();
    Ok(Some(alu))
}

/// Only `fma` must name its rounding; the others round to nearest without it.
fn rounding(words: &mut Words<'_>) -> Result<Rounding, String> {
    if words.opcode == "fma" {
        return words.choose("a rounding", &MODES);
    }
    Ok(words.one_of(&MODES).unwrap_or(Rounding::Nearest))
}

/// `add sub mul fma mad` of f32.
fn arithmetic32(words: &mut Words<'_>) -> Result<Alu, String> {
    let mode = rounding(words)?;
    let (ftz, sat) = (words.flag("ftz"), words.flag("sat"));
    if mode == Rounding::Nearest {
        return Ok(match words.opcode {
            "add" => modified!(
                ftz,
                sat,
                op!(f32, f32 => f32, |a, b| result::<FLUSH, CUT>(flush::<FLUSH>(a) + flush::<FLUSH>(b)))
            ),
            "sub" => modified!(
                ftz,
                sat,
                op!(f32, f32 => f32, |a, b| result::<FLUSH, CUT>(flush::<FLUSH>(a) - flush::<FLUSH>(b)))
            ),
            "mul" => modified!(
                ftz,
                sat,
                op!(f32, f32 => f32, |a, b| result::<FLUSH, CUT>(flush::<FLUSH>(a) * flush::<FLUSH>(b)))
            ),
            _ => modified!(
                ftz,
                sat,
                op!(f32, f32, f32 => f32, |a, b, c| {
                    result::<FLUSH, CUT>(flush::<FLUSH>(a).mul_add(flush::<FLUSH>(b), flush::<FLUSH>(c)))
                })
            ),
        });
    }
    let flags = if ftz { FTZ } else { 0 } | if sat { SAT } else { 0 };
    Ok(directed::arithmetic(words.opcode, mode, flags))
}

fn soft_input(s: &Step, bits: u32) -> u64 {
    let bits = u64::from(bits);
    if s.flags & FTZ != 0 { F32.flush(bits) } else { bits }
}

fn soft_result(s: &Step, bits: u64) -> u32 {
    let a = f32::from_bits(bits as u32);
    (if s.flags & FTZ != 0 { flush::<true>(a) } else { a }).to_bits()
}

fn soft2(r: &mut Registers, s: &Step, mask: Mask, f: impl Fn(u64, u64, Rounding) -> u64) {
    let mode = Rounding::from_code(s.imm);
    map2(r, s, mask, |a: u32, b: u32| soft_result(s, f(soft_input(s, a), soft_input(s, b), mode)));
}

fn arithmetic64(words: &mut Words<'_>) -> Result<Alu, String> {
    let mode = rounding(words)?;
    if mode == Rounding::Nearest {
        return Ok(match words.opcode {
            "add" => op!(f64, f64 => f64, |a, b| result64(a + b)),
            "sub" => op!(f64, f64 => f64, |a, b| result64(a - b)),
            "mul" => op!(f64, f64 => f64, |a, b| result64(a * b)),
            _ => op!(f64, f64, f64 => f64, |a, b, c| result64(a.mul_add(b, c))),
        });
    }
    let two = &[Class::Long; 2];
    let alu = match words.opcode {
        "add" => {
            Alu::new(once!(|r, s, m| long2(r, s, m, |a, b, mode| F64.add(a, b, mode))), Class::Long, two)
        }
        "sub" => Alu::new(
            once!(|r, s, m| long2(r, s, m, |a, b, mode| F64.add(a, b ^ 1 << 63, mode))),
            Class::Long,
            two,
        ),
        "mul" => {
            Alu::new(once!(|r, s, m| long2(r, s, m, |a, b, mode| F64.mul(a, b, mode))), Class::Long, two)
        }
        _ => Alu::new(
            once!(|r, s, m| {
                let mode = Rounding::from_code(s.imm);
                map3(r, s, m, |a: u64, b: u64, c: u64| F64.fma(a, b, c, mode));
            }),
            Class::Long,
            &[Class::Long; 3],
        ),
    };
    Ok(Alu { imm: mode.code(), ..alu })
}

fn long2(r: &mut Registers, s: &Step, mask: Mask, f: impl Fn(u64, u64, Rounding) -> u64) {
    let mode = Rounding::from_code(s.imm);
    map2(r, s, mask, |a: u64, b: u64| f(a, b, mode));
}

/// `div rcp sqrt` of f32 with a rounding; the approximations are in [`approx`](super::approx).
fn quotient32(words: &mut Words<'_>) -> Result<Alu, String> {
    let mode = words.choose("a rounding or .approx", &MODES)?;
    let ftz = words.flag("ftz");
    if mode == Rounding::Nearest {
        return Ok(match words.opcode {
            "div" => modified!(
                ftz,
                false,
                op!(f32, f32 => f32, |a, b| result::<FLUSH, false>(flush::<FLUSH>(a) / flush::<FLUSH>(b)))
            ),
            "rcp" => {
                modified!(ftz, false, op!(f32 => f32, |a| result::<FLUSH, false>(1.0 / flush::<FLUSH>(a))))
            }
            _ => modified!(ftz, false, op!(f32 => f32, |a| result::<FLUSH, false>(flush::<FLUSH>(a).sqrt()))),
        });
    }
    let (run, src): (_, &[Class]) = match words.opcode {
        "div" => (once!(|r, s, m| soft2(r, s, m, |a, b, mode| F32.div(a, b, mode))), &[Class::Word; 2]),
        "rcp" => (once!(|r, s, m| soft1(r, s, m, |a, mode| F32.div(0x3f80_0000, a, mode))), &[Class::Word]),
        _ => (once!(|r, s, m| soft1(r, s, m, |a, mode| F32.sqrt(a, mode))), &[Class::Word]),
    };
    Ok(Alu { flags: if ftz { FTZ } else { 0 }, imm: mode.code(), ..Alu::new(run, Class::Word, src) })
}

fn soft1(r: &mut Registers, s: &Step, mask: Mask, f: impl Fn(u64, Rounding) -> u64) {
    let mode = Rounding::from_code(s.imm);
    map1(r, s, mask, |a: u32| soft_result(s, f(soft_input(s, a), mode)));
}

fn quotient64(words: &mut Words<'_>) -> Result<Alu, String> {
    let mode = words.choose("a rounding", &MODES)?;
    if mode == Rounding::Nearest {
        return Ok(match words.opcode {
            "div" => op!(f64, f64 => f64, |a, b| result64(a / b)),
            "rcp" => op!(f64 => f64, |a| result64(1.0 / a)),
            _ => op!(f64 => f64, |a| result64(a.sqrt())),
        });
    }
    let (run, src): (_, &[Class]) = match words.opcode {
        "div" => (once!(|r, s, m| long2(r, s, m, |a, b, mode| F64.div(a, b, mode))), &[Class::Long; 2]),
        "rcp" => {
            (once!(|r, s, m| long1(r, s, m, |a, mode| F64.div(1f64.to_bits(), a, mode))), &[Class::Long])
        }
        _ => (once!(|r, s, m| long1(r, s, m, |a, mode| F64.sqrt(a, mode))), &[Class::Long]),
    };
    Ok(Alu { imm: mode.code(), ..Alu::new(run, Class::Long, src) })
}

fn long1(r: &mut Registers, s: &Step, mask: Mask, f: impl Fn(u64, Rounding) -> u64) {
    let mode = Rounding::from_code(s.imm);
    map1(r, s, mask, |a: u64| f(a, mode));
}

/// The lesser of two; a NaN gives way to a number, and -0.0 is less than 0.0.
#[inline(always)]
fn less(a: f32, b: f32) -> f32 {
    let first = a < b || a == b && a.is_sign_negative() || b.is_nan();
    if first { a } else { b }
}

#[inline(always)]
fn less64(a: f64, b: f64) -> f64 {
    let first = a < b || a == b && a.is_sign_negative() || b.is_nan();
    if first { a } else { b }
}

/// Flag of `min` and `max`: the greater one is wanted.
const GREATER: u32 = 1 << 9;
/// Flag of `min` and `max`: one NaN makes the result NaN.
const NAN_WINS: u32 = 1 << 10;
/// Flag of `min` and `max`: of magnitudes, with the product's sign.
const XORSIGN: u32 = 1 << 11;
/// Flag of `min` and `max` of three: of magnitudes.
const ABS: u32 = 1 << 12;

fn extreme32(words: &mut Words<'_>) -> Alu {
    let greater = words.opcode.starts_with("max");
    let (ftz, nan) = (words.flag("ftz"), words.flag("NaN"));
    let mut flags = [(greater, GREATER), (ftz, FTZ), (nan, NAN_WINS)]
        .into_iter()
        .filter(|(set, _)| *set)
        .fold(0, |flags, (_, flag)| flags | flag);
    if words.opcode.ends_with('3') {
        flags |= if words.flag("abs") { ABS } else { 0 };
        let run = once!(|r, s, m| map3(r, s, m, |a: f32, b: f32, c: f32| {
            extreme(s.flags, extreme(s.flags, a, b), c)
        }));
        return Alu { flags, ..Alu::new(run, Class::Word, &[Class::Word; 3]) };
    }
    // `.xorsign.abs` is one modifier of two words.
    let xorsign = words.has("xorsign") && words.has("abs") && words.flag("xorsign") && words.flag("abs");
    if xorsign || nan {
        flags |= if xorsign { XORSIGN } else { 0 };
        let run = both!(|r, s, m| map2(r, s, m, |a: f32, b: f32| extreme(s.flags, a, b)));
        return Alu { flags, ..Alu::new(run, Class::Word, &[Class::Word; 2]) };
    }
    if greater {
        modified!(
            ftz,
            false,
            op!(f32, f32 => f32, |a, b| result::<FLUSH, false>(-less(-flush::<FLUSH>(a), -flush::<FLUSH>(b))))
        )
    } else {
        modified!(
            ftz,
            false,
            op!(f32, f32 => f32, |a, b| result::<FLUSH, false>(less(flush::<FLUSH>(a), flush::<FLUSH>(b))))
        )
    }
}

#[inline(always)]
fn extreme(flags: u32, a: f32, b: f32) -> f32 {
    let (a, b) = if flags & FTZ != 0 { (flush::<true>(a), flush::<true>(b)) } else { (a, b) };
    let sign = (a.to_bits() ^ b.to_bits()) & 1 << 31;
    let nan = a.is_nan() || b.is_nan();
    let (x, y) = if flags & (XORSIGN | ABS) != 0 { (a.abs(), b.abs()) } else { (a, b) };
    let value = if flags & GREATER != 0 { -less(-x, -y) } else { less(x, y) };
    let value = if flags & XORSIGN != 0 { f32::from_bits(value.to_bits() | sign) } else { value };
    canonical(if nan && flags & NAN_WINS != 0 { f32::from_bits(NAN32) } else { value })
}
