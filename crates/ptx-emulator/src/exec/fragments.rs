//! The program counters of a warp: which lanes stand where.
//!
//! Lanes that diverged are fragments. The one with the lowest program counter runs first, which brings them together again where their paths
//! meet without any analysis of the control flow; so that a fragment that spins does not starve the one it waits for, a long turn or a
//! failed poll gives the next turn to whoever ran longest ago.

use super::registers::Mask;

/// What a fragment waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Nothing: it can run.
    Run,
    /// A barrier of the block to complete its `phase`.
    Barrier {
        /// Which one.
        id: u8,
        /// The phase that was current at the arrival.
        phase: u32,
    },
    /// Other lanes to reach the same `.sync` operation.
    Together {
        /// The lanes named.
        member: Mask,
    },
    /// Other lanes to reach any `bar.warp.sync` with the same mask.
    WarpSync {
        /// The lanes named.
        member: Mask,
    },
    /// The grids before this one.
    Dependency,
}

/// Lanes at one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fragment {
    /// The next step; while it waits, the step it waits at.
    pub(crate) pc: u32,
    /// The lanes.
    pub(crate) mask: Mask,
    /// What it waits for.
    pub(crate) wait: Wait,
    /// The warp's clock when its turn last ended early.
    pub(crate) ran: u64,
}

/// All fragments of a warp.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fragments {
    all: Vec<Fragment>,
}

/// The fragment to run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pick {
    /// Which.
    pub(crate) index: usize,
    /// It has to stop here to meet another.
    pub(crate) limit: u32,
    /// How many can run.
    pub(crate) runnable: u32,
}

impl Fragments {
    /// All lanes of `mask` at the start.
    pub(crate) fn reset(&mut self, mask: Mask) {
        self.all.clear();
        if mask != 0 {
            self.push(0, mask, Wait::Run);
        }
    }

    /// The fragments.
    pub(crate) fn all(&self) -> &[Fragment] {
        &self.all
    }

    /// The fragments, to be changed.
    pub(crate) fn all_mut(&mut self) -> &mut [Fragment] {
        &mut self.all
    }

    /// One of them.
    #[inline(always)]
    pub(crate) fn at(&mut self, index: usize) -> &mut Fragment {
        &mut self.all[index]
    }

    /// Adds lanes.
    pub(crate) fn push(&mut self, pc: u32, mask: Mask, wait: Wait) {
        self.all.push(Fragment { pc, mask, wait, ran: 0 });
    }

    /// Takes one out.
    pub(crate) fn remove(&mut self, index: usize) {
        self.all.swap_remove(index);
    }

    /// No lanes are left.
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether any can run.
    pub(crate) fn runnable(&self) -> bool {
        self.all.iter().any(|f| f.wait == Wait::Run)
    }

    /// The one with the lowest program counter, or, when it is to be `fair`, the one that waited longest.
    #[inline]
    pub(crate) fn pick(&self, fair: bool) -> Option<Pick> {
        if let [only] = &self.all[..] {
            return (only.wait == Wait::Run).then_some(Pick { index: 0, limit: u32::MAX, runnable: 1 });
        }
        let mut best: Option<(u32, usize)> = None;
        let (mut limit, mut runnable) = (u32::MAX, 0);
        for (index, fragment) in self.all.iter().enumerate() {
            if fragment.wait != Wait::Run {
                continue;
            }
            runnable += 1;
            match best {
                Some((pc, _)) if fragment.pc >= pc => limit = limit.min(fragment.pc),
                Some((pc, _)) => {
                    limit = pc;
                    best = Some((fragment.pc, index));
                }
                None => best = Some((fragment.pc, index)),
            }
        }
        let (_, index) = best?;
        if fair && runnable > 1 {
            let oldest = self.all.iter().enumerate().filter(|(_, f)| f.wait == Wait::Run);
            let (index, fragment) = oldest.min_by_key(|(_, f)| f.ran)?;
            let ahead =
                self.all.iter().filter(|f| f.wait == Wait::Run && f.pc > fragment.pc).map(|f| f.pc).min();
            return Some(Pick { index, limit: ahead.unwrap_or(u32::MAX), runnable });
        }
        Some(Pick { index, limit, runnable })
    }

    /// Brings together what stands at the same place for the same reason.
    pub(crate) fn merge(&mut self) {
        let mut i = 0;
        while i < self.all.len() {
            let mut j = i + 1;
            while j < self.all.len() {
                let (a, b) = (self.all[i], self.all[j]);
                if a.pc == b.pc && a.wait == b.wait {
                    self.all[i].mask |= b.mask;
                    self.all[i].ran = a.ran.max(b.ran);
                    self.all.swap_remove(j);
                } else {
                    j += 1;
                }
            }
            i += 1;
        }
    }

    /// Lanes ended: whoever waits for lanes of the warp looks again.
    pub(crate) fn look_again(&mut self) {
        for fragment in &mut self.all {
            if matches!(fragment.wait, Wait::Together { .. } | Wait::WarpSync { .. }) {
                fragment.wait = Wait::Run;
            }
        }
    }
}
