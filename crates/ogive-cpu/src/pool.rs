//! Threads that wait for work: a fork and a join cost a few microseconds, because workers spin a little before they sleep.
//!
//! A run does not wait for every worker, only for those that took part: on a machine with other things to do, a worker
//! that has not woken up yet must not hold up the others. Each thread begins with a range of neighbouring items, the same in
//! every run of as many, so that it reads memory in order and finds what it had in its caches; who is done with its own goes on
//! with the others'. What an item computes never depends on who computes it.
//!
//! A thread that loses its core in the middle of an item has it again after some milliseconds, in which a step may be over. Where
//! items own what they read ([`Pool::compute`]), the caller computes such an item again and goes on without that thread.
#![allow(unsafe_code)]

mod parts;
mod run;

pub(crate) use parts::{Matrix, Stripe};

use run::{Compute, Put, Repeatable, Run, Task};
use std::{
    cell::Cell,
    fmt,
    panic::resume_unwind,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// How long a worker looks for the next run before it sleeps: longer than the serial work between two operators.
const SPIN: Duration = Duration::from_micros(60);

thread_local! {
    /// Whether this thread is inside an item. A run inside a run is done on the spot: it could only wait for itself.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    /// The result of an item, kept from run to run.
    static RESULT: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
}

/// What some threads write while others look at something else, in lines of the caches of its own (which come in pairs).
#[repr(align(128))]
struct Apart<T>(T);

struct Shared {
    /// One more than there are workers: a worker is inside one at most, so there is always one that nobody is in.
    runs: Box<[Run]>,
    /// Which of them is the last that was begun.
    current: Apart<AtomicUsize>,
    sleepers: AtomicUsize,
    bed: Mutex<()>,
    wake: Condvar,
    caller_sleeps: AtomicBool,
    done: Mutex<()>,
    empty: Condvar,
    stop: AtomicBool,
    spin: Duration,
}

/// A number of threads, the caller's among them. Dropping it ends them.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// One run at a time; further callers wait here. How many runs there were.
    turn: Mutex<u32>,
}

