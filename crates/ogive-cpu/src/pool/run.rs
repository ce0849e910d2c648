//! One run of a pool: its items, who takes them, and when it is over.

use super::{INSIDE, RESULT, lock};
use std::{
    any::Any,
    cell::UnsafeCell,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering},
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

/// An item's result is not there yet,
const MISSING: u8 = 0;
/// is being put down by one thread,
const COMING: u8 = 1;
/// or is there.
const DONE: u8 = 2;

/// The least time that threads without work wait for what others have taken, before they compute it again.
const PATIENCE: Duration = Duration::from_micros(5);

/// Makes an item's result.
pub(crate) type Compute = dyn Fn(usize, &mut Vec<f32>) + Send + Sync;
/// Puts an item's result where it belongs.
pub(crate) type Put<'a> = dyn Fn(usize, &[f32]) + Sync + 'a;

/// What a run calls, with the lifetimes of what it borrows taken off.
pub(super) enum Task {
    /// Once for each item. The caller waits until nobody is inside.
    Once(*const (dyn Fn(usize) + Sync)),
    /// `compute` once or more for each item, and `put` once, by whoever is the first to have the result. The caller waits until every
    /// item is [`DONE`]; after that `put` is not called and what is owned goes with the last to leave.
    Repeatable { compute: Arc<Compute>, put: *const Put<'static> },
}

/// What those inside read.
struct Work {
    task: Option<Task>,
    items: usize,
    /// Of a repeatable task how far each item is.
    results: Vec<AtomicU8>,
}

pub(super) struct Run {
    /// Its number, how many workers are inside, whether more may enter, whether the caller has gone.
    state: AtomicU64,
    /// Written while nobody is inside and nobody can enter.
    work: UnsafeCell<Work>,
    /// For each thread the first item of its range that nobody has taken. They share cache lines, for the caller sets them all at
    /// the beginning of a run, and an item takes far longer than a line's way from one core to another.
    next: Box<[AtomicUsize]>,
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
        Self {
            state: AtomicU64::new(0),
            work: UnsafeCell::new(Work { task: None, items: 0, results: Vec::new() }),
            next: (0..threads).map(|_| AtomicUsize::new(0)).collect(),
            panic: Mutex::new(None),
        }
    }

    /// Whether the next may be begun in its place.
    pub(super) fn is_free(&self) -> bool {
        self.state.load(Ordering::SeqCst) & (OPEN | BEHIND | WORKERS) == 0
    }

    /// Sets what is to be done.
    ///
    /// # Safety
    /// The run is free, and stays so until the caller opens it.
    pub(super) unsafe fn set(&self, task: Task, items: usize) {
        // SAFETY: nobody is inside.
        let work = unsafe { &mut *self.work.get() };
        work.results.clear();
        if let Task::Repeatable { .. } = task {
            work.results.resize_with(items, AtomicU8::default);
        }
        (work.task, work.items) = (Some(task), items);
        for (t, next) in self.next.iter().enumerate() {
            next.store(self.first(t, items), Ordering::Relaxed);
        }
        // That of someone who was left behind. Dropping it may panic in its turn.
        std::mem::forget(lock(&self.panic).take());
    }

    /// Lets workers in.
    pub(super) fn open(&self, number: u32) {
        self.state.store(u64::from(number) << NUMBER | OPEN, Ordering::SeqCst);
    }

    /// The run's number, if it is open.
    pub(super) fn is_open(&self) -> Option<u32> {
        let state = self.state.load(Ordering::SeqCst);
        (state & OPEN != 0).then_some((state >> NUMBER) as u32)
    }

    /// Lets no more workers in.
    pub(super) fn close(&self) {
        self.state.fetch_and(!OPEN, Ordering::SeqCst);
    }

    /// Takes a worker in if run `number` is still open.
    pub(super) fn enter(&self, number: u32) -> bool {
        let enter = |state: u64| {
            (state >> NUMBER == u64::from(number) && state & OPEN != 0).then_some(state + WORKER)
        };
        self.state.fetch_update(Ordering::SeqCst, Ordering::SeqCst, enter).is_ok()
    }

