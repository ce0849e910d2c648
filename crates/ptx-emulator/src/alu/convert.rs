//! `cvt`: which function converts what.
//!
//! The pairs that kernels use a lot go by the processor's conversions and by vectors; all others go through exact values in
//! [`soften`](super::soften). Both kinds are tested against the same definitions.
//!
//! NaN becomes an integer as the ISA says: 0, but the highest bit alone where the source is f64 or the destination has 64 bits.
#![allow(unsafe_code)]

use super::Alu;
use super::float::{canonical, flush, modified, result, result64};
use super::half::{Bf16, F16, Half, word};
use super::rounding::Rounding;
use super::rows::both;
use super::rows::{map1, map2, once, op};
use super::soften::{Conversion, Kind};
use super::words::Words;
use crate::exec::registers::{Class, Mask, Registers};
use crate::program::{AluFn, Step};

const FLOAT_MODES: [(&str, Rounding); 5] = [
    ("rn", Rounding::Nearest),
    ("rz", Rounding::Zero),
    ("rm", Rounding::Down),
    ("rp", Rounding::Up),
    ("rna", Rounding::Away),
];
const INTEGER_MODES: [(&str, Rounding); 4] =
    [("rni", Rounding::Nearest), ("rzi", Rounding::Zero), ("rmi", Rounding::Down), ("rpi", Rounding::Up)];

pub(super) fn lookup(words: &mut Words<'_>) -> Result<Option<Alu>, String> {
    if words.opcode != "cvt" {
        return Ok(None);
    }
    if words.flag("pack") {
        return pack(words).map(Some);
    }
    let (from, to) = (words.pop().unwrap_or_default(), words.pop().unwrap_or_default());
    let alu = match (to, from) {
        ("f16x2", "f32") => pair(words, Kind::F16)?,
        ("bf16x2", "f32") => pair(words, Kind::Bf16)?,
        ("e4m3x2", "f32") => small_pair(words, Kind::E4m3)?,
        ("e5m2x2", "f32") => small_pair(words, Kind::E5m2)?,
        ("e4m3x2", "f16x2") => small_from_halves(words, Kind::E4m3)?,
        ("e5m2x2", "f16x2") => small_from_halves(words, Kind::E5m2)?,
        ("f16x2", "e4m3x2") => halves_from_small(words, Kind::E4m3)?,
        ("f16x2", "e5m2x2") => halves_from_small(words, Kind::E5m2)?,
        _ => {
            let kind = |name: &str| {
                Kind::from_word(name).ok_or_else(|| format!("cvt does not know the type .{name}"))
            };
            let (to, from) = (kind(to)?, kind(from)?);
            single(words, to, from)?
        }
    };
    Ok(Some(alu))
}

/// One value to one value.
fn single(words: &mut Words<'_>, to: Kind, from: Kind) -> Result<Alu, String> {
    let integral = words.one_of(&INTEGER_MODES);
    let rounding = if integral.is_some() { None } else { words.one_of(&FLOAT_MODES) };
    let single = to == Kind::F32 || from == Kind::F32;
    let conversion = Conversion {
        to,
        from,
        mode: integral.or(rounding).unwrap_or(Rounding::Nearest),
        integral: integral.is_some() && to.format().is_some(),
        ftz: single && words.flag("ftz"),
        sat: words.flag("sat"),
        relu: words.flag("relu"),
        finite: words.flag("satfinite"),
    };
    check(&conversion, integral.is_some(), rounding)?;
    let hot = hot(&conversion);
    Ok(hot.unwrap_or_else(|| soft(&conversion)))
}

