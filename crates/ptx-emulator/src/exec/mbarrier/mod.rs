//! Mbarriers: phases that end when all arrivals and all announced bytes are in.
//!
//! The state stands in a table beside shared memory, and the eight bytes in shared memory hold a summary that is compared at every
//! use: whoever writes over an mbarrier is found, and so is an mbarrier that was never made.

mod steps;

pub(crate) use steps::lower;

use std::collections::BTreeMap;

use crate::check::clocks::{Clock, join};

/// The largest number of arrivals, and of bytes announced and not yet come.
const LIMIT: u32 = (1 << 20) - 1;

/// The mbarriers of a block, by their offset in shared memory.
#[derive(Debug, Default)]
pub(crate) struct Mbarriers {
    table: BTreeMap<usize, Mbarrier>,
    /// Polls in vain since anything happened to any of them.
    vain: u32,
}

/// One mbarrier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mbarrier {
    /// Phases that are complete.
    phase: u64,
    /// Arrivals each phase waits for.
    expected: u32,
    /// Arrivals the current phase still waits for.
    pending: u32,
    /// Bytes announced and not yet come; below zero where they came first.
    bytes: i64,
    /// A wait for the current phase failed.
    waited: bool,
    /// What those who arrived in the current phase did before.
    arriving: Clock,
    /// What those who arrived in complete phases did before.
    arrived: Clock,
}

/// What a wait waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The phase in which this state was given.
    State(u64),
    /// The phase with this parity, which is the current one or the one before.
    Parity(u32),
}

impl Mbarriers {
    /// A block begins.
    pub(crate) fn reset(&mut self) {
        self.table.clear();
        self.vain = 0;
    }

    /// A wait failed in all lanes.
    pub(crate) fn polled_in_vain(&mut self) {
        self.vain = self.vain.saturating_add(1);
    }

    /// Whether so many polls failed while nothing happened that nothing will, if all warps wait for mbarriers.
    pub(crate) fn stuck(&self) -> bool {
        self.vain > 1 << 16
    }

    /// A warp runs that does not wait for an mbarrier, or waits for something outside: it may yet arrive.
    pub(crate) fn others_go_on(&mut self) {
        self.vain = 0;
    }

    /// What the mbarriers wait for, for the report of a deadlock.
    pub(crate) fn describe(&self) -> Vec<String> {
        self.table.iter().take(32).map(|(at, mbarrier)| mbarrier.describe(*at)).collect()
    }

    pub(crate) fn get(&self, at: usize) -> Option<&Mbarrier> {
        self.table.get(&at)
    }

    pub(crate) fn get_mut(&mut self, at: usize) -> Option<&mut Mbarrier> {
        self.vain = 0;
        self.table.get_mut(&at)
    }

    /// Whether a wait for the current phase failed before; this one does.
    pub(crate) fn waited_before(&mut self, at: usize) -> bool {
        self.table.get_mut(&at).is_some_and(|mbarrier| std::mem::replace(&mut mbarrier.waited, true))
    }

    fn insert(&mut self, at: usize, mbarrier: Mbarrier) {
        self.vain = 0;
        self.table.insert(at, mbarrier);
    }

    fn remove(&mut self, at: usize) {
        self.vain = 0;
        self.table.remove(&at);
    }
}

impl Mbarrier {
    /// A new one, in phase 0.
    pub(crate) fn new(count: u32) -> Result<Self, String> {
        if count == 0 || count > LIMIT {
            return Err(format!("mbarrier.init with a count of {count}; 1 to {LIMIT} is allowed"));
        }
        Ok(Self { expected: count, pending: count, ..Self::default() })
    }

    /// What stands in shared memory.
    pub(crate) fn summary(&self) -> u64 {
        let bytes = self.bytes as u64 & ((1 << 21) - 1);
        u64::from(self.expected) << 44 | u64::from(self.pending) << 24 | bytes << 3 | (self.phase & 7)
    }

