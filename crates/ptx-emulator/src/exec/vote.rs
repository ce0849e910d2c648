//! `vote`, `match`, `activemask`, `elect` and `redux`: what the lanes of a warp find out about one another.
//!
//! The lanes that take part are the mask a handler is called with: those of the member mask that have not ended, brought together by
//! the warp before.

use super::Cx;
use super::registers::{Mask, lanes};
use crate::program::{ExecFn, NONE, Outcome, Step};

/// The handler of `vote.MODE`: source predicate 0, a predicate as result or a word for `ballot`.
pub(crate) fn vote_handler(mode: &str) -> Option<ExecFn> {
    Some(match mode {
        "all" => all,
        "any" => any,
        "uni" => uniform,
        "ballot" => ballot,
        _ => return None,
    })
}

/// The handler of `redux.sync.OPERATION.TYPE`: a word to a word.
pub(crate) fn redux_handler(operation: &str, ty: &str) -> Option<ExecFn> {
    Some(match (operation, ty) {
        ("add", "u32" | "s32") => |cx, step, mask| reduce(cx, step, mask, u32::wrapping_add),
        ("min", "u32") => |cx, step, mask| reduce(cx, step, mask, u32::min),
        ("max", "u32") => |cx, step, mask| reduce(cx, step, mask, u32::max),
        ("min", "s32") => |cx, step, mask| reduce(cx, step, mask, |a, b| (a as i32).min(b as i32) as u32),
        ("max", "s32") => |cx, step, mask| reduce(cx, step, mask, |a, b| (a as i32).max(b as i32) as u32),
        ("and", "b32") => |cx, step, mask| reduce(cx, step, mask, |a, b| a & b),
        ("or", "b32") => |cx, step, mask| reduce(cx, step, mask, |a, b| a | b),
        ("xor", "b32") => |cx, step, mask| reduce(cx, step, mask, |a, b| a ^ b),
        _ => return None,
    })
}

/// The handler of `match.MODE.sync.TYPE`: a word or a long to a word, and for `all` a predicate.
pub(crate) fn match_handler(mode: &str, ty: &str) -> Option<ExecFn> {
    Some(match (mode, ty) {
        ("any", "b32") => |cx, step, mask| {
            let row = cx.registers.word(step.src[0]);
            match_any(cx, step, mask, &row)
        },
        ("any", "b64") => |cx, step, mask| {
            let row = cx.registers.long(step.src[0]);
            match_any(cx, step, mask, &row)
        },
        ("all", "b32") => |cx, step, mask| {
            let row = cx.registers.word(step.src[0]);
            match_all(cx, step, mask, &row)
        },
        ("all", "b64") => |cx, step, mask| {
            let row = cx.registers.long(step.src[0]);
            match_all(cx, step, mask, &row)
        },
        _ => return None,
    })
}

/// The lanes of `mask` in which source predicate 0 holds.
#[inline(always)]
fn votes(cx: &Cx<'_>, step: &Step, mask: Mask) -> Mask {
    let held = cx.registers.pred(step.src[0]);
    (if step.flags & 1 != 0 { !held } else { held }) & mask
}

fn all(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    let result = votes(cx, step, mask) == mask;
    give_pred(cx, step, mask, result)
}

fn any(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    let result = votes(cx, step, mask) != 0;
    give_pred(cx, step, mask, result)
}

fn uniform(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    let held = votes(cx, step, mask);
    give_pred(cx, step, mask, held == 0 || held == mask)
}

fn ballot(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    let held = votes(cx, step, mask);
    give_word(cx, step, mask, held)
}

/// `activemask`: the lanes that execute this together.
pub(crate) fn active(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    give_word(cx, step, mask, mask)
}

/// `elect`: the lowest lane is the leader; `dst` is its number, `dst2` holds in it alone.
pub(crate) fn elect(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    give_word(cx, step, mask, mask.trailing_zeros())?;
    if step.dst2 != NONE {
        cx.registers.set_pred(step.dst2, mask & mask.wrapping_neg(), mask);
    }
    Ok(())
}

#[inline(always)]
fn reduce(cx: &mut Cx<'_>, step: &Step, mask: Mask, combine: impl Fn(u32, u32) -> u32) -> Outcome {
    let row = cx.registers.word(step.src[0]);
    let result = lanes(mask).map(|lane| row[lane]).reduce(combine).unwrap_or_default();
    give_word(cx, step, mask, result)
}

fn match_any<T: Copy + PartialEq>(cx: &mut Cx<'_>, step: &Step, mask: Mask, row: &[T; 32]) -> Outcome {
    let mut out = [0; 32];
    for lane in lanes(mask) {
        for other in lanes(mask) {
            out[lane] |= Mask::from(row[lane] == row[other]) << other;
        }
    }
    if step.dst != NONE {
        cx.registers.set_word(step.dst, &out, mask);
    }
    Ok(())
}

fn match_all<T: Copy + PartialEq>(cx: &mut Cx<'_>, step: &Step, mask: Mask, row: &[T; 32]) -> Outcome {
    let first = row[mask.trailing_zeros() as usize & 31];
    let same = lanes(mask).all(|lane| row[lane] == first);
    if step.dst2 != NONE {
        cx.registers.set_pred(step.dst2, if same { mask } else { 0 }, mask);
    }
    give_word(cx, step, mask, if same { mask } else { 0 })
}

#[inline(always)]
fn give_word(cx: &mut Cx<'_>, step: &Step, mask: Mask, value: u32) -> Outcome {
    if step.dst != NONE {
        cx.registers.set_word(step.dst, &[value; 32], mask);
    }
    Ok(())
}

#[inline(always)]
fn give_pred(cx: &mut Cx<'_>, step: &Step, mask: Mask, value: bool) -> Outcome {
    if step.dst != NONE {
        cx.registers.set_pred(step.dst, if value { mask } else { 0 }, mask);
    }
    Ok(())
}
