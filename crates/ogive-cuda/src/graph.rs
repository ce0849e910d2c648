//! Steps as graphs: run once, recorded when they come again, and from then on one launch each.
//!
//! A step's first run loads its kernels and sends its constants, so that the second can be recorded without either. A record is for one
//! key and one place of the plan, whose numbers the kernels read on the device. It leans on the buffers it names: if one is given
//! back, the record is launched no more, and dropped when its step comes again. What was checked on the host while it was recorded is
//! checked again for each step.
//!
//! Results are lent: they lie in the memory of the records, which the next launch overwrites. Who still holds one by then keeps it, with
//! the piece that it lies in; the records are made anew, and results are copied from then on. Loans that could move would need no copies,
//! but then a tensor's address could change under an operator of another thread.
//!
//! One thread at a time records and launches. Another one's step is run without a record meanwhile; who is short of memory waits, as
//! dropping records makes room, and therefore holds no lock that a step may want.

use crate::device::Device;
use crate::driver::{Address, Recorded};
use crate::error::{Error as CudaError, OUT_OF_MEMORY};
use crate::plan::{self, CudaPlan};
use crate::record::{Arena, Need};
use crate::turn::Turns;
use ogive_backend::{Plan, StepKey};
use ogive_tensor::{Result, Shape, Tensor};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Keys that are remembered.
const MOST: usize = 64;
/// Places of plans for each of them, on average. Two take turns, and others are longer or shorter.
const PLACES: usize = 4;
/// So many attempts fail before a key is given up.
const ATTEMPTS: u32 = 3;
/// So long is another thread waited for that records or launches a step. Recording takes less than a second; what takes longer may itself
/// be waiting for whoever waits here.
const LONGEST: Duration = Duration::from_secs(10);

/// How steps were run that could have been replayed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GraphCounts {
    /// Steps that were one launch of a graph.
    pub replayed: u64,
    /// Graphs that were made.
    pub recorded: u64,
    /// Steps that were run operator by operator, the first of each kind among them.
    pub eager: u64,
    /// Why the last of those was.
    pub reason: Option<String>,
}

/// The memory of a result that a recorded step lends.
#[derive(Debug)]
pub(crate) struct Loan {
    pub(crate) address: Address,
    _arena: Arc<Arena>,
}

/// A record, ready to be launched.
#[derive(Debug)]
struct Ready {
    work: Recorded,
    needs: Vec<Need>,
    /// Set when a buffer it leans on was given back.
    stale: Arc<AtomicBool>,
    /// As [`Device::recorded`] gives it.
    result: (Address, Shape, Option<usize>),
    /// For what belongs to the record, and goes with it.
    _mark: Arc<()>,
}

/// What is known of a key.
#[derive(Debug)]
enum Known {
    /// It was run, and is to be recorded when it comes again.
    Run,
    Refused(String),
    Ready(Ready),
}

#[derive(Debug)]
struct Entry {
    key: StepKey,
    plan: Address,
    /// Attempts to record or to launch it that failed.
    failed: u32,
    known: Known,
}

#[derive(Debug, Default)]
struct State {
    /// The one used last comes first.
    entries: Vec<Entry>,
    arena: Arc<Arena>,
    loan: Option<Arc<Loan>>,
    /// Whether results are copied rather than lent.
    copies: bool,
}

/// The recorded steps of a device.
#[derive(Debug)]
pub(crate) struct Graphs {
    on: bool,
    state: Turns<State>,
    /// Apart from the state, so that who counts or asks waits for no step. Nothing else is locked under it.
    counts: Mutex<GraphCounts>,
}

/// Why a step is not replayed.
type Reason = String;

/// Why a record could not be made or launched.
#[derive(Debug)]
struct Failure {
    why: Reason,
    /// It would fail as often as it is tried.
    for_good: bool,
    /// The driver has no memory for it: it keeps some kilobytes for each kernel of a record, which nobody else counts.
    memory: bool,
}

impl Failure {
    fn new(why: impl Into<Reason>, for_good: bool) -> Self {
        Self { why: why.into(), for_good, memory: false }
    }
}

impl From<CudaError> for Failure {
    fn from(e: CudaError) -> Self {
        let memory = matches!(e, CudaError::Driver { code: OUT_OF_MEMORY, .. });
        Self { why: e.to_string(), for_good: false, memory }
    }
}

/// Ends a recording whatever comes.
struct Open<'a>(&'a Device);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if self.0.pool.recorder.end().is_some() {
            drop(self.0.record().recorded(false, || ()));
        }
    }
}

