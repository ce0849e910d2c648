//! Which warp of a block knows of what the others did: vector clocks.
//!
//! Clocks count per warp and not per thread: 32 times less to join at a barrier, and within a warp one number (the epoch, which
//! `bar.warp.sync` advances) says what is ordered. A partial `bar.warp.sync` counts for its whole warp; that can hide a race, and
//! never reports a false one.

/// A warp's knowledge: for every warp of the block, the epochs below this number are known.
pub(crate) type Clock = Vec<u32>;

/// The clocks of a block's warps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clocks {
    warps: Vec<Clock>,
}

impl Clocks {
    /// Every warp is in epoch 1 and knows nothing of the others.
    pub(crate) fn reset(&mut self, warps: usize) {
        self.warps.resize_with(warps, Vec::new);
        for (w, clock) in self.warps.iter_mut().enumerate() {
            clock.clear();
            clock.resize(warps, 1);
            clock[w] = 1;
        }
    }

    /// The epoch a warp is in.
    #[inline(always)]
    pub(crate) fn epoch(&self, warp: usize) -> u32 {
        self.warps[warp][warp]
    }

    /// Whether what `other` did in `epoch` comes before what `warp` does now.
    #[inline(always)]
    pub(crate) fn knows(&self, warp: usize, other: usize, epoch: u32) -> bool {
        epoch < self.warps[warp][other]
    }

    /// What a warp knows of each: epochs below these numbers.
    #[inline(always)]
    pub(crate) fn known(&self, warp: usize) -> &[u32] {
        &self.warps[warp]
    }

    /// All the warp did and knows, to be given to somebody; a new epoch begins.
    pub(crate) fn release(&mut self, warp: usize) -> Clock {
        self.warps[warp][warp] += 1;
        self.warps[warp].clone()
    }

    /// Takes in what a released clock knows.
    pub(crate) fn acquire(&mut self, warp: usize, clock: &[u32]) {
        for (mine, theirs) in self.warps[warp].iter_mut().zip(clock) {
            *mine = (*mine).max(*theirs);
        }
    }
}

/// Joins `from` into `into`, which may be empty.
pub(crate) fn join(into: &mut Clock, from: &[u32]) {
    if into.len() < from.len() {
        into.resize(from.len(), 0);
    }
    for (a, b) in into.iter_mut().zip(from) {
        *a = (*a).max(*b);
    }
}
