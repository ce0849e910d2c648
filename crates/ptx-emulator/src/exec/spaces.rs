//! Conversions between spaces and questions about them: `cvta`, `isspacep`.

use super::access::{WIDE, row};
use super::registers::Mask;
use super::{Cx, LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW};
use crate::program::{Outcome, Step};

fn convert(cx: &mut Cx<'_>, step: &Step, mask: Mask, f: impl Fn(u64) -> u64) -> Outcome {
    // The source of 32 bits is extended by `row`; results of 32 bits are cut.
    let row = row(cx, step).map(f);
    if step.flags & WIDE != 0 {
        cx.registers.set_long(step.dst, &row, mask);
    } else {
        cx.registers.set_word(step.dst, &row.map(|x| x as u32), mask);
    }
    Ok(())
}

/// `cvta.shared`.
pub(crate) fn from_shared(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    convert(cx, step, mask, |a| if a >> 56 == 0 { a + SHARED_WINDOW } else { a })
}

/// `cvta.local`.
pub(crate) fn from_local(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    convert(cx, step, mask, |a| if a >> 56 == 0 { a + LOCAL_WINDOW } else { a })
}

/// `cvta.param`.
pub(crate) fn from_param(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    convert(cx, step, mask, |a| if a >> 56 == 0 { a + PARAM_WINDOW } else { a })
}

/// `cvta.to.shared`, `cvta.to.local`, `cvta.to.param`: the window is taken off.
pub(crate) fn to_windowed(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    convert(cx, step, mask, |a| a & ((1 << 56) - 1))
}

/// `cvta.global`, `cvta.to.global`, `cvta.const`: the same address.
pub(crate) fn as_it_is(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    convert(cx, step, mask, |a| a)
}

/// `isspacep`: whether the address is in the window whose number is the step's `list.0` (0 for global memory, 4 and more for none).
pub(crate) fn is_in(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    let window = u64::from(step.list.0);
    let row = row(cx, step);
    let holds = row.iter().enumerate().fold(0, |all, (lane, a)| all | Mask::from(a >> 56 == window) << lane);
    cx.registers.set_pred(step.dst, holds, mask);
    Ok(())
}

/// `prefetch` and its like: nothing to do, and nothing to be wrong about, since the hardware forgives any address.
pub(crate) fn nothing(_: &mut Cx<'_>, _: &Step, _: Mask) -> Outcome {
    Ok(())
}
