//! A grid in progress: blocks on all cores, put aside when they poll, taken up again.
//!
//! Workers are threads of a scope and not a pool: a grid borrows nothing that outlives it, and small launches never start one. Blocks
//! begin in an order drawn from the seed; one that polls or used up its share goes to the end of the queue, and new ones begin as long as
//! the device has room for them, as on a GPU: a block may wait for any other that is resident, and for no other.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};

use super::block::{Block, BlockTurn};
use super::launch::{Environment, Launch, Progress, Until};
use super::occupancy::blocks_per_multiprocessor;
use super::order::Order;
use super::state::GridState;
use super::windows::Windows;
use crate::fault::{Fault, Kind};

/// Steps a block runs before another takes its place.
const BLOCK_SHARE: i64 = 1 << 20;
/// Steps after which it is worth starting threads.
const WORTH_THREADS: u64 = 1 << 12;
/// Most threads of a block.
const MAX_THREADS: u64 = 1024;

/// A launched kernel: run it as far as wanted, put it aside, go on.
#[derive(Debug)]
pub struct Grid {
    state: GridState,
    order: Order,
    queue: Mutex<Queue>,
}

/// Who is where.
#[derive(Debug, Default)]
struct Queue {
    /// Blocks of the grid.
    total: u64,
    /// The next position in the order.
    next: u64,
    /// Blocks begun and not ended.
    resident: u64,
    /// At most so many.
    room: u64,
    /// On a worker now.
    running: u64,
    aside: VecDeque<Box<Block>>,
    /// At `griddepcontrol.wait`.
    #[allow(clippy::vec_box)] // blocks move between lists and workers by their pointer
    waiting: Vec<Box<Block>>,
    /// Ended; their registers are used again.
    #[allow(clippy::vec_box)] // as above
    spare: Vec<Box<Block>>,
    /// Blocks that ran `griddepcontrol.launch_dependents` or ended.
    released: u64,
    /// Whether the last block taken was a new one.
    took_new: bool,
    fault: Option<(u64, Box<Fault>)>,
}

