//! Dense rows times activations in single precision: a register has the four lanes of two rows.
#![allow(unsafe_code)]
// An index counts registers of several arrays at once.
#![allow(clippy::needless_range_loop)]

use crate::linear::{Dense, LANES, Quads, TILE, lay};
use std::arch::x86_64::*;

pub(super) const F32: u8 = Dense::F32 as u8;
pub(super) const F16: u8 = Dense::F16 as u8;
pub(super) const BF16: u8 = Dense::Bf16 as u8;

/// Rows that a stream through the weight takes together.
pub(super) const ROWS: usize = 8;
/// Registers of them.
const PAIRS: usize = ROWS / 2;
/// Elements that are read together.
const CHUNK: usize = 2 * LANES;

/// Products of eight rows, as the file has them, with `T` tokens; a chunk takes `BYTES`.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn few<const W: u8, const BYTES: usize, const T: usize>(
    kind: Dense,
    rows: [&[u8]; ROWS],
    x: [&[f32]; T],
) -> [[f32; ROWS]; T] {
    let whole = rows[0].len() / BYTES;
    let (no_row, no_token): (&[[u8; BYTES]], &[[f32; CHUNK]]) = (&[], &[]);
    let (mut ws, mut xs) = ([no_row; ROWS], [no_token; T]);
    for r in 0..ROWS {
        ws[r] = &rows[r].as_chunks().0[..whole];
    }
    for t in 0..T {
        xs[t] = &x[t].as_chunks().0[..whole];
    }
    let mut sums = [[_mm256_setzero_ps(); PAIRS]; T];
    for i in 0..whole {
        let mut x = [[_mm256_setzero_ps(); 2]; T];
        for t in 0..T {
            x[t] = twice(&xs[t][i]);
        }
        for p in 0..PAIRS {
            let w = read::<W>(&ws[2 * p][i], &ws[2 * p + 1][i]);
            for t in 0..T {
                sums[t][p] = _mm256_fmadd_ps(x[t][1], w[1], _mm256_fmadd_ps(x[t][0], w[0], sums[t][p]));
            }
        }
    }
    let rest = x.map(|x| x[whole * CHUNK..].as_chunks::<LANES>().0);
    let mut tile = [[[0.0; LANES]; TILE]; CHUNK / LANES];
    let tile = &mut tile[..rest[0].len()];
    let mut end = [0.0; CHUNK];
    for r in 0..if tile.is_empty() { 0 } else { ROWS } {
        kind.decode(&rows[r][whole * BYTES..], &mut end[..tile.len() * LANES]);
        lay(&end, r, tile);
    }
    for (i, quads) in tile.iter().enumerate() {
        for p in 0..PAIRS {
            for t in 0..T {
                sums[t][p] = _mm256_fmadd_ps(quad(&rest[t][i]), pair(quads, p), sums[t][p]);
            }
        }
    }
    let mut out = [[0.0; ROWS]; T];
    for t in 0..T {
        for p in 0..PAIRS {
            [out[t][2 * p], out[t][2 * p + 1]] = add_lanes(sums[t][p]);
        }
    }
    out
}

/// The twin of [`Dense::decode`].
#[target_feature(enable = "avx2,f16c")]
pub(in crate::simd) fn decode(kind: Dense, row: &[u8], out: &mut [f32]) {
    match kind {
        Dense::F32 => kind.decode(row, out),
        Dense::F16 => {
            let (whole, rest) = row.as_chunks::<{ 2 * CHUNK }>();
            let (to, end) = out.split_at_mut(whole.len() * CHUNK);
            for (w, o) in whole.iter().zip(to.as_chunks_mut().0) {
                store(_mm256_cvtph_ps(integers(w)), o);
            }
            kind.decode(rest, end);
        }
        Dense::Bf16 => {
            let (whole, rest) = row.as_chunks::<{ 2 * CHUNK }>();
            let (to, end) = out.split_at_mut(whole.len() * CHUNK);
            for (w, o) in whole.iter().zip(to.as_chunks_mut().0) {
                let both = _mm256_broadcastsi128_si256(integers(w));
                let [odd, even] = odd_even(both);
                store(_mm256_blend_ps::<0xf0>(odd, even), o);
            }
            kind.decode(rest, end);
        }
    }
}

