//! Threads that wait for work: a fork and a join cost a few microseconds, because workers spin a little before they sleep.
//!
//! A run does not wait for every worker, only for those that took part: on a machine with other things to do, a worker
//! that has not woken up yet must not hold up the others. Each thread begins with a range of neighbouring items, the same in
//! every run of as many, so that it reads memory in order and finds what it had in its caches; who is done with its own goes on
//! with the others'. What an item computes never depends on who computes it.
#![allow(unsafe_code)]

use std::{
    any::Any,
    cell::{Cell, UnsafeCell},
    fmt,
    marker::PhantomData,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// How long a worker looks for the next run before it sleeps: longer than the serial work between two operators.
const SPIN: Duration = Duration::from_micros(60);
/// The run takes more workers.
const OPEN: u64 = 1;
/// One worker inside the run.
const WORKER: u64 = 2;
/// The part of the state that counts workers.
const WORKERS: u64 = u32::MAX as u64 & !OPEN;
/// The part of the state that counts runs begins here.
const RUN: u32 = 32;

thread_local! {
    /// Whether this thread is inside an item. A run inside a run is done on the spot: it could only wait for itself.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// What a run calls, with the lifetime taken off.
#[derive(Clone, Copy)]
struct Task {
    f: *const (dyn Fn(usize) + Sync),
    items: usize,
}

struct Shared {
    /// Which run, how many workers are inside it, whether more may enter.
    state: AtomicU64,
    /// Written by the holder of `turn` while the run is closed and empty; read by workers inside the run.
    task: UnsafeCell<Option<Task>>,
    /// For each thread the first item of its range that nobody has taken. They share cache lines, for the caller sets them all at
    /// the beginning of a run, and an item takes far longer than a line's way from one core to another.
    next: Box<[AtomicUsize]>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    sleepers: AtomicUsize,
    bed: Mutex<()>,
    wake: Condvar,
    caller_sleeps: AtomicBool,
    done: Mutex<()>,
    empty: Condvar,
    stop: AtomicBool,
    spin: Duration,
}

// SAFETY: `task` is the only field that is not `Sync` by itself. It is written only by the thread that holds `Pool::turn`,
// while no worker is inside a run and none can enter; `state` orders the write before every worker's read.
unsafe impl Sync for Shared {}
// SAFETY: the pointer in `task` is to a `Sync` function, and it is dead outside of a run.
unsafe impl Send for Shared {}

/// A number of threads, the caller's among them. Dropping it ends them.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// One run at a time; further callers wait here.
    turn: Mutex<()>,
}

impl Pool {
    /// A pool of `threads`, at least one. Where the system refuses a thread there are fewer.
    pub(crate) fn new(threads: usize) -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let shared = Arc::new(Shared {
            state: AtomicU64::new(0),
            task: UnsafeCell::new(None),
            next: (0..threads.max(1)).map(|_| AtomicUsize::new(0)).collect(),
            panic: Mutex::new(None),
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
        Self { shared, workers, turn: Mutex::new(()) }
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
        if items <= 1 || self.workers.is_empty() || INSIDE.get() {
            return (0..items).for_each(f);
        }
        let turn = lock(&self.turn);
        let s = &*self.shared;
        // SAFETY: only the lifetime changes, and `leave` below waits until no worker can call `f` any more.
        let f = unsafe {
            std::mem::transmute::<*const (dyn Fn(usize) + Sync + '_), *const (dyn Fn(usize) + Sync + 'static)>(
                f,
            )
        };
        let task = Task { f, items };
        // SAFETY: we hold `turn` and the last run was left empty and closed, so no one else looks at `task`.
        unsafe { *s.task.get() = Some(task) };
        for (t, next) in s.next.iter().enumerate() {
            next.store(s.first(t, items), Ordering::Relaxed);
        }
        let run = (s.state.load(Ordering::Relaxed) >> RUN).wrapping_add(1) << RUN;
        s.state.store(run | OPEN, Ordering::SeqCst);
        if s.sleepers.load(Ordering::SeqCst) > 0 {
            drop(lock(&s.bed));
            s.wake.notify_all();
        }
        s.take_part(task, 0);
        s.leave();
        let panic = lock(&s.panic).take();
        drop(turn);
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// Cuts `out` into pieces of `chunk` elements (the last may be shorter) and calls `f` with the number of each and the
    /// piece.
    pub(crate) fn chunks<T: Send>(&self, out: &mut [T], chunk: usize, f: &(dyn Fn(usize, &mut [T]) + Sync)) {
        let (chunk, len) = (chunk.max(1), out.len());
        let base = Base(out.as_mut_ptr());
        self.run(len.div_ceil(chunk), &|i| {
            let start = i * chunk;
            // SAFETY: `run` gives each `i` to one call, so pieces do not overlap; they lie inside `out`, which is
            // borrowed until `run` returns.
            let piece =
                unsafe { std::slice::from_raw_parts_mut(base.get().add(start), chunk.min(len - start)) };
            f(i, piece);
        });
    }

    /// Cuts the columns of each matrix into stripes of `width` (the last may be narrower) and calls `f` with the number
    /// of the matrix, the stripe's first column, and the stripe: how threads share a product by rows of the weight.
    pub(crate) fn stripes<T: Send>(
        &self,
        outs: &mut [Matrix<'_, T>],
        width: usize,
        f: &(dyn Fn(usize, usize, &mut Stripe<'_, T>) + Sync),
    ) {
        let width = width.max(1);
        let mut parts = Vec::with_capacity(outs.len());
        let mut items = 0;
        for m in outs.iter_mut() {
            let rows = m.values.len().checked_div(m.cols).unwrap_or(0);
            parts.push((items, Base(m.values.as_mut_ptr()), rows, m.cols));
            items += m.cols.div_ceil(width);
        }
        self.run(items, &|i| {
            let which = parts.partition_point(|p| p.0 <= i) - 1;
            let (first, base, rows, cols) = &parts[which];
            let col = (i - first) * width;
            let width = width.min(cols - col);
            let base = base.get().wrapping_add(col);
            f(which, col, &mut Stripe { base, rows: *rows, stride: *cols, width, life: PhantomData });
        });
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
    /// The first item of thread `t`'s range, of `items` in all: ranges differ by one at most.
    fn first(&self, t: usize, items: usize) -> usize {
        let threads = self.next.len();
        items / threads * t + t.min(items % threads)
    }

    /// The life of worker `t`.
    fn serve(&self, t: usize) {
        let mut last = 0;
        while let Some(state) = self.await_run(last) {
            let entered = state + WORKER;
            if self.state.compare_exchange(state, entered, Ordering::Acquire, Ordering::Relaxed).is_err() {
                continue;
            }
            last = state >> RUN;
            // SAFETY: we are inside the run, so the caller does not write `task` before we leave; the exchange above
            // came after its writing.
            if let Some(task) = unsafe { *self.task.get() } {
                self.take_part(task, t);
            }
            let state = self.state.fetch_sub(WORKER, Ordering::SeqCst) - WORKER;
            if state & (OPEN | WORKERS) == 0 && self.caller_sleeps.load(Ordering::SeqCst) {
                drop(lock(&self.done));
                self.empty.notify_one();
            }
        }
    }

    /// Waits for an open run after `last`; `None` when the pool is dropped.
    fn await_run(&self, last: u64) -> Option<u64> {
        let ready = || {
            let state = self.state.load(Ordering::SeqCst);
            (state & OPEN != 0 && state >> RUN != last).then_some(state)
        };
        let mut since = None;
        loop {
            for _ in 0..32 {
                if let Some(state) = ready() {
                    return Some(state);
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
            if let Some(state) = ready() {
                break Some(state);
            }
            bed = self.wake.wait(bed).unwrap_or_else(PoisonError::into_inner);
        };
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        found
    }

    /// Takes items until there are none, those of thread `t`'s range first, and keeps the first panic.
    fn take_part(&self, task: Task, t: usize) {
        INSIDE.set(true);
        let result = catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: the caller of `run` holds the function until everyone has left.
            let f = unsafe { &*task.f };
            let threads = self.next.len();
            for range in (t..threads).chain(0..t) {
                let end = self.first(range + 1, task.items);
                loop {
                    let i = self.next[range].fetch_add(1, Ordering::Relaxed);
                    if i >= end {
                        break;
                    }
                    f(i);
                }
            }
        }));
        INSIDE.set(false);
        if let Err(panic) = result {
            self.next.iter().for_each(|next| next.store(task.items, Ordering::Relaxed));
            let mut first = lock(&self.panic);
            match *first {
                None => *first = Some(panic),
                // Dropping a payload may panic in its turn.
                Some(_) => std::mem::forget(panic),
            }
        }
    }

    /// Closes the run and waits until it is empty.
    fn leave(&self) {
        self.state.fetch_and(!OPEN, Ordering::SeqCst);
        let empty = || self.state.load(Ordering::SeqCst) & WORKERS == 0;
        for _ in 0..1000 {
            if empty() {
                return;
            }
            std::hint::spin_loop();
        }
        let mut done = lock(&self.done);
        self.caller_sleeps.store(true, Ordering::SeqCst);
        while !empty() {
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

/// Values in rows of `cols`. What does not fill a row is left alone.
#[derive(Debug)]
pub(crate) struct Matrix<'a, T> {
    pub(crate) values: &'a mut [T],
    pub(crate) cols: usize,
}

/// Neighbouring columns of a matrix that one thread alone writes.
#[derive(Debug)]
pub(crate) struct Stripe<'a, T> {
    base: *mut T,
    rows: usize,
    stride: usize,
    width: usize,
    life: PhantomData<&'a mut T>,
}

impl<'a, T> Stripe<'a, T> {
    /// The whole of a matrix with rows of `width`.
    pub(crate) fn new(values: &'a mut [T], width: usize) -> Self {
        let rows = values.len().checked_div(width).unwrap_or(0);
        Self { base: values.as_mut_ptr(), rows, stride: width, width, life: PhantomData }
    }

    /// Rows of the matrix.
    #[cfg(test)]
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Columns of the stripe.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// The stripe's part of row `r`.
    ///
    /// # Panics
    /// If there is no such row.
    pub(crate) fn row(&mut self, r: usize) -> &mut [T] {
        assert!(r < self.rows, "row {r} of {}", self.rows);
        // SAFETY: `stripes` and `new` make this of columns that are inside every row and in no other stripe; the matrix is
        // borrowed for as long as the stripe lives, and `&mut self` keeps two rows from being held at once.
        unsafe { std::slice::from_raw_parts_mut(self.base.add(r * self.stride), self.width) }
    }
}

#[cfg(test)]
mod tests;
