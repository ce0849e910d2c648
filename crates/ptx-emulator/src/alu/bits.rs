//! Bits: logic, shifts, fields, counts, permutations.
//!
//! `lop3` takes its table at run time and not one function for each of 256: the table costs six more vector instructions, which is less than
//! finding another function.

use super::Alu;
use super::rows::{both, once, op, pred, put_pred};
use super::words::Words;
use crate::exec::registers::{Class, Mask, Registers};
use crate::program::{NONE, Step};
use crate::ptx::ast::Type::{B16, B32, B64, Pred, S16, S32, S64, U16, U32, U64};

/// A function for each width of `.b16 .b32 .b64`.
macro_rules! by_bits {
    ($words:ident, |$t:ident| $op:expr, $pred:expr) => {
        match $words.ty()? {
            B16 => {
                type $t = u16;
                $op
            }
            B32 => {
                type $t = u32;
                $op
            }
            B64 => {
                type $t = u64;
                $op
            }
            Pred => $pred,
            other => return $words.refuse(other),
        }
    };
}

/// An instruction on two predicates.
macro_rules! preds {
    ($f:expr) => {
        Alu::new(
            once!(|r, s, m| {
                let f: fn(Mask, Mask) -> Mask = $f;
                let value = f(pred(r, s, 0), pred(r, s, 1));
                put_pred(r, s.dst, value, m);
            }),
            Class::Pred,
            &[Class::Pred, Class::Pred],
        )
    };
}

pub(super) fn lookup(words: &mut Words<'_>) -> Result<Option<Alu>, String> {
    let opcode = words.opcode;
    let alu = match opcode {
        "and" => by_bits!(words, |T| op!(T, T => T, |a, b| a & b), preds!(|a, b| a & b)),
        "or" => by_bits!(words, |T| op!(T, T => T, |a, b| a | b), preds!(|a, b| a | b)),
        "xor" => by_bits!(words, |T| op!(T, T => T, |a, b| a ^ b), preds!(|a, b| a ^ b)),
        "not" => by_bits!(words, |T| op!(T => T, |a| !a), {
            let run = once!(|r, s, m| {
                let value = !pred(r, s, 0);
                put_pred(r, s.dst, value, m);
            });
            Alu::new(run, Class::Pred, &[Class::Pred])
        }),
        "cnot" => {
            by_bits!(words, |T| op!(T => T, |a| T::from(a == 0)), return words.refuse(Pred))
        }
        "shl" => {
            by_bits!(
                words,
                |T| op!(T, u32 => T, |a, b| if b < T::BITS { a << b } else { 0 }),
                return words.refuse(Pred)
            )
        }
        "shr" => shr(words)?,
        "shf" => shf(words)?,
        "lop3" => lop3(words)?,
        "prmt" => prmt(words)?,
        "popc" => match words.ty()? {
            B32 => op!(u32 => u32, |a| a.count_ones()),
            B64 => op!(u64 => u32, |a| a.count_ones()),
            other => return words.refuse(other),
        },
        "clz" => match words.ty()? {
            B32 => op!(u32 => u32, |a| a.leading_zeros()),
            B64 => op!(u64 => u32, |a| a.leading_zeros()),
            other => return words.refuse(other),
        },
        "brev" => match words.ty()? {
            B32 => op!(u32 => u32, |a| a.reverse_bits()),
            B64 => op!(u64 => u64, |a| a.reverse_bits()),
            other => return words.refuse(other),
        },
        "bfind" => bfind(words)?,
        "bfe" => match words.ty()? {
            U32 => op!(u32, u32, u32 => u32, |a, b, c| extract(u64::from(a), 32, b, c, false) as u32),
            S32 => {
                op!(u32, u32, u32 => u32, |a, b, c| extract(u64::from(a), 32, b, c, true) as u32)
            }
            U64 => op!(u64, u32, u32 => u64, |a, b, c| extract(a, 64, b, c, false)),
            S64 => op!(u64, u32, u32 => u64, |a, b, c| extract(a, 64, b, c, true)),
            other => return words.refuse(other),
        },
        "bfi" => match words.ty()? {
            B32 => op!(u32, u32, u32, u32 => u32, |a, b, c, d| {
                insert(u64::from(a), u64::from(b), c, d) as u32
            }),
            B64 => op!(u64, u64, u32, u32 => u64, |a, b, c, d| insert(a, b, c, d)),
            other => return words.refuse(other),
        },
        "fns" => match words.ty()? {
            B32 => op!(once u32, u32, i32 => u32, |mask, base, offset| nth_set(mask, base, offset)),
            other => return words.refuse(other),
        },
        "bmsk" => match (words.choose("a mode", &CLAMP)?, words.ty()?) {
            (true, B32) => op!(u32, u32 => u32, |a, b| (ones(b.min(32)) << a.min(32)) as u32),
            (false, B32) => op!(u32, u32 => u32, |a, b| (ones(b & 31) << (a & 31)) as u32),
            (_, other) => return words.refuse(other),
        },
        "szext" => match (words.choose("a mode", &CLAMP)?, words.ty()?) {
            (true, U32) => op!(u32, u32 => u32, |a, b| extend(a, b.min(32), false)),
            (false, U32) => op!(u32, u32 => u32, |a, b| extend(a, b & 31, false)),
            (true, S32) => op!(u32, u32 => u32, |a, b| extend(a, b.min(32), true)),
            (false, S32) => op!(u32, u32 => u32, |a, b| extend(a, b & 31, true)),
            (_, other) => return words.refuse(other),
        },
        _ => return Ok(None),
    };
    Ok(Some(alu))
}

