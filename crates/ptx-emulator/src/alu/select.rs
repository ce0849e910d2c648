//! Moves and choices: `mov`, `selp`, `slct`, and vectors taken apart and put together.

use super::Alu;
use super::rows::{Lane, both, once, op, pred, put_pred};
use super::words::Words;
use crate::exec::registers::{Class, Mask, Registers, Slot};
use crate::program::{AluFn, NONE, Step};
use crate::ptx::ast::Type;

pub(super) fn lookup(words: &mut Words<'_>) -> Result<Option<Alu>, String> {
    let alu = match words.opcode {
        "mov" => match class(words)? {
            Class::Pred => Alu::new(
                once!(|r, s, m| {
                    let value = pred(r, s, 0);
                    put_pred(r, s.dst, value, m);
                }),
                Class::Pred,
                &[Class::Pred],
            ),
            Class::Word => op!(u32 => u32, |a| a),
            Class::Long => op!(u64 => u64, |a| a),
        },
        "selp" => match class(words)? {
            Class::Pred => return words.refuse(Type::Pred),
            Class::Word => Alu::new(
                both!(|r, s, m| choose::<u32>(r, s, m)),
                Class::Word,
                &[Class::Word, Class::Word, Class::Pred],
            ),
            Class::Long => Alu::new(
                both!(|r, s, m| choose::<u64>(r, s, m)),
                Class::Long,
                &[Class::Long, Class::Long, Class::Pred],
            ),
        },
        "slct" => slct(words)?,
        _ => return Ok(None),
    };
    Ok(Some(alu))
}

/// Takes the type and gives its kind of row; no instruction here looks at more of it.
fn class(words: &mut Words<'_>) -> Result<Class, String> {
    match words.ty()? {
        Type::Pred => Ok(Class::Pred),
        Type::B128 => words.refuse(Type::B128),
        ty if ty.size() == 8 => Ok(Class::Long),
        _ => Ok(Class::Word),
    }
}

#[inline(always)]
fn choose<T: Lane>(r: &mut Registers, s: &Step, mask: Mask) {
    let (a, b, which) = (T::row(r, s.src[0]), T::row(r, s.src[1]), pred(r, s, 2));
    let mut d = [T::Bits::default(); 32];
    for lane in 0..32 {
        d[lane] = if which >> lane & 1 != 0 { a[lane] } else { b[lane] };
    }
    T::put(r, s.dst, &d, mask);
}

/// `slct`: the first where the third is not negative; -0.0 is not, NaN counts as negative.
fn slct(words: &mut Words<'_>) -> Result<Alu, String> {
    let by = words.ty()?;
    let ftz = by == Type::F32 && words.flag("ftz");
    Ok(match (class(words)?, by, ftz) {
        (Class::Word, Type::S32, _) => op!(u32, u32, i32 => u32, |a, b, c| if c >= 0 { a } else { b }),
        (Class::Long, Type::S32, _) => op!(u64, u64, i32 => u64, |a, b, c| if c >= 0 { a } else { b }),
        (Class::Word, Type::F32, false) => op!(u32, u32, f32 => u32, |a, b, c| if c >= 0.0 { a } else { b }),
        (Class::Long, Type::F32, false) => op!(u64, u64, f32 => u64, |a, b, c| if c >= 0.0 { a } else { b }),
        (Class::Word, Type::F32, true) => {
            op!(u32, u32, f32 => u32, |a, b, c| if c > -f32::MIN_POSITIVE { a } else { b })
        }
        (Class::Long, Type::F32, true) => {
            op!(u64, u64, f32 => u64, |a, b, c| if c > -f32::MIN_POSITIVE { a } else { b })
        }
        _ => return words.refuse(by),
    })
}

