//! Shared memory's shadow: who last wrote and read each granule, and when.
//!
//! A granule is as wide as the program's narrowest access to shared memory, so that neighbours never stand in one cell. A cell holds
//! one writer and the two last readers of different threads: of two, one is not the thread that writes next.

use super::clocks::Clocks;

/// What the shadow found wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// Nothing wrote there.
    Unwritten,
    /// An access that nothing orders against this one.
    Race {
        /// What collided: `"read after write"` and so on.
        what: &'static str,
        /// The other's thread.
        thread: u32,
        /// The other's place.
        place: u32,
    },
    /// A `cp.async` or a bulk copy into these bytes is still under way.
    InFlight {
        /// Who issued it.
        thread: u32,
        /// Where.
        place: u32,
    },
}

/// One access in a cell: epoch, place, thread, whether atomic. Zero is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mark(u64);

impl Mark {
    #[inline(always)]
    fn new(epoch: u32, place: u32, thread: u32, atomic: bool) -> Self {
        Self(
            u64::from(epoch) << 32
                | u64::from(place & 0x1f_ffff) << 11
                | u64::from(thread & 0x3ff) << 1
                | u64::from(atomic),
        )
    }
    #[inline(always)]
    fn epoch(self) -> u32 {
        (self.0 >> 32) as u32
    }
    fn place(self) -> u32 {
        (self.0 >> 11) as u32 & 0x1f_ffff
    }
    #[inline(always)]
    fn thread(self) -> u32 {
        (self.0 >> 1) as u32 & 0x3ff
    }
    #[inline(always)]
    fn warp(self) -> usize {
        (self.0 >> 6) as usize & 0x1f
    }
    #[inline(always)]
    fn atomic(self) -> bool {
        self.0 & 1 != 0
    }
    /// Whether nothing orders this mark before what `thread` does now.
    #[inline(always)]
    fn unordered(self, clocks: &Clocks, thread: u32) -> bool {
        let other = self.thread();
        self.0 != 0
            && other != thread
            && !clocks.knows(thread as usize / 32, other as usize / 32, self.epoch())
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    write: Mark,
    reads: [Mark; 2],
}

/// Who accesses, for the shadow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct By {
    /// Thread of the block.
    pub(crate) thread: u32,
    /// Index of the place.
    pub(crate) place: u32,
    /// An atomic operation, or strong: not a race with its like.
    pub(crate) atomic: bool,
}

/// The shadow of a block's shared memory.
#[derive(Debug, Default)]
pub(crate) struct Shadow {
    /// Granules are `1 << shift` bytes.
    shift: u32,
    cells: Vec<Cell>,
    /// Marks of copies under way, by granule; an atomic mark is a copy that only reads. Empty until there is one.
    flying: Vec<Mark>,
    /// How many granules have such a mark.
    flights: usize,
}

impl Shadow {
    /// Forgets everything: a block begins.
    pub(crate) fn reset(&mut self, bytes: usize, granule: u32) {
        self.shift = granule.clamp(1, 16).trailing_zeros();
        self.cells.clear();
        self.cells.resize((bytes >> self.shift) + 1, Cell::default());
        self.flying.clear();
        self.flights = 0;
    }

    /// These bytes hold something from the start.
    pub(crate) fn assume_written(&mut self, at: usize, bytes: usize) {
        let range = self.range(at, bytes);
        // Of epoch 0, which everybody knows of.
        self.cells[range].iter_mut().for_each(|cell| cell.write = Mark::new(0, 0, 0, true));
    }

    #[inline(always)]
    fn range(&self, at: usize, bytes: usize) -> std::ops::Range<usize> {
        let last = (at + bytes.max(1) - 1) >> self.shift;
        at >> self.shift..(last + 1).min(self.cells.len())
    }

    /// A read of `bytes` bytes at `at`.
    #[inline]
    pub(crate) fn read(&mut self, clocks: &Clocks, at: usize, bytes: usize, by: By) -> Result<(), Finding> {
        let epoch = clocks.epoch(by.thread as usize / 32);
        let mark = Mark::new(epoch, by.place, by.thread, by.atomic);
        let range = self.range(at, bytes);
        if self.flights != 0 {
            self.in_flight(range.clone(), false)?;
        }
        for cell in &mut self.cells[range] {
            let write = cell.write;
            if write.0 == 0 {
                // Once is enough: the next read of it is not another finding.
                cell.write = mark;
                return Err(Finding::Unwritten);
            }
            if write.unordered(clocks, by.thread) && !(by.atomic && write.atomic()) {
                return Err(race("read after write", write));
            }
            if cell.reads[0].thread() != by.thread {
                cell.reads[1] = cell.reads[0];
            }
            cell.reads[0] = mark;
        }
        Ok(())
    }

