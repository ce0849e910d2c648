//! Global memory's shadow: who last wrote and read each granule.
//!
//! Pages of 4 KiB, made when something happens there. A page touched only whole (a copy, a memset) is one cell; a kernel's access splits it
//! into granules as wide as the access, and a narrower one splits these again, so that neighbours never share a cell. A cell
//! keeps the last writer and two readers: of readers that nothing orders, the two latest.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

const PAGE: u64 = 4096;
const SHARDS: usize = 64;

/// One access, for the shadow. `operation` 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The operation, counted from 1.
    pub(crate) operation: u32,
    /// The block, counted through the grid; a copy or a memset has [`Mark::TRANSFER`].
    pub(crate) block: u32,
    /// The warp's epoch.
    pub(crate) epoch: u32,
    /// Place, strength, warp and lane, packed.
    who: u32,
}

/// How strong an access is: whether it races with its like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Strength {
    /// A plain access.
    Weak,
    /// Strong within the block.
    Block,
    /// Strong within the device or the system.
    Device,
}

impl Mark {
    /// The block of what is no kernel.
    pub(crate) const TRANSFER: u32 = u32::MAX;

    pub(crate) fn new(
        operation: u32,
        block: u32,
        epoch: u32,
        place: u32,
        warp: u32,
        lane: u32,
        strength: Strength,
    ) -> Self {
        let who = (place & 0xf_ffff) << 12 | (strength as u32) << 10 | (warp & 31) << 5 | lane & 31;
        Self { operation, block, epoch, who }
    }

    pub(crate) fn warp(self) -> u32 {
        self.who >> 5 & 31
    }

    pub(crate) fn thread(self) -> u32 {
        self.who & 0x3ff
    }

    pub(crate) fn place(self) -> u32 {
        self.who >> 12
    }

    pub(crate) fn strength(self) -> Strength {
        match self.who >> 10 & 3 {
            0 => Strength::Weak,
            1 => Strength::Block,
            _ => Strength::Device,
        }
    }

    /// Whether both may happen at once: strong accesses that reach one another are ordered by the hardware.
    fn compatible(self, other: Self) -> bool {
        let needed = if self.operation == other.operation && self.block == other.block {
            Strength::Block
        } else {
            Strength::Device
        };
        self.strength() >= needed && other.strength() >= needed
    }
}

/// A pair that nothing orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Collision {
    /// `"read after write"` and so on.
    pub(crate) what: &'static str,
    /// First byte of the granule.
    pub(crate) address: u64,
    /// Who was there before.
    pub(crate) other: Mark,
}

#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    write: Mark,
    reads: [Mark; 2],
}

#[derive(Debug)]
struct Page {
    /// Granules are `1 << shift` bytes; 12 while the page is one cell.
    shift: u32,
    cells: Vec<Cell>,
}

/// The shadow of all global memory.
#[derive(Debug)]
pub(crate) struct Shadow {
    shards: Vec<Mutex<HashMap<u64, Page>>>,
}

impl Default for Shadow {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }
}

