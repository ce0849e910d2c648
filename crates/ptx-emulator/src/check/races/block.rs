//! What a block does to global memory, judged.

use std::collections::HashMap;
use std::sync::Arc;

use super::knowledge::{Knowledge, Party};
use super::shadow::{Collision, Mark, Strength};
use super::{Kernel, Races};
use crate::check::clocks::Clocks;
use crate::check::watch::{Access, BlockWatch, Order, Scope, Who};
use crate::exec::registers::{Mask, lanes};
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
    /// The one of them that was asked for last; operation 0 is none.
    last: (u32, bool),
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
            last: (0, false),
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

    fn mark(&self, clocks: &Clocks, who: Who, strength: Strength) -> Mark {
        let Party { operation, block } = self.party;
        Mark::new(operation, block, clocks.epoch(who.warp as usize), who.place, who.warp, who.lane, strength)
    }

    /// Asks the shadow, which is told whether the second of two marks comes before the first, one of this warp; what collides is reported.
    fn judge(
        &mut self,
        clocks: &Clocks,
        warp: usize,
        ask: impl FnOnce(&Races, &mut dyn FnMut(Mark, Mark) -> bool) -> Result<(), (Collision, Mark)>,
    ) -> Result<(), Box<Fault>> {
        let Self { kernel, party, warps, waited, before, last, .. } = self;
        let mut ordered = |mark: Mark, other: Mark| {
            if other.operation == party.operation && other.block == party.block {
                let itself = other.thread() == mark.thread();
                return itself || clocks.knows(warp, other.warp() as usize, other.epoch);
            }
            if other.operation != party.operation {
                if last.0 != other.operation {
                    let known = before
                        .entry(other.operation)
                        .or_insert_with(|| kernel.races.comes_before(other.operation, kernel, *waited));
                    *last = (other.operation, *known);
                }
                if last.1 {
                    return true;
                }
            }
            let other_party = Party { operation: other.operation, block: other.block };
            warps
                .get(warp)
                .is_some_and(|state| state.knows.has(other_party, other.warp() as usize, other.epoch))
        };
        ask(&kernel.races, &mut ordered).map_err(|(collision, mark)| {
            let site = kernel.site(self.index, mark);
            kernel.races.report(collision, Some(site))
        })
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
        let mark = self.mark(clocks, who, strength);
        self.judge(clocks, warp, |races, ordered| {
            races
                .shadow
                .access(address, u64::from(bytes), mark, reads, writes, &mut |other| ordered(mark, other))
                .map_err(|collision| (collision, mark))
        })
    }

    fn reads(
        &mut self,
        clocks: &mut Clocks,
        who: Who,
        mask: Mask,
        addresses: &[u64; 32],
        bytes: u32,
    ) -> Result<(), Box<Fault>> {
        let marks: [Mark; 32] =
            std::array::from_fn(|lane| self.mark(clocks, Who { lane: lane as u32, ..who }, Strength::Weak));
        self.judge(clocks, who.warp as usize, |races, ordered| {
            races.shadow.reads(
                lanes(mask).map(|lane| (addresses[lane], marks[lane])),
                u64::from(bytes),
                ordered,
            )
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
        self.last = (0, false);
    }
}
