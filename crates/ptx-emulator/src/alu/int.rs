//! Integer arithmetic: sums, products, quotients, minima.
//!
//! Signed and unsigned share a function wherever the low bits come out the same. Division by zero gives all ones, quotient and
//! remainder alike: PTX leaves it open and this is what the compiler's division does on a GPU.

use super::Alu;
use super::rows::{both, by_sign, by_width, once, op};
use super::words::Words;
use crate::ptx::ast::Type::{S16, S32, S64, U16, U32, U64};

pub(super) fn lookup(words: &mut Words<'_>) -> Result<Option<Alu>, String> {
    // The same opcodes on floats and packed halves belong to other files.
    let Some("u16" | "s16" | "u32" | "s32" | "u64" | "s64") = words.last() else { return Ok(None) };
    if words.has("cc") {
        return Ok(None);
    }
    let opcode = words.opcode;
    let alu = match opcode {
        "add" if words.flag("sat") => only_s32(words, op!(i32, i32 => i32, |a, b| a.saturating_add(b)))?,
        "sub" if words.flag("sat") => only_s32(words, op!(i32, i32 => i32, |a, b| a.saturating_sub(b)))?,
        "add" => by_width!(words, |T| op!(T, T => T, |a, b| a.wrapping_add(b))),
        "sub" => by_width!(words, |T| op!(T, T => T, |a, b| a.wrapping_sub(b))),
        "mul" | "mad" => return product(words).map(Some),
        "mul24" | "mad24" => product24(words)?,
        "div" => by_sign!(words, |T| op!(once T, T => T, |a, b| if b == 0 { !0 } else { a.wrapping_div(b) })),
        "rem" => by_sign!(words, |T| op!(once T, T => T, |a, b| if b == 0 { !0 } else { a.wrapping_rem(b) })),
        "abs" => match words.ty()? {
            S16 => op!(i16 => i16, |a| a.wrapping_abs()),
            S32 => op!(i32 => i32, |a| a.wrapping_abs()),
            S64 => op!(i64 => i64, |a| a.wrapping_abs()),
            other => return words.refuse(other),
        },
        "neg" => match words.ty()? {
            S16 => op!(i16 => i16, |a| a.wrapping_neg()),
            S32 => op!(i32 => i32, |a| a.wrapping_neg()),
            S64 => op!(i64 => i64, |a| a.wrapping_neg()),
            other => return words.refuse(other),
        },
        "min" if words.flag("relu") => only_s32(words, op!(i32, i32 => i32, |a, b| a.min(b).max(0)))?,
        "max" if words.flag("relu") => only_s32(words, op!(i32, i32 => i32, |a, b| a.max(b).max(0)))?,
        "min" => by_sign!(words, |T| op!(T, T => T, |a, b| a.min(b))),
        "max" => by_sign!(words, |T| op!(T, T => T, |a, b| a.max(b))),
        "sad" => by_sign!(words, |T| op!(T, T, T => T, |a, b, c| {
            c.wrapping_add(if a > b { a.wrapping_sub(b) } else { b.wrapping_sub(a) })
        })),
        _ => return Ok(None),
    };
    Ok(Some(alu))
}

fn only_s32(words: &mut Words<'_>, alu: Alu) -> Result<Alu, String> {
    match words.ty()? {
        S32 => Ok(alu),
        other => words.refuse(other),
    }
}

/// Which part of a product is wanted.
#[derive(Clone, Copy)]
pub(super) enum Part {
    Low,
    High,
    Wide,
}

/// The table of [`Part`] by modifier.
pub(super) const PARTS: [(&str, Part); 3] = [("lo", Part::Low), ("hi", Part::High), ("wide", Part::Wide)];

