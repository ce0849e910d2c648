//! Asynchronous copies: `cp.async`, one-dimensional `cp.async.bulk`.
//!
//! A copy lands as late as the model allows: when the thread that issued it waits for its group, or when a wait for its mbarrier could not
//! succeed otherwise. Both ends are judged when it is issued and read when it lands, so that a missing wait is seen twice: the data are not
//! there, and with checks whoever touches the bytes in between is told.

mod async_copy;
mod bulk;

pub(crate) use async_copy::Queue;
pub(crate) use bulk::Store;

use std::collections::BTreeMap;

use super::Cx;
use super::registers::{ALL, Mask, lanes};
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

    /// What is under way to which mbarrier, for the report of a deadlock.
    pub(crate) fn describe(&self) -> Vec<String> {
        let mut sums = BTreeMap::<usize, (u32, u64)>::new();
        for awaited in &self.awaited {
            let sum = sums.entry(awaited.at).or_default();
            match &awaited.what {
                What::Arrivals { lanes, .. } => sum.0 += lanes.count_ones(),
                What::Bulk(load) => sum.1 += u64::from(load.bytes()),
            }
        }
        let line = |(at, (arrivals, bytes))| {
            format!("copies under way bring {arrivals} arrivals and {bytes} bytes to the mbarrier at {at:#x}")
        };
        sums.into_iter().take(32).map(line).collect()
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
///
/// Nothing lands at the first such wait of a phase: one that is not repeated is a mistake, and shows this way.
pub(crate) fn deliver(cx: &mut Cx<'_>, place: u32, lane: usize, at: usize) -> Result<bool, Box<Fault>> {
    if !under_way_to(cx, at) || !cx.block.mbarriers.waited_before(at) {
        return Ok(false);
    }
    let Some(mbarrier) = cx.block.mbarriers.get(at) else { return Ok(false) };
    // As many as it takes, in order; of lanes that arrive together the lowest.
    let (mut arrivals, mut bytes) = (0, 0);
    let mut last = None;
    for (index, awaited) in cx.block.copies.awaited.iter().enumerate().filter(|(_, a)| a.at == at) {
        let mut take = ALL;
        match &awaited.what {
            What::Arrivals { lanes: arriving, .. } => {
                let missing = mbarrier.missing().saturating_sub(arrivals) as usize;
                take = lanes(*arriving).take(missing).fold(0, |out, lane| out | (1 << lane) as Mask);
                arrivals += take.count_ones();
            }
            What::Bulk(load) => bytes += i64::from(load.bytes()),
        }
        if mbarrier.would_complete(arrivals, bytes) {
            last = Some((index, take));
            break;
        }
    }
    let Some((last, take)) = last else {
        if mbarrier.would_overrun(arrivals, bytes) {
            let message = format!(
                "waiting for the mbarrier at {at:#x}: all arrivals are in, and bulk copies bring {bytes} bytes, more than \
                 expect_tx announced"
            );
            return Err(cx.fault(place, lane, Kind::Misuse, message));
        }
        return Ok(false);
    };
    let all = std::mem::take(&mut cx.block.copies.awaited);
    let mut landing = Vec::new();
    for (index, mut awaited) in all.into_iter().enumerate() {
        if awaited.at != at || index > last {
            cx.block.copies.awaited.push(awaited);
            continue;
        }
        if let (What::Arrivals { lanes, serial }, true) = (&mut awaited.what, index == last)
            && *lanes & !take != 0
        {
            let what = What::Arrivals { lanes: *lanes & !take, serial: *serial };
            *lanes &= take;
            let clock = awaited.clock.clone();
            cx.block.copies.awaited.push(Awaited { what, clock, ..awaited });
        }
        landing.push(awaited);
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
