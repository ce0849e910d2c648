//! The approximations: `rcp sqrt rsqrt div ex2 lg2 sin cos tanh`.
//!
//! They are computed in f64 and rounded once, so that they are nearly exact: a GPU's tables err by up to the bound in the ISA, and by which bits is known to
//! nobody. A kernel that passes here may be off by that bound there. Polynomials and not the host's library: they become vectors, and give
//! the same bits on every host.

use super::Alu;
use super::float::{FTZ, flush, modified, result, result64};
use super::half::{Bf16, F16, Half, flush as flush16, halves, word};
use super::rows::{both, map1, op};
use super::words::Words;
use crate::exec::registers::{Class, Mask, Registers};
use crate::program::Step;

pub(super) fn lookup(words: &mut Words<'_>) -> Result<Option<Alu>, String> {
    let opcode = words.opcode;
    if !matches!(opcode, "rcp" | "sqrt" | "rsqrt" | "div" | "ex2" | "lg2" | "sin" | "cos" | "tanh") {
        return Ok(None);
    }
    let full = opcode == "div" && words.flag("full");
    if !full && !words.flag("approx") {
        return Err(format!("{opcode} needs .approx"));
    }
    let ty = words.pop().unwrap_or_default();
    let ftz = opcode != "tanh" && words.flag("ftz");
    let alu = match (opcode, ty) {
        ("rcp", "f32") => {
            modified!(ftz, false, op!(f32 => f32, |a| result::<FLUSH, false>(1.0 / flush::<FLUSH>(a))))
        }
        ("rcp", "f64") if ftz => op!(u64 => u64, |a| gross(a, |a| 1.0 / a)),
        ("rsqrt", "f64") if ftz => op!(u64 => u64, |a| gross(a, |a| 1.0 / a.sqrt())),
        ("rsqrt", "f64") => op!(f64 => f64, |a| result64(1.0 / a.sqrt())),
        ("sqrt", "f32") => {
            modified!(ftz, false, op!(f32 => f32, |a| result::<FLUSH, false>(flush::<FLUSH>(a).sqrt())))
        }
        ("rsqrt", "f32") => modified!(
            ftz,
            false,
            op!(f32 => f32, |a| result::<FLUSH, false>((1.0 / f64::from(flush::<FLUSH>(a)).sqrt()) as f32))
        ),
        ("div", "f32") if full => modified!(
            ftz,
            false,
            op!(f32, f32 => f32, |a, b| result::<FLUSH, false>(flush::<FLUSH>(a) / flush::<FLUSH>(b)))
        ),
        ("div", "f32") => modified!(
            ftz,
            false,
            op!(f32, f32 => f32, |a, b| result::<FLUSH, false>(divide(flush::<FLUSH>(a), flush::<FLUSH>(b))))
        ),
        ("ex2", "f32") => {
            modified!(ftz, false, op!(f32 => f32, |a| result::<FLUSH, false>(ex2(flush::<FLUSH>(a)))))
        }
        ("lg2", "f32") => {
            modified!(ftz, false, op!(f32 => f32, |a| result::<FLUSH, false>(lg2(flush::<FLUSH>(a)))))
        }
        ("sin", "f32") => angle(ftz, both!(|r, s, m| sine::<0>(r, s, m))),
        ("cos", "f32") => angle(ftz, both!(|r, s, m| sine::<1>(r, s, m))),
        ("tanh", "f32") => op!(f32 => f32, |a| result::<false, false>(tanh(a))),
        ("ex2", "f16") => modified!(ftz, false, op!(u16 => u16, |a| on_half::<F16, FLUSH>(a, ex2))),
        ("ex2", "f16x2") => modified!(ftz, false, op!(u32 => u32, |a| on_two::<F16, FLUSH>(a, ex2))),
        // The ISA flushes subnormals of bf16 here, and says so by a modifier that must be there.
        ("ex2", "bf16") if ftz => op!(u16 => u16, |a| on_half::<Bf16, true>(a, ex2)),
        ("ex2", "bf16x2") if ftz => op!(u32 => u32, |a| on_two::<Bf16, true>(a, ex2)),
        ("tanh", "f16") => op!(u16 => u16, |a| on_half::<F16, false>(a, tanh)),
        ("tanh", "f16x2") => op!(u32 => u32, |a| on_two::<F16, false>(a, tanh)),
        ("tanh", "bf16") => op!(u16 => u16, |a| on_half::<Bf16, false>(a, tanh)),
        ("tanh", "bf16x2") => op!(u32 => u32, |a| on_two::<Bf16, false>(a, tanh)),
        (_, ty) => return Err(format!("{opcode} with these modifiers does not take the type .{ty}")),
    };
    Ok(Some(alu))
}

