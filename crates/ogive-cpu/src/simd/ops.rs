//! Runs a kernel written in safe Rust on the vectors that were found at start.
//!
//! A kernel is a struct with one inlined method: compiled here a second time for AVX2, its loops over arrays of fixed
//! length become vector instructions, and nothing is written twice. That leans on the optimiser; what it cannot find
//! (half-precision loads) is a method of [`Isa`]. Both compilations give the same bits: lanes never meet, and
//! multiply-adds are fused in both.

#![allow(unsafe_code)]

use super::Path;
use half::f16;

/// Elements handled together; also the number of partial sums of every reduction.
pub(crate) const LANES: usize = 16;

/// Work that profits from vectors. `run` must be `#[inline(always)]`, and so must all it calls in its loops.
pub(crate) trait Kernel {
    /// What comes out.
    type Out;
    /// Does the work.
    fn run<S: Isa>(self, isa: S) -> Self::Out;
}

/// A set of vector instructions that is known to be there.
pub(crate) trait Isa: Copy {
    /// Sixteen little-endian halves.
    fn halves(self, from: &[u8; 2 * LANES]) -> [f32; LANES];
}

/// Runs `kernel` on the vectors of `path`.
pub(crate) fn run<K: Kernel>(path: Path, kernel: K) -> K::Out {
    #[cfg(target_arch = "x86_64")]
    if path != Path::Scalar {
        // SAFETY: a path above scalar is made only where AVX2, FMA and F16C were detected.
        return unsafe { avx2::run(kernel) };
    }
    let _ = path;
    kernel.run(Scalar)
}

#[derive(Clone, Copy)]
struct Scalar;

impl Isa for Scalar {
    #[inline(always)]
    fn halves(self, from: &[u8; 2 * LANES]) -> [f32; LANES] {
        std::array::from_fn(|i| f16::from_le_bytes([from[2 * i], from[2 * i + 1]]).to_f32())
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{Isa, Kernel, LANES};
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm256_cvtph_ps, _mm256_storeu_ps};

    /// Made only inside [`run`], so whoever holds one may use AVX2, FMA and F16C.
    #[derive(Clone, Copy)]
    pub(super) struct Avx2(());

    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn run<K: Kernel>(kernel: K) -> K::Out {
        kernel.run(Avx2(()))
    }

    impl Isa for Avx2 {
        #[inline(always)]
        fn halves(self, from: &[u8; 2 * LANES]) -> [f32; LANES] {
            let mut out = [0.0; LANES];
            // SAFETY: `self` proves F16C; both loads and both stores stay inside the arrays, whose lengths are in
            // their types, and none needs alignment.
            unsafe {
                let from = from.as_ptr().cast::<__m128i>();
                _mm256_storeu_ps(out.as_mut_ptr(), _mm256_cvtph_ps(_mm_loadu_si128(from)));
                _mm256_storeu_ps(out.as_mut_ptr().add(8), _mm256_cvtph_ps(_mm_loadu_si128(from.add(1))));
            }
            out
        }
    }
}