impl Pool {
    /// A pool of `threads`, at least one. Where the system refuses a thread there are fewer.
    pub(crate) fn new(threads: usize) -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let shared = Arc::new(Shared {
            runs: (0..threads.max(1)).map(|_| Run::new(threads.max(1))).collect(),
            current: Apart(AtomicUsize::new(0)),
            sleepers: AtomicUsize::new(0),
            bed: Mutex::new(()),
            wake: Condvar::new(),
            caller_sleeps: AtomicBool::new(false),
            done: Mutex::new(()),
            empty: Condvar::new(),
            stop: AtomicBool::new(false),
            // More threads than cores: spinning would only take the core from whoever has the work.
            spin: if threads <= cores { SPIN } else { Duration::ZERO },
        });
        let spawn = |i| {
            let shared = Arc::clone(&shared);
            thread::Builder::new().name(format!("ogive-cpu-{i}")).spawn(move || shared.serve(i)).ok()
        };
        let workers = (1..threads).map_while(spawn).collect();
        Self { shared, workers, turn: Mutex::new(0) }
    }

    /// How many threads take part in a run, the caller's among them.
    pub(crate) fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `f` with every number below `items`, once each, on all threads; returns when all are done.
    ///
    /// # Panics
    /// With the first panic of an item, after every thread has left the run. Items not yet begun are left out.
    pub(crate) fn run(&self, items: usize, f: &(dyn Fn(usize) + Sync)) {
        if self.is_alone(items) {
            return (0..items).for_each(f);
        }
        self.run_in(lock(&self.turn), items, f);
    }

    /// The same, on this thread alone where another caller has the rest: for whoever holds a lock that items of that caller wait for.
    pub(crate) fn run_unless_busy(&self, items: usize, f: &(dyn Fn(usize) + Sync)) {
        let turn = match self.turn.try_lock() {
            Ok(turn) => Some(turn),
            Err(TryLockError::Poisoned(turn)) => Some(turn.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        match turn.filter(|_| !self.is_alone(items)) {
            Some(turn) => self.run_in(turn, items, f),
            None => (0..items).for_each(f),
        }
    }

    fn run_in(&self, turn: MutexGuard<'_, u32>, items: usize, f: &(dyn Fn(usize) + Sync)) {
        // SAFETY: only the lifetime changes, and `fork` returns when nobody can call a task of this kind any more.
        let f = unsafe {
            std::mem::transmute::<*const (dyn Fn(usize) + Sync + '_), *const (dyn Fn(usize) + Sync + 'static)>(
                f,
            )
        };
        self.fork(turn, Task::Once(f), items);
    }

    /// Computes every item below `items` on all threads and has each result put down once; returns when all are. A thread that is held
    /// up in `compute` is not waited for: the caller computes the item again, and what the first one makes of it is dropped, be it long
    /// after this has returned. So `compute` must give the same result each time.
    ///
    /// # Panics
    /// With the first panic of an item. Items not yet put down are left out.
    pub(crate) fn compute(&self, items: usize, compute: Arc<Compute>, put: &Put<'_>) {
        if self.is_alone(items) {
            let mut result = RESULT.take();
            for i in 0..items {
                compute(i, &mut result);
                put(i, &result);
            }
            return RESULT.set(result);
        }
        // SAFETY: only the lifetime changes, and `fork` returns when every item is put down or given up: nobody calls it after that.
        let put = unsafe { std::mem::transmute::<*const Put<'_>, *const Put<'static>>(put) };
        self.fork(lock(&self.turn), Task::Repeatable(Repeatable { compute, put }), items);
    }

    /// Whether the caller had better do the work by itself.
    fn is_alone(&self, items: usize) -> bool {
        items <= 1 || self.workers.is_empty() || INSIDE.get()
    }

    /// Does the items of a task on all threads, whose turn it is.
    fn fork(&self, mut turn: MutexGuard<'_, u32>, task: Task, items: usize) {
        let s = &*self.shared;
        let last = s.current.0.load(Ordering::Relaxed);
        let free = (last..s.runs.len()).chain(0..last).find(|i| s.runs[*i].is_free());
        let Some(current) = free else { unreachable!("a worker is in two runs") };
        let run = &s.runs[current];
        *turn = turn.wrapping_add(1);
        // SAFETY: we hold `turn`, so nobody else begins one; and it is free.
        unsafe { run.set(task, items) };
        if current != last {
            s.current.0.store(current, Ordering::SeqCst);
        }
        run.open(*turn);
        if s.sleepers.load(Ordering::SeqCst) > 0 {
            drop(lock(&s.bed));
            s.wake.notify_all();
        }
        // SAFETY: the run is ours until it is over.
        let pace = unsafe { run.take_part(0) };
        run.close();
        // SAFETY: the same.
        let patience = unsafe { run.finish(&pace) };
        if !run.is_empty_within(patience) && !run.leave_behind() {
            s.sleep_until_empty(run);
        }
        let panic = run.end();
        drop(turn);
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        drop(lock(&self.shared.bed));
        self.shared.wake.notify_all();
        for w in self.workers.drain(..) {
            // A worker catches what its items throw; there is nothing to hear from it.
            let _ = w.join();
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool({})", self.threads())
    }
}

impl Shared {
    /// The life of worker `t`.
    fn serve(&self, t: usize) {
        let mut last = None;
        while let Some((run, number)) = self.await_run(last) {
            if !run.enter(number) {
                continue;
            }
            last = Some(number);
            // SAFETY: we are inside.
            unsafe { run.take_part(t) };
            if run.exit() && self.caller_sleeps.load(Ordering::SeqCst) {
                drop(lock(&self.done));
                self.empty.notify_one();
            }
        }
    }

    /// Waits for an open run that is not number `last`; `None` when the pool is dropped.
    fn await_run(&self, last: Option<u32>) -> Option<(&Run, u32)> {
        let ready = || {
            let run = &self.runs[self.current.0.load(Ordering::SeqCst)];
            run.is_open().filter(|number| Some(*number) != last).map(|number| (run, number))
        };
        let mut since = None;
        loop {
            for _ in 0..32 {
                if let Some(run) = ready() {
                    return Some(run);
                }
                std::hint::spin_loop();
            }
            if self.stop.load(Ordering::SeqCst) {
                return None;
            }
            if since.get_or_insert_with(Instant::now).elapsed() >= self.spin {
                break;
            }
        }
        let mut bed = lock(&self.bed);
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let found = loop {
            if self.stop.load(Ordering::SeqCst) {
                break None;
            }
            if let Some(run) = ready() {
                break Some(run);
            }
            bed = self.wake.wait(bed).unwrap_or_else(PoisonError::into_inner);
        };
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        found
    }

    fn sleep_until_empty(&self, run: &Run) {
        let mut done = lock(&self.done);
        // By right a store would do: of this thread, which writes here and then looks there, and the last worker, which does it the other
        // way round, one sees what the other wrote. qemu 7.2 lets a 64-bit ARM program on x86-64 read before such a store is seen, and both
        // then wait for ever; it exchanges in order.
        self.caller_sleeps.swap(true, Ordering::SeqCst);
        while !run.is_empty() {
            done = self.empty.wait(done).unwrap_or_else(PoisonError::into_inner);
        }
        self.caller_sleeps.store(false, Ordering::SeqCst);
    }
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The start of a slice that several threads write disjoint parts of.
struct Base<T>(*mut T);

impl<T> Base<T> {
    /// Through a method, so that a closure captures the whole and not the bare pointer.
    fn get(&self) -> *mut T {
        self.0
    }
}

// SAFETY: whoever holds one makes disjoint slices from it, of elements that may be sent to another thread.
unsafe impl<T: Send> Sync for Base<T> {}
// SAFETY: the same.
unsafe impl<T: Send> Send for Base<T> {}

#[cfg(test)]
mod tests;
