//! Several small integers in a word: dot products and pairs of 16 bits.
//!
//! Bytes are taken out by shifts and not by transmuting rows: shifts are what the compiler vectorises.

use super::Alu;
use super::rows::{both, op};
use super::words::Words;

pub(super) fn lookup(words: &mut Words<'_>) -> Result<Option<Alu>, String> {
    match words.opcode {
        "dp4a" => dp4a(words).map(Some),
        "dp2a" => dp2a(words).map(Some),
        "add" | "sub" | "min" | "max" => pairs(words),
        _ => Ok(None),
    }
}

/// Signedness of the two operands.
fn signs(words: &mut Words<'_>) -> Result<(bool, bool), String> {
    let sign = |word: Option<&str>| match word {
        Some("s32") => Ok(true),
        Some("u32") => Ok(false),
        _ => Err(()),
    };
    let second = sign(words.pop());
    let first = sign(words.pop());
    first
        .and_then(|first| Ok((first, second?)))
        .map_err(|()| format!("{} needs two types of .u32 and .s32", words.opcode))
}

#[inline(always)]
fn byte<const SIGNED: bool>(word: u32, at: u32) -> i32 {
    if SIGNED { ((word << (24 - 8 * at)) as i32) >> 24 } else { (word >> (8 * at) & 0xff) as i32 }
}

#[inline(always)]
fn half<const SIGNED: bool>(word: u32, at: u32) -> i32 {
    if SIGNED { ((word << (16 - 16 * at)) as i32) >> 16 } else { (word >> (16 * at) & 0xffff) as i32 }
}

#[inline(always)]
fn dot4<const A: bool, const B: bool>(a: u32, b: u32, c: i32) -> i32 {
    let term = |at| byte::<A>(a, at).wrapping_mul(byte::<B>(b, at));
    c.wrapping_add(term(0).wrapping_add(term(1)).wrapping_add(term(2).wrapping_add(term(3))))
}

#[inline(always)]
fn dot2<const A: bool, const B: bool, const HIGH: bool>(a: u32, b: u32, c: i32) -> i32 {
    let b = if HIGH { b >> 16 } else { b };
    c.wrapping_add(half::<A>(a, 0).wrapping_mul(byte::<B>(b, 0)))
        .wrapping_add(half::<A>(a, 1).wrapping_mul(byte::<B>(b, 1)))
}

fn dp4a(words: &mut Words<'_>) -> Result<Alu, String> {
    Ok(match signs(words)? {
        (false, false) => op!(u32, u32, i32 => i32, |a, b, c| dot4::<false, false>(a, b, c)),
        (false, true) => op!(u32, u32, i32 => i32, |a, b, c| dot4::<false, true>(a, b, c)),
        (true, false) => op!(u32, u32, i32 => i32, |a, b, c| dot4::<true, false>(a, b, c)),
        (true, true) => op!(u32, u32, i32 => i32, |a, b, c| dot4::<true, true>(a, b, c)),
    })
}

fn dp2a(words: &mut Words<'_>) -> Result<Alu, String> {
    let high = words.choose("a half", &[("lo", false), ("hi", true)])?;
    let (a, b) = signs(words)?;
    Ok(match (high, a, b) {
        (false, false, false) => op!(u32, u32, i32 => i32, |a, b, c| dot2::<false, false, false>(a, b, c)),
        (false, false, true) => op!(u32, u32, i32 => i32, |a, b, c| dot2::<false, true, false>(a, b, c)),
        (false, true, false) => op!(u32, u32, i32 => i32, |a, b, c| dot2::<true, false, false>(a, b, c)),
        (false, true, true) => op!(u32, u32, i32 => i32, |a, b, c| dot2::<true, true, false>(a, b, c)),
        (true, false, false) => op!(u32, u32, i32 => i32, |a, b, c| dot2::<false, false, true>(a, b, c)),
        (true, false, true) => op!(u32, u32, i32 => i32, |a, b, c| dot2::<false, true, true>(a, b, c)),
        (true, true, false) => op!(u32, u32, i32 => i32, |a, b, c| dot2::<true, false, true>(a, b, c)),
        (true, true, true) => op!(u32, u32, i32 => i32, |a, b, c| dot2::<true, true, true>(a, b, c)),
    })
}

/// A function on the two 16-bit halves of a word.
macro_rules! pair {
    ($t:ty, |$a:ident, $b:ident| $f:expr) => {
        op!(u32, u32 => u32, |a, b| {
            let f = |$a: $t, $b: $t| -> $t { $f };
            let low = f(a as $t, b as $t) as u16;
            let high = f((a >> 16) as $t, (b >> 16) as $t) as u16;
            u32::from(low) | u32::from(high) << 16
        })
    };
}

/// `.u16x2` and `.s16x2`.
fn pairs(words: &mut Words<'_>) -> Result<Option<Alu>, String> {
    let signed = match words.last() {
        Some("s16x2") => true,
        Some("u16x2") => false,
        _ => return Ok(None),
    };
    let opcode = words.opcode;
    let relu = signed && matches!(opcode, "min" | "max") && words.flag("relu");
    let alu = match (opcode, signed) {
        ("add", _) => pair!(u16, |a, b| a.wrapping_add(b)),
        ("sub", _) => pair!(u16, |a, b| a.wrapping_sub(b)),
        ("min", true) if relu => pair!(i16, |a, b| a.min(b).max(0)),
        ("max", true) if relu => pair!(i16, |a, b| a.max(b).max(0)),
        ("min", true) => pair!(i16, |a, b| a.min(b)),
        ("max", true) => pair!(i16, |a, b| a.max(b)),
        ("min", false) => pair!(u16, |a, b| a.min(b)),
        ("max", false) => pair!(u16, |a, b| a.max(b)),
        _ => return Ok(None),
    };
    words.pop();
    Ok(Some(alu))
}
