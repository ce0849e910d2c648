//! Special registers: rows that are filled when a block begins, for those a kernel reads.
//!
//! Only clocks are read when an instruction asks; all the others hold still while a block runs.

use super::Cx;
use super::registers::{Class, Mask};
use super::state::GridState;
use super::warp::Warp;
use crate::program::{Outcome, Step};

/// A special register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Special {
    /// `%tid.x` and so on.
    Tid(u8),
    /// `%ntid`.
    Ntid(u8),
    /// `%ctaid`, and as clusters are 1 × 1 × 1 `%clusterid`.
    Ctaid(u8),
    /// `%nctaid`, `%nclusterid`.
    Nctaid(u8),
    /// `%laneid`.
    Laneid,
    /// `%warpid`.
    Warpid,
    /// `%nwarpid`.
    Nwarpid,
    /// `%smid`.
    Smid,
    /// `%nsmid`.
    Nsmid,
    /// `%gridid`.
    Gridid,
    /// `%lanemask_lt` and so on.
    LanemaskLt,
    /// `%lanemask_le`.
    LanemaskLe,
    /// `%lanemask_eq`.
    LanemaskEq,
    /// `%lanemask_ge`.
    LanemaskGe,
    /// `%lanemask_gt`.
    LanemaskGt,
    /// `%dynamic_smem_size`.
    DynamicShared,
    /// `%total_smem_size`, `%aggr_smem_size`.
    TotalShared,
    /// `%reserved_smem_offset_1` and so on: shared memory behind the block's own, which the system keeps for libraries.
    Reserved,
    /// A number.
    Fixed(u32),
    /// A predicate that does not hold (`%is_explicit_cluster`).
    False,
    /// Read by [`read_clock`].
    Clock,
}

/// The special register of a name; and for [`Special::Clock`] what [`read_clock`] finds in the step's `imm`.
pub(crate) fn lookup(name: &str) -> Option<(Special, Class, i64)> {
    let word = |special| Some((special, Class::Word, 0));
    if let Some((base, axis)) = name.rsplit_once('.') {
        let axis = match axis {
            "x" => 0,
            "y" => 1,
            "z" => 2,
            _ => return None,
        };
        return word(match base {
            "%tid" => Special::Tid(axis),
            "%ntid" => Special::Ntid(axis),
            "%ctaid" | "%clusterid" => Special::Ctaid(axis),
            "%nctaid" | "%nclusterid" => Special::Nctaid(axis),
            "%cluster_ctaid" => Special::Fixed(0),
            "%cluster_nctaid" => Special::Fixed(1),
            _ => return None,
        });
    }
    if name.starts_with("%reserved_smem_offset_") {
        return word(Special::Reserved);
    }
    if let Some(number) = name.strip_prefix("%envreg") {
        return number.parse::<u32>().is_ok_and(|n| n < 32).then_some((Special::Fixed(0), Class::Word, 0));
    }
    match name {
        "%laneid" => word(Special::Laneid),
        "%warpid" => word(Special::Warpid),
        "%nwarpid" => word(Special::Nwarpid),
        "%smid" => word(Special::Smid),
        "%nsmid" => word(Special::Nsmid),
        "%gridid" => Some((Special::Gridid, Class::Long, 0)),
        "%lanemask_lt" => word(Special::LanemaskLt),
        "%lanemask_le" => word(Special::LanemaskLe),
        "%lanemask_eq" => word(Special::LanemaskEq),
        "%lanemask_ge" => word(Special::LanemaskGe),
        "%lanemask_gt" => word(Special::LanemaskGt),
        "%dynamic_smem_size" => word(Special::DynamicShared),
        "%total_smem_size" | "%aggr_smem_size" => word(Special::TotalShared),
        "%cluster_ctarank" => word(Special::Fixed(0)),
        "%cluster_nctarank" => word(Special::Fixed(1)),
        "%is_explicit_cluster" => Some((Special::False, Class::Pred, 0)),
        "%clock" => Some((Special::Clock, Class::Word, 0)),
        "%clock_hi" => Some((Special::Clock, Class::Word, 1)),
        "%clock64" => Some((Special::Clock, Class::Long, 2)),
        "%globaltimer" => Some((Special::Clock, Class::Long, 3)),
        "%globaltimer_lo" => Some((Special::Clock, Class::Word, 4)),
        "%globaltimer_hi" => Some((Special::Clock, Class::Word, 5)),
        _ => None,
    }
}

