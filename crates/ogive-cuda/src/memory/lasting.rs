//! Memory that lasts as long as a model: weights, cut end to end from slabs of whole pages.
//!
//! A page for the end of each weight costs a 1B model a tenth of its bytes, and one slab for all of them would need to know how much comes. So
//! a slab is as long as costs least by what is known when it is needed: what weights like that one leave of it, and its part of all there is,
//! as it may be the last. What is left goes to any that fit. What that takes of weights in their order is counted here too, by doing
//! it without a device.

use super::{PAGE, grained};
use crate::driver::Address;
use std::collections::BTreeMap;

/// A slab is no longer than this, unless one weight is. Longer ones serve the models of `crates/ogive-cli/src/synth/tests.rs` no better.
const LONGEST: usize = 36 << 20;

/// Slabs of which something is in use.
#[derive(Debug, Default)]
pub(super) struct Lasting {
    slabs: BTreeMap<Address, Slab>,
    /// Bytes of all slabs.
    held: usize,
}

#[derive(Debug)]
struct Slab {
    size: usize,
    /// Where nothing is, and how long; no two touch.
    gaps: BTreeMap<Address, usize>,
}

impl Lasting {
    /// Bytes of the slab for a piece that no gap holds; `None` if they cannot be counted.
    pub(super) fn wanted(&self, size: usize) -> Option<usize> {
        let least = size.checked_next_multiple_of(PAGE)?;
        let parts = |bytes: usize, of: usize| (bytes << 16) / of.max(1);
        let cost = |slab: &usize| parts(slab % size, *slab) + parts(*slab, self.held);
        // What is longer has no choice.
        (least..=least.max(LONGEST)).step_by(PAGE).min_by_key(cost)
    }

    /// Takes a slab in, of which the first `size` bytes are in use.
    pub(super) fn add(&mut self, at: Address, slab: usize, size: usize) {
        let rest = Some((at + size as u64, slab - size)).filter(|(_, left)| *left > 0);
        self.slabs.insert(at, Slab { size: slab, gaps: rest.into_iter().collect() });
        self.held += slab;
    }

    /// A piece of the smallest gap that holds it.
    pub(super) fn cut(&mut self, size: usize) -> Option<Address> {
        let slabs = self.slabs.values_mut();
        let fits = slabs.filter_map(|slab| {
            let gaps = slab.gaps.iter().map(|(at, len)| (*len, *at)).filter(|(len, _)| *len >= size);
            gaps.min().map(|gap| (gap, slab))
        });
        let ((len, at), slab) = fits.min_by_key(|(gap, _)| *gap)?;
        slab.gaps.remove(&at);
        if len > size {
            slab.gaps.insert(at + size as u64, len - size);
        }
        Some(at)
    }

    /// Takes a piece back; gives back where its slab is and how long, if nothing else of it is in use.
    pub(super) fn give(&mut self, mut at: Address, mut size: usize) -> Option<(Address, usize)> {
        let (&from, slab) = self.slabs.range_mut(..=at).next_back()?;
        if let Some(len) = slab.gaps.remove(&(at + size as u64)) {
            size += len;
        }
        let before = slab.gaps.range(..at).next_back().map(|(before, len)| (*before, *len));
        if let Some((before, len)) = before.filter(|(before, len)| before + *len as u64 == at) {
            (at, size) = (before, size + len);
        }
        if size < slab.size {
            slab.gaps.insert(at, size);
            return None;
        }
        self.slabs.remove(&from);
        self.held -= size;
        Some((from, size))
    }
}

