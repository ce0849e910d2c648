//! FP8 strips: four columns of sixteen rows are a line of the cache, and a register has the four lanes of two rows.
#![allow(unsafe_code)]
// An index counts registers of several arrays at once.
#![allow(clippy::needless_range_loop)]

use super::{dense, put_all, rows_of};
use crate::{
    linear::{Dense, Factors, Job, LANES, Quads, STRIP},
    pool::Stripe,
};
use std::{arch::x86_64::*, cell::RefCell};

/// Up to so many tokens stream through a strip; for more its numbers are made once.
const FEW: usize = 2;
/// Rows that have sums in registers, and registers of them.
const ROWS: usize = dense::ROWS;
const PAIRS: usize = ROWS / 2;
/// Bytes of four columns of a strip.
pub(in crate::simd) const WORDS: usize = LANES * STRIP;

/// What a thread keeps from run to run.
#[derive(Default)]
pub(in crate::simd) struct Scratch {
    pub(in crate::simd) factors: Factors,
    /// A strip's numbers.
    pub(in crate::simd) tile: Vec<Quads>,
}

thread_local! {
    pub(in crate::simd) static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Fills a stripe of the result, of a weight in strips.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn stripe(job: &Job<'_>, out: &mut Stripe<'_>) {
    let (x, len) = job.input.dense(Dense::F32);
    let n = job.input.n();
    SCRATCH.with_borrow_mut(|Scratch { factors, tile }| {
        for first in (0..out.width()).step_by(STRIP) {
            let Some(strip) = job.strip(first) else { return };
            job.factors(first, factors);
            match n {
                1 => _ = put_all(out, 0, first, few(strip, factors, rows_of::<1>(x, len, 0))),
                FEW => _ = put_all(out, 0, first, few(strip, factors, rows_of::<2>(x, len, 0))),
                _ => {
                    decode(strip, factors, tile);
                    for t in (0..n).step_by(3) {
                        match n - t {
                            1 => put_all(out, t, first, dense::many(tile, rows_of::<1>(x, len, t))),
                            2 => put_all(out, t, first, dense::many(tile, rows_of::<2>(x, len, t))),
                            _ => put_all(out, t, first, dense::many(tile, rows_of::<3>(x, len, t))),
                        };
                    }
                }
            }
        }
    });
}

/// Products of a strip's rows with `T` tokens.
#[target_feature(enable = "avx2,fma,f16c")]
fn few<const T: usize>(strip: &[u8], factors: &Factors, x: [&[f32]; T]) -> [[f32; STRIP]; T] {
    let words = strip.as_chunks::<WORDS>().0;
    let each = (factors.columns / LANES).max(1);
    let mut out = [[0.0; STRIP]; T];
    for first in 0..STRIP / ROWS {
        let mut sums = [[_mm256_setzero_ps(); PAIRS]; T];
        for (i, (words, factors)) in words.chunks(each).zip(&factors.of_tiles).enumerate() {
            let mut of = [_mm256_setzero_ps(); PAIRS];
            for p in 0..PAIRS {
                of[p] = dense::pair(factors, first * PAIRS + p);
            }
            let mut xs = [&[][..]; T];
            for t in 0..T {
                xs[t] = &x[t].as_chunks::<LANES>().0[i * each..][..words.len()];
            }
            for (j, word) in words.iter().enumerate() {
                let bytes = &word.as_chunks::<{ WORDS / 2 }>().0[first];
                let w = eight(bytes);
                for p in 0..PAIRS {
                    let w = _mm256_mul_ps(w[p], of[p]);
                    for t in 0..T {
                        sums[t][p] = _mm256_fmadd_ps(dense::quad(&xs[t][j]), w, sums[t][p]);
                    }
                }
            }
        }
        for t in 0..T {
            for p in 0..PAIRS {
                let at = first * ROWS + 2 * p;
                [out[t][at], out[t][at + 1]] = dense::add_lanes(sums[t][p]);
            }
        }
    }
    out
}

/// A strip's numbers, times their factors.
#[target_feature(enable = "avx2,f16c")]
fn decode(strip: &[u8], factors: &Factors, tile: &mut Vec<Quads>) {
    let words = strip.as_chunks::<WORDS>().0;
    let each = (factors.columns / LANES).max(1);
    tile.resize(words.len(), [[0.0; LANES]; STRIP]);
    for ((words, tile), factors) in words.chunks(each).zip(tile.chunks_mut(each)).zip(&factors.of_tiles) {
        for (word, quads) in words.iter().zip(tile) {
            for (first, bytes) in word.as_chunks::<{ WORDS / 2 }>().0.iter().enumerate() {
                let w = eight(bytes);
                for p in 0..PAIRS {
                    let both = first * PAIRS + p;
                    let v = _mm256_mul_ps(w[p], dense::pair(factors, both));
                    dense::store(
                        v,
                        quads.as_flattened_mut().as_chunks_mut().0.get_mut(both).unwrap_or(&mut [0.0; 8]),
                    );
                }
            }
        }
    }
}

/// Four columns of eight rows in single precision, a 256th as large as they are.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn eight(bytes: &[u8; WORDS / 2]) -> [__m256; PAIRS] {
    let [low, high] = [halves(bytes, 0), halves(bytes, 1)];
    let parts = |v: __m256i| [_mm256_castsi256_si128(v), _mm256_extracti128_si256::<1>(v)];
    let ([a, b], [c, d]) = (parts(low), parts(high));
    [_mm256_cvtph_ps(a), _mm256_cvtph_ps(b), _mm256_cvtph_ps(c), _mm256_cvtph_ps(d)]
}

/// Sixteen bytes in half precision, a 256th as large: exponent and fraction have their places there, but for a bias that is eight more.
#[inline]
#[target_feature(enable = "avx2")]
fn halves(bytes: &[u8; WORDS / 2], i: usize) -> __m256i {
    assert!(i < 2);
    // SAFETY: sixteen bytes of 32 are read, from the first or from the sixteenth on.
    let bytes = unsafe { _mm_loadu_si128(bytes.as_ptr().add(16 * i).cast()) };
    // The sign twice, then exponent and fraction.
    let wide = _mm256_slli_epi16::<7>(_mm256_cvtepi8_epi16(bytes));
    let all = _mm256_set1_epi16(0x3f80);
    let is_nan = _mm256_cmpeq_epi16(_mm256_and_si256(wide, all), all);
    let once = _mm256_and_si256(wide, _mm256_set1_epi16(0xbfff_u16.cast_signed()));
    _mm256_or_si256(once, _mm256_and_si256(is_nan, _mm256_set1_epi16(0x4000)))
}
