//! Dense strips: sixteen rows, one lane for each, and the lanes of the sum one after the other.
//!
//! A few tokens stream through the weight, four chains of multiply-adds each; [many](mod@many) meet unpacked panels.
#![allow(unsafe_code)]
// Closures would not be inlined: the library functions that call them lack these instructions.
#![allow(clippy::needless_range_loop)]

mod many;

use super::{put_lanes, stream::AHEAD};
use crate::{
    linear::{Columns, Dense, Job, LANES, STRIP, Side, Strips, TOGETHER, stay_normal},
    pool::Stripe,
    simd::avx2::panel::Lanes,
};
use many::many;
use std::{arch::x86_64::*, sync::LazyLock};

/// What is multiplied: singles as they are, halves made singles, pairs of bf16 made singles, pairs with the instruction for them,
/// and pairs of which some product could be too small for it.
const F32: u8 = 0;
const F16: u8 = 1;
const ODD_EVEN: u8 = 2;
const PAIRS: u8 = 3;
const SMALL_PAIRS: u8 = 4;

/// Whether the instruction for pairs of bf16 makes more products than that for singles: on AMD it makes twice as many, on Intel
/// half as many.
pub(in crate::simd) fn are_pairs_fast() -> bool {
    static FAST: LazyLock<bool> = LazyLock::new(|| {
        let vendor = __cpuid(0);
        let is_amd = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes).concat() == b"AuthenticAMD";
        is_amd && is_x86_feature_detected!("avx512bf16")
    });
    *FAST
}

/// Fills a stripe of the result. Where the weight's side is pairs, the machine has the instruction for them.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) fn stripe(job: &Job<'_>, kind: Dense, side: Side, out: &mut Stripe<'_, f32>) {
    let pieces = job.input.columns(side);
    let few = job.input.n() <= Columns::FEW;
    match (kind, side) {
        (Dense::F32, _) if few => streamed::<F32>(job, pieces, out),
        (Dense::F16, _) if few => streamed::<F16>(job, pieces, out),
        (Dense::Bf16, Side::Pairs) if few => streamed::<PAIRS>(job, pieces, out),
        (Dense::Bf16, _) if few => streamed::<ODD_EVEN>(job, pieces, out),
        (Dense::F32, _) => many::<F32>(job, pieces, out),
        (Dense::F16, _) => many::<F16>(job, pieces, out),
        (Dense::Bf16, Side::Pairs) => many::<PAIRS>(job, pieces, out),
        (Dense::Bf16, _) => many::<ODD_EVEN>(job, pieces, out),
    }
}

/// Bytes of a word of sixteen rows.
const fn word(kind: u8) -> usize {
    if kind == F16 { 32 } else { 64 }
}

