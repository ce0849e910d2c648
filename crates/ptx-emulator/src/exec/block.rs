//! A block in progress: its warps take turns until all wait for somebody outside, or have ended.

use super::fragments::Wait;
use super::registers::Class;
use super::specials;
use super::state::{BlockState, GridState};
use super::warp::{Turn, Warp};
use super::windows::Windows;
use super::{Cx, barrier};
use crate::fault::{Fault, Kind, Site};
use crate::program::Action;

/// Steps a warp runs before the next has its turn. Long, since registers of a warp fill a cache.
const WARP_SHARE: i64 = 1 << 15;

/// Bytes that the system keeps of a block's shared memory, all zero at first.
const RESERVED: usize = 1024;

/// A block, put aside or running.
#[derive(Debug, Default)]
pub(crate) struct Block {
    warps: Vec<Warp>,
    pub(crate) state: BlockState,
    /// Position in the order of blocks; the lowest fault is reported.
    pub(crate) position: u64,
}

/// How a block's time on a worker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockTurn {
    /// All threads have ended.
    Ended,
    /// All that could run wait at `griddepcontrol.wait`.
    Waiting,
    /// Its share is used up.
    Aside,
    /// All its warps poll.
    Polling,
}

impl Block {
    /// Room for a block of this grid: registers, and in them what is the same for all blocks.
    pub(crate) fn new(grid: &GridState) -> Self {
        let program = &grid.launch.program;
        let threads = grid.launch.block.iter().product::<u32>();
        let mut block = Self::default();
        block.state.threads = threads;
        for index in 0..threads.div_ceil(32) {
            let mut warp = Warp::default();
            let [words, longs, preds] = program.rows;
            warp.registers = super::registers::Registers::new(words, longs, preds);
            for &(class, slot, value) in &program.constants {
                match class {
                    Class::Word => warp.registers.set_word(slot, &[value as u32; 32], !0),
                    Class::Long => warp.registers.set_long(slot, &[value; 32], !0),
                    Class::Pred => warp.registers.set_pred(slot, if value & 1 != 0 { !0 } else { 0 }, !0),
                }
            }
            warp.state.index = index;
            let rest = threads - index * 32;
            warp.state.exist = if rest >= 32 { !0 } else { (1 << rest) - 1 };
            warp.state.local = vec![[0; 32]; program.local_bytes.div_ceil(4) as usize];
            specials::of_thread(grid, &mut warp);
            block.warps.push(warp);
        }
        block
    }

    /// Makes it the block with this index, at its start.
    pub(crate) fn begin(&mut self, grid: &GridState, position: u64, index: [u32; 3]) {
        let program = &grid.launch.program;
        self.position = position;
        let state = &mut self.state;
        state.index = index;
        state.alive = state.threads;
        state.dependents_released = false;
        let shared = program.shared_bytes(grid.launch.dynamic_shared) as usize;
        state.shared.clear();
        // Not zero, so that nothing seems to work because it was.
        state.shared.resize(shared, 0xff);
        if program.specials.iter().any(|(special, _)| *special == specials::Special::Reserved) {
            state.shared.resize(shared.next_multiple_of(16), 0xff);
            state.shared.resize(shared.next_multiple_of(16) + RESERVED, 0);
        }
        let (own, shared) = (shared, state.shared.len());
        state.barriers.reset();
        state.copies.reset();
        state.mbarriers.reset();
        if grid.checked {
            state.meetings.clear();
            state.shadow.reset(shared, program.granule);
            state.shadow.assume_written(own, shared - own);
        }
        if grid.clocked {
            state.clocks.reset(self.warps.len());
        }
        state.watch =
            grid.environment.watch.as_ref().map(|watch| watch.block(index, self.warps.len() as u32));
        for warp in &mut self.warps {
            let [words, longs, preds] = program.variables;
            warp.registers.clear(words, longs, preds);
            warp.state.alive = warp.state.exist;
            warp.state.yielding = false;
            warp.state.poll = (u32::MAX, 0, 0);
            warp.state.clock = 0;
            if grid.checked {
                // As with shared memory: a GPU leaves there what was there.
                warp.state.local.fill([!0; 32]);
            }
            warp.state.copies.reset();
            warp.fragments.reset(warp.state.exist);
            specials::of_block(grid, index, warp);
        }
    }

    /// Steps its warps have run.
    pub(crate) fn clock(&self) -> u64 {
        self.warps.iter().map(|w| w.state.clock).sum()
    }

    /// The grids before are done.
    pub(crate) fn pass_dependency(&mut self) {
        if let Some(watch) = &mut self.state.watch {
            watch.dependency_wait();
        }
        for warp in &mut self.warps {
            for fragment in warp.fragments.all_mut() {
                if fragment.wait == Wait::Dependency {
                    fragment.wait = Wait::Run;
                    fragment.pc += 1;
                }
            }
            warp.fragments.merge();
        }
    }

