//! Asking memory for what a stream reads soon.
//!
//! Into the first cache, as what is read once need not pass by the second: Zen 5 reads K-quants so at 98 % of plain reads where memory
//! gives 70 GB/s, and at 91 to 94 % if asked for the second cache alone. Some processors read ahead of whoever reads on in order, and
//! hold more requests for that than a program may make ([`reads_ahead`](crate::simd::vendor::reads_ahead)); but they stop at the end
//! of each page, and look less far than several tokens need time for. So there a stream that waits for memory asks for the heads of
//! pages alone. Any other asks for every line.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

/// How many bytes ahead of what is being read: some blocks.
pub(in crate::simd) const AHEAD: usize = 6 << 10;
/// Bytes after which processors stop reading ahead by themselves.
const PAGE: usize = 4 << 10;
const LINE: usize = 64;

/// Asks for what is [`AHEAD`] of piece `piece` of `pieces` of a block, be it in the next strip: for all of it, or for `heads` of pages
/// alone. It belongs before the piece is read and not in its midst, where a compiler would put all that is read in front of what
/// it is read for.
#[inline]
#[target_feature(enable = "avx2")]
pub(in crate::simd) fn look_ahead(heads: bool, block: &[u8], piece: usize, pieces: usize) {
    let lines = block.len().div_ceil(LINE).div_ceil(pieces);
    let next = block.as_ptr().wrapping_add(AHEAD + LINE * lines * piece);
    for line in 0..lines {
        let at = next.wrapping_add(LINE * line);
        if !heads || at.addr() % PAGE < LINE {
            ask(at);
        }
    }
}

/// Asks for one line.
#[inline]
#[target_feature(enable = "avx2")]
pub(in crate::simd) fn ask(at: *const u8) {
    // SAFETY: a prefetch reads nothing and never faults, wherever it points.
    #[allow(unused_unsafe, reason = "older compilers have it as an unsafe function")]
    unsafe {
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
}
