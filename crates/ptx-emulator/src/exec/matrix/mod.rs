//! Instructions of a whole warp on matrices: `mma`, `wmma`, `ldmatrix`, `stmatrix`, `movmatrix`.

mod elements;
mod forms;
mod kernels;
mod product;
#[cfg(test)]
mod tests;

use crate::exec::Cx;
use crate::exec::registers::{ALL, Mask};
use crate::fault::{Fault, Kind};
use crate::program::{Outcome, Step};

/// These instructions need all 32 lanes.
fn whole_warp(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    let _ = (cx, step);
    if mask == ALL {
        return Ok(());
    }
    Err(Box::new(Fault { kind: Kind::WrongMask, message: format!("a matrix instruction ran with lanes {mask:#010x}; it needs all 32"), site: None, other: None }))
}