impl Graphs {
    pub(crate) fn new(on: bool) -> Self {
        Self { on, state: Turns::new(State::default()), counts: Mutex::default() }
    }

    /// Whether steps are recorded.
    pub(crate) fn are_on(&self) -> bool {
        self.on
    }

    fn count(&self) -> MutexGuard<'_, GraphCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn counts(&self) -> GraphCounts {
        self.count().clone()
    }

    /// Drops all records, for their memory; whether there may be more of that now. Waits for a step that another thread records or launches:
    /// the caller holds no lock that a step may want.
    pub(crate) fn forget(&self, device: &Device) -> bool {
        let at_once = self.state.now();
        let waited = at_once.is_none();
        let Some(mut state) = at_once.or_else(|| self.state.soon(LONGEST)) else { return false };
        let any = state.arena.holds();
        if any {
            tracing::debug!(target: "ogive::cuda", "dropping recorded steps: memory is short");
            state.renew(device);
        }
        // Who was waited for may have dropped them.
        any || waited
    }

    fn ran(&self, reason: Reason) {
        tracing::debug!(target: "ogive::cuda", reason, "a step is run without a record");
        let mut counts = self.count();
        counts.eager += 1;
        counts.reason = Some(reason);
    }
}

/// Runs `f`, or replays an earlier run of the same key.
pub(crate) fn replay(
    device: &Device,
    key: &StepKey,
    plan: &Plan,
    f: &mut dyn FnMut(&Plan) -> Result<Tensor>,
) -> Result<Tensor> {
    let step = plan::device("replay", device, plan)?;
    match attempt(device, key, plan, step, f) {
        Ok(y) => Ok(y),
        Err(reason) => {
            device.graphs.ran(reason);
            f(plan)
        }
    }
}

fn attempt(
    device: &Device,
    key: &StepKey,
    plan: &Plan,
    step: &CudaPlan,
    f: &mut dyn FnMut(&Plan) -> Result<Tensor>,
) -> Result<Tensor, Reason> {
    if !device.graphs.on {
        return Err("graphs are off, or the driver has none".into());
    }
    if !step.lasts() {
        return Err("the plan lies in no lasting place: more than two are held".into());
    }
    let mut guard = device.graphs.state.now().ok_or("another step is recorded or launched")?;
    let state = &mut *guard;
    if state.loan.as_ref().is_some_and(|loan| Arc::strong_count(loan) > 1) {
        state.renew(device);
        state.copies = true;
        tracing::debug!(target: "ogive::cuda", "a step's result is held beyond the next: results are copied from now on");
    }
    // One stream: who reads the last result was queued before what comes now.
    state.loan = None;
    let at = state.find(device, key, step.address());
    let entry = state.entries.first_mut().filter(|_| at).ok_or("the first step of its kind")?;
    match &entry.known {
        Known::Refused(why) => return Err(why.clone()),
        Known::Ready(ready) if ready.stale.load(Relaxed) => {
            state.drop_first(device, Known::Run);
            return Err("what was recorded leans on memory that was given back".into());
        }
        Known::Ready(ready) => {
            if let Some(need) = ready.needs.iter().find(|need| !need.holds(step, plan.batch())) {
                return Err(format!("the step is not what was checked: {need:?}"));
            }
        }
        Known::Run => match record(device, &state.arena, plan, f) {
            Ok(ready) => {
                device.graphs.count().recorded += 1;
                entry.known = Known::Ready(ready);
            }
            Err(failure) => return Err(state.fail(device, failure)),
        },
    }
    state.launch(device).map_err(|failure| state.fail(device, failure))
}

/// Records `f`.
fn record(
    device: &Device,
    arena: &Arc<Arena>,
    plan: &Plan,
    f: &mut dyn FnMut(&Plan) -> Result<Tensor>,
) -> Result<Ready, Failure> {
    device.record().record()?;
    device.pool.recorder.begin(arena);
    let open = Open(device);
    let result = f(plan).and_then(|y| {
        // A norm that makes it and was left to who reads it belongs to the step.
        device.compute_deferred(&y)?;
        Ok(y)
    });
    let result = result.map(|y| device.recorded(y));
    let found = device.pool.recorder.end();
    let spoilt = found.as_ref().and_then(|found| found.spoilt.clone());
    let keep = spoilt.is_none() && matches!(result, Ok(Some(_))) && arena.taken() == 0;
    let work = device.record().recorded(keep, || device.pool.make_room());
    drop(open);
    if let Some((doing, for_good)) = spoilt {
        return Err(Failure::new(format!("it cannot be recorded: {doing}"), for_good));
    }
    let result = result.map_err(|e| Failure::new(format!("recording it failed: {e}"), false))?;
    let result = result.ok_or_else(|| Failure::new("its result is not its own", true))?;
    let (Some(work), Some(found)) = (work?, found) else {
        return Err(Failure::new("it keeps values beside its result", true));
    };
    let stale = Arc::new(AtomicBool::new(false));
    device.pool.watch(found.used, &stale);
    Ok(Ready { work, needs: found.needs, stale, result, _mark: found.mark })
}

