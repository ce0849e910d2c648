//! When kernels ran, noted by the kernels themselves: a trace that needs no profiler, and works within a recorded step.
//!
//! By `%globaltimer` and not by events: an event is work between two kernels, so it hides the gap that it stands in, and a graph is
//! one launch to it. Compiled with TRACE (`prelude.cu`), a kernel writes to a slot that the host gave its launch. A recorded launch keeps
//! its slot as long as its record is there, and a replay writes it again; the others have one while a trace is made. What is no kernel of
//! ours (cuBLAS, copies) writes nothing: it is in the gaps.

use crate::cuda::CudaBackend;
use crate::device::Device;
use crate::driver::Address;
use crate::error::{Error, Result};
use crate::memory::Buffer;
use crate::module::Define;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// Launches that have a slot at a time: some hundred recorded steps of a large model.
const SLOTS: usize = if cfg!(test) { 64 } else { 1 << 16 };
/// Bytes of a slot: the complement of the first start, and the last end. Zeros where nothing ran.
const SLOT: usize = 16;

/// What a slot was given to.
#[derive(Debug)]
struct Label {
    operator: String,
    kernel: &'static str,
    defines: String,
    /// Of a recorded launch, what lives as long as the record.
    record: Option<Weak<()>>,
}

#[derive(Debug, Default)]
struct State {
    labels: Vec<Option<Label>>,
    /// All slots before this one are taken.
    next: usize,
    /// Whether a trace is being made. What is not recorded has no slot otherwise.
    open: bool,
    missed: u64,
    /// Records with launches that found no slot, and how many.
    without: Vec<(Weak<()>, u64)>,
}

impl State {
    /// Only launches of records that are still there have slots from now on.
    fn sweep(&mut self) {
        let is_there = |record: &Weak<()>| record.strong_count() > 0;
        for place in &mut self.labels {
            place.take_if(|label| !label.record.as_ref().is_some_and(is_there));
        }
        self.without.retain(|(record, _)| is_there(record));
        self.next = 0;
    }

    /// A slot that nobody has.
    fn find(&mut self) -> Option<usize> {
        while self.labels.get(self.next).is_some_and(Option::is_some) {
            self.next += 1;
        }
        Some(self.next).filter(|at| *at < SLOTS)
    }

    /// A launch found no slot.
    fn miss(&mut self, record: Option<Weak<()>>) {
        let Some(record) = record else {
            self.missed += 1;
            return;
        };
        match self.without.iter_mut().find(|(known, _)| known.ptr_eq(&record)) {
            Some((_, launches)) => *launches += 1,
            None => self.without.push((record, 1)),
        }
    }
}

/// A trace that is being made. What is launched once this is dropped is not of it.
struct Open<'a>(&'a Slots);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.state().open = false;
    }
}

/// The slots of a device.
#[derive(Debug)]
pub(crate) struct Slots {
    buffer: Buffer,
    state: Mutex<State>,
}