    /// A write of `bytes` bytes at `at`. The finding of a write after a write is for the caller to drop where the value does not change.
    #[inline]
    pub(crate) fn write(&mut self, clocks: &Clocks, at: usize, bytes: usize, by: By) -> Result<(), Finding> {
        let epoch = clocks.epoch(by.thread as usize / 32);
        let mark = Mark::new(epoch, by.place, by.thread, by.atomic);
        let range = self.range(at, bytes);
        if self.flights != 0 {
            self.in_flight(range.clone(), true)?;
        }
        let mut found = Ok(());
        for cell in &mut self.cells[range] {
            for read in cell.reads {
                if read.unordered(clocks, by.thread) && !(by.atomic && read.atomic()) {
                    return Err(race("write after read", read));
                }
            }
            if cell.write.unordered(clocks, by.thread) && !(by.atomic && cell.write.atomic()) {
                found = Err(race("write after write", cell.write));
            }
            // An atomic of a thread does not undo its plain write: others race with that all the same.
            let plain = Mark::new(epoch, cell.write.place(), by.thread, false);
            if !(by.atomic && cell.write == plain) {
                cell.write = mark;
            }
        }
        found
    }

    /// Reads of `stride` bytes by the 32 threads of a warp, one behind the other. False where one of them needs a closer look: then none
    /// was told wholly, and each is to be told by itself.
    #[inline]
    pub(crate) fn read_row(&mut self, clocks: &Clocks, at: usize, stride: usize, first: By) -> bool {
        let per = stride >> self.shift;
        let Some((known, base, cells)) = self.row(clocks, at, stride, first) else { return false };
        for (lane, group) in cells.chunks_exact_mut(per).enumerate() {
            let mark = Mark(base.0 + 2 * lane as u64);
            for cell in group {
                let write = cell.write;
                if write.0 == 0 || !(write.epoch() < known[write.warp()] || write.thread() == mark.thread()) {
                    return false;
                }
                if cell.reads[0].thread() != mark.thread() {
                    cell.reads[1] = cell.reads[0];
                }
                cell.reads[0] = mark;
            }
        }
        true
    }

    /// Writes of `stride` bytes by the 32 threads of a warp, one behind the other; as [`Shadow::read_row`].
    #[inline]
    pub(crate) fn write_row(&mut self, clocks: &Clocks, at: usize, stride: usize, first: By) -> bool {
        let per = stride >> self.shift;
        let Some((known, base, cells)) = self.row(clocks, at, stride, first) else { return false };
        for (lane, group) in cells.chunks_exact_mut(per).enumerate() {
            let mark = Mark(base.0 + 2 * lane as u64);
            for cell in group {
                let fine = |other: Mark| {
                    other.0 == 0 || other.epoch() < known[other.warp()] || other.thread() == mark.thread()
                };
                if !(fine(cell.write) && fine(cell.reads[0]) && fine(cell.reads[1])) {
                    return false;
                }
                cell.write = mark;
            }
        }
        true
    }

    /// What a warp knows, the mark of its first thread, and the cells of 32 accesses of `stride` bytes.
    #[inline(always)]
    fn row<'a>(
        &'a mut self,
        clocks: &'a Clocks,
        at: usize,
        stride: usize,
        first: By,
    ) -> Option<(&'a [u32], Mark, &'a mut [Cell])> {
        let warp = first.thread as usize / 32;
        if self.flights != 0 || stride >> self.shift == 0 {
            return None;
        }
        let base = Mark::new(clocks.epoch(warp), first.place, first.thread, first.atomic);
        let start = at >> self.shift;
        let cells = self.cells.get_mut(start..start + 32 * (stride >> self.shift))?;
        Some((clocks.known(warp), base, cells))
    }

    /// A copy into these bytes was issued, or with `reads` one out of them: whoever touches them, or with `reads` writes them, before
    /// [`Shadow::landed`] is told. The access itself is to be told with [`Shadow::write`] or [`Shadow::read`] before this: a copy counts
    /// as done when it was issued, by the thread that did, unless [`Shadow::written_now`] says otherwise.
    pub(crate) fn take_off(&mut self, clocks: &Clocks, at: usize, bytes: usize, by: By, reads: bool) {
        let mark = Mark::new(clocks.epoch(by.thread as usize / 32), by.place, by.thread, reads);
        self.flying.resize(self.cells.len(), Mark::default());
        for granule in self.range(at, bytes) {
            self.flights += usize::from(self.flying[granule].0 == 0);
            self.flying[granule] = mark;
        }
    }

    /// The copy into or out of these bytes is complete.
    pub(crate) fn landed(&mut self, at: usize, bytes: usize) {
        let range = self.range(at, bytes);
        for mark in self.flying.get_mut(range).unwrap_or_default() {
            self.flights -= usize::from(mark.0 != 0);
            *mark = Mark::default();
        }
    }

    /// A write that was told before, and that nobody else's came after, is of now: what the thread did since does not order it.
    pub(crate) fn written_now(&mut self, clocks: &Clocks, at: usize, bytes: usize, by: By) {
        let mark = Mark::new(clocks.epoch(by.thread as usize / 32), by.place, by.thread, by.atomic);
        let range = self.range(at, bytes);
        self.cells[range].iter_mut().for_each(|cell| cell.write = mark);
    }

    #[inline]
    fn in_flight(&self, range: std::ops::Range<usize>, writes: bool) -> Result<(), Finding> {
        let flying = self.flying.get(range).unwrap_or_default();
        match flying.iter().find(|mark| mark.0 != 0 && (writes || !mark.atomic())) {
            Some(mark) => Err(Finding::InFlight { thread: mark.thread(), place: mark.place() }),
            None => Ok(()),
        }
    }
}

#[cold]
fn race(what: &'static str, other: Mark) -> Finding {
    Finding::Race { what, thread: other.thread(), place: other.place() }
}
