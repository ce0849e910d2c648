//! Asynchronous copies: `cp.async`, one-dimensional `cp.async.bulk`.
//!
//! A copy lands as late as the model allows: when the thread that issued it waits for its group, or when a wait for its mbarrier could not
//! succeed otherwise. Both ends are judged when it is issued and read when it lands, so that a missing wait is seen twice: the data are not
//! there, and with checks whoever touches the bytes in between is told.

mod async_copy;
mod bulk;

pub(crate) use async_copy::Queue;
pub(crate) use bulk::Store;

use super::Cx;
use super::registers::{Mask, lanes};
use crate::check::clocks::Clock;
use crate::fault::{Fault, Kind};
use crate::lower::Operands;
use crate::program::{Outcome, Step};
use crate::ptx::ast::Instruction;

/// Copies a warp has under way; they stand with the block, where other warps' waits reach them.
#[derive(Debug, Default)]
pub(crate) struct WarpCopies {}

/// Copies a block has under way.
#[derive(Debug, Default)]
pub(crate) struct BlockCopies {
    /// `cp.async`, by warp.
    queues: Vec<Queue>,
    /// What arrives at mbarriers, in the order of issue.
    awaited: Vec<Awaited>,
    /// Bulk copies out of shared memory.
    stores: Vec<Store>,
    /// Counts instructions that issue copies.
    serial: u64,
}

/// Something under way to an mbarrier.
#[derive(Debug)]
struct Awaited {
    /// The mbarrier.
    at: usize,
    what: What,
    /// What the issuing warp did before.
    clock: Clock,
    place: u32,
    warp: u32,
}

#[derive(Debug)]
enum What {
    /// `cp.async.mbarrier.arrive`: these lanes arrive when their copies up to a serial are complete.
    Arrivals { lanes: Mask, serial: u64 },
    /// A bulk copy into shared memory.
    Bulk(bulk::Load),
}

impl WarpCopies {
    /// A block begins.
    pub(crate) fn reset(&mut self) {}
}

impl BlockCopies {
    /// A block begins.
    pub(crate) fn reset(&mut self) {
        self.queues.iter_mut().for_each(Queue::reset);
        self.awaited.clear();
        self.stores.clear();
        self.serial = 0;
    }

    fn queue(&mut self, warp: u32) -> &mut Queue {
        let index = warp as usize;
        if self.queues.len() <= index {
            self.queues.resize_with(index + 1, Queue::default);
        }
        &mut self.queues[index]
    }
}

/// Lowers `cp.async.*`.
pub(crate) fn lower(i: &Instruction, o: &mut Operands<'_>) -> Result<Step, String> {
    let words: Vec<&str> = i.modifiers.iter().map(String::as_str).collect();
    match words[..] {
        ["async", "commit_group"] => async_copy::lower_commit(i),
        ["async", "wait_group"] => async_copy::lower_wait(i, o),
        ["async", "wait_all"] => async_copy::lower_wait_all(i),
        ["async", "mbarrier", ..] => async_copy::lower_arrive(i, o),
        ["async", "bulk", ..] => bulk::lower(i, o),
        ["async", ..] => async_copy::lower(i, o),
        _ => Err("only cp.async is known".into()),
    }
}

/// Whether copies are under way that are to arrive at an mbarrier.
pub(crate) fn under_way_to(cx: &Cx<'_>, at: usize) -> bool {
    cx.block.copies.awaited.iter().any(|awaited| awaited.at == at)
}

/// Lands what is under way to an mbarrier if that ends its phase; says whether it did. Called where a wait would fail.
pub(crate) fn deliver(cx: &mut Cx<'_>, place: u32, lane: usize, at: usize) -> Result<bool, Box<Fault>> {
    if cx.block.copies.awaited.is_empty() {
        return Ok(false);
    }
    let Some(mbarrier) = cx.block.mbarriers.get(at) else { return Ok(false) };
    let (mut arrivals, mut bytes, mut enough) = (0, 0, false);
    let mut last = 0;
    for (index, awaited) in cx.block.copies.awaited.iter().enumerate().filter(|(_, a)| a.at == at) {
        match &awaited.what {
            What::Arrivals { lanes, .. } => arrivals += lanes.count_ones(),
            What::Bulk(load) => bytes += i64::from(load.bytes()),
        }
        last = index;
        if mbarrier.would_complete(arrivals, bytes) {
            enough = true;
            break;
        }
    }
    if !enough {
        if mbarrier.would_overrun(arrivals, bytes) {
            let message = format!(
                "waiting for the mbarrier at {at:#x}: all arrivals are in, and bulk copies bring {bytes} bytes, more than \
                 expect_tx announced"
            );
            return Err(cx.fault(place, lane, Kind::Misuse, message));
        }
        return Ok(false);
    }
    // The first `last + 1` that are meant for this mbarrier land, in order.
    let all = std::mem::take(&mut cx.block.copies.awaited);
    let mut landing = Vec::new();
    for (index, awaited) in all.into_iter().enumerate() {
        if awaited.at == at && index <= last {
            landing.push(awaited);
        } else {
            cx.block.copies.awaited.push(awaited);
        }
    }
    for awaited in landing {
        land(cx, lane, &awaited)?;
    }
    Ok(true)
}

fn land(cx: &mut Cx<'_>, lane: usize, awaited: &Awaited) -> Outcome {
    match &awaited.what {
        What::Arrivals { lanes: arriving, serial } => {
            async_copy::land_until(cx, awaited.warp, *arriving, *serial)?;
            for _ in lanes(*arriving) {
                cx.change_mbarrier(awaited.place, lane, awaited.at, |mbarrier| {
                    mbarrier.arrive(1, false, &awaited.clock).map(|_| ())
                })?;
            }
            Ok(())
        }
        What::Bulk(load) => {
            load.land(cx, awaited.place, lane)?;
            cx.change_mbarrier(awaited.place, lane, awaited.at, |mbarrier| {
                mbarrier.complete(load.bytes(), &awaited.clock)
            })
        }
    }
}

/// All lanes of the warp have ended. Its copies must have been waited for; with the last warp those to mbarriers too, and stores to global
/// memory complete now.
pub(crate) fn warp_end(cx: &mut Cx<'_>) -> Outcome {
    async_copy::warp_end(cx)?;
    if cx.block.alive != 0 {
        return Ok(());
    }
    if cx.grid.checked
        && let Some(awaited) = cx.block.copies.awaited.first()
    {
        let message = format!(
            "the block ended while copies to the mbarrier at {:#x} were under way; nothing waited for them",
            awaited.at
        );
        return Err(cx.fault(awaited.place, 0, Kind::Misuse, message));
    }
    bulk::block_end(cx)
}
