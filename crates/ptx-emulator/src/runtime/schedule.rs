//! Which task runs next, and until when.
//!
//! The machine has no thread that works in the background (but for the drain after a silence): whoever waits for something runs
//! what there is. So a program sees the same order on every run, and a missing wait is not hidden by a device that happens to be fast.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard, Weak};
use std::time::Duration;

use super::copy;
use super::error::{Code, Error, Result};
use super::handle::Context;
use super::order::{self, Order};
use super::state::State;
use super::task::{Stage, TaskId};
use super::work::{Comparison, Work};
use super::{Machine, Shared};
use crate::exec::{Progress, Until};
use crate::fault::{Fault, Kind};
use crate::settings::Schedule;

/// Warp instructions after which another task may have its turn.
const SLICE: u64 = 1 << 20;
/// So many tasks may wait; then the machine works without being asked, as a real driver's queues fill up.
const QUEUE: usize = 8192;

/// What came of running a task for a while.
pub(super) enum Outcome {
    Done,
    /// It goes on later. The launch has released its dependents, or not yet.
    More {
        released: bool,
    },
    /// A dependent launch stands at its wait.
    AtWait {
        released: bool,
    },
    /// A wait for a value that is not there yet.
    NotYet,
    Failed(Fault),
    /// Made to fail.
    Injected(Code),
}