fn product(words: &mut Words<'_>) -> Result<Alu, String> {
    let part = words.choose("the part of the product", &PARTS)?;
    if words.opcode == "mul" {
        return Ok(match part {
            Part::Low => by_width!(words, |T| op!(T, T => T, |a, b| a.wrapping_mul(b))),
            Part::Wide => match words.ty()? {
                U16 => op!(u16, u16 => u32, |a, b| u32::from(a) * u32::from(b)),
                S16 => op!(i16, i16 => i32, |a, b| i32::from(a) * i32::from(b)),
                U32 => op!(u32, u32 => u64, |a, b| u64::from(a) * u64::from(b)),
                S32 => op!(i32, i32 => i64, |a, b| i64::from(a) * i64::from(b)),
                other => return words.refuse(other),
            },
            Part::High => by_sign!(words, |T| op!(T, T => T, |a, b| a.high(b))),
        });
    }
    Ok(match part {
        Part::Low => by_width!(words, |T| op!(T, T, T => T, |a, b, c| a.wrapping_mul(b).wrapping_add(c))),
        Part::Wide => match words.ty()? {
            U16 => op!(u16, u16, u32 => u32, |a, b, c| (u32::from(a) * u32::from(b)).wrapping_add(c)),
            S16 => op!(i16, i16, i32 => i32, |a, b, c| (i32::from(a) * i32::from(b)).wrapping_add(c)),
            U32 => op!(u32, u32, u64 => u64, |a, b, c| (u64::from(a) * u64::from(b)).wrapping_add(c)),
            S32 => op!(i32, i32, i64 => i64, |a, b, c| (i64::from(a) * i64::from(b)).wrapping_add(c)),
            other => return words.refuse(other),
        },
        Part::High if words.flag("sat") => {
            only_s32(words, op!(i32, i32, i32 => i32, |a, b, c| a.high(b).saturating_add(c)))?
        }
        Part::High => by_sign!(words, |T| op!(T, T, T => T, |a, b, c| a.high(b).wrapping_add(c))),
    })
}

/// Products of 24-bit numbers: 48 bits, of which `.lo` gives bits 0 to 31 and `.hi` bits 16 to 47.
fn product24(words: &mut Words<'_>) -> Result<Alu, String> {
    let part = words.choose("the part of the product", &PARTS[..2])?;
    let sat = words.flag("sat");
    let ty = words.ty()?;
    Ok(match (words.opcode, part, ty, sat) {
        ("mul24", Part::Low, U32, false) => op!(u32, u32 => u32, |a, b| product_u24(a, b) as u32),
        ("mul24", _, U32, false) => op!(u32, u32 => u32, |a, b| (product_u24(a, b) >> 16) as u32),
        ("mul24", Part::Low, S32, false) => op!(i32, i32 => i32, |a, b| product_s24(a, b) as i32),
        ("mul24", _, S32, false) => op!(i32, i32 => i32, |a, b| (product_s24(a, b) >> 16) as i32),
        ("mad24", Part::Low, U32, false) => {
            op!(u32, u32, u32 => u32, |a, b, c| (product_u24(a, b) as u32).wrapping_add(c))
        }
        ("mad24", _, U32, false) => {
            op!(u32, u32, u32 => u32, |a, b, c| ((product_u24(a, b) >> 16) as u32).wrapping_add(c))
        }
        ("mad24", Part::Low, S32, false) => {
            op!(i32, i32, i32 => i32, |a, b, c| (product_s24(a, b) as i32).wrapping_add(c))
        }
        ("mad24", Part::High, S32, true) => {
            op!(i32, i32, i32 => i32, |a, b, c| ((product_s24(a, b) >> 16) as i32).saturating_add(c))
        }
        ("mad24", _, S32, false) => {
            op!(i32, i32, i32 => i32, |a, b, c| ((product_s24(a, b) >> 16) as i32).wrapping_add(c))
        }
        (_, _, U32 | S32, true) => return Err(format!("{}: .sat goes with mad24.hi.s32 only", words.opcode)),
        (_, _, other, _) => return words.refuse(other),
    })
}

#[inline(always)]
fn product_u24(a: u32, b: u32) -> u64 {
    u64::from(a & 0xff_ffff) * u64::from(b & 0xff_ffff)
}

#[inline(always)]
fn product_s24(a: i32, b: i32) -> i64 {
    i64::from(a << 8 >> 8) * i64::from(b << 8 >> 8)
}

/// The upper half of a product.
pub(super) trait High {
    /// The upper half of `self * other`.
    fn high(self, other: Self) -> Self;
}

macro_rules! high {
    ($($ty:ty: $wide:ty;)*) => {$(
        impl High for $ty {
            #[inline(always)]
            fn high(self, other: Self) -> Self {
                (<$wide>::from(self) * <$wide>::from(other) >> Self::BITS) as Self
            }
        }
    )*};
}

high! { u16: u32; i16: i32; u32: u64; i32: i64; u64: u128; i64: i128; }
