//! Weights as the backend holds them, and the thread that lays them anew while others compute.
//!
//! A weight has the same bits in every form, so the form may change between two operators. An operator asks once, when it begins, and
//! keeps what it got; the new form is there for the next one. A large weight has forms in between, in which only its first rows lie anew.

use crate::{CpuWeight, memory, pool::Pool, room::Rooms};
use ogive_backend::Weight;
use ogive_tensor::{Error, Result};
use std::{
    collections::VecDeque,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, Weak},
    thread,
    time::{Duration, Instant},
};

/// A weight in its present form.
#[derive(Debug)]
struct Held {
    /// None at the end.
    now: RwLock<Option<Arc<CpuWeight>>>,
    /// The forms before, which whoever took one may still read.
    before: Mutex<Vec<Weak<CpuWeight>>>,
}

impl Held {
    fn now(&self) -> Option<Arc<CpuWeight>> {
        self.now.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Puts another form in place of the present one, for operators that begin from now on. False if it is the end already.
    fn put(&self, form: Option<CpuWeight>) -> bool {
        let mut now = self.now.write().unwrap_or_else(PoisonError::into_inner);
        let Some(before) = now.take() else { return false };
        *now = form.map(Arc::new);
        drop(now);
        let mut all = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|form| form.strong_count() > 0);
        all.push(Arc::downgrade(&before));
        true
    }

    /// Whether somebody has a form that was there before: a thread, say, that was held up in a product which is over.
    fn is_read(&self) -> bool {
        let before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        before.iter().any(|form| form.strong_count() > 0)
    }

    /// Lays it anew, where that is of use and there is as much memory again: what is in memory only because it was read from a file
    /// counts as free. What is large comes part by part, so that there is never much of both forms, and products need not wait for the
    /// end.
    fn lay(&self, pool: &Pool, rooms: &Rooms) {
        let Some(stored) = self.now() else { return };
        let bytes = &stored.host().bytes;
        if memory::available().is_some_and(|free| free / 2 < bytes.len() as u64) {
            return;
        }
        let Some(mut strips) = stored.no_strips() else { return };
        while let (false, Some(more)) = (strips.are_all(), strips.more(pool, rooms, bytes)) {
            strips = more;
            let rest = (!strips.are_all()).then(|| Arc::clone(&stored));
            if !self.put(Some(stored.with_strips(strips.clone(), rest))) {
                return;
            }
            // From the first on: whoever had the form before may just have read what was given back with an earlier part.
            if let Ok(laid) = bytes.part(0..strips.laid() * stored.host().row_bytes()) {
                laid.release();
            }
        }
    }
}

/// What [`Weight::data`] is here. When it is dropped nobody reads the weight's bytes any more: of a mapped file, say, that its owner may
/// change now.
#[derive(Debug)]
pub(crate) struct Owned {
    held: Arc<Held>,
    /// Who may be laying it.
    repacker: Option<Arc<Shared>>,
}

impl Owned {
    pub(crate) fn new(w: CpuWeight) -> Self {
        let held = Held { now: RwLock::new(Some(Arc::new(w))), before: Mutex::default() };
        Self { held: Arc::new(held), repacker: None }
    }

    /// Lays it now.
    pub(crate) fn lay(&self, pool: &Pool, rooms: &Rooms) {
        self.held.lay(pool, rooms);
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.held.put(None);
        if let Some(shared) = &self.repacker {
            let mut work = shared.lock();
            while work.laying == Arc::as_ptr(&self.held).addr() {
                work = shared.idle.wait(work).unwrap_or_else(PoisonError::into_inner);
            }
        }
        // Seldom, and then for as long as a thread may be without a core.
        while self.held.is_read() {
            thread::sleep(Duration::from_micros(100));
        }
    }
}

/// The form of a weight of this backend for one operator.
pub(crate) fn now(w: &Weight) -> Result<Arc<CpuWeight>> {
    let now = w.data::<Owned>()?.held.now();
    now.ok_or_else(|| Error::invalid("weight", "it is being dropped"))
}

/// How long the thread leaves cores and memory to loading and to a first step, if that does not end before: a long prompt gains by not
/// waiting for its end.
const PATIENCE: Duration = Duration::from_millis(500);

/// A thread that lays weights, one after the other in the order they came. It ends soon after its owner, and leaves what it has not begun.
pub(crate) struct Repacker(Arc<Shared>);

