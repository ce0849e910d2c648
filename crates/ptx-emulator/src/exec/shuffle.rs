//! `shfl`: lanes read one another's registers.
//!
//! Where each lane reads is computed apart from the reading, as a pure function of the operands: that is what is compared with the
//! manual's pseudocode.

use super::Cx;
use super::registers::{ALL, Class, Mask, lanes};
use crate::fault::Kind;
use crate::lower::Operands;
use crate::program::{Action, ExecFn, NONE, Outcome, Step};
use crate::ptx::ast::{Instruction, Operand};

/// How the source lane is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// `b` lanes down in number.
    Up,
    /// `b` lanes up in number.
    Down,
    /// The lane whose number differs in the bits of `b`.
    Butterfly,
    /// Lane `b`.
    Index,
}

/// Lowers `shfl`, with and without `.sync`.
pub(crate) fn lower(i: &Instruction, o: &mut Operands<'_>) -> Result<Step, String> {
    let words: Vec<&str> = i.modifiers.iter().map(String::as_str).collect();
    let (sync, mode) = match words[..] {
        ["sync", mode, "b32"] => (true, mode),
        [mode, "b32"] => (false, mode),
        _ => return Err("it is .sync, a mode and .b32".into()),
    };
    let run: ExecFn = match mode {
        "up" => up,
        "down" => down,
        "bfly" => butterfly,
        "idx" => index,
        _ => return Err(format!(".{mode} is not a mode; .up, .down, .bfly and .idx are")),
    };
    let mut step = Step::new(if sync { Action::Together(run) } else { Action::Exec(run) });
    let (result, sources) = match (&i.operands[..], sync) {
        ([d, a, b, c], false) => (d, vec![a, b, c]),
        ([d, a, b, c, members], true) => (d, vec![a, b, c, members]),
        _ => return Err("it takes a result, three sources and with .sync a member mask".into()),
    };
    destination_pair(&mut step, o, result)?;
    for (slot, operand) in step.src.iter_mut().zip(sources) {
        *slot = o.word(operand)?;
    }
    Ok(step)
}

/// `d` or `d|p`: a word, and a predicate that may be left out.
pub(crate) fn destination_pair(
    step: &mut Step,
    o: &mut Operands<'_>,
    operand: &Operand,
) -> Result<(), String> {
    if let Operand::Pair(first, second) = operand {
        step.dst = o.destination(first, Class::Word)?;
        step.dst2 = o.destination(second, Class::Pred)?;
    } else {
        step.dst = o.destination(operand, Class::Word)?;
    }
    Ok(())
}

fn up(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    shuffle(cx, step, mask, Mode::Up)
}

fn down(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    shuffle(cx, step, mask, Mode::Down)
}

fn butterfly(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    if mask == ALL && step.dst != NONE && swap(cx, step) {
        return Ok(());
    }
    shuffle(cx, step, mask, Mode::Butterfly)
}

/// Sums and maxima over a warp: all lanes take part in one segment, and each reads the lane that differs in one bit. False where it is not that.
#[inline(always)]
fn swap(cx: &mut Cx<'_>, step: &Step) -> bool {
    let b = cx.registers.word(step.src[1]);
    let c = cx.registers.word(step.src[2]);
    let differ =
        b.iter().fold(0, |all, x| all | (x ^ b[0])) | c.iter().fold(0, |all, x| all | (x & 0x1f1f ^ 31));
    if differ != 0 {
        return false;
    }
    let a = cx.registers.word(step.src[0]);
    let values = match b[0] & 31 {
        1 => swapped::<1>(&a),
        2 => swapped::<2>(&a),
        4 => swapped::<4>(&a),
        8 => swapped::<8>(&a),
        16 => swapped::<16>(&a),
        _ => return false,
    };
    cx.registers.set_word(step.dst, &values, ALL);
    if step.dst2 != NONE {
        cx.registers.set_pred(step.dst2, ALL, ALL);
    }
    true
}

#[inline(always)]
fn swapped<const BIT: usize>(row: &[u32; 32]) -> [u32; 32] {
    std::array::from_fn(|lane| row[lane ^ BIT])
}

fn index(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    shuffle(cx, step, mask, Mode::Index)
}

