//! Asking memory for what a stream reads soon.
//!
//! Zen 5 is asked to bring it into the first cache, as what is read once need not pass by the second: two cores read K-quants
//! up to a tenth faster so. Others bring it into the second: the first has few buffers for lines on their way, and a line would need
//! one for as long as memory takes. Two cores of a Xeon with AMX read Q6_K at 77 % of plain reads before they were asked so, and now at 101 %,
//! Q4_K at 90 and 104 %; two Zen 4 cores multiply four tokens with Q4_0 at 1.24 times the rate, and eight with BF16 at 1.9 times.
//! Where memory takes longer than arithmetic, as it does for one token, Zen 4 does best if nothing is asked for ([`reads_ahead`]): it reads
//! ahead of whoever reads on in order.
#![allow(unsafe_code)]

use crate::simd::vendor::{self, asks_first, asks_near, reads_ahead};
use std::{
    arch::{asm, x86_64::*},
    sync::atomic::{AtomicUsize, Ordering, compiler_fence},
};

/// How many bytes ahead of what is being read: some blocks.
pub(in crate::simd) const AHEAD: usize = 6 << 10;
/// The same where it had better be near ([`asks_near`]).
const NEAR: usize = 2 << 10;
/// One of these, for one token: a choice in every block costs Q4_0 a twentieth of its rate in caches.
static OF_ONE: AtomicUsize = AtomicUsize::new(AHEAD);
/// Bytes of a line of the cache.
pub(in crate::simd) const LINE: usize = 64;

/// Finds out what holds of this processor. Whoever asks whether it has a path's instructions has called it.
pub(in crate::simd) fn look() {
    vendor::look();
    OF_ONE.store(if asks_near() { NEAR } else { AHEAD }, Ordering::Relaxed);
}

/// How many bytes ahead of what is being read a stream asks that meets so many tokens.
#[inline(always)]
pub(in crate::simd) fn distance(tokens: usize) -> usize {
    if tokens == 1 { OF_ONE.load(Ordering::Relaxed) } else { AHEAD }
}

/// The cache that lines of memory are brought into.
#[derive(Clone, Copy)]
pub(in crate::simd) enum Level {
    First,
    Second,
}

impl Level {
    /// This processor's.
    #[inline(always)]
    pub(in crate::simd) fn here() -> Self {
        if asks_first() { Self::First } else { Self::Second }
    }

    /// The same for a stream that waits for memory: none where the processor is left alone.
    #[inline(always)]
    pub(in crate::simd) fn while_waiting() -> Option<Self> {
        (!reads_ahead()).then(Self::here)
    }

    /// Asks for one line.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(in crate::simd) fn ask(self, at: *const u8) {
        match self {
            Self::First => ask(at),
            Self::Second => ask_second(at),
        }
    }
}

/// What a stream asks for while it reads a piece of a block: what lies so far ahead of it, be it in the next strip.
#[derive(Clone, Copy)]
pub(in crate::simd) struct Ahead {
    next: *const u8,
    lines: usize,
    /// Nothing is asked for where there is none.
    level: Option<Level>,
}

impl Ahead {
    /// Of piece `piece` of `pieces` of `block`, every line, if there is a level; [`distance`] says how far.
    #[inline(always)]
    pub(in crate::simd) fn of(
        block: &[u8],
        piece: usize,
        pieces: usize,
        level: Option<Level>,
        distance: usize,
    ) -> Self {
        let lines = block.len().div_ceil(LINE).div_ceil(pieces);
        let next = block.as_ptr().wrapping_add(distance + LINE * lines * piece);
        Self { next, lines, level }
    }

    /// Of what follows `bytes` in memory, as much again: for whoever has read them and is busy with them for a while.
    #[inline(always)]
    pub(in crate::simd) fn after(bytes: &[u8]) -> Self {
        let next = bytes.as_ptr().wrapping_add(bytes.len());
        Self { next, lines: bytes.len().div_ceil(LINE), level: Some(Level::here()) }
    }

    /// Asks for step `step`'s share, where the piece is read in `steps`: each time a line or two. A processor has room for few requests, and
    /// while a dozen at once wait for it nothing else goes on: two Zen 5 cores that ask for a quarter of a block of Q6_K in front of each
    /// quarter read at 88 to 90 % of plain reads, and at 97 to 98 % if they ask line by line.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(in crate::simd) fn ask(self, step: usize, steps: usize) {
        let (from, to) = (self.lines * step / steps, self.lines * (step + 1) / steps);
        // As often whatever the step: a loop that goes another number of times each keeps a compiler from writing out the steps.
        for line in from..from + self.lines.div_ceil(steps) {
            if let Some(level) = self.level
                && line < to
            {
                level.ask(self.next.wrapping_add(LINE * line));
            }
        }
    }
}

/// Keeps a compiler from moving reads over this place; it is no instruction. A processor that reads ahead of whoever reads on in order must find
/// that order: compiled with `target-cpu=native` for Zen 4, where nothing is asked for, one token of Q8_0 had its block's loads arranged
/// otherwise, and two cores read 86 to 92 % of what memory gives where it is slow, and 68 to 70 where it is fast. In order they read 96 to 99 and
/// 92 to 93.
#[inline(always)]
pub(in crate::simd) fn in_order() {
    compiler_fence(Ordering::SeqCst);
}

/// Asks for one line, into the first cache.
#[inline]
#[target_feature(enable = "avx2")]
pub(in crate::simd) fn ask(at: *const u8) {
    // SAFETY: a prefetch reads nothing and never faults, wherever it points.
    #[allow(unused_unsafe, reason = "older compilers have it as an unsafe function")]
    unsafe {
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
}

/// Asks for one line, into the second cache. It stays among the reads where it is written; what a compiler may move it puts together, and
/// bursts are what a processor has no room for.
#[inline(always)]
pub(in crate::simd) fn ask_second(at: *const u8) {
    // SAFETY: a prefetch changes nothing and never faults, wherever it points. All processors with AVX2 have it.
    unsafe { asm!("prefetcht1 byte ptr [{}]", in(reg) at, options(nostack, preserves_flags)) };
}