#[derive(Default)]
struct Shared {
    work: Mutex<Work>,
    /// Something came, or the end.
    came: Condvar,
    /// A weight is done, or nothing is left.
    idle: Condvar,
}

#[derive(Default)]
struct Work {
    /// Whoever drops a weight need not wait for it to be laid.
    weights: VecDeque<Weak<Held>>,
    /// When the last one came.
    since: Option<Instant>,
    /// Whether there has been enough patience.
    may_begin: bool,
    /// Where the weight is that is being laid; 0: none is.
    laying: usize,
    is_over: bool,
}

impl Repacker {
    /// Starts the thread; `None` where the system has none.
    pub(crate) fn new() -> Option<Self> {
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        thread::Builder::new().name("ogive-repack".into()).spawn(move || of_thread.serve()).ok()?;
        Some(Self(shared))
    }

    /// Has a weight laid later.
    pub(crate) fn lay(&self, w: &mut Owned) {
        w.repacker = Some(Arc::clone(&self.0));
        let mut work = self.0.lock();
        work.weights.push_back(Arc::downgrade(&w.held));
        work.since = Some(Instant::now());
        self.0.came.notify_one();
    }

    /// A first result is there: nobody has to be left alone any more.
    pub(crate) fn begin(&self) {
        let mut work = self.0.lock();
        if !work.may_begin {
            work.may_begin = true;
            self.0.came.notify_one();
        }
    }

    /// Waits until nothing is left to lay.
    pub(crate) fn wait(&self) {
        self.begin();
        let mut work = self.0.lock();
        while work.laying != 0 || !work.weights.is_empty() {
            work = self.0.idle.wait(work).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self) {
        let (alone, rooms) = (Pool::new(1), Rooms::default());
        let mut work = self.lock();
        while !work.is_over {
            if let (false, Some(since)) = (work.may_begin, work.since) {
                let left = PATIENCE.saturating_sub(since.elapsed());
                work.may_begin = left.is_zero();
                work = self.came.wait_timeout(work, left).unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            let Some(w) = work.weights.pop_front() else {
                self.idle.notify_all();
                work = self.came.wait(work).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let Some(w) = w.upgrade() else { continue };
            work.laying = Arc::as_ptr(&w).addr();
            drop(work);
            // A weight that cannot be laid stays as it is, and the others come none the less.
            let _ = catch_unwind(AssertUnwindSafe(|| w.lay(&alone, &rooms)));
            work = self.lock();
            work.laying = 0;
            self.idle.notify_all();
        }
    }
}

impl Drop for Repacker {
    fn drop(&mut self) {
        self.0.lock().is_over = true;
        self.0.came.notify_one();
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shared")
    }
}

impl fmt::Debug for Repacker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Repacker({} left)", self.0.lock().weights.len())
    }
}

#[cfg(test)]
mod tests {
    use crate::CpuBackend;
    use ogive_backend::{Backend, HostWeight, Weight};
    use ogive_tensor::{Bytes, F16, Tensor};
    use std::sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    };

    const ROWS: usize = 70;
    const COLS: usize = 96;

    fn host(seed: usize) -> HostWeight {
        // Finite and not denormal, of either sign.
        let half = |i: usize| [(i * 31 + seed) as u8, [0x30, 0x34, 0xb2, 0x38][(i * i + seed) % 4]];
        let bytes: Vec<u8> = (0..ROWS * COLS).flat_map(half).collect();
        HostWeight::new("w", [1, ROWS, COLS], &F16, Bytes::from(bytes)).unwrap()
    }

    fn input(b: &CpuBackend, n: usize) -> Tensor {
        let values: Vec<f32> = (0..n * COLS).map(|i| ((i * 37 % 101) as f32 - 50.0) / 17.0).collect();
        b.upload(&values, [n, COLS].into()).unwrap()
    }

    fn product(b: &CpuBackend, w: &Weight, n: usize) -> Vec<u32> {
        let y = b.linear(&input(b, n), w).unwrap();
        b.download(&y).unwrap().into_iter().map(f32::to_bits).collect()
    }