/// Where lane `lane` reads, and whether that lies in its segment; where not it reads itself.
#[inline(always)]
fn source(mode: Mode, lane: u32, b: u32, c: u32) -> (u32, bool) {
    let b = b & 31;
    let segment = (c >> 8) & 31;
    let clamp = c & 31;
    let highest = (lane & segment) | (clamp & !segment);
    let lowest = lane & segment;
    let (from, inside) = match mode {
        // Signed: below lane 0 there is none.
        Mode::Up => (lane.wrapping_sub(b), lane as i32 - b as i32 >= highest as i32),
        Mode::Down => (lane + b, lane + b <= highest),
        Mode::Butterfly => (lane ^ b, lane ^ b <= highest),
        Mode::Index => {
            let from = lowest | (b & !segment);
            (from, from <= highest)
        }
    };
    if inside { (from & 31, true) } else { (lane, false) }
}

#[inline(always)]
fn shuffle(cx: &mut Cx<'_>, step: &Step, mask: Mask, mode: Mode) -> Outcome {
    let a = cx.registers.word(step.src[0]);
    let b = cx.registers.word(step.src[1]);
    let c = cx.registers.word(step.src[2]);
    let mut values = [0; 32];
    let mut inside = 0;
    let mut read = 0;
    for lane in 0..32 {
        let (from, within) = source(mode, lane as u32, b[lane], c[lane]);
        values[lane] = a[from as usize];
        inside |= Mask::from(within) << lane;
        read |= (mask >> lane & 1) << from;
    }
    // The value of a lane that takes no part is undefined; a GPU gives what its register held, and so do we where nothing is checked.
    if read & !mask != 0 && cx.grid.checked {
        return Err(outside(cx, step, mask, mode, &b, &c));
    }
    if step.dst != NONE {
        cx.registers.set_word(step.dst, &values, mask);
    }
    if step.dst2 != NONE {
        cx.registers.set_pred(step.dst2, inside, mask);
    }
    Ok(())
}

#[cold]
fn outside(
    cx: &Cx<'_>,
    step: &Step,
    mask: Mask,
    mode: Mode,
    b: &[u32; 32],
    c: &[u32; 32],
) -> Box<crate::fault::Fault> {
    let pair = lanes(mask)
        .map(|lane| (lane, source(mode, lane as u32, b[lane], c[lane]).0))
        .find(|(_, from)| mask >> from & 1 == 0);
    let (lane, from) = pair.unwrap_or_default();
    let message = format!("shfl: lane {lane} reads lane {from}, which takes no part (lanes {mask:#010x} do)");
    cx.fault(step.place, lane, Kind::WrongMask, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The manual's pseudocode, in signed numbers.
    fn manual(mode: Mode, lane: i32, b: u32, c: u32) -> (i32, bool) {
        let bval = (b & 0x1f) as i32;
        let cval = (c & 0x1f) as i32;
        let mask = ((c >> 8) & 0x1f) as i32;
        let max_lane = (lane & mask) | (cval & !mask);
        let min_lane = lane & mask;
        let (j, pval) = match mode {
            Mode::Up => (lane - bval, lane - bval >= max_lane),
            Mode::Down => (lane + bval, lane + bval <= max_lane),
            Mode::Butterfly => (lane ^ bval, lane ^ bval <= max_lane),
            Mode::Index => {
                let j = min_lane | (bval & !mask);
                (j, j <= max_lane)
            }
        };
        (if pval { j } else { lane }, pval)
    }

    #[test]
    fn sources_by_the_manual() {
        for mode in [Mode::Up, Mode::Down, Mode::Butterfly, Mode::Index] {
            for lane in 0..32 {
                for b in (0..40).chain([u32::MAX]) {
                    // Every clamp with every segment mask, those that no width gives too.
                    for c in 0..0x2000 {
                        let (from, inside) = source(mode, lane, b, c);
                        assert_eq!(
                            (from as i32, inside),
                            manual(mode, lane as i32, b, c),
                            "{mode:?} {lane} {b} {c:#x}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn widths_as_cuda_passes_them() {
        // __shfl_down_sync(mask, v, 1, 8): c = (32 - 8) << 8 | 31.
        let c = (32 - 8) << 8 | 31;
        assert_eq!(source(Mode::Down, 6, 1, c), (7, true));
        assert_eq!(source(Mode::Down, 7, 1, c), (7, false));
        // __shfl_up_sync(mask, v, 1, 8): the clamp is 0.
        let c = (32 - 8) << 8;
        assert_eq!(source(Mode::Up, 8, 1, c), (8, false));
        assert_eq!(source(Mode::Up, 9, 1, c), (8, true));
        assert_eq!(source(Mode::Index, 13, 2, (32 - 8) << 8 | 31), (10, true));
    }
}
