//! What a block does to global memory, judged.

use std::collections::HashMap;
use std::sync::Arc;

use super::Kernel;
use super::knowledge::{Knowledge, Party};
use super::shadow::{Mark, Strength};
use crate::check::clocks::Clocks;
use crate::check::watch::{Access, BlockWatch, Order, Scope, Who};
use crate::exec::registers::Mask;
use crate::fault::Fault;

/// What one warp knows and gives on.
#[derive(Clone, Debug, Default)]
struct Warp {
    /// Of other blocks.
    knows: Knowledge,
    /// What the strong reads since the last fence may have brought.
    pending: Knowledge,
    /// What the last fence released.
    released: Knowledge,
}

/// A block under watch.
#[derive(Debug)]
pub(super) struct Block {
    kernel: Arc<Kernel>,
    party: Party,
    index: [u32; 3],
    warps: Vec<Warp>,
    /// What arrivals left at each mbarrier, by its offset in shared memory. It only grows: an earlier phase's is known anyway.
    mbarriers: HashMap<u32, Warp>,
    /// The block went past `griddepcontrol.wait`.
    waited: bool,
    /// Whether an operation comes before this one: answers already found.
    before: HashMap<u32, bool>,
}

impl Warp {
    /// Takes in what a barrier of the block hands on.
    ///
    /// What was released goes along: a fence before the barrier counts for the strong write that another thread makes after it, and a
    /// fence after the barrier for the strong read that another made before. That is how split-k and grid barriers are written, and
    /// the hardware's fences are cumulative.
    fn give(&mut self, other: &Self) {
        self.knows.join(&other.knows);
        self.pending.join(&other.pending);
        self.released.join(&other.released);
    }
}

impl Block {
    pub(super) fn new(kernel: Arc<Kernel>, index: [u32; 3], warps: u32) -> Self {
        let [x, y, z] = index;
        let [width, height, _] = kernel.grid;
        let block = x.wrapping_add(width.wrapping_mul(y.wrapping_add(height.wrapping_mul(z))));
        let party = Party { operation: kernel.operation, block };
        Self {
            kernel,
            party,
            index,
            warps: vec![Warp::default(); warps as usize],
            mbarriers: HashMap::new(),
            waited: false,
            before: HashMap::new(),
        }
    }

    /// A device-wide release of all that a warp did and knows.
    fn release(&mut self, clocks: &mut Clocks, warp: usize) {
        let clock = clocks.release(warp);
        if let Some(state) = self.warps.get_mut(warp) {
            state.released.join(&state.knows);
            state.released.learn(self.party, &clock);
        }
    }

    fn acquire(&mut self, warp: usize) {
        if let Some(state) = self.warps.get_mut(warp) {
            state.knows.join(&state.pending);
        }
    }
}

impl BlockWatch for Block {
    fn access(
        &mut self,
        clocks: &mut Clocks,
        who: Who,
        address: u64,
        bytes: u32,
        access: Access,
    ) -> Result<(), Box<Fault>> {
        let warp = who.warp as usize;
        let (reads, writes, strength) = match access {
            Access::Read => (true, false, Strength::Weak),
            Access::Write => (false, true, Strength::Weak),
            Access::Strong { reads, writes, order, scope } => {
                let wide = scope >= Scope::Device;
                if writes && wide {
                    if matches!(order, Order::Release | Order::AcquireRelease | Order::Sequential) {
                        self.release(clocks, warp);
                    }
                    if let Some(state) = self.warps.get(warp) {
                        self.kernel.races.publish(address, &state.released, &self.kernel);
                    }
                }
                (reads, writes, if wide { Strength::Device } else { Strength::Block })
            }
        };
        let epoch = clocks.epoch(warp);
        let mark =
            Mark::new(self.party.operation, self.party.block, epoch, who.place, who.warp, who.lane, strength);
        let Self { kernel, party, warps, waited, before, .. } = self;
        let mut ordered = |other: Mark| {
            if other.operation == party.operation && other.block == party.block {
                let itself = other.thread() == mark.thread();
                return itself || clocks.knows(warp, other.warp() as usize, other.epoch);
            }
            if other.operation != party.operation {
                let known = before
                    .entry(other.operation)
                    .or_insert_with(|| kernel.races.comes_before(other.operation, kernel, *waited));
                if *known {
                    return true;
                }
            }
            let other_party = Party { operation: other.operation, block: other.block };
            warps
                .get(warp)
                .is_some_and(|state| state.knows.has(other_party, other.warp() as usize, other.epoch))
        };
        let shadow = &kernel.races.shadow;
        let found = shadow.access(address, u64::from(bytes), mark, reads, writes, &mut ordered);
        found.map_err(|collision| {
            let site = kernel.site(self.index, mark);
            kernel.races.report(collision, Some(site))
        })
    }

    fn strong_done(&mut self, who: Who, address: u64, access: Access) {
        let Access::Strong { reads: true, order, scope, .. } = access else { return };
        if scope < Scope::Device {
            return;
        }
        if let Some(state) = self.warps.get_mut(who.warp as usize) {
            self.kernel.races.collect(address, &mut state.pending);
        }
        if matches!(order, Order::Acquire | Order::AcquireRelease | Order::Sequential) {
            self.acquire(who.warp as usize);
        }
    }

    fn fence(&mut self, clocks: &mut Clocks, warp: u32, _order: Order, scope: Scope) {
        if scope >= Scope::Device {
            self.acquire(warp as usize);
            self.release(clocks, warp as usize);
        }
    }

    fn barrier(&mut self, arrived: &[(u32, Mask)], released: &[(u32, Mask)]) {
        let mut all = Warp::default();
        for (warp, _) in arrived {
            if let Some(state) = self.warps.get(*warp as usize) {
                all.give(state);
            }
        }
        for (warp, _) in released {
            if let Some(state) = self.warps.get_mut(*warp as usize) {
                state.give(&all);
            }
        }
    }

    fn mbarrier_arrive(&mut self, warp: u32, _lanes: Mask, mbarrier: u32) {
        if let Some(state) = self.warps.get(warp as usize) {
            self.mbarriers.entry(mbarrier).or_default().give(state);
        }
    }

    fn mbarrier_wait(&mut self, warp: u32, _lanes: Mask, mbarrier: u32) {
        if let (Some(state), Some(given)) = (self.warps.get_mut(warp as usize), self.mbarriers.get(&mbarrier))
        {
            state.give(given);
        }
    }

    fn dependency_wait(&mut self) {
        self.waited = true;
        self.before.clear();
    }
}