impl Machine {
    /// Runs until all of `goals` are done.
    pub(super) fn run_until<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        goals: &[TaskId],
    ) -> MutexGuard<'a, State> {
        loop {
            if goals.iter().all(|goal| state.tasks.is_done(*goal)) {
                if let Some(orders) = &mut state.tasks.orders {
                    orders.seen_by_host(goals);
                }
                return state;
            }
            state = self.step(state, Some(goals)).0;
        }
    }

    /// Runs one task for a while; tells whether anything moved.
    pub(super) fn step<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        goals: Option<&[TaskId]>,
    ) -> (MutexGuard<'a, State>, bool) {
        if state.running {
            return (self.sleep(state, Duration::from_millis(50)), true);
        }
        let Some(id) = self.pick(&mut state, goals) else {
            // All that is left waits for a value that another thread of the host must write.
            state.stalled.clear();
            return (self.sleep(state, Duration::from_micros(200)), false);
        };
        // Others depend on it programmatically: they may begin in its midst.
        let until = if state.tasks.has_secondaries(id) { Until::Released } else { Until::Budget(SLICE) };
        let seed = state.random.next();
        let Some(task) = state.tasks.get_mut(id) else { return (state, false) };
        let Some(mut work) = task.work.take() else { return (state, false) };
        let (context, early) = (task.context, task.stage == Stage::Early);
        let device = state.contexts.get(&context).map_or(0, |context| context.device);
        let order = state.tasks.orders.as_ref().and_then(|orders| orders.of(id)).cloned();
        state.running = true;
        drop(state);
        let run = || self.execute(&mut work, device, order.as_ref(), early, until, seed);
        let outcome = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
            let what = panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()))
                .unwrap_or_default();
            Outcome::Failed(Fault {
                kind: Kind::Unsupported,
                message: format!("the emulator itself failed: {what}; please report it"),
                site: None,
                other: None,
            })
        });
        let mut state = self.lock();
        state.running = false;
        let moved = self.settle(&mut state, id, work, outcome);
        self.shared.changed.notify_all();
        (state, moved)
    }

    fn sleep<'a>(&'a self, state: MutexGuard<'a, State>, time: Duration) -> MutexGuard<'a, State> {
        let waited = self.shared.changed.wait_timeout(state, time);
        waited.unwrap_or_else(std::sync::PoisonError::into_inner).0
    }

    /// The next task by the policy; among those that `goals` need where the policy is lazy.
    fn pick(&self, state: &mut State, goals: Option<&[TaskId]>) -> Option<TaskId> {
        let ready: Vec<TaskId> =
            state.tasks.ready().iter().copied().filter(|id| !state.stalled.contains(id)).collect();
        // What may begin before its predecessor ends does so: that is the surprise worth testing.
        let early = || {
            let stage = |id: &TaskId| state.tasks.get(*id).is_some_and(|task| task.stage == Stage::Early);
            ready.iter().copied().filter(stage).max()
        };
        match self.shared.settings.schedule {
            Schedule::Eager => ready.iter().min().copied(),
            Schedule::Lazy => {
                let needed = goals.map(|goals| state.tasks.needed(goals));
                let wanted = |id: &TaskId| needed.as_ref().is_none_or(|needed| needed.contains(id));
                // A wait for a value may need work that nothing says it needs: then any.
                let oldest = || ready.iter().copied().filter(wanted).min();
                early().or_else(oldest).or_else(|| ready.iter().min().copied())
            }
            Schedule::Random if ready.is_empty() => None,
            Schedule::Random => ready.get(state.random.below(ready.len())).copied(),
            Schedule::Adversarial => early().or_else(|| ready.iter().max().copied()),
        }
    }

    fn execute(
        &self,
        work: &mut Work,
        device: u32,
        order: Option<&Order>,
        early: bool,
        until: Until,
        seed: u64,
    ) -> Outcome {
        let memory = &*self.shared.memory;
        if let (Some(races), Some(order)) = (&self.shared.races, order)
            && let Err(fault) = order::transfer(races, order, work)
        {
            return Outcome::Failed(fault);
        }
        let simple = |result: Result<(), Fault>| match result {
            Ok(()) => Outcome::Done,
            Err(fault) => Outcome::Failed(fault),
        };
        match work {
            Work::Empty | Work::Record(_) | Work::Free(_) => Outcome::Done,
            Work::Fail(code) => Outcome::Injected(*code),
            Work::Copy(copy) => simple(copy::copy(memory, copy)),
            Work::Fill(fill) => simple(copy::fill(memory, fill)),
            Work::Native(native) => {
                simple(order::native(memory, native, self.shared.races.as_deref().zip(order)))
            }
            Work::Host(function) => {
                IN_HOST_FUNCTION.with(|flag| flag.store(true, Ordering::Relaxed));
                (function.0)();
                IN_HOST_FUNCTION.with(|flag| flag.store(false, Ordering::Relaxed));
                Outcome::Done
            }
            Work::WaitValue { address, value, wide, until } => {
                match copy::read_word(memory, *address, *wide) {
                    Err(fault) => Outcome::Failed(fault),
                    Ok(found) if holds(*until, found, *value, *wide) => Outcome::Done,
                    Ok(_) => Outcome::NotYet,
                }
            }
            Work::Launch(launched) => {
                if launched.ended {
                    return Outcome::Done;
                }
                if launched.grid.is_none() {
                    match self.begin(&launched.spec, device, order, seed) {
                        Ok(grid) => launched.grid = Some(Box::new(grid)),
                        Err(fault) => return Outcome::Failed(fault),
                    }
                }
                let Some(grid) = launched.grid.as_mut() else { return Outcome::Done };
                let until = if early { Until::Wait } else { until };
                let progress = match grid.run(until) {
                    Ok(Progress::Waiting) if !early => grid.run(Until::End),
                    other => other,
                };
                let released = grid.release_dependents_reached();
                match progress {
                    Err(fault) => Outcome::Failed(fault),
                    Ok(Progress::Finished) => {
                        launched.ended = true;
                        launched.grid = None;
                        if early { Outcome::AtWait { released: true } } else { Outcome::Done }
                    }
                    Ok(_) if early => Outcome::AtWait { released },
                    Ok(_) => Outcome::More { released },
                }
            }
        }
    }

    /// Enters the outcome; tells whether anything moved.
    fn settle(&self, state: &mut State, id: TaskId, work: Work, outcome: Outcome) -> bool {
        state.clock += 1000;
        state.counts.tasks += 1;
        let context = state.tasks.get(id).map(|task| task.context);
        if !matches!(outcome, Outcome::NotYet) {
            state.stalled.clear();
        }
        let back = |state: &mut State, work: Work| {
            if let Some(task) = state.tasks.get_mut(id) {
                task.work = Some(work);
            }
        };
        match outcome {
            Outcome::Done => {
                self.finished(state, id, &work);
                state.tasks.finish(id);
            }
            Outcome::More { released } => {
                back(state, work);
                if released {
                    state.tasks.release(id);
                }
            }
            Outcome::AtWait { released } => {
                back(state, work);
                state.tasks.park(id);
                if released {
                    state.tasks.release(id);
                }
            }
            Outcome::NotYet => {
                back(state, work);
                state.stalled.insert(id);
                return true;
            }
            Outcome::Failed(fault) => {
                let code = Code(fault.kind.code());
                say(&format!("ptx-emulator: error {}: {fault}", code.0));
                state.fault.get_or_insert_with(|| Arc::new(fault));
                if let Some(context) = context {
                    self.kill(state, context, code);
                }
            }
            Outcome::Injected(code) => {
                if let Some(context) = context {
                    self.kill(state, context, code);
                }
            }
        }
        true
    }

    /// What is left to do, under the lock, when a task has run.
    fn finished(&self, state: &mut State, id: TaskId, work: &Work) {
        match work {
            Work::Record(event) => {
                let now = state.clock;
                if let Some(event) = state.events.get_mut(event)
                    && event.recorded == Some(id)
                {
                    event.at = Some(now);
                }
            }
            Work::Free(address) => self.release_memory(state, *address),
            Work::Copy(copy) => state.clock += copy.extent.bytes() / 16,
            Work::Launch(launched) => {
                let threads: u64 =
                    launched.spec.grid.iter().chain(&launched.spec.block).map(|n| u64::from(*n)).product();
                state.clock += 1000 + threads;
            }
            _ => {}
        }
    }

    /// An error that a context does not survive: what is queued in it never runs.
    pub(super) fn kill(&self, state: &mut State, context: Context, code: Code) {
        if let Some(dead) = state.contexts.get_mut(&context) {
            dead.error.get_or_insert(code);
        }
        for id in state.tasks.which(|task| task.context == context) {
            state.tasks.finish(id);
        }
    }

    /// After something was queued: runs it if the policy is eager, and keeps queues within bounds.
    pub(super) fn queued<'a>(&'a self, mut state: MutexGuard<'a, State>) {
        if self.shared.settings.schedule == Schedule::Eager {
            while !state.tasks.ready().is_empty() {
                let (next, moved) = self.step(state, None);
                state = next;
                if !moved {
                    break;
                }
            }
        } else if state.tasks.len() > QUEUE {
            while state.tasks.len() > QUEUE / 2 {
                let (next, moved) = self.step(state, None);
                state = next;
                if !moved {
                    break;
                }
            }
        }
        if !state.drainer
            && state.tasks.len() > 0
            && let Some(idle) = self.shared.settings.idle
        {
            state.drainer = true;
            let shared = Arc::downgrade(&self.shared);
            // Without the thread a program that polls would hang; with it refused there is nothing better to do.
            let _ = std::thread::Builder::new()
                .name("ptx-emulator drain".into())
                .spawn(move || drain(&shared, idle));
        }
    }
}