/// `mov` of a vector into one register, `mov.b64 d, {lo, hi}`: one step with as many sources as there are parts.
///
/// # Errors
/// A sentence where the type cannot be made of that many parts.
pub(crate) fn pack(modifiers: &[&str], parts: usize) -> Result<Alu, String> {
    Ok(match (bits(modifiers)?, parts) {
        (16, 2) => op!(u8, u8 => u16, |a, b| u16::from_le_bytes([a, b])),
        (32, 2) => op!(u16, u16 => u32, |a, b| u32::from(a) | u32::from(b) << 16),
        (32, 4) => op!(u8, u8, u8, u8 => u32, |a, b, c, d| u32::from_le_bytes([a, b, c, d])),
        (64, 2) => op!(u32, u32 => u64, |a, b| u64::from(a) | u64::from(b) << 32),
        (64, 4) => op!(u16, u16, u16, u16 => u64, |a, b, c, d| {
            u64::from(a) | u64::from(b) << 16 | u64::from(c) << 32 | u64::from(d) << 48
        }),
        (bits, parts) => return Err(format!("mov: {bits} bits cannot be put together from {parts} parts")),
    })
}

/// `mov` of one register into a vector, `mov.b64 {lo, hi}, a`: a step for each two parts, in order, each of the same source.
///
/// # Errors
/// A sentence where the type cannot be cut into that many parts.
pub(crate) fn unpack(modifiers: &[&str], parts: usize) -> Result<Vec<Alu>, String> {
    let step =
        |run: AluFn, source: Class| Alu { dst2: Some(Class::Word), ..Alu::new(run, Class::Word, &[source]) };
    Ok(match (bits(modifiers)?, parts) {
        (16, 2) => {
            vec![step(both!(|r, s, m| cut::<u32>(r, s, m, |a| (a & 0xff, a >> 8 & 0xff))), Class::Word)]
        }
        (32, 2) => vec![step(both!(|r, s, m| cut::<u32>(r, s, m, |a| (a & 0xffff, a >> 16))), Class::Word)],
        (32, 4) => vec![
            step(both!(|r, s, m| cut::<u32>(r, s, m, |a| (a & 0xff, a >> 8 & 0xff))), Class::Word),
            step(both!(|r, s, m| cut::<u32>(r, s, m, |a| (a >> 16 & 0xff, a >> 24))), Class::Word),
        ],
        (64, 2) => {
            vec![step(both!(|r, s, m| cut::<u64>(r, s, m, |a| (a as u32, (a >> 32) as u32))), Class::Long)]
        }
        (64, 4) => vec![
            step(both!(|r, s, m| cut::<u64>(r, s, m, |a| (a as u32 & 0xffff, a as u32 >> 16))), Class::Long),
            step(
                both!(|r, s, m| cut::<u64>(r, s, m, |a| ((a >> 32) as u32 & 0xffff, (a >> 48) as u32))),
                Class::Long,
            ),
        ],
        (bits, parts) => return Err(format!("mov: {bits} bits cannot be cut into {parts} parts")),
    })
}

fn bits(modifiers: &[&str]) -> Result<u64, String> {
    let mut words = Words::new("mov", modifiers);
    let ty = words.ty()?;
    words.end()?;
    if ty == Type::Pred { words.refuse(ty) } else { Ok(8 * ty.size()) }
}

#[inline(always)]
fn cut<T: Lane>(r: &mut Registers, s: &Step, mask: Mask, f: impl Fn(T) -> (u32, u32)) {
    let a = T::row(r, s.src[0]);
    let (mut low, mut high) = ([0; 32], [0; 32]);
    for lane in 0..32 {
        (low[lane], high[lane]) = f(T::of(a[lane]));
    }
    put_wanted(r, s.dst, &low, mask);
    put_wanted(r, s.dst2, &high, mask);
}

#[inline(always)]
fn put_wanted(r: &mut Registers, slot: Slot, values: &[u32; 32], mask: Mask) {
    if slot != NONE {
        r.set_word(slot, values, mask);
    }
}