/// Products of a tile's rows with `T` tokens, padded to as many elements.
#[target_feature(enable = "avx2,fma")]
pub(super) fn many<const T: usize>(tile: &[Quads], x: [&[f32]; T]) -> [[f32; TILE]; T] {
    let none: &[[f32; LANES]] = &[];
    let mut xs = [none; T];
    for t in 0..T {
        xs[t] = &x[t].as_chunks().0[..tile.len()];
    }
    let mut out = [[0.0; TILE]; T];
    for first in 0..TILE / ROWS {
        let mut sums = [[_mm256_setzero_ps(); PAIRS]; T];
        for (i, quads) in tile.iter().enumerate() {
            let mut x = [_mm256_setzero_ps(); T];
            for t in 0..T {
                x[t] = quad(&xs[t][i]);
            }
            for p in 0..PAIRS {
                let w = pair(quads, first * PAIRS + p);
                for t in 0..T {
                    sums[t][p] = _mm256_fmadd_ps(x[t], w, sums[t][p]);
                }
            }
        }
        for t in 0..T {
            for p in 0..PAIRS {
                let at = first * ROWS + 2 * p;
                [out[t][at], out[t][at + 1]] = add_lanes(sums[t][p]);
            }
        }
    }
    out
}

/// Both rows' lanes: neighbours are added, then pairs of them.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn add_lanes(s: __m256) -> [f32; 2] {
    let s = _mm256_add_ps(s, _mm256_permute_ps::<0b10_11_00_01>(s));
    let s = _mm256_add_ps(s, _mm256_permute_ps::<0b01_00_11_10>(s));
    [_mm256_cvtss_f32(s), _mm_cvtss_f32(_mm256_extractf128_ps::<1>(s))]
}

/// Four elements, for each of two rows.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn quad(x: &[f32; LANES]) -> __m256 {
    // SAFETY: 16 bytes are read from an array of 16.
    let x = unsafe { _mm_loadu_ps(x.as_ptr()) };
    _mm256_set_m128(x, x)
}

/// The same of a token's next eight.
#[inline]
#[target_feature(enable = "avx2")]
fn twice(x: &[f32; CHUNK]) -> [__m256; 2] {
    let quads = x.as_chunks().0;
    [quad(&quads[0]), quad(&quads[1])]
}

/// Rows `2 * p` and the next.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn pair(quads: &Quads, p: usize) -> __m256 {
    let both = &quads.as_chunks::<2>().0[p];
    // SAFETY: 32 bytes are read from an array of 32.
    unsafe { _mm256_loadu_ps(both.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn store(v: __m256, to: &mut [f32; CHUNK]) {
    // SAFETY: 32 bytes are written to an array of 32.
    unsafe { _mm256_storeu_ps(to.as_mut_ptr(), v) };
}

/// Eight elements of two rows, four of each in a register and in order.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn read<const W: u8>(a: &[u8], b: &[u8]) -> [__m256; 2] {
    match W {
        F32 => {
            let (low, high) = (join(integers(a), integers(b)), join(integers(&a[16..]), integers(&b[16..])));
            [_mm256_castsi256_ps(low), _mm256_castsi256_ps(high)]
        }
        F16 => {
            let (a, b) = (integers(a), integers(b));
            [_mm256_cvtph_ps(_mm_unpacklo_epi64(a, b)), _mm256_cvtph_ps(_mm_unpackhi_epi64(a, b))]
        }
        _ => odd_even(join(integers(a), integers(b))),
    }
}

/// The odd and the even elements of pairs of bf16.
#[inline]
#[target_feature(enable = "avx2")]
fn odd_even(pairs: __m256i) -> [__m256; 2] {
    let odd = _mm256_and_si256(pairs, _mm256_set1_epi32(0xffff_0000_u32.cast_signed()));
    [_mm256_castsi256_ps(odd), _mm256_castsi256_ps(_mm256_slli_epi32::<16>(pairs))]
}

#[inline]
#[target_feature(enable = "avx2")]
fn join(a: __m128i, b: __m128i) -> __m256i {
    _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(a), b)
}

/// Sixteen bytes.
#[inline]
#[target_feature(enable = "avx2")]
fn integers(b: &[u8]) -> __m128i {
    assert!(b.len() >= 16);
    // SAFETY: there are so many.
    unsafe { _mm_loadu_si128(b.as_ptr().cast()) }
}
