//! Threads that wait for work: a fork and a join cost a few microseconds, because workers spin a little before they sleep.
//!
//! A run does not wait for every worker, only for those that took part: on a machine with other things to do, a worker
//! that has not woken up yet must not hold up the others. Items come from one shared counter, so whoever is faster does
//! more. What an item computes never depends on who computes it.
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
    next: AtomicUsize,
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
            next: AtomicUsize::new(0),
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
            thread::Builder::new().name(format!("ogive-cpu-{i}")).spawn(move || shared.serve()).ok()
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
        s.next.store(0, Ordering::Relaxed);
        let run = (s.state.load(Ordering::Relaxed) >> RUN).wrapping_add(1) << RUN;
        s.state.store(run | OPEN, Ordering::SeqCst);
        if s.sleepers.load(Ordering::SeqCst) > 0 {
            drop(lock(&s.bed));
            s.wake.notify_all();
        }
        s.take_part(task);
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
    /// A worker's life.
    fn serve(&self) {
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
                self.take_part(task);
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

    /// Takes items until there are none, and keeps the first panic.
    fn take_part(&self, task: Task) {
        INSIDE.set(true);
        let result = catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: the caller of `run` holds the function until everyone has left.
            let f = unsafe { &*task.f };
            loop {
                let i = self.next.fetch_add(1, Ordering::Relaxed);
                if i >= task.items {
                    break;
                }
                f(i);
            }
        }));
        INSIDE.set(false);
        if let Err(panic) = result {
            self.next.store(task.items, Ordering::Relaxed);
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
mod tests {
    use super::*;

    fn sum_of(pool: &Pool, items: usize) -> usize {
        let sum = AtomicUsize::new(0);
        pool.run(items, &|i| {
            sum.fetch_add(i + 1, Ordering::Relaxed);
        });
        sum.into_inner()
    }

    #[test]
    fn every_item_once_on_any_number_of_threads() {
        for threads in [0, 1, 2, 5] {
            let pool = Pool::new(threads);
            assert_eq!(pool.threads(), threads.max(1));
            for items in [0, 1, 2, 3, 100, 1001] {
                assert_eq!(sum_of(&pool, items), items * (items + 1) / 2);
            }
        }
    }

    #[test]
    fn many_small_runs() {
        let pool = Pool::new(2);
        (0..20_000).for_each(|_| assert_eq!(sum_of(&pool, 2), 3));
    }

    #[test]
    fn sleeping_workers_wake_up() {
        let pool = Pool::new(3);
        for _ in 0..20 {
            thread::sleep(Duration::from_millis(1));
            let seen = Mutex::new(std::collections::HashSet::new());
            pool.run(64, &|_| {
                lock(&seen).insert(thread::current().id());
                thread::sleep(Duration::from_micros(200));
            });
            assert!(lock(&seen).len() > 1);
        }
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
        for threads in [1, 2, 5] {
            let pool = Pool::new(threads);
            for bad in [0, 7, 63] {
                let caught = catch_unwind(AssertUnwindSafe(|| {
                    pool.run(64, &|i| assert!(i != bad, "item {i} is bad"));
                }));
                let message = caught.unwrap_err().downcast::<String>().unwrap();
                assert_eq!(*message, format!("item {bad} is bad"));
                assert_eq!(sum_of(&pool, 10), 55);
            }
        }
    }

    #[test]
    fn callers_take_turns() {
        let pool = Pool::new(2);
        thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    (0..500).for_each(|n| assert_eq!(sum_of(&pool, n % 50), (n % 50) * (n % 50 + 1) / 2))
                });
            }
        });
    }

    #[test]
    fn a_run_inside_a_run_is_done_on_the_spot() {
        let pool = Pool::new(2);
        let sum = AtomicUsize::new(0);
        pool.run(8, &|_| {
            sum.fetch_add(sum_of(&pool, 4), Ordering::Relaxed);
        });
        assert_eq!(sum.into_inner(), 80);
    }

    #[test]
    fn chunks_and_stripes_cover_everything_once() {
        let pool = Pool::new(3);
        let mut v = vec![0_usize; 103];
        pool.chunks(&mut v, 10, &|i, part| {
            part.iter_mut().enumerate().for_each(|(j, x)| *x += i * 10 + j + 1)
        });
        assert!(v.iter().enumerate().all(|(i, &x)| x == i + 1));

        let (mut a, mut b) = (vec![0_usize; 4 * 21], vec![0_usize; 4 * 5]);
        let mut outs = [
            Matrix { values: &mut a, cols: 21 },
            Matrix { values: &mut [], cols: 0 },
            Matrix { values: &mut b, cols: 5 },
        ];
        pool.stripes(&mut outs, 8, &|which, col, stripe| {
            for r in 0..stripe.rows() {
                stripe
                    .row(r)
                    .iter_mut()
                    .enumerate()
                    .for_each(|(c, x)| *x += 1000 * which + 100 * r + col + c + 1);
            }
        });
        assert!(a.iter().enumerate().all(|(i, &x)| x == 100 * (i / 21) + i % 21 + 1));
        assert!(b.iter().enumerate().all(|(i, &x)| x == 2000 + 100 * (i / 5) + i % 5 + 1));
    }

    #[test]
    fn dropping_ends_the_threads() {
        for _ in 0..50 {
            let pool = Pool::new(4);
            assert_eq!(sum_of(&pool, 4), 10);
        }
    }
}