/// The combinations the ISA has no meaning for.
fn check(c: &Conversion, integral: bool, rounding: Option<Rounding>) -> Result<(), String> {
    let (to_float, from_float) = (c.to.format().is_some(), c.from.format().is_some());
    let narrows = match (c.to, c.from) {
        (Kind::F16 | Kind::Bf16, Kind::F16 | Kind::Bf16) => c.to != c.from,
        _ => to_float && from_float && (c.to.bits() < c.from.bits() || c.to == Kind::Tf32),
    };
    if c.from == Kind::Tf32 || c.to == Kind::Tf32 && c.from != Kind::F32 {
        return Err("cvt: tf32 is converted to, and from f32 only".into());
    }
    if from_float && !to_float && !integral {
        return Err("cvt from a float to an integer needs .rni, .rzi, .rmi or .rpi".into());
    }
    if !from_float && integral {
        return Err("cvt from an integer takes no .rni, .rzi, .rmi or .rpi".into());
    }
    if to_float && from_float && integral && c.to != c.from {
        return Err("cvt with .rni, .rzi, .rmi or .rpi between floats keeps the type".into());
    }
    if narrows && rounding.is_none() {
        return Err("cvt to a float of less precision needs a rounding".into());
    }
    if rounding.is_some() && (!to_float || c.to == c.from) {
        return Err("cvt takes .rn, .rz, .rm and .rp only where the result is a float of another type".into());
    }
    if rounding == Some(Rounding::Away) && c.to != Kind::Tf32 {
        return Err("cvt.rna is for tf32 only".into());
    }
    let clamps = matches!(c.to, Kind::F16 | Kind::Bf16 | Kind::Tf32) && c.from == Kind::F32;
    if (c.relu || c.finite) && !clamps {
        return Err("cvt takes .relu and .satfinite from f32 to f16, bf16 and tf32 only".into());
    }
    Ok(())
}

fn class(kind: Kind) -> Class {
    if kind.bits() == 64 { Class::Long } else { Class::Word }
}

/// The function that takes any conversion from the step.
fn soft(c: &Conversion) -> Alu {
    let (to, from) = (class(c.to), class(c.from));
    let run: AluFn = match (to, from) {
        (Class::Long, Class::Long) => once!(|r, s, m| {
            let c = Conversion::unpack(s.imm);
            map1(r, s, m, |a: u64| c.apply(a));
        }),
        (Class::Long, _) => once!(|r, s, m| {
            let c = Conversion::unpack(s.imm);
            map1(r, s, m, |a: u32| c.apply(u64::from(a)));
        }),
        (_, Class::Long) => once!(|r, s, m| {
            let c = Conversion::unpack(s.imm);
            map1(r, s, m, |a: u64| c.apply(a) as u32);
        }),
        _ => once!(|r, s, m| {
            let c = Conversion::unpack(s.imm);
            map1(r, s, m, |a: u32| c.apply(u64::from(a)) as u32);
        }),
    };
    Alu { imm: c.pack(), ..Alu::new(run, to, &[from]) }
}

/// Integers to integers: a row for each destination, a column for each source.
macro_rules! casts {
    ($to:expr, $from:expr; $($bits:literal $signed:literal $t:ty,)*) => {
        match $to {
            $(Kind::Integer($bits, $signed) => casts!(@ $from, $t),)*
            _ => None,
        }
    };
    (@ $from:expr, $t:ty) => {
        Some(match $from {
            Kind::Integer(8, false) => op!(u8 => $t, |a| a as $t),
            Kind::Integer(8, true) => op!(i8 => $t, |a| a as $t),
            Kind::Integer(16, false) => op!(u16 => $t, |a| a as $t),
            Kind::Integer(16, true) => op!(i16 => $t, |a| a as $t),
            Kind::Integer(32, false) => op!(u32 => $t, |a| a as $t),
            Kind::Integer(32, true) => op!(i32 => $t, |a| a as $t),
            Kind::Integer(64, false) => op!(u64 => $t, |a| a as $t),
            Kind::Integer(64, true) => op!(i64 => $t, |a| a as $t),
            _ => return None,
        })
    };
}

/// f32 to an integer of at most 32 bits, and f64 to one: each rounding a function.
macro_rules! rounded {
    ($from:ty => $to:ty, $mode:expr, |$a:ident| $cast:expr) => {
        match $mode {
            Rounding::Nearest => op!($from => $to, |a| { let $a = a.round_ties_even(); $cast }),
            Rounding::Down => op!($from => $to, |a| { let $a = a.floor(); $cast }),
            Rounding::Up => op!($from => $to, |a| { let $a = a.ceil(); $cast }),
            _ => op!($from => $to, |a| { let $a = a.trunc(); $cast }),
        }
    };
}