impl Shadow {
    fn shard(&self, page: u64) -> MutexGuard<'_, HashMap<u64, Page>> {
        self.shards[page as usize % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An access of `bytes` bytes at `address`; `ordered` tells whether a mark comes before it.
    pub(crate) fn access(
        &self,
        address: u64,
        bytes: u64,
        mark: Mark,
        reads: bool,
        writes: bool,
        ordered: &mut dyn FnMut(Mark) -> bool,
    ) -> Result<(), Collision> {
        let end = address.saturating_add(bytes);
        let mut at = address;
        while at < end {
            let number = at / PAGE;
            let until = end.min((number + 1) * PAGE);
            let mut shard = self.shard(number);
            let page =
                shard.entry(number).or_insert_with(|| Page { shift: 12, cells: vec![Cell::default()] });
            page.access(number, at % PAGE, until - at, mark, reads, writes, ordered)?;
            at = until;
        }
        Ok(())
    }

    /// Plain reads of `bytes` bytes each, one after the other, as [`Shadow::access`] judges each; `ordered` tells whether the second mark comes
    /// before the first. A page is looked up once for as long as the reads stay in it.
    pub(crate) fn reads(
        &self,
        reads: impl Iterator<Item = (u64, Mark)>,
        bytes: u64,
        ordered: &mut dyn FnMut(Mark, Mark) -> bool,
    ) -> Result<(), (Collision, Mark)> {
        let mut reads = reads.peekable();
        while let Some(&(first, mark)) = reads.peek() {
            let number = first / PAGE;
            let inside = |address: u64| address / PAGE == number && address % PAGE + bytes <= PAGE;
            if !inside(first) {
                self.access(first, bytes, mark, true, false, &mut |other| ordered(mark, other))
                    .map_err(|collision| (collision, mark))?;
                reads.next();
                continue;
            }
            let mut shard = self.shard(number);
            let page =
                shard.entry(number).or_insert_with(|| Page { shift: 12, cells: vec![Cell::default()] });
            while let Some((address, mark)) = reads.next_if(|(address, _)| inside(*address)) {
                page.access(number, address % PAGE, bytes, mark, true, false, &mut |other| {
                    ordered(mark, other)
                })
                .map_err(|collision| (collision, mark))?;
            }
        }
        Ok(())
    }

    /// These bytes were freed: what comes there next is new.
    pub(crate) fn forget(&self, address: u64, bytes: u64) {
        for page in address / PAGE..=address.saturating_add(bytes.max(1) - 1) / PAGE {
            let (start, end) = (page * PAGE, (page + 1) * PAGE);
            let mut shard = self.shard(page);
            if address <= start && end <= address + bytes {
                shard.remove(&page);
            } else if let Some(found) = shard.get_mut(&page) {
                let (from, to) = (address.max(start) - start, (address + bytes).min(end) - start);
                found.fit(from, to - from);
                let shift = found.shift;
                for cell in &mut found.cells[(from >> shift) as usize..=((to - 1) >> shift) as usize] {
                    *cell = Cell::default();
                }
            }
        }
    }
}

impl Page {
    /// An access of `bytes` bytes at `offset`; the page is the `number`-th.
    #[inline]
    fn access(
        &mut self,
        number: u64,
        offset: u64,
        bytes: u64,
        mark: Mark,
        reads: bool,
        writes: bool,
        ordered: &mut dyn FnMut(Mark) -> bool,
    ) -> Result<(), Collision> {
        self.fit(offset, bytes);
        let (first, last) = ((offset >> self.shift) as usize, ((offset + bytes - 1) >> self.shift) as usize);
        for (index, cell) in (first..).zip(self.cells.get_mut(first..=last).unwrap_or_default()) {
            cell.check(mark, reads, writes, ordered).map_err(|(what, other)| Collision {
                what,
                address: number * PAGE + ((index as u64) << self.shift),
                other,
            })?;
            cell.keep(mark, reads, writes, ordered);
        }
        Ok(())
    }

    /// Makes the granules narrow enough for an access of `bytes` bytes at `offset`.
    fn fit(&mut self, offset: u64, bytes: u64) {
        let wanted = (offset | bytes).trailing_zeros().min(12);
        if wanted < self.shift {
            let each = 1 << (self.shift - wanted);
            self.cells = self.cells.iter().flat_map(|cell| std::iter::repeat_n(*cell, each)).collect();
            self.shift = wanted;
        }
    }
}

impl Cell {
    fn check(
        &self,
        mark: Mark,
        reads: bool,
        writes: bool,
        ordered: &mut dyn FnMut(Mark) -> bool,
    ) -> Result<(), (&'static str, Mark)> {
        let mut collides = |other: Mark| other.operation != 0 && !mark.compatible(other) && !ordered(other);
        if collides(self.write) {
            return Err((
                if reads && !writes { "read after write" } else { "write after write" },
                self.write,
            ));
        }
        if writes {
            for read in self.reads {
                if collides(read) {
                    return Err(("write after read", read));
                }
            }
        }
        Ok(())
    }

