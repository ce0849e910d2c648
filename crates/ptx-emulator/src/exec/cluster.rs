//! Clusters, as far as a block alone is one: `mapa` and `getctarank`.
//!
//! Launches have clusters of one block, so that an address in the cluster's shared memory is one in the block's.

use super::Cx;
use super::registers::{Class, Mask, lanes};
use super::words::Words;
use crate::fault::Kind;
use crate::lower::Operands;
use crate::program::{Action, NONE, Outcome, Step};
use crate::ptx::ast::{Instruction, Operand};

/// Lowers `mapa`.
pub(crate) fn lower_mapa(i: &Instruction, o: &mut Operands<'_>) -> Result<Step, String> {
    let (class, [d, a, rank]) = (width(i)?, &i.operands[..]) else {
        return Err("it takes a result, an address and a rank".into());
    };
    let mut step = Step::new(Action::Exec(if class == Class::Long { map_long } else { map_word }));
    step.dst = o.destination(d, class)?;
    step.src[0] = o.source(a, class)?;
    step.src[1] = o.word(rank)?;
    Ok(step)
}

/// Lowers `getctarank`.
pub(crate) fn lower_getctarank(i: &Instruction, o: &mut Operands<'_>) -> Result<Step, String> {
    let (class, [d, a]) = (width(i)?, &i.operands[..]) else {
        return Err("it takes a result and an address".into());
    };
    let mut step = Step::new(Action::Exec(rank));
    step.dst = o.destination(d, Class::Word)?;
    step.src[0] = match a {
        // The address of a variable is a word wherever it is one of shared memory.
        Operand::Name(_) if o.class(a).is_none() => o.word(a)?,
        _ => o.source(a, class)?,
    };
    Ok(step)
}

fn width(i: &Instruction) -> Result<Class, String> {
    let mut words = Words::new(i);
    let shared = words.take("shared::cluster");
    let ty = words.take_one(&["u32", "u64"]).ok_or("it is of .u32 or .u64")?;
    words.end()?;
    match ty {
        "u32" if shared => Ok(Class::Word),
        "u32" => Err("a generic address is of .u64".into()),
        _ => Ok(Class::Long),
    }
}

fn own_rank(cx: &Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    let ranks = cx.registers.word(step.src[1]);
    match lanes(mask).find(|&lane| ranks[lane] != 0) {
        None => Ok(()),
        Some(lane) => {
            let message = format!("mapa to block {} of a cluster that has one", ranks[lane]);
            Err(cx.fault(step.place, lane, Kind::Misuse, message))
        }
    }
}

fn map_word(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    own_rank(cx, step, mask)?;
    if step.dst != NONE {
        let row = cx.registers.word(step.src[0]);
        cx.registers.set_word(step.dst, &row, mask);
    }
    Ok(())
}

fn map_long(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    own_rank(cx, step, mask)?;
    if step.dst != NONE {
        let row = cx.registers.long(step.src[0]);
        cx.registers.set_long(step.dst, &row, mask);
    }
    Ok(())
}

fn rank(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    if step.dst != NONE {
        cx.registers.set_word(step.dst, &[0; 32], mask);
    }
    Ok(())
}