/// The conversions that go by vectors.
fn hot(c: &Conversion) -> Option<Alu> {
    // A subnormal that becomes an integer shows only where it would be rounded away from zero.
    let shows = c.ftz && c.to.format().is_none() && matches!(c.mode, Rounding::Down | Rounding::Up);
    if c.relu || c.finite || shows {
        return None;
    }
    let nearest = c.mode == Rounding::Nearest;
    match (c.to, c.from) {
        (Kind::Integer(..), Kind::Integer(..)) if !c.sat => casts!(
            c.to, c.from;
            8 false u8, 8 true i8, 16 false u16, 16 true i16, 32 false u32, 32 true i32, 64 false u64, 64 true i64,
        ),
        // Floats saturate without `.sat`, which therefore changes nothing.
        (Kind::Integer(32, true), Kind::F32) => Some(rounded!(f32 => i32, c.mode, |a| to_i32(a))),
        (Kind::Integer(32, false), Kind::F32) => Some(rounded!(f32 => u32, c.mode, |a| to_u32(a))),
        (Kind::Integer(16, true), Kind::F32) => {
            Some(rounded!(f32 => i16, c.mode, |a| to_i32(clamp(a, -32768.0, 32767.0)) as i16))
        }
        (Kind::Integer(16, false), Kind::F32) => {
            Some(rounded!(f32 => u16, c.mode, |a| to_i32(clamp(a, 0.0, 65535.0)) as u16))
        }
        (Kind::Integer(8, true), Kind::F32) => {
            Some(rounded!(f32 => i8, c.mode, |a| to_i32(clamp(a, -128.0, 127.0)) as i8))
        }
        (Kind::Integer(8, false), Kind::F32) => {
            Some(rounded!(f32 => u8, c.mode, |a| to_i32(clamp(a, 0.0, 255.0)) as u8))
        }
        (Kind::Integer(64, true), Kind::F32) => {
            Some(rounded!(f32 => i64, c.mode, |a| if a.is_nan() { i64::MIN } else { a as i64 }))
        }
        (Kind::Integer(32, true), Kind::F64) => {
            Some(rounded!(f64 => i32, c.mode, |a| if a.is_nan() { i32::MIN } else { a as i32 }))
        }
        (Kind::F32, Kind::Integer(bits, signed)) if nearest && !c.sat => match (bits, signed) {
            (8, false) => Some(op!(u8 => f32, |a| f32::from(a))),
            (8, true) => Some(op!(i8 => f32, |a| f32::from(a))),
            (16, false) => Some(op!(u16 => f32, |a| f32::from(a))),
            (16, true) => Some(op!(i16 => f32, |a| f32::from(a))),
            (32, false) => Some(op!(u32 => f32, |a| a as f32)),
            (32, true) => Some(op!(i32 => f32, |a| a as f32)),
            (_, false) => Some(op!(u64 => f32, |a| a as f32)),
            (_, true) => Some(op!(i64 => f32, |a| a as f32)),
        },
        (Kind::F64, Kind::Integer(bits, signed)) if nearest && !c.sat => match (bits, signed) {
            (32, false) => Some(op!(u32 => f64, |a| f64::from(a))),
            (32, true) => Some(op!(i32 => f64, |a| f64::from(a))),
            (64, false) => Some(op!(u64 => f64, |a| a as f64)),
            (64, true) => Some(op!(i64 => f64, |a| a as f64)),
            _ => None,
        },
        // Beyond 65536 all is infinite and below it f32 is exact: one rounding, and that to f16.
        (Kind::F16, Kind::Integer(32, true)) if nearest && !c.sat => {
            Some(op!(i32 => u16, |a| F16::narrow(a.clamp(-65536, 65536) as f32)))
        }
        (Kind::F16, Kind::Integer(32, false)) if nearest && !c.sat => {
            Some(op!(u32 => u16, |a| F16::narrow(a.min(65536) as i32 as f32)))
        }
        (Kind::F32, Kind::F32) => Some(within_f32(c)),
        (Kind::F32, Kind::F64) if nearest => {
            Some(modified!(c.ftz, c.sat, op!(f64 => f32, |a| result::<FLUSH, CUT>(a as f32))))
        }
        (Kind::F64, Kind::F32) if !c.sat && !c.ftz => Some(op!(f32 => f64, |a| result64(f64::from(a)))),
        (Kind::F32, Kind::F16) if !c.sat => Some(op!(u16 => f32, |a| canonical(F16::widen(a)))),
        (Kind::F32, Kind::Bf16) if !c.sat && !c.ftz => Some(op!(u16 => f32, |a| canonical(Bf16::widen(a)))),
        (Kind::F16, Kind::F32) if nearest && !c.sat => {
            Some(modified!(c.ftz, false, op!(f32 => u16, |a| F16::narrow(flush::<FLUSH>(a)))))
        }
        (Kind::Bf16, Kind::F32) if nearest && !c.sat => {
            Some(modified!(c.ftz, false, op!(f32 => u16, |a| Bf16::narrow(flush::<FLUSH>(a)))))
        }
        _ => None,
    }
}