impl Grid {
    /// Prepares a launch; nothing runs yet.
    ///
    /// # Errors
    /// A launch that no device could run (a block of no threads, more than 1024, too few argument bytes).
    pub fn new(launch: Launch, environment: Environment) -> Result<Self, Fault> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let refuse = |message: String| Fault { kind: Kind::Misuse, message, site: None, other: None };
        let name = launch.program.name.clone();
        let product = |shape: [u32; 3]| {
            shape.iter().try_fold(1u64, |all, n| all.checked_mul(u64::from(*n))).unwrap_or(u64::MAX)
        };
        let (total, threads) = (product(launch.grid), product(launch.block));
        if total == 0 || threads == 0 || threads > MAX_THREADS || total > 1 << 62 {
            return Err(refuse(format!(
                "launching {name}: a grid of {:?} blocks of {:?} threads; a block has 1 to {MAX_THREADS} threads",
                launch.grid, launch.block
            )));
        }
        let needed = launch.program.param_bytes as usize;
        if launch.arguments.len() < needed {
            return Err(refuse(format!(
                "launching {name}: {} bytes of arguments, but its parameters take {needed}",
                launch.arguments.len()
            )));
        }
        let shared = u64::from(launch.program.shared_bytes(launch.dynamic_shared));
        if shared > 1 << 20 {
            return Err(refuse(format!("launching {name}: {shared} bytes of shared memory for a block")));
        }
        let per_sm = blocks_per_multiprocessor(environment.arch, threads as u32, shared as u32);
        let room = if launch.cooperative { total } else { u64::from(per_sm.max(1) * environment.sms.max(1)) };
        let order = Order::new(total, environment.seed);
        let state = GridState {
            checked: environment.checks.memory,
            clocked: environment.checks.memory || environment.watch.is_some(),
            launch,
            environment,
            id: NEXT.fetch_add(1, Relaxed),
            executed: AtomicU64::new(0),
            dependencies: AtomicBool::new(false),
            stop: AtomicBool::new(false),
        };
        Ok(Self { state, order, queue: Mutex::new(Queue { total, room, ..Queue::default() }) })
    }

    /// Runs on.
    ///
    /// # Errors
    /// What a kernel did wrong. The grid is over then.
    pub fn run(&mut self, until: Until) -> Result<Progress, Fault> {
        self.state.stop.store(false, Relaxed);
        let mut budget = u64::MAX;
        match until {
            Until::End => {
                self.state.dependencies.store(true, Relaxed);
                let queue = self.queue.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
                for mut block in std::mem::take(&mut queue.waiting) {
                    block.pass_dependency();
                    queue.aside.push_back(block);
                }
            }
            Until::Wait => {}
            Until::Released => {
                self.until_released();
                budget = 0;
            }
            Until::Budget(steps) => budget = self.state.executed.load(Relaxed).saturating_add(steps),
        }
        if budget > 0 {
            self.all_workers(budget);
        }
        let mut queue = self.lock();
        if let Some((_, fault)) = queue.fault.take() {
            return Err(*fault);
        }
        if queue.next == queue.total && queue.resident == 0 {
            return Ok(Progress::Finished);
        }
        let stuck = queue.aside.is_empty() && (queue.next == queue.total || queue.resident >= queue.room);
        Ok(if stuck { Progress::Waiting } else { Progress::Running })
    }

    /// Whether every block ran `griddepcontrol.launch_dependents` or has ended.
    #[must_use]
    pub fn release_dependents_reached(&self) -> bool {
        let queue = self.lock();
        queue.released == queue.total
    }

    /// Warp instructions executed so far.
    #[must_use]
    pub fn executed(&self) -> u64 {
        self.state.executed.load(Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Blocks in short turns, which grow so that a release at the very end of a long kernel is reached too.
    fn until_released(&self) {
        let mut windows = Windows::default();
        let mut turns = 0u64;
        while !self.release_dependents_reached() {
            let share = 1i64 << (turns >> 8).min(12);
            if !self.work(&mut windows, u64::MAX, share) {
                return;
            }
            turns += 1;
        }
    }

    /// This thread works; once that proves worth it, others help.
    fn all_workers(&self, budget: u64) {
        let helpers = self.state.environment.workers.saturating_sub(1);
        let begin = self.state.executed.load(Relaxed);
        let mut windows = Windows::default();
        if helpers > 0 {
            // Alone until the launch has shown that it is no small one.
            while self.state.executed.load(Relaxed) - begin < WORTH_THREADS {
                if !self.work(&mut windows, budget, WORTH_THREADS as i64) {
                    return;
                }
            }
            let alone = {
                let queue = self.lock();
                queue.next + 1 >= queue.total && queue.aside.len() < 2
            };
            if !alone {
                std::thread::scope(|scope| {
                    for _ in 0..helpers {
                        scope.spawn(|| {
                            let mut windows = Windows::default();
                            while self.work(&mut windows, budget, BLOCK_SHARE) {}
                        });
                    }
                    while self.work(&mut windows, budget, BLOCK_SHARE) {}
                });
                return;
            }
        }
        while self.work(&mut windows, budget, BLOCK_SHARE) {}
    }

    /// Runs one block for a share; false if there is nothing left for this worker.
    fn work(&self, windows: &mut Windows, budget: u64, share: i64) -> bool {
        let Some(mut block) = self.take() else { return false };
        let released = block.state.dependents_released;
        let before = block.clock();
        let outcome = block.run(&self.state, windows, share);
        let steps = block.clock() - before;
        let executed = self.state.executed.fetch_add(steps, Relaxed) + steps;
        let over = self.state.environment.limit.is_some_and(|limit| executed > limit);
        let site = if over { block.somewhere(&self.state) } else { None };
        let mut queue = self.lock();
        queue.running -= 1;
        match outcome {
            Ok(turn) => {
                let ended = turn == BlockTurn::Ended;
                if !released && (block.state.dependents_released || ended) {
                    queue.released += 1;
                }
                match turn {
                    BlockTurn::Ended => {
                        queue.resident -= 1;
                        queue.spare.push(block);
                    }
                    BlockTurn::Waiting if self.state.dependencies_done() => {
                        block.pass_dependency();
                        queue.aside.push_back(block);
                    }
                    BlockTurn::Waiting => queue.waiting.push(block),
                    // It may wait for the block that failed, for ever.
                    BlockTurn::Polling if queue.fault.is_some() => queue.resident -= 1,
                    BlockTurn::Aside | BlockTurn::Polling => queue.aside.push_back(block),
                }
            }
            Err(fault) => {
                // The one that comes first in the order is reported, whoever found it first.
                if queue.fault.as_ref().is_none_or(|(position, _)| block.position < *position) {
                    queue.fault = Some((block.position, fault));
                }
                queue.resident -= 1;
            }
        }
        if over && queue.fault.is_none() {
            let message = format!(
                "the launch of {} ran {executed} warp instructions and has not ended; the limit in the settings is {}",
                self.state.launch.program.name,
                self.state.environment.limit.unwrap_or(0),
            );
            let fault = Fault { kind: Kind::TimedOut, message, site, other: None };
            queue.fault = Some((u64::MAX, Box::new(fault)));
            self.state.stop.store(true, Relaxed);
        }
        if executed >= budget {
            self.state.stop.store(true, Relaxed);
        }
        !self.state.stop.load(Relaxed)
    }

    /// A block to run: new ones and those put aside in turn.
    fn take(&self) -> Option<Box<Block>> {
        let mut queue = self.lock();
        let fault = queue.fault.as_ref().map(|(position, _)| *position);
        // After a fault only what comes before it in the order runs on, so that the report does not hang on who was faster.
        let begin = queue.next < queue.total.min(fault.unwrap_or(u64::MAX)) && queue.resident < queue.room;
        if let Some(position) = fault {
            queue.aside.retain(|block| block.position < position);
        }
        if begin && (queue.aside.is_empty() || !queue.took_new) {
            let position = queue.next;
            queue.next += 1;
            queue.resident += 1;
            queue.running += 1;
            queue.took_new = true;
            let spare = queue.spare.pop();
            drop(queue);
            let mut block = spare.unwrap_or_else(|| Box::new(Block::new(&self.state)));
            let linear = self.order.at(position);
            let [x, y, _] = self.state.launch.grid.map(u64::from);
            let index = [linear % x, linear / x % y, linear / x / y].map(|i| i as u32);
            block.begin(&self.state, position, index);
            return Some(block);
        }
        queue.took_new = false;
        let block = queue.aside.pop_front()?;
        queue.running += 1;
        Some(block)
    }
}