    /// A worker's last act inside. Whether a caller may be waiting for it.
    pub(super) fn exit(&self) -> bool {
        let state = self.state.fetch_sub(WORKER, Ordering::SeqCst) - WORKER;
        if state & (BEHIND | WORKERS) == BEHIND {
            // SAFETY: we were the last inside, and nobody begins a run here before it is free.
            unsafe { (*self.work.get()).task = None };
            self.state.fetch_and(!BEHIND, Ordering::SeqCst);
        }
        state & (OPEN | WORKERS) == 0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.state.load(Ordering::SeqCst) & WORKERS == 0
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
        let _ = self.state.fetch_update(Ordering::SeqCst, Ordering::SeqCst, leave);
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

    /// The first item of thread `t`'s range, of `items` in all: ranges differ by one at most.
    fn first(&self, t: usize, items: usize) -> usize {
        let threads = self.next.len();
        items / threads * t + t.min(items % threads)
    }

    /// Takes items until there are none, those of thread `t`'s range first, and keeps the first panic. Returns how long it is worth
    /// waiting for others.
    ///
    /// # Safety
    /// The thread is inside, or has begun the run.
    pub(super) unsafe fn take_part(&self, t: usize) -> Duration {
        // SAFETY: those who write it do so when nobody is inside.
        let work = unsafe { &*self.work.get() };
        INSIDE.set(true);
        let result = catch_unwind(AssertUnwindSafe(|| match &work.task {
            Some(Task::Once(f)) => {
                // SAFETY: the caller of `run` holds the function until everyone has left.
                let f = unsafe { &**f };
                self.each(t, work.items, f);
                Duration::ZERO
            }
            Some(Task::Repeatable { compute, put }) => self.repeatable(t, work, &**compute, *put),
            None => Duration::ZERO,
        }));
        INSIDE.set(false);
        result.unwrap_or_else(|panic| {
            self.fail(panic, work.items);
            // What is not put down by now is given up; afterwards nobody puts anything down.
            for result in &work.results {
                let give_up = || result.compare_exchange(MISSING, DONE, Ordering::SeqCst, Ordering::SeqCst);
                while give_up() == Err(COMING) {
                    thread::yield_now();
                }
            }
            Duration::ZERO
        })
    }

    /// Keeps the first panic; no more items are taken.
    fn fail(&self, panic: Box<dyn Any + Send>, items: usize) {
        self.next.iter().for_each(|next| next.store(items, Ordering::Relaxed));
        let mut first = lock(&self.panic);
        match *first {
            None => *first = Some(panic),
            // Dropping a payload may panic in its turn.
            Some(_) => std::mem::forget(panic),
        }
    }

    /// Takes items that nobody has taken.
    fn each(&self, t: usize, items: usize, mut f: impl FnMut(usize)) {
        let threads = self.next.len();
        for range in (t..threads).chain(0..t) {
            let end = self.first(range + 1, items);
            loop {
                let i = self.next[range].fetch_add(1, Ordering::Relaxed);
                if i >= end {
                    break;
                }
                f(i);
            }
        }
    }

    /// The same of a repeatable task, until every item is done. Others are given the time that an item took here.
    fn repeatable(&self, t: usize, work: &Work, compute: &Compute, put: *const Put<'static>) -> Duration {
        let (began, mut count) = (Instant::now(), 0);
        let mut buffer = RESULT.take();
        let mut item = |i: usize| {
            compute(i, &mut buffer);
            let result = &work.results[i];
            if result.compare_exchange(MISSING, COMING, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
                // SAFETY: the caller waits for this item, which was missing and is not done yet.
                let put_down = catch_unwind(AssertUnwindSafe(|| unsafe { (*put)(i, &buffer) }));
                // The caller may go as soon as the item is done, so it must find the panic by then.
                put_down.unwrap_or_else(|panic| self.fail(panic, work.items));
                result.store(DONE, Ordering::SeqCst);
            }
        };
        self.each(t, work.items, |i| {
            item(i);
            count += 1;
        });
        // All items are taken. Each thread looks at others' in another order, those after its own range first.
        let mut since = Instant::now();
        let patience = (since - began).checked_div(count).unwrap_or_default().max(PATIENCE);
        let first = self.first(t + 1, work.items);
        let mut missing = (first..work.items).chain(0..first).peekable();
        while let Some(&i) = missing.peek() {
            match work.results[i].load(Ordering::SeqCst) {
                DONE => drop(missing.next()),
                _ if since.elapsed() < patience => std::hint::spin_loop(),
                // Whoever takes so long over it has lost its core.
                MISSING => item(i),
                // This takes no time, unless the core was lost just here.
                _ => {
                    thread::yield_now();
                    since = Instant::now();
                }
            }
        }
        RESULT.set(buffer);
        patience
    }
}