    #[test]
    fn products_are_the_same_before_while_and_after_weights_are_laid() {
        let plain = CpuBackend::builder().threads(2).repack(false).build().unwrap();
        let b = CpuBackend::builder().threads(2).background(true).build().unwrap();
        let all: Vec<_> = (0..40).map(|seed| (seed, b.upload_weight(&host(seed)).unwrap())).collect();
        let check = |n: usize| {
            for (seed, w) in &all {
                let want = product(&plain, &plain.upload_weight(&host(*seed)).unwrap(), n);
                assert_eq!(product(&b, w, n), want, "weight {seed}, {n} rows");
            }
        };
        check(1);
        b.settle();
        check(1);
        check(33);
        let laid = all.iter().filter(|(_, w)| super::now(w).unwrap().strips().is_some()).count();
        assert_eq!(laid, if b.path().has_dense_strips() { all.len() } else { 0 });
    }

    /// What is only looked up stays where it is; should something be multiplied by it, that is right.
    #[test]
    fn a_table_of_rows_is_not_laid() {
        let plain = CpuBackend::builder().threads(2).repack(false).build().unwrap();
        for background in [false, true] {
            let b = CpuBackend::builder().threads(2).background(background).build().unwrap();
            let table = b.upload_weight(&host(3).looked_up()).unwrap();
            b.settle();
            assert!(super::now(&table).unwrap().strips().is_none());
            let want = product(&plain, &plain.upload_weight(&host(3)).unwrap(), 5);
            assert_eq!(product(&b, &table, 5), want);
        }
    }

    /// Bytes that notice whether they are read when that is over.
    struct Watched {
        bytes: Vec<u8>,
        is_over: Arc<AtomicBool>,
        read_late: Arc<AtomicBool>,
    }

    impl AsRef<[u8]> for Watched {
        fn as_ref(&self) -> &[u8] {
            self.read_late.fetch_or(self.is_over.load(Ordering::SeqCst), Ordering::SeqCst);
            &self.bytes
        }
    }

    #[test]
    fn nobody_reads_the_bytes_of_a_weight_that_was_dropped() {
        let b = CpuBackend::builder().threads(1).background(true).build().unwrap();
        b.settle();
        for seed in 0..200 {
            let flags: [Arc<AtomicBool>; 2] = Default::default();
            let [is_over, read_late] = flags.clone();
            let mut host = host(seed);
            let owner = Watched { bytes: host.bytes.to_vec(), is_over, read_late };
            host.bytes = Bytes::new(Arc::new(owner), 0..host.bytes.len()).unwrap();
            let w = b.upload_weight(&host).unwrap();
            // Somewhere in the middle of its being laid, or before, or after.
            (0..seed % 40 * 50).for_each(|_| std::hint::spin_loop());
            drop(w);
            flags[0].store(true, Ordering::SeqCst);
            b.settle();
            assert!(!flags[1].load(Ordering::SeqCst), "weight {seed}");
        }
    }

    #[test]
    fn a_weight_is_there_until_the_last_thread_has_read_it() {
        for background in [false, true] {
            let b = CpuBackend::builder().threads(1).background(background).build().unwrap();
            for form in 0..2 {
                let w = b.upload_weight(&host(form)).unwrap();
                if form == 1 {
                    b.settle();
                }
                // A thread that lost its core in a product which is over, maybe before the weight was laid anew.
                let (held, is_read) = (super::now(&w).unwrap(), Arc::new(AtomicBool::new(false)));
                b.settle();
                let read = Arc::clone(&is_read);
                let reader = std::thread::spawn(move || {
                    std::thread::sleep(std::time::Duration::from_millis(20));
                    read.store(held.shape() == [1, ROWS, COLS], Ordering::SeqCst);
                });
                drop(w);
                assert!(is_read.load(Ordering::SeqCst));
                reader.join().unwrap();
            }
        }
    }

    #[test]
    fn neither_a_weight_nor_the_backend_waits_for_those_that_are_not_laid() {
        let b = CpuBackend::builder().threads(1).background(true).build().unwrap();
        let mut kept = Vec::new();
        for seed in 0..200 {
            let w = b.upload_weight(&host(seed)).unwrap();
            if seed % 7 == 0 {
                kept.push(w);
            }
        }
        let want = product(&b, &kept[3], 2);
        b.settle();
        assert_eq!(product(&b, &kept[3], 2), want);
        kept.extend((0..200).map(|seed| b.upload_weight(&host(seed)).unwrap()));
        drop(b);
        // Weights may outlive their backend, whatever form they are in.
        let other = CpuBackend::builder().threads(1).build().unwrap();
        assert_eq!(product(&other, &kept[3], 2), want);
    }
}
