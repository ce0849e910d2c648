//! One run of a pool: its items, who takes them, and when it is over.

use super::{Apart, INSIDE, RESULT, lock};
use std::{
    any::Any,
    cell::UnsafeCell,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// The run takes more workers.
const OPEN: u64 = 1;
/// The caller went on without the workers inside; the last of them clears the run.
const BEHIND: u64 = 2;
/// One worker inside the run.
const WORKER: u64 = 4;
/// The part of the state that counts workers.
const WORKERS: u64 = u32::MAX as u64 & !(OPEN | BEHIND);
/// The part of the state with the run's number begins here.
const NUMBER: u32 = 32;

/// Nobody has begun an item,
const MISSING: u8 = 0;
/// a thread has, and perhaps another one since,
const BEGUN: u8 = 1;
/// a thread puts its result down,
const COMING: u8 = 2;
/// or it is done or given up.
const DONE: u8 = 3;

/// Items of one thread's range that stand together.
const LINE: usize = 128;
/// So often the caller looks for what is missing before it looks at the clock.
const LOOKS: usize = 100;
/// The least time that the caller waits for what others have begun, before it computes it again.
const PATIENCE: Duration = Duration::from_micros(5);

/// Makes an item's result.
pub(crate) type Compute = dyn Fn(usize, &mut Vec<f32>) + Send + Sync;
/// Puts an item's result where it belongs.
pub(crate) type Put<'a> = dyn Fn(usize, &[f32]) + Sync + 'a;

/// What a run calls, with the lifetimes of what it borrows taken off.
pub(super) enum Task {
    /// Once for each item. The caller waits until nobody is inside.
    Once(*const (dyn Fn(usize) + Sync)),
    Repeatable(Repeatable),
}

/// `compute` once or more for each item, and `put` once, by whoever is the first to have the result. The caller waits until every item
/// is [`DONE`]; after that `put` is not called and what is owned goes with the last to leave.
pub(super) struct Repeatable {
    pub(super) compute: Arc<Compute>,
    pub(super) put: *const Put<'static>,
}

/// How fast a thread has done repeatable items.
#[derive(Default)]
pub(super) struct Pace {
    began: Option<Instant>,
    items: u32,
}

impl Pace {
    /// What one took.
    fn mean(&self, now: Instant) -> Duration {
        let all = self.began.map(|began| now - began).unwrap_or_default();
        all.checked_div(self.items).unwrap_or_default()
    }
}

/// What those inside read.
#[derive(Default)]
struct Work {
    task: Option<Task>,
    items: usize,
    threads: usize,
    /// How far each item is: for each range that has any the same number of lines. A range begins in a line of its own, because mostly
    /// one thread writes in it.
    states: Vec<Apart<[AtomicU8; LINE]>>,
}

impl Work {
    fn set(&mut self, task: Task, items: usize) {
        (self.task, self.items) = (Some(task), items);
        self.states.clear();
        let ranges = items.min(self.threads);
        self.states.resize_with(ranges * self.lines(), || Apart([const { AtomicU8::new(MISSING) }; LINE]));
    }

    /// Lines of a range.
    fn lines(&self) -> usize {
        self.items.div_ceil(self.threads).div_ceil(LINE)
    }

    /// The first item of thread `t`'s range: ranges differ by one at most.
    fn first(&self, t: usize) -> usize {
        self.items / self.threads * t + t.min(self.items % self.threads)
    }

    /// Thread `t`'s range.
    fn range(&self, t: usize) -> impl Iterator<Item = (usize, &AtomicU8)> {
        let states = self.states.iter().skip(t * self.lines()).flat_map(|line| &line.0);
        (self.first(t)..self.first(t + 1)).zip(states)
    }

    /// Begins items until there are none, those of thread `t`'s range first.
    fn begin(&self, t: usize, mut f: impl FnMut(usize, &AtomicU8)) {
        for (i, state) in (t..self.threads).chain(0..t).flat_map(|t| self.range(t)) {
            let begin =
                || state.compare_exchange(MISSING, BEGUN, Ordering::Relaxed, Ordering::Relaxed).is_ok();
            if state.load(Ordering::Relaxed) == MISSING && begin() {
                f(i, state);
            }
        }
    }

    /// Gives up what is not put down by now: afterwards nobody begins anything or puts it down.
    fn give_up(&self) {
        for (_, state) in (0..self.threads).flat_map(|t| self.range(t)) {
            let give_up = |s| (s < COMING).then_some(DONE);
            while state.fetch_update(Ordering::AcqRel, Ordering::Acquire, give_up) == Err(COMING) {
                thread::yield_now();
            }
        }
    }
}

pub(super) struct Run {
    /// Its number, how many workers are inside, whether more may enter, whether the caller has gone. Those who wait look here.
    state: Apart<AtomicU64>,
    /// Written while nobody is inside and nobody can enter.
    work: UnsafeCell<Work>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

// SAFETY: `work` is the only field that is not `Sync` by itself. It is written by the caller while the run is free, and by whoever
// clears it when all others are gone; `state` orders that with every worker's reads.
unsafe impl Sync for Run {}
// SAFETY: the pointers in a task are to `Sync` functions, and they are dead outside of a run.
unsafe impl Send for Run {}

impl Run {
    /// A run that is over, for so many threads.
    pub(super) fn new(threads: usize) -> Self {
        let work = Work { threads, ..Work::default() };
        Self { state: Apart(AtomicU64::new(0)), work: UnsafeCell::new(work), panic: Mutex::new(None) }
    }

    /// Whether the next may be begun in its place.
    pub(super) fn is_free(&self) -> bool {
        self.state.0.load(Ordering::SeqCst) & (OPEN | BEHIND | WORKERS) == 0
    }

    /// Sets what is to be done.
    ///
    /// # Safety
    /// The run is free, and stays so until the caller opens it.
    pub(super) unsafe fn set(&self, task: Task, items: usize) {
        // SAFETY: nobody is inside.
        unsafe { (*self.work.get()).set(task, items) };
        // That of someone who was left behind. Dropping it may panic in its turn.
        std::mem::forget(lock(&self.panic).take());
    }

    /// Lets workers in.
    pub(super) fn open(&self, number: u32) {
        // Not `store`: who opens then looks for sleepers, and a sleeper-to-be the other way round. See `Shared::sleep_until_empty`.
        self.state.0.swap(u64::from(number) << NUMBER | OPEN, Ordering::SeqCst);
    }

    /// The run's number, if it is open.
    pub(super) fn is_open(&self) -> Option<u32> {
        let state = self.state.0.load(Ordering::SeqCst);
        (state & OPEN != 0).then_some((state >> NUMBER) as u32)
    }

    /// Lets no more workers in.
    pub(super) fn close(&self) {
        self.state.0.fetch_and(!OPEN, Ordering::SeqCst);
    }

    /// Takes a worker in if run `number` is still open.
    pub(super) fn enter(&self, number: u32) -> bool {
        let enter = |state: u64| {
            (state >> NUMBER == u64::from(number) && state & OPEN != 0).then_some(state + WORKER)
        };
        self.state.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, enter).is_ok()
    }

    /// A worker's last act inside. Whether a caller may be waiting for it.
    pub(super) fn exit(&self) -> bool {
        let state = self.state.0.fetch_sub(WORKER, Ordering::SeqCst) - WORKER;
        if state & (BEHIND | WORKERS) == BEHIND {
            // SAFETY: we were the last inside, and nobody begins a run here before it is free.
            unsafe { (*self.work.get()).task = None };
            self.state.0.fetch_and(!BEHIND, Ordering::SeqCst);
        }
        state & (OPEN | WORKERS) == 0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.state.0.load(Ordering::SeqCst) & WORKERS == 0
    }

    /// Waits a little for a closed run to become empty.
    pub(super) fn is_empty_within(&self, time: Duration) -> bool {
        let mut since = None;
        loop {
            for _ in 0..1000 {
                if self.is_empty() {
                    return true;
                }
                std::hint::spin_loop();
            }
            if since.get_or_insert_with(Instant::now).elapsed() >= time {
                return false;
            }
        }
    }

    /// Leaves a closed run to the workers inside, if all results are put down and nobody has to be waited for.
    pub(super) fn leave_behind(&self) -> bool {
        // SAFETY: the run is the caller's, and only read.
        if let Some(Task::Once(_)) = unsafe { &(*self.work.get()).task } {
            return false;
        }
        let leave = |state: u64| (state & WORKERS != 0).then_some(state | BEHIND);
        let _ = self.state.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, leave);
        true
    }

    /// The caller's last act: clears the run, unless there are workers left behind, and gives back the first panic.
    pub(super) fn end(&self) -> Option<Box<dyn Any + Send>> {
        if self.is_free() {
            // SAFETY: nobody is inside, and the caller still has its turn.
            unsafe { (*self.work.get()).task = None };
        }
        lock(&self.panic).take()
    }

    /// Begins items until there are none, those of thread `t`'s range first.
    ///
    /// # Safety
    /// The thread is inside, or has begun the run.
    pub(super) unsafe fn take_part(&self, t: usize) -> Pace {
        // SAFETY: those who write it do so when nobody is inside.
        let work = unsafe { &*self.work.get() };
        let mut pace = Pace::default();
        self.inside(work, || match &work.task {
            Some(Task::Once(f)) => {
                // SAFETY: the caller of `run` holds the function until everyone has left.
                let f = unsafe { &**f };
                work.begin(t, |i, _| f(i));
            }
            Some(Task::Repeatable(task)) => {
                pace.began = Some(Instant::now());
                let mut buffer = RESULT.take();
                work.begin(t, |i, state| {
                    self.make(work, task, i, state, &mut buffer);
                    pace.items += 1;
                });
                RESULT.set(buffer);
            }
            None => {}
        });
        pace
    }

    /// The caller waits until every item of a repeatable task is done, and makes again what takes others much longer than `pace`. Returns
    /// how long those are worth waiting for who are still inside.
    ///
    /// # Safety
    /// The thread has begun the run and taken part in it, so all items are begun.
    pub(super) unsafe fn finish(&self, pace: &Pace) -> Duration {
        // SAFETY: those who write it do so when nobody is inside.
        let work = unsafe { &*self.work.get() };
        let Some(Task::Repeatable(task)) = &work.task else { return Duration::ZERO };
        let (mut patience, mut looks, mut since) = (None, 0, None);
        self.inside(work, || {
            for (i, state) in (0..work.threads).flat_map(|t| work.range(t)) {
                loop {
                    match state.load(Ordering::Acquire) {
                        DONE => break,
                        _ if looks < LOOKS => looks += 1,
                        // This takes no time, unless the core was lost just here.
                        COMING => {
                            thread::yield_now();
                            since = None;
                        }
                        _ => {
                            let now = Instant::now();
                            // Once: later the time that is waited here would count as the items'.
                            let patience = *patience.get_or_insert_with(|| pace.mean(now).max(PATIENCE));
                            if now - *since.get_or_insert(now) >= patience {
                                let mut buffer = RESULT.take();
                                self.make(work, task, i, state, &mut buffer);
                                RESULT.set(buffer);
                            }
                        }
                    }
                    std::hint::spin_loop();
                }
            }
        });
        patience.unwrap_or(PATIENCE)
    }

    /// Makes an item's result, and puts it down if nobody else does.
    fn make(&self, work: &Work, task: &Repeatable, i: usize, state: &AtomicU8, buffer: &mut Vec<f32>) {
        (task.compute)(i, buffer);
        if state.compare_exchange(BEGUN, COMING, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return;
        }
        // SAFETY: the caller waits for this item, which is not done yet.
        let put = catch_unwind(AssertUnwindSafe(|| unsafe { (*task.put)(i, buffer) }));
        // The caller may go as soon as the item is done, so it must find the panic by then.
        let panicked = put.map_err(|panic| self.keep(panic)).is_err();
        state.store(DONE, Ordering::Release);
        if panicked {
            work.give_up();
        }
    }

    /// Calls `f`, and keeps its panic.
    fn inside(&self, work: &Work, f: impl FnOnce()) {
        INSIDE.set(true);
        let result = catch_unwind(AssertUnwindSafe(f));
        INSIDE.set(false);
        if let Err(panic) = result {
            self.keep(panic);
            work.give_up();
        }
    }

    /// Keeps the first panic.
    fn keep(&self, panic: Box<dyn Any + Send>) {
        let mut first = lock(&self.panic);
        match *first {
            None => *first = Some(panic),
            // Dropping a payload may panic in its turn.
            Some(_) => std::mem::forget(panic),
        }
    }
}
