//! Which bytes of an allocation were ever written: one bit for each.
//!
//! A bit for a byte and not for a word: kernels on f16 and i8 write half words, and a report must not depend on a neighbour.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// The bytes that were written.
#[derive(Debug)]
pub struct Written {
    bits: Box<[AtomicU64]>,
    bytes: u64,
    /// One write covered everything, as a copy of a weight does: then nobody has to look at bits.
    whole: AtomicBool,
}

impl Written {
    /// Nothing is written.
    pub(super) fn new(bytes: u64) -> Self {
        let bits = (0..bytes.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Self { bits, bytes, whole: AtomicBool::new(false) }
    }

    /// The parts of words that a range covers: index and mask.
    fn parts(&self, offset: u64, len: u64) -> impl Iterator<Item = (&AtomicU64, u64, u64)> {
        let end = offset.saturating_add(len);
        let words = if len == 0 { 0..0 } else { offset / 64..end.div_ceil(64) };
        words.filter_map(move |index| {
            let low = offset.saturating_sub(index * 64).min(63);
            let high = (end - index * 64).min(64);
            let mask = (!0u64 >> (64 - (high - low))) << low;
            Some((self.bits.get(usize::try_from(index).ok()?)?, mask, index * 64))
        })
    }

    /// Notes that `len` bytes from `offset` on hold something now. What lies beyond the end is ignored.
    #[inline]
    pub fn mark(&self, offset: u64, len: u64) {
        for (word, mask, _) in self.parts(offset, len) {
            if word.load(Relaxed) & mask != mask {
                word.fetch_or(mask, Relaxed);
            }
        }
        if offset == 0 && len >= self.bytes {
            self.whole.store(true, Relaxed);
        }
    }

    /// Whether one write covered everything. False does not say that something is unwritten.
    #[inline]
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.whole.load(Relaxed)
    }

    /// The first byte of the range that nothing wrote.
    #[inline]
    #[must_use]
    pub fn first_unwritten(&self, offset: u64, len: u64) -> Option<u64> {
        self.parts(offset, len).find_map(|(word, mask, base)| {
            let missing = !word.load(Relaxed) & mask;
            (missing != 0).then(|| base + u64::from(missing.trailing_zeros()))
        })
    }

    /// Carries the state of `len` bytes over from another allocation: a copy of what nothing wrote is not written either.
    pub fn copy_from(&self, offset: u64, source: &Self, from: u64, len: u64) {
        let mut at = 0;
        while at < len {
            let step = (len - at).min(64);
            match source.first_unwritten(from + at, step) {
                None => self.mark(offset + at, step),
                Some(_) => {
                    for byte in at..at + step {
                        if source.first_unwritten(from + byte, 1).is_none() {
                            self.mark(offset + byte, 1);
                        } else {
                            self.unmark(offset + byte);
                        }
                    }
                }
            }
            at += step;
        }
    }

    fn unmark(&self, offset: u64) {
        self.whole.store(false, Relaxed);
        for (word, mask, _) in self.parts(offset, 1) {
            word.fetch_and(!mask, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Written;

    #[test]
    fn ranges_across_words_are_kept_byte_by_byte() {
        let map = Written::new(200);
        assert_eq!(map.first_unwritten(0, 200), Some(0));
        map.mark(3, 130);
        assert_eq!(map.first_unwritten(3, 130), None);
        assert_eq!(map.first_unwritten(2, 4), Some(2));
        assert_eq!(map.first_unwritten(100, 50), Some(133));
        map.mark(133, 1000);
        assert_eq!(map.first_unwritten(3, 197), None);
        assert_eq!(map.first_unwritten(5, 0), None);
    }

    #[test]
    fn copies_carry_the_holes() {
        let (from, to) = (Written::new(100), Written::new(100));
        from.mark(0, 100);
        from.unmark(70);
        to.mark(0, 100);
        to.copy_from(1, &from, 0, 99);
        assert_eq!(to.first_unwritten(0, 100), Some(71));
    }
}
