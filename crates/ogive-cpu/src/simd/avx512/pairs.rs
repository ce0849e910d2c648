//! A few tokens and pairs of bf16. The instruction makes so many products that one strip's words cannot be loaded fast enough beside the
//! activations of four tokens: two strips and up to eight tokens, ten loads for sixteen instructions, are of one lane at a time. All
//! tokens meet a part of the strips before the next comes, so that words that come again are in the first cache.
#![allow(unsafe_code)]
// Closures would not be inlined: the library functions that call them lack these instructions.
#![allow(clippy::needless_range_loop)]

use super::{
    columns::{PAIRS, SMALL_PAIRS, load, multiply, stay_normal_in},
    panel::{Both, ROWS, floats},
};
use crate::{
    linear::{Columns, Job, LANES, STRIP},
    pool::Stripe,
    simd::avx2::{ahead::Level, columns::word, panel::Lanes, put},
};
use std::{arch::x86_64::*, ops::Range};

/// Tokens of a piece at most.
pub(super) const TOGETHER: usize = 8;
/// Bytes of a strip that all tokens meet before the next come.
const CHUNK: usize = 4 << 10;
/// How far ahead a chunk is asked for: the farther half of the next one and the nearer half of that after it.
const AHEAD: usize = CHUNK / 2 * 3;

/// Fills a stripe of the result; what the sums of each token's lanes wait in is kept from run to run.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub(super) fn stripe(
    job: &Job<'_>,
    pieces: &[Columns],
    out: &mut Stripe<'_>,
    waiting: &mut Vec<[Both<f32>; LANES]>,
) {
    let n = job.input.n();
    for first in (0..out.width()).step_by(ROWS) {
        waiting.clear();
        waiting.resize(n, [[Lanes([0.0; STRIP]); 2]; LANES]);
        let strip = |first| job.strip(first).unwrap_or_default();
        // Rows of one strip alone are half of the work.
        let strips = 1 + usize::from(first + STRIP < out.width());
        if strips == 2 {
            add_products(job, [strip(first), strip(first + STRIP)], pieces, waiting);
        } else {
            add_products(job, [strip(first)], pieces, waiting);
        }
        for (t, sums) in waiting.iter().enumerate() {
            for r in 0..strips {
                let of = sums.each_ref().map(|both| floats(&both[r]));
                let mut row = Lanes([0.0; STRIP]);
                let halves = [_mm512_add_ps(of[0], of[1]), _mm512_add_ps(of[2], of[3])];
                store(&mut row, _mm512_add_ps(halves[0], halves[1]));
                put(out, t, first + r * STRIP, &row.0);
            }
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store(to: &mut Lanes<f32>, v: __m512) {
    // SAFETY: 64 bytes are written to an array of 64 that starts at a multiple of 64.
    unsafe { _mm512_store_ps(to.0.as_mut_ptr(), v) }
}

/// Adds the products of `R` strips' rows with all tokens to their sums.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn add_products<const R: usize>(
    job: &Job<'_>,
    strips: [&[u8]; R],
    pieces: &[Columns],
    sums: &mut [[Both<f32>; LANES]],
) {
    let steps = strips[0].len() / (LANES * word(PAIRS));
    assert!(strips.iter().all(|strip| strip.len() == LANES * steps * word(PAIRS)));
    let chunk = CHUNK / LANES / word(PAIRS);
    for start in (0..steps).step_by(chunk) {
        let some = start..steps.min(start + chunk);
        let mut t = 0;
        for piece in pieces {
            let (sums, part) = (&mut sums[t..t + piece.tokens], (some.clone(), t == 0));
            if stay_normal_in(job, piece) {
                tokens::<PAIRS, R>(strips, piece, part, sums);
            } else {
                tokens::<SMALL_PAIRS, R>(strips, piece, part, sums);
            }
            t += piece.tokens;
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn tokens<const KIND: u8, const R: usize>(
    strips: [&[u8]; R],
    piece: &Columns,
    part: (Range<usize>, bool),
    sums: &mut [[Both<f32>; LANES]],
) {
    match piece.tokens {
        8 => lanes::<KIND, R, 8>(strips, piece, part, sums),
        7 => lanes::<KIND, R, 7>(strips, piece, part, sums),
        6 => lanes::<KIND, R, 6>(strips, piece, part, sums),
        5 => lanes::<KIND, R, 5>(strips, piece, part, sums),
        4 => lanes::<KIND, R, 4>(strips, piece, part, sums),
        3 => lanes::<KIND, R, 3>(strips, piece, part, sums),
        2 => lanes::<KIND, R, 2>(strips, piece, part, sums),
        n => {
            assert_eq!(n, 1, "a piece is of at most {TOGETHER} tokens");
            lanes::<KIND, R, 1>(strips, piece, part, sums);
        }
    }
}

/// Goes on with the sums of a piece's tokens for some steps of the strips, a lane after the other; asks for what comes next, or not.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn lanes<const KIND: u8, const R: usize, const T: usize>(
    strips: [&[u8]; R],
    piece: &Columns,
    (steps, ahead): (Range<usize>, bool),
    sums: &mut [[Both<f32>; LANES]],
) {
    let each = strips[0].len() / (LANES * word(KIND));
    let words = strips.map(|s| &s[steps.start * LANES * word(KIND)..steps.end * LANES * word(KIND)]);
    let x = piece.values.as_chunks::<T>().0;
    let Some(sums) = sums.first_chunk_mut::<T>() else { return };
    for l in 0..LANES {
        lane::<KIND, R, T>(words, &x[l * each..][steps.clone()], l, ahead, sums);
    }
}

/// The same for lane `l`, whose activations these are.
// By itself the sums stay in registers; within the loops that call it a compiler puts them down after each product.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn lane<const KIND: u8, const R: usize, const T: usize>(
    words: [&[u8]; R],
    x: &[[u32; T]],
    l: usize,
    ahead: bool,
    sums: &mut [[Both<f32>; LANES]; T],
) {
    assert!(words.iter().all(|w| w.len() == x.len() * LANES * word(KIND)) && l < LANES);
    let mut now = [[_mm512_setzero_ps(); R]; T];
    for t in 0..T {
        for r in 0..R {
            now[t][r] = floats(&sums[t][l][r]);
        }
    }
    let level = Level::here();
    for (step, x) in x.iter().enumerate() {
        for r in 0..R {
            let w = words[r].as_ptr().wrapping_add((step * LANES + l) * word(KIND));
            if ahead {
                level.ask(w.wrapping_add(AHEAD));
            }
            // SAFETY: there are as many words as stands above.
            let w = unsafe { load::<KIND>(w) };
            for t in 0..T {
                now[t][r] = multiply::<KIND>(now[t][r], w, [x[t], 0]);
            }
        }
    }
    for t in 0..T {
        for r in 0..R {
            store(&mut sums[t][l][r], now[t][r]);
        }
    }
}
