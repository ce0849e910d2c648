//! Sums with a carry: `add.cc`, `addc`, `sub.cc`, `subc`, `mad.cc`, `madc`.
//!
//! The carry flag is a predicate row ([`CARRY`]) and not hidden state of the warp: lanes diverge, and a row is masked like any
//! other.

use super::int::{High, PARTS, Part};
use super::rows::{Lane, both};
use super::words::Words;
use super::{Alu, CARRY};
use crate::exec::registers::{Mask, Registers};
use crate::program::Step;
use crate::ptx::ast::Type::{S32, S64, U32, U64};

/// Flag: the carry goes in.
const IN: u32 = 1 << 8;
/// Flag: the carry comes out.
const OUT: u32 = 1 << 9;

macro_rules! carried {
    ($t:ty, $sources:literal, $f:expr) => {
        Alu::new(
            both!(|r, s, m| with_carry::<$t, $sources>(r, s, m, $f)),
            <$t as Lane>::CLASS,
            &[<$t as Lane>::CLASS; $sources],
        )
    };
}

pub(super) fn lookup(words: &mut Words<'_>) -> Result<Option<Alu>, String> {
    let opcode = words.opcode;
    let takes = match opcode {
        "addc" | "subc" | "madc" => true,
        "add" | "sub" | "mad" if words.has("cc") => false,
        _ => return Ok(None),
    };
    let flags = if takes { IN } else { 0 } | if words.flag("cc") { OUT } else { 0 };
    let part = match opcode {
        "mad" | "madc" => Some(words.choose("the part of the product", &PARTS[..2])?),
        _ => None,
    };
    let alu = match (opcode, part, words.ty()?) {
        ("add" | "addc", _, U32 | S32) => carried!(u32, 2, |a, b, _c, carry| plus(a, b, carry)),
        ("add" | "addc", _, U64 | S64) => carried!(u64, 2, |a, b, _c, carry| plus(a, b, carry)),
        ("sub" | "subc", _, U32 | S32) => carried!(u32, 2, |a, b, _c, carry| minus(a, b, carry)),
        ("sub" | "subc", _, U64 | S64) => carried!(u64, 2, |a, b, _c, carry| minus(a, b, carry)),
        (_, Some(Part::Low), U32 | S32) => {
            carried!(u32, 3, |a, b, c, carry| plus(a.wrapping_mul(b), c, carry))
        }
        (_, Some(Part::Low), U64 | S64) => {
            carried!(u64, 3, |a, b, c, carry| plus(a.wrapping_mul(b), c, carry))
        }
        (_, _, U32) => carried!(u32, 3, |a, b, c, carry| plus(a.high(b), c, carry)),
        (_, _, U64) => carried!(u64, 3, |a, b, c, carry| plus(a.high(b), c, carry)),
        (_, _, S32) => carried!(u32, 3, |a, b, c, carry| plus((a as i32).high(b as i32) as u32, c, carry)),
        (_, _, S64) => carried!(u64, 3, |a, b, c, carry| plus((a as i64).high(b as i64) as u64, c, carry)),
        (_, _, other) => return words.refuse(other),
    };
    Ok(Some(Alu { flags, ..alu }))
}

#[inline(always)]
fn with_carry<T: Lane + From<bool>, const SOURCES: usize>(
    r: &mut Registers,
    s: &Step,
    mask: Mask,
    f: impl Fn(T, T, T, T) -> (T, bool),
) {
    let (a, b) = (T::row(r, s.src[0]), T::row(r, s.src[1]));
    let c = if SOURCES == 3 { T::row(r, s.src[2]) } else { b };
    let carry = if s.flags & IN != 0 { r.pred(CARRY) } else { 0 };
    let mut d = [T::Bits::default(); 32];
    let mut out = 0;
    for lane in 0..32 {
        let carry = T::from(carry >> lane & 1 != 0);
        let (value, over) = f(T::of(a[lane]), T::of(b[lane]), T::of(c[lane]), carry);
        d[lane] = value.bits();
        out |= u32::from(over) << lane;
    }
    T::put(r, s.dst, &d, mask);
    if s.flags & OUT != 0 {
        r.set_pred(CARRY, out, mask);
    }
}

/// Addition and subtraction that tell what left the width.
trait Overflowing: Sized {
    fn plus(self, other: Self) -> (Self, bool);
    fn minus(self, other: Self) -> (Self, bool);
}

impl Overflowing for u32 {
    #[inline(always)]
    fn plus(self, other: Self) -> (Self, bool) {
        self.overflowing_add(other)
    }
    #[inline(always)]
    fn minus(self, other: Self) -> (Self, bool) {
        self.overflowing_sub(other)
    }
}

impl Overflowing for u64 {
    #[inline(always)]
    fn plus(self, other: Self) -> (Self, bool) {
        self.overflowing_add(other)
    }
    #[inline(always)]
    fn minus(self, other: Self) -> (Self, bool) {
        self.overflowing_sub(other)
    }
}

#[inline(always)]
fn plus<T: Overflowing>(a: T, b: T, carry: T) -> (T, bool) {
    let (sum, first) = a.plus(b);
    let (sum, second) = sum.plus(carry);
    (sum, first | second)
}

#[inline(always)]
fn minus<T: Overflowing>(a: T, b: T, borrow: T) -> (T, bool) {
    let (difference, first) = a.minus(b);
    let (difference, second) = difference.minus(borrow);
    (difference, first | second)
}
