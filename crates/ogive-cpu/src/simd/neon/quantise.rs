//! Activations to 8 bits.
#![allow(unsafe_code)]

use crate::linear::{Quantised, block_len, factors};
use std::arch::aarch64::*;

/// The twin of [`Quantised::fill`].
#[target_feature(enable = "neon")]
pub(in crate::simd) fn quantise(x: &[f32], out: &mut Quantised) {
    let len = block_len(x.len());
    let blocks = x.chunks_exact(len).zip(out.codes.chunks_exact_mut(len));
    let blocks = blocks.zip(out.sums.chunks_exact_mut(len / 16)).zip(&mut out.scales);
    for (((x, codes), sums), scale) in blocks {
        let (inverse, s) = factors(largest(x));
        *scale = s;
        let Some(inverse) = inverse else {
            codes.fill(0);
            sums.fill(0);
            continue;
        };
        let parts = x.as_chunks::<16>().0.iter().zip(codes.as_chunks_mut::<16>().0);
        for ((x, codes), sum) in parts.zip(sums) {
            // SAFETY: the array has four times four elements.
            let at = |i: usize| unsafe { vld1q_f32(x.as_ptr().add(4 * i)) };
            // To nearest, ties to even.
            let round = |i: usize| vmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(at(i), inverse)));
            let low = vmovn_s16(vcombine_s16(round(0), round(1)));
            let high = vmovn_s16(vcombine_s16(round(2), round(3)));
            let v = vcombine_s8(low, high);
            // SAFETY: 16 bytes are written to an array of 16.
            unsafe { vst1q_s8(codes.as_mut_ptr(), v) };
            *sum = vaddlvq_s8(v);
        }
    }
}

/// The largest magnitude; infinite or not a number if any element is.
#[inline]
#[target_feature(enable = "neon")]
fn largest(x: &[f32]) -> f32 {
    let mut max = [vdupq_n_u32(0); 4];
    for x in x.as_chunks::<16>().0 {
        for (i, max) in max.iter_mut().enumerate() {
            // SAFETY: 16 bytes are read from each quarter of an array of 64.
            let v = unsafe { vld1q_u32(x.as_ptr().add(4 * i).cast()) };
            // Without their signs the order of floats is that of integers.
            *max = vmaxq_u32(*max, vbicq_u32(v, vdupq_n_u32(1 << 31)));
        }
    }
    let max = vmaxq_u32(vmaxq_u32(max[0], max[1]), vmaxq_u32(max[2], max[3]));
    f32::from_bits(vmaxvq_u32(max))
}