/// `div.approx`: the reciprocal of a large divisor is subnormal and lost, as the ISA says.
#[inline(always)]
fn divide(a: f32, b: f32) -> f32 {
    let reciprocal = 1.0 / b;
    let lost = reciprocal.abs() < f32::MIN_POSITIVE;
    let quotient = if reciprocal.is_infinite() { a / b } else { a * reciprocal };
    if lost { a * f32::from_bits(reciprocal.to_bits() & 1 << 31) } else { quotient }
}

/// The `.approx.ftz.f64` forms: upper words in and out.
#[inline(always)]
fn gross(bits: u64, f: impl Fn(f64) -> f64) -> u64 {
    let flush = |a: f64| if a.abs() < f64::MIN_POSITIVE { a.to_bits() & 1 << 63 } else { a.to_bits() };
    let upper = !0xffff_ffff;
    let value = f(f64::from_bits(flush(f64::from_bits(bits & upper))));
    if value.is_nan() { 0x7fff_ffff << 32 } else { flush(f64::from_bits(value.to_bits() & upper)) }
}

/// `2^x` for `|x| ≤ 200`, to about 2^-34 of itself.
#[inline(always)]
fn power_of_two(x: f64) -> f64 {
    // Adding 1.5·2^52 leaves the nearest integer in the low bits.
    const MAGIC: f64 = 6_755_399_441_055_744.0;
    let shifted = x + MAGIC;
    let fraction = x - (shifted - MAGIC);
    let y = fraction * std::f64::consts::LN_2;
    // Taylor: |y| < 0.347, the first term left out is 6e-12.
    let mut sum = 1.0 / 362_880.0;
    for factor in
        [1.0 / 40320.0, 1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0]
    {
        sum = sum * y + factor;
    }
    let scale = f64::from_bits(shifted.to_bits().wrapping_add(1023) << 52);
    sum * scale
}

#[inline(always)]
fn ex2(a: f32) -> f32 {
    let x = f64::from(a);
    let x = if x > 200.0 { 200.0 } else { x };
    let x = if x < -200.0 { -200.0 } else { x };
    power_of_two(x) as f32
}

/// The logarithm by the series of the inverse hyperbolic tangent, of a mantissa around one.
#[inline(always)]
fn lg2(a: f32) -> f32 {
    let bits = f64::from(a).to_bits();
    let mantissa = f64::from_bits(bits & ((1 << 52) - 1) | 1023 << 52);
    // The exponent as a number: below a one at 2^52, and that taken away.
    let exponent = f64::from_bits(bits >> 52 & 0x7ff | 0x433 << 52) - (4_503_599_627_370_496.0 + 1023.0);
    let large = mantissa > std::f64::consts::SQRT_2;
    let mantissa = if large { mantissa * 0.5 } else { mantissa };
    let exponent = if large { exponent + 1.0 } else { exponent };
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let square = s * s;
    // |s| < 0.172: the first term left out is 5e-13 of the first.
    let mut sum = 1.0 / 15.0;
    for factor in [1.0 / 13.0, 1.0 / 11.0, 1.0 / 9.0, 1.0 / 7.0, 1.0 / 5.0, 1.0 / 3.0, 1.0] {
        sum = sum * square + factor;
    }
    let value = (exponent + sum * s * (2.0 * std::f64::consts::LOG2_E)) as f32;
    let value = if a == 0.0 { f32::NEG_INFINITY } else { value };
    let value = if a == f32::INFINITY { a } else { value };
    if a >= 0.0 { value } else { f32::NAN }
}