    fn describe(&self, at: usize) -> String {
        let mut text = format!(
            "the mbarrier at {at:#x} is in phase {} and waits for {} of {} arrivals",
            self.phase, self.pending, self.expected
        );
        if self.bytes != 0 {
            text += &format!(" and for {} bytes", self.bytes);
        }
        text
    }

    /// An arrival that counts for `count`; gives the state before it. With `drop`, later phases wait for as many fewer.
    pub(crate) fn arrive(&mut self, count: u32, drop: bool, clock: &[u32]) -> Result<u64, String> {
        let state = self.state();
        if count == 0 || count > LIMIT {
            return Err(format!("an arrival that counts for {count}; 1 to {LIMIT} is allowed"));
        }
        if count > self.pending {
            return Err(format!(
                "an arrival that counts for {count} where phase {} waits for {} more of {}",
                self.phase, self.pending, self.expected
            ));
        }
        self.pending -= count;
        if drop {
            // Never below zero: more than are pending cannot arrive, and no fewer are expected than are pending.
            self.expected = self.expected.saturating_sub(count);
        }
        join(&mut self.arriving, clock);
        self.settle();
        Ok(state)
    }

    /// One more arrival is waited for in this phase.
    pub(crate) fn await_one_more(&mut self) -> Result<(), String> {
        if self.pending >= LIMIT {
            return Err(format!("more than {LIMIT} pending arrivals"));
        }
        self.pending += 1;
        Ok(())
    }

    /// `count` bytes are announced.
    pub(crate) fn expect(&mut self, count: u32) -> Result<(), String> {
        self.bytes += i64::from(count);
        self.in_range()?;
        self.settle();
        Ok(())
    }

    /// `count` bytes have come.
    pub(crate) fn complete(&mut self, count: u32, clock: &[u32]) -> Result<(), String> {
        self.bytes -= i64::from(count);
        self.in_range()?;
        join(&mut self.arriving, clock);
        self.settle();
        Ok(())
    }

    fn in_range(&self) -> Result<(), String> {
        if self.bytes.unsigned_abs() > u64::from(LIMIT) {
            return Err(format!("a count of {} bytes, where at most {LIMIT} are counted", self.bytes));
        }
        Ok(())
    }

    /// What a wait that succeeds takes in.
    pub(crate) fn knowledge(&self) -> Clock {
        self.arrived.clone()
    }

    /// Arrivals that the phase still waits for.
    pub(crate) fn missing(&self) -> u32 {
        self.pending
    }

    /// Whether `arrivals` and `bytes` more would end the phase.
    pub(crate) fn would_complete(&self, arrivals: u32, bytes: i64) -> bool {
        self.pending == arrivals && self.bytes == bytes
    }

    /// All are here, and more bytes come than were announced.
    pub(crate) fn would_overrun(&self, arrivals: u32, bytes: i64) -> bool {
        self.pending == arrivals && self.bytes < bytes
    }

    fn settle(&mut self) {
        if self.pending == 0 && self.bytes == 0 {
            self.phase += 1;
            self.waited = false;
            self.pending = self.expected;
            let clock = std::mem::take(&mut self.arriving);
            join(&mut self.arrived, &clock);
        }
    }

    fn state(&self) -> u64 {
        self.phase << 20 | u64::from(self.pending)
    }

    /// The pending arrivals that a state recorded.
    pub(crate) fn pending_of(state: u64) -> u32 {
        state as u32 & LIMIT
    }

    /// Whether the phase waited for is complete.
    pub(crate) fn passed(&self, wait: Wait) -> Result<bool, String> {
        match wait {
            Wait::Parity(parity) if parity > 1 => Err(format!("a phase parity of {parity}; it is 0 or 1")),
            Wait::Parity(parity) => Ok(self.phase & 1 != u64::from(parity)),
            Wait::State(state) => match self.phase.checked_sub(state >> 20) {
                Some(0) => Ok(false),
                Some(1) => Ok(true),
                _ => Err(format!(
                    "a state from phase {}, where the mbarrier is in phase {}; only a state of this phase or the one before can be \
                     waited for",
                    state >> 20,
                    self.phase
                )),
            },
        }
    }