/// Steps of activations for one of the weight's.
const fn per_step(kind: u8) -> usize {
    if kind == ODD_EVEN { 2 } else { 1 }
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
fn streamed<const KIND: u8>(job: &Job<'_>, pieces: &[Columns], out: &mut Stripe<'_, f32>) {
    for first in (0..out.width()).step_by(STRIP) {
        let Some(strip) = job.strip(first) else { return };
        let mut t = 0;
        for piece in pieces {
            let small =
                KIND == PAIRS && !stay_normal(piece.least, job.w.strips().map_or(i32::MIN, Strips::least));
            t += match piece.tokens {
                4 if small => put_lanes(out, t, first, stream::<SMALL_PAIRS, 4>(strip, piece)),
                3 if small => put_lanes(out, t, first, stream::<SMALL_PAIRS, 3>(strip, piece)),
                2 if small => put_lanes(out, t, first, stream::<SMALL_PAIRS, 2>(strip, piece)),
                _ if small => put_lanes(out, t, first, stream::<SMALL_PAIRS, 1>(strip, piece)),
                4 => put_lanes(out, t, first, stream::<KIND, 4>(strip, piece)),
                3 => put_lanes(out, t, first, stream::<KIND, 3>(strip, piece)),
                2 => put_lanes(out, t, first, stream::<KIND, 2>(strip, piece)),
                _ => put_lanes(out, t, first, stream::<KIND, 1>(strip, piece)),
            };
        }
    }
}

/// Products of a strip's rows with `T` tokens.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn stream<const KIND: u8, const T: usize>(strip: &[u8], piece: &Columns) -> [Lanes<f32>; T] {
    let steps = strip.len() / (LANES * word(KIND));
    let each = steps * per_step(KIND);
    let x = &piece.values.as_chunks::<T>().0[..LANES * each];
    let quarter = TOGETHER * steps * word(KIND);
    assert!(strip.len() == LANES / TOGETHER * quarter);
    let mut quarters = [[_mm512_setzero_ps(); T]; LANES / TOGETHER];
    for g in 0..LANES / TOGETHER {
        let x = &x[g * TOGETHER * each..][..TOGETHER * each];
        let mut sums = [[_mm512_setzero_ps(); T]; TOGETHER];
        for step in 0..steps {
            for l in 0..TOGETHER {
                let at = g * quarter + (step * TOGETHER + l) * word(KIND);
                // SAFETY: the strip has as many words as stands above. A prefetch reads nothing, wherever it points.
                let w = unsafe {
                    let w = strip.as_ptr().add(at);
                    if word(KIND) == 64 || l % 2 == 0 {
                        _mm_prefetch::<_MM_HINT_T0>(w.wrapping_add(AHEAD).cast());
                    }
                    load::<KIND>(w)
                };
                for t in 0..T {
                    let at = l * each + step * per_step(KIND);
                    let x = [x[at][t], if KIND == ODD_EVEN { x[at + 1][t] } else { 0 }];
                    sums[l][t] = multiply::<KIND>(sums[l][t], w, x);
                }
            }
        }
        for t in 0..T {
            let halves = [_mm512_add_ps(sums[0][t], sums[1][t]), _mm512_add_ps(sums[2][t], sums[3][t])];
            quarters[g][t] = _mm512_add_ps(halves[0], halves[1]);
        }
    }
    let mut out = [Lanes([0.0; LANES]); T];
    for t in 0..T {
        let halves =
            [_mm512_add_ps(quarters[0][t], quarters[1][t]), _mm512_add_ps(quarters[2][t], quarters[3][t])];
        // SAFETY: 64 bytes are written to an array of 64 that starts at a multiple of 64.
        unsafe { _mm512_store_ps(out[t].0.as_mut_ptr(), _mm512_add_ps(halves[0], halves[1])) };
    }
    out
}

/// A word of sixteen rows as it is multiplied: one value of each, or the odd and the even one.
///
/// # Safety
/// There are [`word`] bytes.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn load<const KIND: u8>(w: *const u8) -> [__m512; 2] {
    // SAFETY: the caller says that there are so many bytes.
    unsafe {
        match KIND {
            F16 => [_mm512_cvtph_ps(_mm256_loadu_si256(w.cast())), _mm512_setzero_ps()],
            ODD_EVEN | SMALL_PAIRS => odd_even(_mm512_loadu_si512(w.cast())),
            _ => [_mm512_loadu_ps(w.cast()), _mm512_setzero_ps()],
        }
    }
}

/// The two numbers of each pair.
#[inline]
#[target_feature(enable = "avx512f")]
fn odd_even(pairs: __m512i) -> [__m512; 2] {
    let odd = _mm512_and_si512(pairs, _mm512_set1_epi32(0xffff_0000_u32.cast_signed()));
    [_mm512_castsi512_ps(odd), _mm512_castsi512_ps(_mm512_slli_epi32::<16>(pairs))]
}

/// `sum` and one step's products of sixteen rows with a token's values.
#[inline]
#[target_feature(enable = "avx512f")]
fn multiply<const KIND: u8>(sum: __m512, w: [__m512; 2], x: [u32; 2]) -> __m512 {
    let x = x.map(u32::cast_signed);
    match KIND {
        PAIRS => {
            let (mut sum, x) = (sum, _mm512_set1_epi32(x[0]));
            // SAFETY: it reads and writes registers. Whoever has pairs has the instruction.
            unsafe {
                std::arch::asm!("vdpbf16ps {}, {}, {}", inout(zmm_reg) sum, in(zmm_reg) w[0], in(zmm_reg) x,
                    options(pure, nomem, nostack, preserves_flags));
            }
            sum
        }
        SMALL_PAIRS => {
            let x = odd_even(_mm512_set1_epi32(x[0]));
            _mm512_fmadd_ps(x[1], w[1], _mm512_fmadd_ps(x[0], w[0], sum))
        }
        ODD_EVEN => {
            let x = [_mm512_set1_epi32(x[0]), _mm512_set1_epi32(x[1])];
            let sum = _mm512_fmadd_ps(_mm512_castsi512_ps(x[0]), w[0], sum);
            _mm512_fmadd_ps(_mm512_castsi512_ps(x[1]), w[1], sum)
        }
        _ => _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_set1_epi32(x[0])), w[0], sum),
    }
}
