//! Fences, and the order that strong accesses make within a block.
//!
//! The machine itself needs hardly any: lanes run in order, and a store of a host's core is seen in order by the others. The checker needs to
//! know: an atomic on one address orders what was before it in one warp before what comes after it in another, if the kernel uses fences at
//! all. That is more generous than the memory model and hides a race at worst.

use std::sync::atomic::Ordering::SeqCst;

use super::access;
use super::registers::Mask;
use super::{Cx, Target};
use crate::check::clocks::join;
use crate::check::{Access, Who};
use crate::program::{Outcome, Step};

/// `fence`, `membar`.
pub(crate) fn fence(cx: &mut Cx<'_>, step: &Step, _: Mask) -> Outcome {
    std::sync::atomic::fence(SeqCst);
    let (order, scope) = access::ordering(step);
    let warp = cx.warp.index;
    if let Some(watch) = &mut cx.block.watch {
        watch.fence(&mut cx.block.clocks, warp, order, scope);
    }
    Ok(())
}

impl Cx<'_> {
    /// A strong access to an address: warps that meet there know of each other.
    #[inline]
    pub(crate) fn synchronise(&mut self, address: u64, _step: &Step) {
        if self.grid.clocked && self.grid.launch.program.fences {
            self.meet(address);
        }
    }

    #[inline(never)]
    fn meet(&mut self, address: u64) {
        let warp = self.warp.index as usize;
        if let Some(clock) = self.block.meetings.get(&address) {
            self.block.clocks.acquire(warp, clock);
        }
        let mine = self.block.clocks.release(warp);
        join(self.block.meetings.entry(address).or_default(), &mine);
    }

    /// An atomic or strong access was done.
    #[inline]
    pub(crate) fn told(&mut self, place: u32, lane: usize, target: Target, address: u64, access: Access) {
        let who = Who { warp: self.warp.index, lane: lane as u32, place };
        if let (Some(watch), Target::Global(_)) = (&mut self.block.watch, target) {
            watch.strong_done(who, address, access);
        }
    }
}