    /// In use: some have arrived in this phase, or bytes are announced.
    pub(crate) fn busy(&self) -> bool {
        self.pending != self.expected || self.bytes != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_ends_with_the_last_arrival() {
        let mut m = Mbarrier::new(3).unwrap();
        let first = m.arrive(1, false, &[]).unwrap();
        assert_eq!(Mbarrier::pending_of(first), 3);
        assert!(!m.passed(Wait::State(first)).unwrap());
        assert!(!m.passed(Wait::Parity(0)).unwrap());
        assert!(m.passed(Wait::Parity(1)).unwrap());
        let last = m.arrive(2, false, &[]).unwrap();
        assert_eq!(Mbarrier::pending_of(last), 2);
        for state in [first, last] {
            assert!(m.passed(Wait::State(state)).unwrap());
        }
        assert!(m.passed(Wait::Parity(0)).unwrap());
        assert!(!m.passed(Wait::Parity(1)).unwrap());
        m.arrive(3, false, &[]).unwrap();
        assert!(m.passed(Wait::State(first)).is_err(), "two phases ago");
        assert!(m.passed(Wait::State(9 << 20)).is_err(), "a phase to come");
        assert!(m.passed(Wait::Parity(2)).is_err());
    }

    #[test]
    fn bytes_hold_a_phase_open_and_may_come_first() {
        let mut m = Mbarrier::new(1).unwrap();
        m.expect(64).unwrap();
        m.arrive(1, false, &[]).unwrap();
        assert!(!m.passed(Wait::Parity(0)).unwrap());
        m.complete(48, &[]).unwrap();
        assert!(!m.passed(Wait::Parity(0)).unwrap());
        m.complete(16, &[]).unwrap();
        assert!(m.passed(Wait::Parity(0)).unwrap());
        m.complete(32, &[]).unwrap();
        m.expect(32).unwrap();
        assert!(!m.passed(Wait::Parity(1)).unwrap());
        m.arrive(1, false, &[]).unwrap();
        assert!(m.passed(Wait::Parity(1)).unwrap());
    }

    #[test]
    fn counts_have_limits() {
        assert!(Mbarrier::new(0).is_err());
        assert!(Mbarrier::new(1 << 20).is_err());
        let mut m = Mbarrier::new(LIMIT).unwrap();
        assert!(m.await_one_more().is_err());
        assert!(m.arrive(0, false, &[]).is_err());
        assert!(m.expect(LIMIT).is_ok());
        assert!(m.expect(1).is_err());
        let mut m = Mbarrier::new(2).unwrap();
        assert!(m.arrive(3, false, &[]).is_err());
        m.arrive(1, false, &[]).unwrap();
        assert!(m.arrive(2, false, &[]).is_err());
    }

    #[test]
    fn dropping_out_counts_for_later_phases() {
        let mut m = Mbarrier::new(2).unwrap();
        m.arrive(1, true, &[]).unwrap();
        m.arrive(1, false, &[]).unwrap();
        assert!(m.passed(Wait::Parity(0)).unwrap());
        m.arrive(1, false, &[]).unwrap();
        assert!(m.passed(Wait::Parity(1)).unwrap(), "one is enough now");
        assert!(!m.busy());
    }

    #[test]
    fn clocks_pass_with_the_phase() {
        let mut m = Mbarrier::new(2).unwrap();
        m.arrive(1, false, &[3, 1]).unwrap();
        assert!(m.arrived.is_empty());
        m.arrive(1, false, &[1, 5]).unwrap();
        assert_eq!(m.arrived, [3, 5]);
    }
}