    /// Runs for about `share` steps.
    pub(crate) fn run(
        &mut self,
        grid: &GridState,
        windows: &mut Windows,
        share: i64,
    ) -> Result<BlockTurn, Box<Fault>> {
        let mut left = share;
        loop {
            let (mut ran, mut polling) = (0, 0);
            for index in 0..self.warps.len() {
                let warp = &mut self.warps[index];
                if !warp.fragments.runnable() {
                    continue;
                }
                ran += 1;
                let before = warp.state.clock;
                let turn = warp.turn(&mut self.state, grid, windows, WARP_SHARE.min(left.max(1)))?;
                left -= (warp.state.clock - before) as i64;
                polling += u32::from(turn == Turn::Polling);
                while let Some(id) = self.state.barriers.completed.pop() {
                    self.release(grid, windows, id);
                    polling = 0;
                }
                if grid.stop.load(std::sync::atomic::Ordering::Relaxed) {
                    return Ok(BlockTurn::Aside);
                }
            }
            if ran == 0 {
                if self.warps.iter().all(|w| w.fragments.is_empty()) {
                    return Ok(BlockTurn::Ended);
                }
                let dependency = |w: &Warp| w.fragments.all().iter().any(|f| f.wait == Wait::Dependency);
                if self.warps.iter().any(dependency) {
                    return Ok(BlockTurn::Waiting);
                }
                return Err(self.deadlock(grid));
            }
            if polling < ran {
                self.state.mbarriers.others_go_on();
            } else if self.state.mbarriers.stuck() {
                return Err(self.deadlock(grid));
            }
            if polling == ran {
                return Ok(BlockTurn::Polling);
            }
            if left <= 0 {
                return Ok(BlockTurn::Aside);
            }
        }
    }

    /// Wakes those that waited for a barrier.
    fn release(&mut self, grid: &GridState, windows: &mut Windows, id: u8) {
        let phase = self.state.barriers.phase(id);
        let clock = if grid.clocked { self.state.barriers.clock(id).to_vec() } else { Vec::new() };
        let (arrived, released) = self.state.barriers.take_parties(id);
        for warp in &mut self.warps {
            let mut woken = false;
            for fragment in warp.fragments.all_mut() {
                match fragment.wait {
                    Wait::Barrier { id: of, phase: at } if of == id && at < phase => {}
                    _ => continue,
                }
                woken = true;
                fragment.wait = Wait::Run;
                let step = &grid.launch.program.steps[fragment.pc as usize];
                fragment.pc += 1;
                if let Action::Barrier(kind) = step.action {
                    let mut cx = Cx {
                        registers: &mut warp.registers,
                        warp: &mut warp.state,
                        block: &mut self.state,
                        grid,
                        windows,
                    };
                    barrier::deliver(&mut cx, step, fragment.mask, id, kind);
                }
            }
            if woken {
                warp.fragments.merge();
                if grid.clocked {
                    self.state.clocks.acquire(warp.state.index as usize, &clock);
                }
            }
        }
        if let Some(watch) = &mut self.state.watch {
            watch.barrier(&arrived, &released);
        }
    }

    /// Where one of the threads is, to say something of a block that does not end.
    #[cold]
    pub(super) fn somewhere(&self, grid: &GridState) -> Option<Site> {
        let program = &grid.launch.program;
        let found =
            self.warps.iter().find_map(|warp| Some((warp.state.index, warp.fragments.all().iter().next()?)));
        let (warp, fragment) = found?;
        let step = program.steps.get(fragment.pc as usize)?;
        Some(Site {
            kernel: program.name.clone(),
            place: program.place_name(step.place),
            block: self.state.index,
            thread: warp * 32 + fragment.mask.trailing_zeros(),
        })
    }

    /// Nothing can run, and nobody outside will help.
    #[cold]
    fn deadlock(&self, grid: &GridState) -> Box<Fault> {
        let program = &grid.launch.program;
        let mut message = String::from("deadlock: every thread of the block waits for another");
        let mut site = None;
        for warp in &self.warps {
            for fragment in warp.fragments.all() {
                let step = &program.steps[fragment.pc as usize];
                let place = program.place_name(step.place);
                let why = match fragment.wait {
                    Wait::Barrier { id, .. } => {
                        format!("at barrier {id} ({})", self.state.barriers.describe(id, self.state.alive))
                    }
                    Wait::Together { member } | Wait::WarpSync { member } => {
                        format!("for the lanes {member:#010x} in a .sync operation")
                    }
                    Wait::Run => "in a loop, for an mbarrier".into(),
                    Wait::Dependency => "for nothing".into(),
                };
                let (index, mask) = (warp.state.index, fragment.mask);
                if message.len() < 4096 {
                    message += &format!("\n    warp {index}, lanes {mask:#010x}: waits {why} at {place}");
                }
                site.get_or_insert_with(|| Site {
                    kernel: program.name.clone(),
                    place,
                    block: self.state.index,
                    thread: index * 32 + mask.trailing_zeros(),
                });
            }
        }
        for line in self.state.mbarriers.describe().into_iter().chain(self.state.copies.describe()) {
            message += &format!("\n    {line}");
        }
        Box::new(Fault { kind: Kind::Deadlock, message, site, other: None })
    }
}
