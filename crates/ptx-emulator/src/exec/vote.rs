//! `vote`, `match`, `activemask`, `elect` and `redux`: what the lanes of a warp find out about one another.
//!
//! The lanes that take part are the mask a handler is called with: those of the member mask that have not ended, brought together by
//! the warp before.

use super::Cx;
use super::registers::{Class, Mask, lanes};
use super::shuffle::destination_pair;
use crate::lower::Operands;
use crate::program::{Action, ExecFn, NONE, Outcome, Step};
use crate::ptx::ast::Instruction;

/// Lowers `vote`, with and without `.sync`.
pub(crate) fn lower_vote(i: &Instruction, o: &mut Operands<'_>) -> Result<Step, String> {
    let words: Vec<&str> = i.modifiers.iter().map(String::as_str).collect();
    let (sync, words) = match words.split_first() {
        Some((&"sync", rest)) => (true, rest),
        _ => (false, &words[..]),
    };
    let (run, class): (ExecFn, Class) = match words {
        ["all", "pred"] => (all, Class::Pred),
        ["any", "pred"] => (any, Class::Pred),
        ["uni", "pred"] => (uniform, Class::Pred),
        ["ballot", "b32"] => (ballot, Class::Word),
        _ => return Err("it is .all.pred, .any.pred, .uni.pred or .ballot.b32".into()),
    };
    let mut step = Step::new(if sync { Action::Together(run) } else { Action::Exec(run) });
    match (&i.operands[..], sync) {
        ([d, p], false) | ([d, p, _], true) => {
            step.dst = o.destination(d, class)?;
            let (slot, negated) = o.pred(p)?;
            step.src[0] = slot;
            step.flags |= u32::from(negated);
        }
        _ => return Err("it takes a result, a predicate and with .sync a member mask".into()),
    }
    if let (Some(members), true) = (i.operands.get(2), sync) {
        step.src[3] = o.word(members)?;
    }
    Ok(step)
}

/// Lowers `match.any` and `match.all`.
pub(crate) fn lower_match(i: &Instruction, o: &mut Operands<'_>) -> Result<Step, String> {
    let words: Vec<&str> = i.modifiers.iter().map(String::as_str).collect();
    let (run, class): (ExecFn, Class) = match words[..] {
        ["any", "sync", "b32"] => (any_word, Class::Word),
        ["any", "sync", "b64"] => (any_long, Class::Long),
        ["all", "sync", "b32"] => (all_word, Class::Word),
        ["all", "sync", "b64"] => (all_long, Class::Long),
        _ => return Err("it is .any.sync or .all.sync, of .b32 or .b64".into()),
    };
    let [d, a, members] = &i.operands[..] else {
        return Err("it takes a result, a source and a member mask".into());
    };
    let mut step = Step::new(Action::Together(run));
    destination_pair(&mut step, o, d)?;
    step.src[0] = o.source(a, class)?;
    step.src[3] = o.word(members)?;
    Ok(step)
}

/// Lowers `redux.sync`.
pub(crate) fn lower_redux(i: &Instruction, o: &mut Operands<'_>) -> Result<Step, String> {
    let words: Vec<&str> = i.modifiers.iter().map(String::as_str).collect();
    let run: ExecFn = match words[..] {
        ["sync", "add", "u32" | "s32"] => add,
        ["sync", "min", "u32"] => min_unsigned,
        ["sync", "max", "u32"] => max_unsigned,
        ["sync", "min", "s32"] => min_signed,
        ["sync", "max", "s32"] => max_signed,
        ["sync", "and", "b32"] => and,
        ["sync", "or", "b32"] => or,
        ["sync", "xor", "b32"] => xor,
        _ => {
            return Err(
                "it is .sync with .add, .min or .max of .u32 or .s32, or .and, .or or .xor of .b32".into()
            );
        }
    };
    let [d, a, members] = &i.operands[..] else {
        return Err("it takes a result, a source and a member mask".into());
    };
    let mut step = Step::new(Action::Together(run));
    step.dst = o.destination(d, Class::Word)?;
    step.src[0] = o.word(a)?;
    step.src[3] = o.word(members)?;
    Ok(step)
}

/// Lowers `activemask.b32`.
pub(crate) fn lower_activemask(i: &Instruction, o: &mut Operands<'_>) -> Result<Step, String> {
    let ([word], [d]) = (&i.modifiers[..], &i.operands[..]) else {
        return Err("it is .b32 and takes a result".into());
    };
    if word != "b32" {
        return Err("it is .b32".into());
    }
    let mut step = Step::new(Action::Exec(active));
    step.dst = o.destination(d, Class::Word)?;
    Ok(step)
}

/// Lowers `elect.sync`.
pub(crate) fn lower_elect(i: &Instruction, o: &mut Operands<'_>) -> Result<Step, String> {
    let ([word], [d, members]) = (&i.modifiers[..], &i.operands[..]) else {
        return Err("it is .sync and takes a result and a member mask".into());
    };
    if word != "sync" {
        return Err("it is .sync".into());
    }
    let mut step = Step::new(Action::Together(elect));
    destination_pair(&mut step, o, d)?;
    step.src[3] = o.word(members)?;
    Ok(step)
}

macro_rules! redux {
    ($($name:ident: $combine:expr;)*) => {$(
        fn $name(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
            reduce(cx, step, mask, $combine)
        }
    )*};
}

redux! {
    add: u32::wrapping_add;
    min_unsigned: u32::min;
    max_unsigned: u32::max;
    min_signed: |a, b| (a as i32).min(b as i32) as u32;
    max_signed: |a, b| (a as i32).max(b as i32) as u32;
    and: |a, b| a & b;
    or: |a, b| a | b;
    xor: |a, b| a ^ b;
}

fn any_word(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    let row = cx.registers.word(step.src[0]);
    match_any(cx, step, mask, &row)
}

fn any_long(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    let row = cx.registers.long(step.src[0]);
    match_any(cx, step, mask, &row)
}

fn all_word(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    let row = cx.registers.word(step.src[0]);
    match_all(cx, step, mask, &row)
}

fn all_long(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    let row = cx.registers.long(step.src[0]);
    match_all(cx, step, mask, &row)
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
fn active(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    give_word(cx, step, mask, mask)
}

/// `elect`: the lowest lane is the leader; `dst` is its number, `dst2` holds in it alone.
fn elect(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
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