/// Whether a position beyond the register counts as its end (`.clamp`) or modulo 32 (`.wrap`).
const CLAMP: [(&str, bool); 2] = [("clamp", true), ("wrap", false)];

fn shr(words: &mut Words<'_>) -> Result<Alu, String> {
    Ok(match words.ty()? {
        B16 | U16 => op!(u16, u32 => u16, |a, b| if b < 16 { a >> b } else { 0 }),
        B32 | U32 => op!(u32, u32 => u32, |a, b| if b < 32 { a >> b } else { 0 }),
        B64 | U64 => op!(u64, u32 => u64, |a, b| if b < 64 { a >> b } else { 0 }),
        S16 => op!(i16, u32 => i16, |a, b| a >> b.min(15)),
        S32 => op!(i32, u32 => i32, |a, b| a >> b.min(31)),
        S64 => op!(i64, u32 => i64, |a, b| a >> b.min(63)),
        other => return words.refuse(other),
    })
}

/// The funnel shift: `a` is the lower word, `b` the upper one.
fn shf(words: &mut Words<'_>) -> Result<Alu, String> {
    let left = words.choose("a direction", &[("l", true), ("r", false)])?;
    let clamp = words.choose("a mode", &CLAMP)?;
    Ok(match (left, clamp, words.ty()?) {
        (true, true, B32) => op!(u32, u32, u32 => u32, |a, b, c| (funnel(a, b) << c.min(32) >> 32) as u32),
        (true, false, B32) => op!(u32, u32, u32 => u32, |a, b, c| (funnel(a, b) << (c & 31) >> 32) as u32),
        (false, true, B32) => op!(u32, u32, u32 => u32, |a, b, c| (funnel(a, b) >> c.min(32)) as u32),
        (false, false, B32) => op!(u32, u32, u32 => u32, |a, b, c| (funnel(a, b) >> (c & 31)) as u32),
        (_, _, other) => return words.refuse(other),
    })
}