#[inline(always)]
fn tanh(a: f32) -> f32 {
    let x = f64::from(a);
    let magnitude = if x.abs() > 20.0 { 20.0 } else { x.abs() };
    let power = power_of_two(magnitude * (2.0 * std::f64::consts::LOG2_E));
    let large = (power - 1.0) / (power + 1.0);
    // Near zero the difference loses its digits and two terms are enough.
    let small = magnitude - magnitude * magnitude * magnitude * (1.0 / 3.0);
    let value = if magnitude < 1.0 / 256.0 { small } else { large };
    (if a.is_sign_negative() { -value } else { value }) as f32
}

fn angle(ftz: bool, run: crate::program::AluFn) -> Alu {
    Alu { flags: if ftz { FTZ } else { 0 }, ..Alu::new(run, Class::Word, &[Class::Word]) }
}

/// Beyond this an angle has no digits left for the polynomial's reduction and the host's library is asked.
const FAR: f32 = 16_777_216.0;

/// Sine, or cosine with `QUARTER` = 1: a quarter turn on.
#[inline(always)]
fn sine<const QUARTER: i64>(r: &mut Registers, s: &Step, mask: Mask) {
    let a = r.word(s.src[0]);
    let mut far = 0;
    for bits in &a {
        far |= u32::from(bits & 0x7fff_ffff >= FAR.to_bits());
    }
    let ftz = s.flags & FTZ != 0;
    if far == 0 {
        map1(r, s, mask, |a: f32| near::<QUARTER>(if ftz { flush::<true>(a) } else { a }, ftz));
    } else {
        map1(r, s, mask, |a: f32| {
            let x = f64::from(a);
            match a.abs() < FAR {
                true => near::<QUARTER>(if ftz { flush::<true>(a) } else { a }, ftz),
                false => result::<true, false>((if QUARTER == 0 { x.sin() } else { x.cos() }) as f32),
            }
        });
    }
}

#[inline(always)]
fn near<const QUARTER: i64>(a: f32, ftz: bool) -> f32 {
    const MAGIC: f64 = 6_755_399_441_055_744.0;
    let quarters = f64::from(a) * std::f64::consts::FRAC_2_PI;
    let shifted = quarters + MAGIC;
    let t = (quarters - (shifted - MAGIC)) * std::f64::consts::FRAC_PI_2;
    let which = shifted.to_bits().wrapping_add(QUARTER as u64);
    let square = t * t;
    // |t| < 0.79: what is left out is below 2e-12.
    let mut sine = -1.0 / 39_916_800.0;
    for factor in [1.0 / 362_880.0, -1.0 / 5040.0, 1.0 / 120.0, -1.0 / 6.0, 1.0] {
        sine = sine * square + factor;
    }
    let mut cosine = 1.0 / 479_001_600.0;
    for factor in [-1.0 / 3_628_800.0, 1.0 / 40320.0, -1.0 / 720.0, 1.0 / 24.0, -0.5, 1.0] {
        cosine = cosine * square + factor;
    }
    let value = if which & 1 == 0 { sine * t } else { cosine };
    let value = f64::from_bits(value.to_bits() ^ (which >> 1 & 1) << 63);
    let value = value as f32;
    if ftz { result::<true, false>(value) } else { result::<false, false>(value) }
}

#[inline(always)]
fn on_half<H: Half, const FLUSH: bool>(a: u16, f: impl Fn(f32) -> f32) -> u16 {
    let flushed = |a: u16| if FLUSH { flush16::<H>(a) } else { a };
    flushed(H::narrow(f(H::widen(flushed(a)))))
}

#[inline(always)]
fn on_two<H: Half, const FLUSH: bool>(a: u32, f: impl Fn(f32) -> f32) -> u32 {
    let (low, high) = halves(a);
    word(on_half::<H, FLUSH>(low, &f), on_half::<H, FLUSH>(high, &f))
}