impl State {
    /// Moves the entry of this key and place to the front. If there is none, makes one and says no.
    fn find(&mut self, device: &Device, key: &StepKey, plan: Address) -> bool {
        if let Some(at) = self.entries.iter().position(|e| e.plan == plan && e.key == *key) {
            self.entries[..=at].rotate_right(1);
            return true;
        }
        self.make_room(device, key);
        self.entries.insert(0, Entry { key: key.clone(), plan, failed: 0, known: Known::Run });
        false
    }

    /// Makes room for one more entry: what goes is all of the key that was used longest ago.
    fn make_room(&mut self, device: &Device, new: &StepKey) {
        let mut keys: Vec<&StepKey> = Vec::new();
        for Entry { key, .. } in &self.entries {
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        let full = self.entries.len() >= MOST * PLACES || (keys.len() >= MOST && !keys.contains(&new));
        let Some(oldest) = keys.pop().filter(|_| full).cloned() else { return };
        device.settle();
        self.entries.retain(|entry| entry.key != oldest);
    }

    /// Puts `known` in the first entry's place.
    fn drop_first(&mut self, device: &Device, known: Known) {
        device.settle();
        if let Some(entry) = self.entries.first_mut() {
            entry.known = known;
        }
    }

    /// The first entry could not be recorded or launched; gives the reason back. Where the driver has no memory and others can give theirs, it
    /// is tried again as if it had not been.
    fn fail(&mut self, device: &Device, failure: Failure) -> Reason {
        let made_room = failure.memory && self.thin(device);
        let Some(entry) = self.entries.first_mut() else { return failure.why };
        entry.failed += u32::from(!made_room);
        let refused = failure.for_good || entry.failed >= ATTEMPTS;
        self.drop_first(device, if refused { Known::Refused(failure.why.clone()) } else { Known::Run });
        failure.why
    }

    /// Drops the half of the other records that was used longest ago; whether there were any.
    fn thin(&mut self, device: &Device) -> bool {
        device.settle();
        let others = self.entries.iter_mut().skip(1).filter(|e| matches!(e.known, Known::Ready(_)));
        let mut others: Vec<_> = others.collect();
        let oldest = others.split_off(others.len() / 2);
        let dropped = oldest.len();
        oldest.into_iter().for_each(|entry| entry.known = Known::Run);
        if dropped > 0 {
            tracing::debug!(target: "ogive::cuda", dropped, "dropping recorded steps: the driver has no memory for more");
        }
        dropped > 0
    }

    /// Drops all records and their memory, but for the piece of a result that is still held; what was run once can be recorded again at once.
    fn renew(&mut self, device: &Device) {
        device.settle();
        for entry in &mut self.entries {
            if matches!(entry.known, Known::Ready(_)) {
                entry.known = Known::Run;
            }
        }
        let lent = self.loan.take().filter(|loan| Arc::strong_count(loan) > 1);
        std::mem::take(&mut self.arena).shrink(lent.map(|loan| loan.address));
    }

    /// Launches the first entry's record.
    fn launch(&mut self, device: &Device) -> Result<Tensor, Failure> {
        let Some(Entry { known: Known::Ready(ready), .. }) = self.entries.first() else {
            return Err(Failure::new("there is no record", false));
        };
        let (address, shape, top_k) = ready.result;
        let bytes = 4 * shape.len();
        let copy = self.copies.then(|| device.take("replay", bytes)).transpose()?;
        device.pool.retried(|| device.stream().replay(&ready.work))?;
        device.graphs.count().replayed += 1;
        let Some(copy) = copy else {
            let loan = Arc::new(Loan { address, _arena: Arc::clone(&self.arena) });
            let y = device.lent(&loan, shape, top_k);
            self.loan = Some(loan);
            return Ok(y);
        };
        if bytes > 0 {
            device.stream().copy_within(copy.address(), address, bytes)?;
        }
        Ok(device.held(copy, shape, top_k))
    }
}
