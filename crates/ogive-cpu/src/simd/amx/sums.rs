//! Sums on their way from tiles to registers with a lane for each row, and from there to a group's.
#![allow(unsafe_code)]

use super::tile::Sums;
use crate::{linear::GROUP, simd::avx2::panel::Lanes};
use std::arch::x86_64::*;

/// The sums of a group's tokens with a strip.
pub(super) type Out = [Lanes<f32>; GROUP];

/// Where tiles are written to be read as rows: those of a unit of a superblock, or the first of them a block.
pub(super) struct Written {
    /// For each half of the tokens each plane.
    pub(super) planes: [[Sums<i32>; 3]; 2],
    /// For each half of the tokens the minima.
    pub(super) low: [Sums<f32>; 2],
}

impl Default for Written {
    fn default() -> Self {
        Self { planes: [[Sums([[0; 16]; 16]); 3]; 2], low: [Sums([[0.0; 16]; 16]); 2] }
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn row(v: &[i32; 16]) -> __m512i {
    // SAFETY: the array has 64 bytes.
    unsafe { _mm512_loadu_si512(v.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn single(v: &[f32; 16]) -> __m512 {
    // SAFETY: the array has 64 bytes.
    unsafe { _mm512_loadu_ps(v.as_ptr()) }
}

/// `to += a * b`, rounded once; the `first` begins with zero.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn add(to: &mut Lanes<f32>, a: __m512, b: __m512, first: bool) {
    // SAFETY: the array has 64 bytes and starts at a multiple of 64.
    unsafe {
        let so_far = if first { _mm512_setzero_ps() } else { _mm512_load_ps(to.0.as_ptr()) };
        _mm512_store_ps(to.0.as_mut_ptr(), _mm512_fmadd_ps(a, b, so_far));
    }
}