/// Fills the rows that do not depend on the block.
pub(crate) fn of_thread(grid: &GridState, warp: &mut Warp) {
    let [nx, ny, nz] = grid.launch.block;
    let program = &grid.launch.program;
    let dynamic = grid.launch.dynamic_shared;
    let first = warp.state.index * 32;
    let lanes: [u32; 32] = std::array::from_fn(|lane| lane as u32);
    for &(special, slot) in &program.specials {
        let row: [u32; 32] = match special {
            Special::Tid(0) => lanes.map(|l| (first + l) % nx),
            Special::Tid(1) => lanes.map(|l| (first + l) / nx % ny),
            Special::Tid(_) => lanes.map(|l| (first + l) / nx / ny),
            Special::Ntid(axis) => [[nx, ny, nz][usize::from(axis.min(2))]; 32],
            Special::Nctaid(axis) => [grid.launch.grid[usize::from(axis.min(2))]; 32],
            Special::Laneid => lanes,
            Special::Warpid => [warp.state.index; 32],
            Special::Nwarpid => [(nx * ny * nz).div_ceil(32); 32],
            Special::Nsmid => [grid.environment.sms; 32],
            Special::LanemaskEq => lanes.map(|l| 1 << l),
            Special::LanemaskLt => lanes.map(|l| (1 << l) - 1),
            Special::LanemaskLe => lanes.map(|l| ((1 << l) - 1) | (1 << l)),
            Special::LanemaskGe => lanes.map(|l| !((1 << l) - 1)),
            Special::LanemaskGt => lanes.map(|l| !(((1 << l) - 1) | (1 << l))),
            Special::DynamicShared => [dynamic; 32],
            Special::TotalShared => [program.shared_bytes(dynamic); 32],
            Special::Reserved => [program.shared_bytes(dynamic).next_multiple_of(16); 32],
            Special::Fixed(number) => [number; 32],
            Special::False => {
                warp.registers.set_pred(slot, 0, !0);
                continue;
            }
            Special::Gridid => {
                warp.registers.set_long(slot, &[grid.id; 32], !0);
                continue;
            }
            Special::Ctaid(_) | Special::Smid | Special::Clock => continue,
        };
        warp.registers.set_word(slot, &row, !0);
    }
}

/// Fills the rows that depend on the block.
pub(crate) fn of_block(grid: &GridState, index: [u32; 3], warp: &mut Warp) {
    let [width, height, _] = grid.launch.grid;
    for &(special, slot) in &grid.launch.program.specials {
        let number = match special {
            Special::Ctaid(axis) => index[usize::from(axis.min(2))],
            Special::Smid => {
                let linear = (u64::from(index[2]) * u64::from(height) + u64::from(index[1]))
                    * u64::from(width)
                    + u64::from(index[0]);
                (linear % u64::from(grid.environment.sms.max(1))) as u32
            }
            _ => continue,
        };
        warp.registers.set_word(slot, &[number; 32], !0);
    }
}

/// Reads a clock: which is in the step's `imm`.
pub(crate) fn read_clock(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    // A clock that moves from read to read and hardly differs from run to run.
    let cycles = cx.warp.clock * 4;
    let nanoseconds = match step.imm {
        3.. => std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |since| since.as_nanos() as u64),
        _ => 0,
    };
    match step.imm {
        0 => cx.registers.set_word(step.dst, &[cycles as u32; 32], mask),
        1 => cx.registers.set_word(step.dst, &[(cycles >> 32) as u32; 32], mask),
        2 => cx.registers.set_long(step.dst, &[cycles; 32], mask),
        3 => cx.registers.set_long(step.dst, &[nanoseconds; 32], mask),
        4 => cx.registers.set_word(step.dst, &[nanoseconds as u32; 32], mask),
        _ => cx.registers.set_word(step.dst, &[(nanoseconds >> 32) as u32; 32], mask),
    }
    // Who reads a clock in a loop waits for time to pass, and may as well let others run.
    cx.polled(step.place, 0);
    Ok(())
}