    fn keep(&mut self, mark: Mark, reads: bool, writes: bool, ordered: &mut dyn FnMut(Mark) -> bool) {
        if writes {
            self.write = mark;
            self.reads = [Mark::default(); 2];
        } else if reads {
            let latest = self.reads[0];
            if latest.operation != 0 && latest != mark && !ordered(latest) {
                self.reads[1] = latest;
            }
            self.reads[0] = mark;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(block: u32, lane: u32, strength: Strength) -> Mark {
        Mark::new(1, block, 1, 7, 3, lane, strength)
    }

    fn never(_: Mark) -> bool {
        false
    }

    fn same(mark: Mark) -> impl FnMut(Mark) -> bool {
        move |other| other == mark
    }

    #[test]
    fn marks_keep_what_they_are_given() {
        let m = Mark::new(9, 8, 7, 0xf_fffe, 31, 30, Strength::Device);
        assert_eq!(
            (m.warp(), m.thread(), m.place(), m.strength()),
            (31, 31 * 32 + 30, 0xf_fffe, Strength::Device)
        );
        assert_eq!(mark(0, 0, Strength::Block).strength(), Strength::Block);
    }

    #[test]
    fn readers_do_not_collide_and_writers_do() {
        let shadow = Shadow::default();
        let (a, b) = (mark(0, 0, Strength::Weak), mark(1, 0, Strength::Weak));
        assert_eq!(shadow.access(64, 4, a, true, false, &mut never), Ok(()));
        assert_eq!(shadow.access(64, 4, b, true, false, &mut never), Ok(()));
        let found = shadow.access(64, 4, a, false, true, &mut same(a)).unwrap_err();
        assert_eq!(found, Collision { what: "write after read", address: 64, other: b });
        assert_eq!(shadow.access(68, 4, a, false, true, &mut same(a)), Ok(()));
        let found = shadow.access(68, 4, b, true, false, &mut same(b)).unwrap_err();
        assert_eq!((found.what, found.other), ("read after write", a));
        let found = shadow.access(68, 4, b, false, true, &mut same(b)).unwrap_err();
        assert_eq!(found.what, "write after write");
    }

    #[test]
    fn an_older_reader_is_still_found() {
        let shadow = Shadow::default();
        let (a, b) = (mark(0, 0, Strength::Weak), mark(1, 0, Strength::Weak));
        shadow.access(0, 4, a, true, false, &mut never).unwrap();
        shadow.access(0, 4, b, true, false, &mut never).unwrap();
        // The latest reader writes: the reader before it is the other party.
        assert_eq!(shadow.access(0, 4, b, false, true, &mut same(b)).unwrap_err().other, a);
    }

    #[test]
    fn neighbours_do_not_share_a_cell() {
        let shadow = Shadow::default();
        let (a, b) = (mark(0, 0, Strength::Weak), mark(1, 1, Strength::Weak));
        shadow.access(16, 16, a, false, true, &mut never).unwrap();
        shadow.access(32, 1, a, false, true, &mut never).unwrap();
        assert_eq!(shadow.access(33, 1, b, false, true, &mut never), Ok(()));
        assert_eq!(shadow.access(31, 1, b, false, true, &mut never).unwrap_err().address, 31);
    }

    #[test]
    fn accesses_cross_pages_and_whole_pages_are_one_cell() {
        let shadow = Shadow::default();
        let copy = Mark::new(1, Mark::TRANSFER, 0, 0, 0, 0, Strength::Weak);
        shadow.access(0, 3 * PAGE, copy, false, true, &mut never).unwrap();
        assert_eq!(shadow.shard(1)[&1].cells.len(), 1);
        let b = mark(1, 1, Strength::Weak);
        let found = shadow.access(2 * PAGE - 2, 4, b, true, false, &mut never).unwrap_err();
        assert_eq!((found.other, found.address), (copy, 2 * PAGE - 2));
        shadow.forget(PAGE, PAGE);
        assert_eq!(shadow.access(PAGE, 4, b, true, false, &mut never), Ok(()));
        assert!(shadow.access(2 * PAGE, 4, b, true, false, &mut never).is_err());
    }

    #[test]
    fn reads_of_a_warp_are_so_many_accesses() {
        let mut state = 1u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let mut collisions = 0;
        for _ in 0..300 {
            let (together, alone) = (Shadow::default(), Shadow::default());
            for _ in 0..random(4) {
                let (address, bytes, block) = (PAGE - 256 + random(512), 1 + random(40), random(3) as u32);
                for shadow in [&together, &alone] {
                    let writer = mark(block, 0, Strength::Weak);
                    let _ = shadow.access(address, bytes, writer, false, true, &mut |_| true);
                }
            }
            for _ in 0..3 {
                let (start, stride, bytes) = (PAGE - 128 + random(128), random(20), 1 << random(5));
                let lanes = (0..32).map(|lane| (start + lane * stride, mark(1, lane as u32, Strength::Weak)));
                let ordered = |mine: Mark, other: Mark| mine.block == other.block || other.block == 2;
                let given = together.reads(lanes.clone(), bytes, &mut { ordered });
                let expected = lanes.clone().try_for_each(|(address, mark)| {
                    let found =
                        alone.access(address, bytes, mark, true, false, &mut |other| ordered(mark, other));
                    found.map_err(|collision| (collision, mark))
                });
                assert_eq!(given, expected);
                collisions += u32::from(given.is_err());
            }
            for page in 0..2 {
                let cells = |shadow: &Shadow| shadow.shard(page).get(&page).map(|page| format!("{page:?}"));
                assert_eq!(cells(&together), cells(&alone));
            }
        }
        assert!(collisions > 50);
    }

    #[test]
    fn strong_accesses_live_together_as_far_as_their_scope_goes() {
        let shadow = Shadow::default();
        let (a, b) = (mark(0, 0, Strength::Device), mark(1, 0, Strength::Device));
        shadow.access(0, 4, a, true, true, &mut never).unwrap();
        assert_eq!(shadow.access(0, 4, b, true, true, &mut never), Ok(()));
        let narrow = mark(0, 1, Strength::Block);
        assert!(shadow.access(0, 4, narrow, true, true, &mut never).is_err());
        let plain = mark(1, 1, Strength::Weak);
        assert!(shadow.access(0, 4, plain, true, false, &mut never).is_err());
    }
}