/// Runs what is queued when the host was silent for a while: programs may poll pinned memory instead of synchronising.
fn drain(shared: &Weak<Shared>, idle: Duration) {
    loop {
        std::thread::sleep(idle);
        let Some(shared) = shared.upgrade() else { return };
        let machine = Machine { shared };
        let mut state = machine.lock();
        if state.tasks.len() == 0 {
            // The next task starts another thread.
            state.drainer = false;
            return;
        }
        while state.last_call.elapsed() >= idle && state.tasks.len() > 0 {
            let (next, moved) = machine.step(state, None);
            state = next;
            if !moved {
                break;
            }
        }
    }
}

std::thread_local! {
    static IN_HOST_FUNCTION: AtomicBool = const { AtomicBool::new(false) };
}

/// Whether this thread is inside a function that a stream called: such a function may not call the driver.
pub(crate) fn in_host_function() -> Result<()> {
    if IN_HOST_FUNCTION.with(|flag| flag.load(Ordering::Relaxed)) {
        return Err(Error::new(Code::NOT_PERMITTED, "a function called by a stream may not call the driver"));
    }
    Ok(())
}

fn holds(until: Comparison, found: u64, value: u64, wide: bool) -> bool {
    match until {
        // Wraps around, as a counter does.
        Comparison::AtLeast if wide => (found.wrapping_sub(value) as i64) >= 0,
        Comparison::AtLeast => ((found as u32).wrapping_sub(value as u32) as i32) >= 0,
        Comparison::Equal => found == value,
        Comparison::And => found & value != 0,
        Comparison::Nor if wide => !(found | value) != 0,
        Comparison::Nor => !(found as u32 | value as u32) != 0,
    }
}

/// A line for whoever runs the program.
#[allow(clippy::print_stderr)]
pub(crate) fn say(line: &str) {
    eprintln!("{line}");
}