impl Slots {
    pub(crate) fn new(device: &Device) -> Result<Self> {
        let buffer = device.take("making room for a trace", SLOTS * SLOT)?;
        device.stream().clear(buffer.address(), SLOTS * SLOT)?;
        Ok(Self { buffer, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a launch notes its times, which is recorded if there is a `record`; null where it does not: all slots are taken, or nobody asks.
    pub(crate) fn give(
        &self,
        operator: &str,
        kernel: &'static str,
        defines: &[Define],
        record: Option<Weak<()>>,
    ) -> Address {
        let mut state = self.state();
        if record.is_none() && !state.open {
            return 0;
        }
        let mut found = state.find();
        if found.is_none() && !state.open {
            // While a trace is made, slots of records that are gone hold times that are still to be read.
            state.sweep();
            found = state.find();
        }
        let Some(at) = found else {
            state.miss(record);
            return 0;
        };
        let defines: Vec<String> = defines.iter().map(|(_, value)| value.to_string()).collect();
        let label = Some(Label { operator: operator.into(), kernel, defines: defines.join(" "), record });
        match state.labels.get_mut(at) {
            Some(place) => *place = label,
            None => state.labels.push(label),
        }
        self.buffer.address() + (at * SLOT) as Address
    }

    /// Nothing is noted yet, and only recorded launches have slots.
    fn begin(&self, device: &Device) -> Result<Open<'_>> {
        let mut state = self.state();
        state.sweep();
        state.missed = 0;
        let used = state.labels.len() * SLOT;
        if used > 0 {
            device.stream().clear(self.buffer.address(), used)?;
        }
        state.open = true;
        Ok(Open(self))
    }

    /// Waits, and reads what was noted.
    fn end(&self, device: &Device) -> Result<Timeline> {
        let state = self.state();
        let (used, mut bytes) = (state.labels.len() * SLOT, Vec::new());
        if used > 0 {
            let take = &mut |part: &[u8]| bytes.extend_from_slice(part);
            device.fetch("reading a trace", self.buffer.address(), used, take)?;
        }
        let words: Vec<u64> = bytes.as_chunks().0.iter().map(|w| u64::from_le_bytes(*w)).collect();
        let noted = state.labels.iter().zip(words.as_chunks().0).filter_map(|(label, [start, end])| {
            let label = label.as_ref().filter(|_| *start != 0 && *end != 0)?;
            Some((label, !start, *end))
        });
        let without: u64 =
            state.without.iter().filter(|(record, _)| record.strong_count() > 0).map(|(_, n)| n).sum();
        Ok(Timeline::of(noted.collect(), state.missed + without))
    }
}

/// A kernel's launch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Launch {
    /// The operator that made it.
    pub operator: String,
    /// The kernel.
    pub kernel: &'static str,
    /// The values of its defines, as in the table of docs/CUDA.md.
    pub defines: String,
    /// When its first block began, after the timeline's first start.
    pub start: Duration,
    /// When its last warp ended, after the same.
    pub end: Duration,
}

/// What kernels ran, and when, by the device's clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timeline {
    /// By their starts.
    pub launches: Vec<Launch>,
    /// Launches that were not noted, because all slots were taken; and those of recorded steps of which it was so, as often as they were
    /// recorded, replayed this time or not.
    pub missed: u64,
    /// Steps in which the device's clock was seen to move: no time is finer.
    pub tick: Duration,
}

/// Time of a kernel in a timeline.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelTime {
    /// The kernel.
    pub kernel: &'static str,
    /// The values of its defines.
    pub defines: String,
    /// Launches.
    pub calls: usize,
    /// Time in which it ran and none that began before did. These times and the gaps sum to the timeline's whole.
    pub time: Duration,
    /// Time in which it ran beside one that began before.
    pub overlap: Duration,
    /// Time just before its launches in which no kernel ran.
    pub gap: Duration,
}

impl Timeline {
    fn of(mut noted: Vec<(&Label, u64, u64)>, missed: u64) -> Self {
        noted.sort_by_key(|(_, start, end)| (*start, *end));
        let first = noted.first().map_or(0, |(_, start, _)| *start);
        let after = |t: u64| t.saturating_sub(first);
        let tick = noted.iter().flat_map(|(_, start, end)| [after(*start), after(*end)]).fold(0, gcd);
        let launch = |(label, start, end): (&Label, u64, u64)| Launch {
            operator: label.operator.clone(),
            kernel: label.kernel,
            defines: label.defines.clone(),
            start: Duration::from_nanos(after(start)),
            end: Duration::from_nanos(after(end)),
        };
        let launches = noted.into_iter().map(launch).collect();
        Self { launches, missed, tick: Duration::from_nanos(tick) }
    }

    /// From the first start to the last end.
    #[must_use]
    pub fn whole(&self) -> Duration {
        self.launches.iter().map(|l| l.end).max().unwrap_or_default()
    }

