//! FP8 strips: four columns of sixteen rows are a line of the cache, and a register has the four lanes of four rows.
#![allow(unsafe_code)]
// An index counts registers of several arrays at once.
#![allow(clippy::needless_range_loop)]

use super::dense::{self, WIDE, add_lanes};
use crate::{
    linear::{Dense, Factors, Job, LANES, Quads, STRIP},
    pool::Stripe,
    simd::avx2::{
        ahead::{self, Level},
        float8::{SCRATCH, Scratch, WORDS},
        put_all, rows_of,
    },
};
use std::arch::x86_64::*;

/// Up to so many tokens stream through a strip; for more its numbers are made once.
const FEW: usize = 4;

/// Fills a stripe of the result, of a weight in strips.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl")]
pub(super) fn stripe(job: &Job<'_>, out: &mut Stripe<'_>) {
    let (x, len) = job.input.dense(Dense::F32);
    let n = job.input.n();
    SCRATCH.with_borrow_mut(|Scratch { factors, tile }| {
        for first in (0..out.width()).step_by(STRIP) {
            let Some(strip) = job.strip(first) else { return };
            job.factors(first, factors);
            match n {
                1 => _ = put_all(out, 0, first, few(strip, factors, rows_of::<1>(x, len, 0))),
                2 => _ = put_all(out, 0, first, few(strip, factors, rows_of::<2>(x, len, 0))),
                3 => _ = put_all(out, 0, first, few(strip, factors, rows_of::<3>(x, len, 0))),
                FEW => _ = put_all(out, 0, first, few(strip, factors, rows_of::<4>(x, len, 0))),
                _ => {
                    decode(strip, factors, tile);
                    let mut t = 0;
                    while t < n {
                        t += match n - t {
                            6.. => put_all(out, t, first, dense::many(tile, rows_of::<6>(x, len, t))),
                            4 | 5 => put_all(out, t, first, dense::many(tile, rows_of::<4>(x, len, t))),
                            2 | 3 => put_all(out, t, first, dense::many(tile, rows_of::<2>(x, len, t))),
                            _ => put_all(out, t, first, dense::many(tile, rows_of::<1>(x, len, t))),
                        };
                    }
                }
            }
        }
    });
}

/// Products of a strip's rows with `T` tokens.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl")]
fn few<const T: usize>(strip: &[u8], factors: &Factors, x: [&[f32]; T]) -> [[f32; STRIP]; T] {
    let words = strip.as_chunks::<WORDS>().0;
    let each = (factors.columns / LANES).max(1);
    let (level, distance) = (Level::while_waiting(), ahead::distance(T));
    let mut sums = [[_mm512_setzero_ps(); WIDE]; T];
    for (i, (words, factors)) in words.chunks(each).zip(&factors.of_tiles).enumerate() {
        let of = registers(factors);
        let mut xs = [&[][..]; T];
        for t in 0..T {
            xs[t] = &x[t].as_chunks::<LANES>().0[i * each..][..words.len()];
        }
        for (j, word) in words.iter().enumerate() {
            if let Some(level) = level {
                level.ask(word.as_ptr().wrapping_add(distance));
            }
            let w = sixteen(word);
            for r in 0..WIDE {
                let w = _mm512_mul_ps(w[r], of[r]);
                for t in 0..T {
                    sums[t][r] = _mm512_fmadd_ps(dense::quad(&xs[t][j]), w, sums[t][r]);
                }
            }
        }
    }
    let mut out = [[0.0; STRIP]; T];
    for (out, sums) in out.iter_mut().zip(sums) {
        for (out, sums) in out.as_chunks_mut::<LANES>().0.iter_mut().zip(sums) {
            *out = add_lanes(sums);
        }
    }
    out
}

/// A strip's numbers, times their factors.
#[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl")]
fn decode(strip: &[u8], factors: &Factors, tile: &mut Vec<Quads>) {
    let words = strip.as_chunks::<WORDS>().0;
    let each = (factors.columns / LANES).max(1);
    tile.resize(words.len(), [[0.0; LANES]; STRIP]);
    for ((words, tile), factors) in words.chunks(each).zip(tile.chunks_mut(each)).zip(&factors.of_tiles) {
        let of = registers(factors);
        for (word, quads) in words.iter().zip(tile) {
            let w = sixteen(word);
            for (r, four) in quads.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
                // SAFETY: 64 bytes are written to an array of 64.
                unsafe { _mm512_storeu_ps(four.as_mut_ptr().cast(), _mm512_mul_ps(w[r], of[r])) };
            }
        }
    }
}

/// Four numbers of each of sixteen rows.
#[inline]
#[target_feature(enable = "avx512f")]
fn registers(quads: &Quads) -> [__m512; WIDE] {
    let mut all = [_mm512_setzero_ps(); WIDE];
    for (to, four) in all.iter_mut().zip(quads.as_chunks::<LANES>().0) {
        // SAFETY: 64 bytes are read from an array of 64.
        *to = unsafe { _mm512_loadu_ps(four.as_ptr().cast()) };
    }
    all
}

/// Four columns of sixteen rows in single precision, a 256th as large as they are.
#[inline]
#[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl")]
fn sixteen(bytes: &[u8; WORDS]) -> [__m512; WIDE] {
    let [low, high] = [halves(bytes, 0), halves(bytes, 1)];
    [
        _mm512_cvtph_ps(_mm512_castsi512_si256(low)),
        _mm512_cvtph_ps(_mm512_extracti64x4_epi64::<1>(low)),
        _mm512_cvtph_ps(_mm512_castsi512_si256(high)),
        _mm512_cvtph_ps(_mm512_extracti64x4_epi64::<1>(high)),
    ]
}

/// 32 bytes in half precision, a 256th as large: exponent and fraction have their places there, but for a bias that is eight more.
#[inline]
#[target_feature(enable = "avx2,avx512f,avx512bw,avx512vl")]
fn halves(bytes: &[u8; WORDS], i: usize) -> __m512i {
    assert!(i < 2);
    // SAFETY: 32 bytes of 64 are read, from the first or from the 32nd on.
    let bytes = unsafe { _mm256_loadu_si256(bytes.as_ptr().add(32 * i).cast()) };
    // The sign twice, then exponent and fraction.
    let wide = _mm512_slli_epi16::<7>(_mm512_cvtepi8_epi16(bytes));
    let all = _mm512_set1_epi16(0x3f80);
    let is_nan = _mm512_cmpeq_epi16_mask(_mm512_and_si512(wide, all), all);
    let once = _mm512_and_si512(wide, _mm512_set1_epi16(0xbfff_u16.cast_signed()));
    // One of them has all bits of exponent and fraction; with one more of the exponent it is none in half precision.
    _mm512_or_si512(once, _mm512_maskz_set1_epi16(is_nan, 0x4000))
}