#[inline(always)]
fn funnel(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// Flag of `lop3`: the predicate is `result != 0 and q`, not `or`.
const AND: u32 = 1 << 8;

fn lop3(words: &mut Words<'_>) -> Result<Alu, String> {
    let with_predicate = words.one_of(&[("or", 0), ("and", AND)]);
    let B32 = words.ty()? else { return Err("lop3 takes the type .b32 only".into()) };
    let three = [Class::Word; 3];
    Ok(match with_predicate {
        None => {
            let run = both!(|r, s, m| {
                let d = logic(r, s);
                r.set_word(s.dst, &d, m);
            });
            Alu { immediate: Some(3), ..Alu::new(run, Class::Word, &three) }
        }
        Some(flags) => {
            let run = both!(|r, s, m| {
                let d = logic(r, s);
                let mut some = 0;
                for (lane, value) in d.iter().enumerate() {
                    some |= u32::from(*value != 0) << lane;
                }
                let q = pred(r, s, 3);
                if s.dst != NONE {
                    r.set_word(s.dst, &d, m);
                }
                put_pred(r, s.dst2, if s.flags & AND != 0 { some & q } else { some | q }, m);
            });
            let src = [Class::Word, Class::Word, Class::Word, Class::Pred];
            Alu { immediate: Some(3), flags, dst2: Some(Class::Pred), ..Alu::new(run, Class::Word, &src) }
        }
    })
}

/// Any function of three bits: bit `4a + 2b + c` of the table.
#[inline(always)]
fn logic(r: &Registers, s: &Step) -> [u32; 32] {
    let (a, b, c) = (r.word(s.src[0]), r.word(s.src[1]), r.word(s.src[2]));
    // For each pair of a and b: the value where c is 0, and what changes where it is 1.
    let bit = |at: u32| 0u32.wrapping_sub((s.imm >> at) as u32 & 1);
    let at = |pair: u32| (bit(2 * pair), bit(2 * pair) ^ bit(2 * pair + 1));
    let [(base0, flip0), (base1, flip1), (base2, flip2), (base3, flip3)] = [at(0), at(1), at(2), at(3)];
    let mut d = [0; 32];
    for lane in 0..32 {
        let (a, b, c) = (a[lane], b[lane], c[lane]);
        let (x0, x1) = (base0 ^ flip0 & c, base1 ^ flip1 & c);
        let (x2, x3) = (base2 ^ flip2 & c, base3 ^ flip3 & c);
        let (y0, y1) = (x0 ^ (x0 ^ x1) & b, x2 ^ (x2 ^ x3) & b);
        d[lane] = y0 ^ (y0 ^ y1) & a;
    }
    d
}

fn prmt(words: &mut Words<'_>) -> Result<Alu, String> {
    let mode = ["f4e", "b4e", "rc8", "ecl", "ecr", "rc16"].into_iter().find(|mode| words.has(mode));
    // The modifier stands before the type or after it; compilers write `prmt.b32.f4e`.
    let mode = mode.filter(|mode| words.flag(mode));
    let B32 = words.ty()? else { return Err("prmt takes the type .b32 only".into()) };
    Ok(match mode {
        None => op!(u32, u32, u32 => u32, |a, b, c| permute(a, b, c)),
        Some("f4e") => op!(u32, u32, u32 => u32, |a, b, c| (funnel(a, b) >> (8 * (c & 3))) as u32),
        Some("b4e") => op!(u32, u32, u32 => u32, |a, b, c| {
            permute(a, b, (0..4).map(|at: u32| ((c & 3).wrapping_sub(at) & 7) << (4 * at)).sum())
        }),
        Some("rc8") => op!(u32, u32, u32 => u32, |a, _b, c| (a >> (8 * (c & 3)) & 0xff) * 0x0101_0101),
        Some("ecl") => op!(u32, u32, u32 => u32, |a, b, c| {
            permute(a, b, (0..4).map(|at: u32| (c & 3).max(at) << (4 * at)).sum())
        }),
        Some("ecr") => op!(u32, u32, u32 => u32, |a, b, c| {
            permute(a, b, (0..4).map(|at: u32| (c & 3).min(at) << (4 * at)).sum())
        }),
        Some(_) => op!(u32, u32, u32 => u32, |a, _b, c| (a >> (16 * (c & 1)) & 0xffff) * 0x1_0001),
    })
}

/// Four of eight bytes, each by four bits of the selector; the highest of them asks for the byte's sign instead.
#[inline(always)]
fn permute(a: u32, b: u32, selector: u32) -> u32 {
    let mut d = 0;
    for at in 0..4 {
        let which = selector >> (4 * at);
        let word = if which & 4 != 0 { b } else { a };
        let byte = word >> (8 * (which & 3)) & 0xff;
        let byte = if which & 8 != 0 { 0xff * (byte >> 7) } else { byte };
        d |= byte << (8 * at);
    }
    d
}

/// The highest bit that is not a copy of the sign; `.shiftamt` counts from the top.
fn bfind(words: &mut Words<'_>) -> Result<Alu, String> {
    let from_top = words.flag("shiftamt");
    Ok(match (words.ty()?, from_top) {
        (U32, false) => op!(u32 => u32, |a| 31u32.wrapping_sub(a.leading_zeros())),
        (S32, false) => op!(i32 => u32, |a| 31u32.wrapping_sub((a ^ a >> 31).leading_zeros())),
        (U64, false) => op!(u64 => u32, |a| 63u32.wrapping_sub(a.leading_zeros())),
        (S64, false) => op!(i64 => u32, |a| 63u32.wrapping_sub((a ^ a >> 63).leading_zeros())),
        (U32, true) => op!(u32 => u32, |a| if a == 0 { !0 } else { a.leading_zeros() }),
        (S32, true) => op!(i32 => u32, |a| match a ^ a >> 31 {
            0 => !0,
            a => a.leading_zeros(),
        }),
        (U64, true) => op!(u64 => u32, |a| if a == 0 { !0 } else { a.leading_zeros() }),
        (S64, true) => op!(i64 => u32, |a| match a ^ a >> 63 {
            0 => !0,
            a => a.leading_zeros(),
        }),
        (other, _) => return words.refuse(other),
    })
}

/// So many ones; at most 64.
#[inline(always)]
fn ones(count: u32) -> u64 {
    if count >= 64 { !0 } else { (1 << count) - 1 }
}

/// `bfe`: what lies beyond the register is zero, or the sign of the field's last bit that exists.
#[inline(always)]
fn extract(a: u64, width: u32, position: u32, len: u32, signed: bool) -> u64 {
    let (position, len) = (position & 0xff, len & 0xff);
    let field = if position < 64 { a >> position } else { 0 };
    let count = len.min(width.saturating_sub(position));
    let last = (position + len).saturating_sub(1).min(width - 1);
    let sign = signed && len != 0 && a >> last & 1 != 0;
    field & ones(count) | if sign { !ones(count) } else { 0 }
}

#[inline(always)]
fn insert(a: u64, b: u64, position: u32, len: u32) -> u64 {
    let (position, len) = (position & 0xff, len & 0xff);
    if position >= 64 {
        return b;
    }
    let field = ones(len) << position;
    a << position & field | b & !field
}

#[inline(always)]
fn extend(a: u32, width: u32, signed: bool) -> u32 {
    let field = ones(width) as u32;
    let sign = signed && width > 0 && width < 32 && a >> ((width - 1) & 31) & 1 != 0;
    a & field | if sign { !field } else { 0 }
}

/// `fns`: the n-th set bit from a place, upwards or downwards.
fn nth_set(mask: u32, base: u32, offset: i32) -> u32 {
    let set = |at: u32| at < 32 && mask >> at & 1 != 0;
    let wanted = offset.unsigned_abs().saturating_sub(1) as usize;
    let mut up = (base..32).filter(|at| set(*at));
    let mut down = (0..=base.min(31)).rev().filter(|at| set(*at));
    let found = match offset {
        0 => set(base).then_some(base),
        1.. => up.nth(wanted),
        _ => down.nth(wanted),
    };
    found.unwrap_or(!0)
}