/// What `a as i32` gives. The cast itself becomes a branch for each lane; this becomes vectors.
#[inline(always)]
fn to_i32(a: f32) -> i32 {
    const END: f32 = 2_147_483_648.0;
    let inside = if a.abs() < END { a } else { 0.0 };
    // SAFETY: what is not inside of the type, or NaN, was replaced by zero.
    let value: i32 = unsafe { inside.to_int_unchecked() };
    let value = if a >= END { i32::MAX } else { value };
    if a <= -END { i32::MIN } else { value }
}

/// What `a as u32` gives.
#[inline(always)]
fn to_u32(a: f32) -> u32 {
    const HALF: f32 = 2_147_483_648.0;
    // The upper half of the range goes through the lower one.
    let upper = a >= HALF;
    let value = to_i32(if upper { a - HALF } else { a }).max(0) as u32;
    if upper { value + (1 << 31) } else { value }
}

/// Between two bounds; NaN stays what it is.
#[inline(always)]
fn clamp(a: f32, least: f32, most: f32) -> f32 {
    let a = if a < least { least } else { a };
    if a > most { most } else { a }
}

/// f32 to f32: to an integer, flushed, cut.
fn within_f32(c: &Conversion) -> Alu {
    macro_rules! within {
        ($round:expr) => {
            modified!(
                c.ftz,
                c.sat,
                op!(f32 => f32, |a| {
                    let round: fn(f32) -> f32 = $round;
                    result::<FLUSH, CUT>(round(flush::<FLUSH>(a)))
                })
            )
        };
    }
    match (c.integral, c.mode) {
        (false, _) => within!(|a| a),
        (true, Rounding::Nearest) => within!(f32::round_ties_even),
        (true, Rounding::Down) => within!(f32::floor),
        (true, Rounding::Up) => within!(f32::ceil),
        (true, _) => within!(f32::trunc),
    }
}

/// Two f32 to a pair of halves; the first source goes up.
fn pair(words: &mut Words<'_>, to: Kind) -> Result<Alu, String> {
    let mode = words.choose("a rounding", &FLOAT_MODES[..2])?;
    let conversion = Conversion {
        to,
        from: Kind::F32,
        mode,
        integral: false,
        ftz: false,
        sat: false,
        relu: words.flag("relu"),
        finite: words.flag("satfinite"),
    };
    if mode == Rounding::Nearest && !conversion.relu && !conversion.finite {
        return Ok(if to == Kind::F16 {
            op!(f32, f32 => u32, |a, b| word(F16::narrow(b), F16::narrow(a)))
        } else {
            op!(f32, f32 => u32, |a, b| word(Bf16::narrow(b), Bf16::narrow(a)))
        });
    }
    Ok(soft_pair(&conversion))
}