    /// Time by kernel and defines, the longest first.
    #[must_use]
    pub fn kernels(&self) -> Vec<KernelTime> {
        let mut all: BTreeMap<(&'static str, &str), KernelTime> = BTreeMap::new();
        let mut until = Duration::ZERO;
        for l in &self.launches {
            let k = all.entry((l.kernel, &l.defines)).or_insert_with(|| KernelTime {
                kernel: l.kernel,
                defines: l.defines.clone(),
                ..KernelTime::default()
            });
            k.calls += 1;
            k.gap += l.start.saturating_sub(until);
            k.overlap += until.min(l.end).saturating_sub(l.start);
            k.time += l.end.saturating_sub(until.max(l.start));
            until = until.max(l.end);
        }
        let mut all: Vec<KernelTime> = all.into_values().collect();
        all.sort_by_key(|k| Reverse(k.time));
        all
    }
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

impl CudaBackend {
    /// What `f` gives, and the kernels that it ran; waits for them. Of a backend that was built without
    /// [`trace`](crate::Builder::trace) the timeline is empty. One is made at a time: not in another, nor beside another thread's. A step is replayed once at most: of a kernel that runs again in its slot the
    /// first start and the last end are noted.
    ///
    /// # Errors
    /// That of `f`, or the driver's, or if a step is being recorded.
    pub fn trace<T, E: From<Error>>(&self, f: impl FnOnce() -> Result<T, E>) -> Result<(T, Timeline), E> {
        let device = &self.device;
        device.outside("tracing kernels")?;
        let Some(slots) = &device.trace else { return Ok((f()?, Timeline::default())) };
        let open = slots.begin(device)?;
        let result = f()?;
        drop(open);
        Ok((result, slots.end(device)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ogive_backend::{Backend, Batch, Plan, StepKey};
    use ptx_emulator_launcher::{Nvrtc, test_name};

    #[test]
    fn times_and_gaps_sum_to_the_whole() {
        let label = |kernel, defines: &str| Label {
            operator: "linear".into(),
            kernel,
            defines: defines.into(),
            record: None,
        };
        let (a, b, c) = (label("a", "q4_k 1"), label("b", ""), label("a", "q6_k 1"));
        // b overlaps with a, and c is within b; then nothing, then a again.
        let noted = vec![(&b, 1400, 2000), (&a, 1000, 1600), (&c, 1600, 1800), (&a, 2400, 2600)];
        let t = Timeline::of(noted, 3);
        let ns = Duration::from_nanos;
        assert_eq!((t.whole(), t.tick, t.missed), (ns(1600), ns(200), 3));
        assert_eq!(t.launches.iter().map(|l| l.kernel).collect::<Vec<_>>(), ["a", "b", "a", "a"]);
        let row = |k: &KernelTime| (k.kernel, k.defines.clone(), k.calls, [k.time, k.overlap, k.gap]);
        let want = [
            ("a", "q4_k 1".to_owned(), 2, [800, 0, 400].map(ns)),
            ("b", String::new(), 1, [400, 200, 0].map(ns)),
            ("a", "q6_k 1".to_owned(), 1, [0, 200, 0].map(ns)),
        ];
        let all = t.kernels();
        assert_eq!(all.iter().map(row).collect::<Vec<_>>(), want);
        assert_eq!(all.iter().map(|k| k.time + k.gap).sum::<Duration>(), t.whole());
        assert_eq!(Timeline::of(Vec::new(), 0), Timeline::default());
        assert!(Timeline::default().kernels().is_empty());
    }

    /// A step of so many sums, the first time run, then recorded, then replayed; and what was noted of the last.
    fn step(b: &CudaBackend, key: u64, sums: usize) -> Timeline {
        let x = b.upload(&[1.0, 2.0], [1, 2].into()).unwrap();
        let mut batch = Batch::default();
        batch.push(&[1], 4, Vec::new(), [0; 2]);
        batch.want_last();
        let key = StepKey::of(key, &batch).unwrap();
        let run = || {
            let plan = b.plan(batch.clone()).unwrap();
            let mut f = |_: &Plan| (1..sums).try_fold(b.sum(&x)?, |y, _| b.sum(&y));
            b.replay(&key, &plan, &mut f)
        };
        for _ in 0..2 {
            assert_eq!(b.download(&run().unwrap()).unwrap(), [3.0]);
        }
        b.trace(run).unwrap().1
    }

    fn slots() {
        let b = CudaBackend::builder().trace(true).build().unwrap();
        let x = b.upload(&[1.0, 2.0], [1, 2].into()).unwrap();
        // What nobody traces takes no slot from what is recorded.
        for _ in 0..SLOTS + 10 {
            b.sum(&x).unwrap();
        }
        let noted = |t: &Timeline| (t.launches.len(), t.missed);
        assert_eq!(noted(&step(&b, 0, 5)), (5, 0));
        // A record's slots go with it.
        for key in 1..SLOTS as u64 / 5 + 5 {
            b.drop_graphs();
            assert_eq!(noted(&step(&b, key, 5)), (5, 0), "{key}");
        }
        b.drop_graphs();
        assert_eq!(noted(&step(&b, 0, SLOTS + 6)), (SLOTS, 6));
        // In every trace it is said of how many nothing is known.
        assert_eq!(noted(&b.trace(|| b.sum(&x)).unwrap().1), (0, 7));
        assert_eq!(noted(&b.trace(|| b.download(&x)).unwrap().1), (0, 6));
        b.drop_graphs();
        assert_eq!(noted(&b.trace(|| b.sum(&x)).unwrap().1), (1, 0));
    }

    #[test]
    fn slots_are_had_by_what_is_traced_or_recorded() {
        crate::launch::tests::on(test_name!(), Nvrtc::V12, "sm_80", slots);
    }
}