/// Bytes that weights of so many take together, in the order in which they come; `None` if they cannot be counted.
pub(super) fn taken(sizes: impl IntoIterator<Item = u64>) -> Option<u64> {
    let mut all = Lasting::default();
    for size in sizes {
        let size = grained(usize::try_from(size).ok()?)?;
        if all.cut(size).is_none() {
            let slab = all.wanted(size)?;
            all.held.checked_add(slab)?;
            all.add(all.held as u64, slab, size);
        }
    }
    Some(all.held as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::GRAIN;

    impl Lasting {
        /// Bytes of all gaps.
        fn left(&self) -> usize {
            self.slabs.values().flat_map(|slab| slab.gaps.values()).sum()
        }
    }

    /// A driver that gives each slab a place of its own, some of them end to end.
    #[derive(Default)]
    struct Driver {
        next: Address,
        given: BTreeMap<Address, usize>,
    }

    impl Driver {
        fn take(&mut self, all: &mut Lasting, size: usize) -> Address {
            all.cut(size).unwrap_or_else(|| {
                let (at, slab) = (self.next, all.wanted(size).unwrap());
                assert!(slab >= size && slab.is_multiple_of(PAGE), "{slab} for {size}");
                self.next = at + slab as u64 + if size.is_multiple_of(3) { PAGE as u64 } else { 0 };
                self.given.insert(at, slab);
                all.add(at, slab, size);
                at
            })
        }

        fn give(&mut self, all: &mut Lasting, at: Address, size: usize) {
            if let Some((at, slab)) = all.give(at, size) {
                assert_eq!(self.given.remove(&at), Some(slab));
            }
        }
    }

    #[test]
    fn pieces_never_meet_and_all_of_them_make_slabs_whole() {
        let mut state = 1_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for round in 0..20 {
            let (mut all, mut driver, mut pieces) = (Lasting::default(), Driver::default(), BTreeMap::new());
            for _ in 0..500 {
                if random(5) < 2 && !pieces.is_empty() {
                    let nth = random(pieces.len() as u64) as usize;
                    let (at, size) = pieces.iter().nth(nth).map(|(at, size)| (*at, *size)).unwrap();
                    pieces.remove(&at);
                    driver.give(&mut all, at, size);
                } else {
                    let power = 8 + random(18);
                    let size = grained(1 + random(1 << power) as usize).unwrap();
                    let at = driver.take(&mut all, size);
                    assert!(pieces.insert(at, size).is_none() && at.is_multiple_of(GRAIN as u64));
                }
                // Each lies in a slab, behind the one before.
                let mut end = 0;
                for (&at, &size) in &pieces {
                    let (from, slab) = driver.given.range(..=at).next_back().unwrap();
                    assert!(at >= end && at + size as u64 <= from + *slab as u64, "{round}");
                    end = at + size as u64;
                }
                let (held, used) = (driver.given.values().sum::<usize>(), pieces.values().sum::<usize>());
                assert_eq!((all.held, all.left()), (held, held - used));
                for (from, slab) in &driver.given {
                    assert!(
                        pieces.range(from..&(from + *slab as u64)).next().is_some(),
                        "{round}: kept for none"
                    );
                }
            }
            for (at, size) in pieces {
                driver.give(&mut all, at, size);
            }
            assert!(driver.given.is_empty() && all.slabs.is_empty() && all.held == 0);
        }
    }

    #[test]
    fn what_is_left_goes_to_what_fits_it_best() {
        let (mut all, kib) = (Lasting::default(), 1 << 10);
        all.add(0, PAGE, PAGE - 600 * kib);
        all.add(4 * PAGE as u64, PAGE, PAGE - 500 * kib);
        let second = (5 * PAGE - 500 * kib) as u64;
        assert_eq!(all.cut(400 * kib), Some(second));
        assert_eq!(all.cut(600 * kib), Some((PAGE - 600 * kib) as u64));
        assert_eq!((all.cut(200 * kib), all.left()), (None, 100 * kib));
        assert_eq!(all.give(second, 400 * kib), None);
        assert_eq!(all.give(4 * PAGE as u64, PAGE - 500 * kib), Some((4 * PAGE as u64, PAGE)));
        assert_eq!((all.held, all.left()), (PAGE, 0));
    }

    #[test]
    fn a_slab_is_as_long_as_suits_its_pieces() {
        let (mut all, mib) = (Lasting::default(), 1 << 20);
        assert_eq!(all.wanted(GRAIN), Some(PAGE));
        assert_eq!(all.wanted(9 * mib), Some(10 * mib));
        all.add(0, 282 * mib, 282 * mib);
        assert_eq!(all.wanted(GRAIN), Some(PAGE));
        assert_eq!(all.wanted(9 * mib), Some(18 * mib));
        assert_eq!(all.wanted(17 * mib), Some(18 * mib));
        all.add(282 * mib as u64, 700 * mib, 700 * mib);
        assert_eq!(all.wanted(17 * mib), Some(34 * mib));
        assert_eq!(all.wanted(100 * mib), Some(100 * mib));
        assert_eq!(all.wanted(usize::MAX), None);
    }

    #[test]
    fn taken_is_counted_without_a_device() {
        assert_eq!(taken([]), Some(0));
        assert_eq!(taken([0, 1, 300]), Some(PAGE as u64));
        assert_eq!(taken([PAGE as u64 + 1, 5]), Some(2 * PAGE as u64));
        for sizes in [[u64::MAX, 1], [1, u64::MAX - PAGE as u64], [1 << 63, 1 << 63]] {
            assert_eq!(taken(sizes), None, "{sizes:?}");
        }
    }
}