/// Two f32 to two of any narrower float.
fn soft_pair(c: &Conversion) -> Alu {
    let run = once!(|r, s, m| {
        let c = Conversion::unpack(s.imm);
        map2(r, s, m, |a: u32, b: u32| {
            let (high, low) = (c.apply(u64::from(a)), c.apply(u64::from(b)));
            (high << c.to.bits() | low) as u32
        });
    });
    Alu { imm: c.pack(), ..Alu::new(run, Class::Word, &[Class::Word; 2]) }
}

fn small(words: &mut Words<'_>, to: Kind, from: Kind) -> Result<Conversion, String> {
    let mode = words.choose("a rounding", &FLOAT_MODES[..1])?;
    if from != Kind::E4m3 && from != Kind::E5m2 && !words.flag("satfinite") {
        return Err("cvt to an 8-bit float needs .satfinite".into());
    }
    let (relu, finite) = (words.flag("relu"), true);
    Ok(Conversion { to, from, mode, integral: false, ftz: false, sat: false, relu, finite })
}

fn small_pair(words: &mut Words<'_>, to: Kind) -> Result<Alu, String> {
    Ok(soft_pair(&small(words, to, Kind::F32)?))
}

fn small_from_halves(words: &mut Words<'_>, to: Kind) -> Result<Alu, String> {
    let conversion = small(words, to, Kind::F16)?;
    let run = once!(|r, s, m| {
        let c = Conversion::unpack(s.imm);
        map1(r, s, m, |a: u32| (c.apply(u64::from(a >> 16)) << 8 | c.apply(u64::from(a & 0xffff))) as u32);
    });
    Ok(Alu { imm: conversion.pack(), ..Alu::new(run, Class::Word, &[Class::Word]) })
}

fn halves_from_small(words: &mut Words<'_>, from: Kind) -> Result<Alu, String> {
    let conversion = Conversion { finite: false, ..small(words, Kind::F16, from)? };
    let run = once!(|r, s, m| {
        let c = Conversion::unpack(s.imm);
        map1(r, s, m, |a: u32| {
            (c.apply(u64::from(a >> 8 & 0xff)) << 16 | c.apply(u64::from(a & 0xff))) as u32
        });
    });
    Ok(Alu { imm: conversion.pack(), ..Alu::new(run, Class::Word, &[Class::Word]) })
}

/// `cvt.pack.sat`: two s32 cut to a narrower type and put side by side; below 16 bits the third source fills what is above.
fn pack(words: &mut Words<'_>) -> Result<Alu, String> {
    if !words.flag("sat") {
        return Err("cvt.pack needs .sat".into());
    }
    let filled = words.flag("b32");
    if words.pop() != Some("s32") {
        return Err("cvt.pack converts from .s32".into());
    }
    let kinds =
        [("u2", 2), ("s2", -2), ("u4", 4), ("s4", -4), ("u8", 8), ("s8", -8), ("u16", 16), ("s16", -16)];
    let imm: i64 = words.choose("a type to convert to", &kinds)?;
    if filled == (imm.abs() == 16) {
        return Err("cvt.pack takes .b32 and a third source below 16 bits, and not with 16".into());
    }
    let run: AluFn =
        if filled { once!(|r, s, m| packed(r, s, m, true)) } else { once!(|r, s, m| packed(r, s, m, false)) };
    let src = [Class::Word; 3];
    Ok(Alu { imm, ..Alu::new(run, Class::Word, if filled { &src } else { &src[..2] }) })
}

fn packed(r: &mut Registers, s: &Step, mask: Mask, filled: bool) {
    let width = s.imm.unsigned_abs() as u32;
    let (least, most) =
        if s.imm < 0 { (-1 << (width - 1), (1 << (width - 1)) - 1) } else { (0, (1 << width) - 1) };
    let cut = |a: u32| (a as i32).clamp(least, most) as u32 & ((1 << width) - 1);
    let (a, b) = (r.word(s.src[0]), r.word(s.src[1]));
    let c = if filled { r.word(s.src[2]) } else { [0; 32] };
    let above = |c: u32| if filled { c << (2 * width) } else { 0 };
    let d = std::array::from_fn(|lane| above(c[lane]) | cut(a[lane]) << width | cut(b[lane]));
    r.set_word(s.dst, &d, mask);
}
