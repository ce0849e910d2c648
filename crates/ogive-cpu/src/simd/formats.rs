//! Packed formats as const parameters of kernels, and what is true of a format whatever the instructions.

use crate::linear::Packed;

pub(in crate::simd) const Q4_0: u8 = Packed::Q4_0 as u8;
pub(in crate::simd) const Q4_1: u8 = Packed::Q4_1 as u8;
pub(in crate::simd) const Q5_0: u8 = Packed::Q5_0 as u8;
pub(in crate::simd) const Q5_1: u8 = Packed::Q5_1 as u8;
pub(in crate::simd) const Q8_0: u8 = Packed::Q8_0 as u8;
pub(in crate::simd) const IQ4_NL: u8 = Packed::Iq4Nl as u8;
pub(in crate::simd) const MXFP4: u8 = Packed::Mxfp4 as u8;
#[cfg(target_arch = "x86_64")]
pub(in crate::simd) const NVFP4: u8 = Packed::Nvfp4 as u8;
pub(in crate::simd) const Q2_K: u8 = Packed::Q2K as u8;
pub(in crate::simd) const Q3_K: u8 = Packed::Q3K as u8;
pub(in crate::simd) const Q4_K: u8 = Packed::Q4K as u8;
pub(in crate::simd) const Q5_K: u8 = Packed::Q5K as u8;
pub(in crate::simd) const Q6_K: u8 = Packed::Q6K as u8;
pub(in crate::simd) const IQ4_XS: u8 = Packed::Iq4Xs as u8;
pub(in crate::simd) const TQ2: u8 = Packed::Tq2 as u8;
pub(in crate::simd) const CODED: u8 = Packed::Coded as u8;
/// The same of small codes that are raised by less, so that more of their products fit 16 bits: no weight's form, but that of panels.
pub(in crate::simd) const SMALL: u8 = u8::MAX;

/// Whether blocks have minima.
pub(in crate::simd) const fn has_min(f: u8) -> bool {
    matches!(f, Q4_1 | Q5_1 | Q2_K | Q4_K | Q5_K)
}

/// Elements of a scale block, of a strip at least.
#[cfg(target_arch = "x86_64")]
pub(in crate::simd) const fn elements(f: u8) -> usize {
    match f {
        _ if super_block(f) => 256,
        NVFP4 => 16,
        _ => 32,
    }
}

/// Whether a sub-scale of a superblock is for 16 elements, and not for 32.
pub(in crate::simd) const fn fine(f: u8) -> bool {
    matches!(f, Q2_K | Q3_K | Q6_K | TQ2 | CODED | SMALL)
}

/// Whether a scale block has 256 elements and sub-scales, and not 32.
pub(in crate::simd) const fn super_block(f: u8) -> bool {
    matches!(f, Q2_K | Q3_K | Q4_K | Q5_K | Q6_K | IQ4_XS | TQ2 | CODED | SMALL)
}
