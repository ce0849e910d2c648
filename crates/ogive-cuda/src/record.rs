//! A step while it is recorded: where its memory comes from, what it leans on, and what spoils it.
//!
//! Recording is a matter of one thread. Its work goes to a stream of its own and its memory comes from an arena; other threads go on as
//! if nothing happened. What a record leans on is noted where a buffer is asked for its address and where a step is checked, so
//! that no operator has to know of it.

use crate::driver::Address;
use crate::error::{Error, Result};
use crate::memory::{Buffer, Pool};
use crate::plan::{Checked, CudaPlan};
use ogive_backend::Batch;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::ThreadId;

/// What an operator checked of the step it was recorded for, and what must hold of every step that is replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Tokens (0), positions (1) or types (2) are all below `below`.
    Ids { kind: usize, below: usize },
    /// Blocks are there.
    Blocks(Checked),
    /// The slots that are read, or those that are written, are all below `below`.
    Slots { written: bool, below: usize },
}

impl Need {
    /// Whether it holds of a step.
    pub(crate) fn holds(&self, step: &CudaPlan, batch: &Batch) -> bool {
        match *self {
            Self::Ids { kind, below } => batch.tokens.is_empty() || (step.largest(kind) as usize) < below,
            Self::Blocks(want) => step.check_blocks("replay", batch, want).is_ok(),
            Self::Slots { written: true, below } => batch.spans.iter().all(|s| (s.slots[1] as usize) < below),
            Self::Slots { written: false, below } => {
                batch.spans.iter().all(|s| s.past == 0 || (s.slots[0] as usize) < below)
            }
        }
    }
}

/// What a recording found out.
#[derive(Debug)]
pub(crate) struct Recording {
    thread: ThreadId,
    arena: Arc<Arena>,
    /// Why it cannot be replayed, and whether it never can.
    pub(crate) spoilt: Option<(String, bool)>,
    pub(crate) needs: Vec<Need>,
    /// Where buffers lie that were there before.
    pub(crate) used: BTreeSet<Address>,
    /// Lives as long as the record, for what belongs to it.
    pub(crate) mark: Arc<()>,
}

/// Who records, if anyone does.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    on: AtomicBool,
    state: Mutex<Option<Recording>>,
}

impl Recorder {
    fn state(&self) -> MutexGuard<'_, Option<Recording>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This thread records from now on.
    pub(crate) fn begin(&self, arena: &Arc<Arena>) {
        let (thread, arena, mark) = (std::thread::current().id(), Arc::clone(arena), Arc::default());
        let (needs, used) = (Vec::new(), BTreeSet::new());
        *self.state() = Some(Recording { thread, arena, spoilt: None, needs, used, mark });
        self.on.store(true, Relaxed);
    }

    /// No one does any more.
    pub(crate) fn end(&self) -> Option<Recording> {
        self.on.store(false, Relaxed);
        self.state().take()
    }

    fn own<T>(&self, f: impl FnOnce(&mut Recording) -> T) -> Option<T> {
        if !self.on.load(Relaxed) {
            return None;
        }
        let thread = std::thread::current().id();
        self.state().as_mut().filter(|recording| recording.thread == thread).map(f)
    }

    /// Whether this thread records.
    pub(crate) fn here(&self) -> bool {
        self.own(|_| ()).is_some()
    }

    /// Where memory comes from in this thread, if it records.
    pub(crate) fn arena(&self) -> Option<Arc<Arena>> {
        self.own(|recording| Arc::clone(&recording.arena))
    }

    /// What lives as long as the record that this thread makes, if it makes one.
    pub(crate) fn mark(&self) -> Option<Weak<()>> {
        self.own(|recording| Arc::downgrade(&recording.mark))
    }

    /// A buffer that was there before is used.
    pub(crate) fn uses(&self, address: Address) {
        self.own(|recording| recording.used.insert(address));
    }

    /// Something was checked.
    pub(crate) fn needs(&self, need: Need) {
        self.own(|recording| {
            if !recording.needs.contains(&need) {
                recording.needs.push(need);
            }
        });
    }

    /// An error if this thread records, which `doing` then spoils: for good, or for this time only.
    pub(crate) fn outside(&self, doing: &str, for_good: bool) -> Result<()> {
        let spoilt = self.own(|recording| {
            recording.spoilt.get_or_insert_with(|| (doing.into(), for_good));
        });
        spoilt.map_or(Ok(()), |()| Err(Error::Recording { doing: doing.into() }))
    }
}

/// Memory of recorded steps: pieces that only they use, one recording after the other the same ones. Records run one at a time, and
/// none needs what another left behind, so all share one arena.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    state: Mutex<Pieces>,
}

#[derive(Debug, Default)]
struct Pieces {
    free: BTreeMap<usize, Vec<Buffer>>,
    /// How many are in use.
    taken: usize,
}

impl Arena {
    fn state(&self) -> MutexGuard<'_, Pieces> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Memory for `bytes`, given back to this arena when dropped.
    pub(crate) fn take(self: &Arc<Self>, pool: &Arc<Pool>, doing: &str, bytes: usize) -> Result<Buffer> {
        let mut state = self.state();
        let size = Pool::size(bytes).unwrap_or(usize::MAX);
        let found = state.free.range_mut(size..=size.saturating_add(size / 4)).find_map(|(_, p)| p.pop());
        let piece = found.map_or_else(|| pool.take(doing, bytes), Ok)?;
        state.taken += 1;
        Ok(piece.of_arena(Arc::clone(self)))
    }

    /// Takes a piece back.
    pub(crate) fn give(&self, piece: Buffer) {
        let mut state = self.state();
        state.taken -= 1;
        state.free.entry(piece.size()).or_default().push(piece);
    }

    /// Gives back all that is not in use, but for the piece that `kept` lies in.
    pub(crate) fn shrink(&self, kept: Option<Address>) {
        let mut state = self.state();
        for pieces in state.free.values_mut() {
            pieces.retain(|piece| kept.is_some_and(|kept| piece.holds(kept)));
        }
        state.free.retain(|_, pieces| !pieces.is_empty());
    }

    /// Whether it has any memory.
    pub(crate) fn holds(&self) -> bool {
        let state = self.state();
        state.taken > 0 || !state.free.is_empty()
    }

    /// How many pieces are in use.
    pub(crate) fn taken(&self) -> usize {
        self.state().taken
    }
}
