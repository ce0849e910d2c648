//! Runs a kernel written in safe Rust on the vectors that were found at start.
//!
//! A kernel is a struct with one inlined method: compiled here again for AVX2, AVX-512 and NEON, its loops over arrays of fixed
//! length become vector instructions, and nothing is written twice. That leans on the optimiser; where it fails (half-
//! precision loads, several sums at once) a kernel says what it means with [`Isa`]. All compilations give the same bits:
//! lanes never meet, and multiply-adds are fused in all.

#![allow(unsafe_code)]

use super::Path;
use half::f16;

/// Elements handled together; also the number of partial sums of every reduction.
pub(crate) const LANES: usize = 16;

/// What [`Isa::SUMS`] is at most.
pub(crate) const SUMS: usize = 8;

/// Work that profits from vectors. `run` must be `#[inline(always)]`, and so must all it calls in its loops.
pub(crate) trait Kernel {
    /// What comes out.
    type Out;
    /// Does the work.
    fn run<S: Isa>(self, isa: S) -> Self::Out;
}

/// A set of vector instructions that is known to be there.
pub(crate) trait Isa: Copy {
    /// [`LANES`] numbers, in registers.
    type V: Copy;
    /// Sums that are under way at once for its multipliers to be busy, of [`LANES`] numbers each; at most [`SUMS`].
    const SUMS: usize;
    /// The same number in every lane.
    fn splat(self, x: f32) -> Self::V;
    /// Numbers from memory.
    fn load(self, from: &[f32; LANES]) -> Self::V;
    /// Numbers to memory.
    fn store(self, x: Self::V, to: &mut [f32; LANES]);
    /// The same past the caches, where `to` is the whole of a line of theirs and there are instructions for it.
    ///
    /// # Safety
    /// Before anybody reads or writes `to`, this thread calls [`Isa::settle`].
    unsafe fn store_past(self, x: Self::V, to: &mut [f32; LANES]) {
        self.store(x, to);
    }
    /// Has all see what [`Isa::store_past`] stored.
    fn settle(self) {}
    /// `a * b + c`, rounded once.
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// `a * b`
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    /// Asks for the line of the cache that holds `from`, so that it is near when it is read; reads nothing. On x86 into the second cache,
    /// which waits for more lines at a time than the first.
    #[inline(always)]
    fn ask(self, from: &u8) {
        let _ = from;
    }
    /// Little-endian halves.
    fn halves(self, from: &[u8; 2 * LANES]) -> Self::V;
    /// The same little-endian half in every lane.
    fn half(self, from: [u8; 2]) -> Self::V;
    /// Little-endian singles.
    fn singles(self, from: &[u8; 4 * LANES]) -> Self::V;
    /// The same to memory.
    fn put_singles(self, x: Self::V, to: &mut [u8; 4 * LANES]);
    /// Little-endian bf16.
    fn brains(self, from: &[u8; 2 * LANES]) -> Self::V;
    /// Signed bytes.
    fn bytes(self, from: &[u8; LANES]) -> Self::V;
}

/// Stores past the caches: for what nobody reads soon. It is there for all once this is dropped.
pub(crate) struct Past<S: Isa>(S);

impl<S: Isa> Past<S> {
    #[inline(always)]
    pub(crate) fn new(isa: S) -> Self {
        Self(isa)
    }
    /// Stores `x`, which is not to be read before this is dropped.
    #[inline(always)]
    pub(crate) fn store(&self, x: S::V, to: &mut [f32; LANES]) {
        // SAFETY: dropping this settles it, and who stores so does not read before.
        unsafe { self.0.store_past(x, to) }
    }
}

impl<S: Isa> Drop for Past<S> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.settle();
    }
}

/// Runs `kernel` on the vectors of `path`.
pub(crate) fn run<K: Kernel>(path: Path, kernel: K) -> K::Out {
    match path {
        // SAFETY: these paths are made only where AVX2, FMA and F16C were detected.
        #[cfg(target_arch = "x86_64")]
        Path::Avx2 | Path::AvxVnni => unsafe { avx2::run(kernel) },
        // SAFETY: this one only where AVX-512 (F, BW, VL) was detected with them.
        #[cfg(target_arch = "x86_64")]
        Path::Avx512 | Path::Amx => unsafe { avx512::run(kernel) },
        // SAFETY: these only where NEON was detected.
        #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
        Path::Neon | Path::NeonDotprod | Path::NeonI8mm => unsafe { neon::run(kernel) },
        _ => kernel.run(Scalar),
    }
}

/// What the others must equal.
#[derive(Clone, Copy)]
struct Scalar;

impl Isa for Scalar {
    type V = [f32; LANES];
    const SUMS: usize = 4;
    #[inline(always)]
    fn splat(self, x: f32) -> Self::V {
        [x; LANES]
    }
    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> Self::V {
        *from
    }
    #[inline(always)]
    fn store(self, x: Self::V, to: &mut [f32; LANES]) {
        *to = x;
    }
    #[inline(always)]
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        std::array::from_fn(|i| a[i].mul_add(b[i], c[i]))
    }
    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        std::array::from_fn(|i| a[i] * b[i])
    }
    #[inline(always)]
    fn halves(self, from: &[u8; 2 * LANES]) -> Self::V {
        std::array::from_fn(|i| f16::from_le_bytes([from[2 * i], from[2 * i + 1]]).to_f32())
    }
    #[inline(always)]
    fn half(self, from: [u8; 2]) -> Self::V {
        self.splat(f16::from_le_bytes(from).to_f32())
    }
    #[inline(always)]
    fn singles(self, from: &[u8; 4 * LANES]) -> Self::V {
        let word = |i: usize| [from[i], from[i + 1], from[i + 2], from[i + 3]];
        std::array::from_fn(|i| f32::from_le_bytes(word(4 * i)))
    }
    #[inline(always)]
    fn put_singles(self, x: Self::V, to: &mut [u8; 4 * LANES]) {
        to.as_chunks_mut().0.iter_mut().zip(x).for_each(|(to, x)| *to = x.to_le_bytes());
    }
    #[inline(always)]
    fn brains(self, from: &[u8; 2 * LANES]) -> Self::V {
        std::array::from_fn(|i| f32::from_le_bytes([0, 0, from[2 * i], from[2 * i + 1]]))
    }
    #[inline(always)]
    fn bytes(self, from: &[u8; LANES]) -> Self::V {
        from.map(|b| f32::from(b as i8))
    }
}

/// Waits until what was stored past the caches is there for all.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn fence() {
    // SAFETY: every 64-bit x86 has SSE.
    #[allow(unused_unsafe, reason = "older compilers have it as an unsafe function")]
    unsafe {
        std::arch::x86_64::_mm_sfence()
    };
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{Isa, Kernel, LANES};
    use std::arch::x86_64::*;

    /// Made only inside [`run`], so whoever holds one may use AVX2, FMA and F16C.
    #[derive(Clone, Copy)]
    pub(super) struct Avx2(());

    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn run<K: Kernel>(kernel: K) -> K::Out {
        kernel.run(Avx2(()))
    }

    impl Isa for Avx2 {
        type V = [__m256; 2];
        const SUMS: usize = 6;
        #[inline(always)]
        fn ask(self, from: &u8) {
            // SAFETY: a prefetch reads nothing and never faults.
            #[allow(unused_unsafe, reason = "older compilers have it as an unsafe function")]
            unsafe {
                _mm_prefetch::<_MM_HINT_T1>(std::ptr::from_ref(from).cast())
            };
        }
        #[inline(always)]
        fn splat(self, x: f32) -> Self::V {
            // SAFETY: `self` proves AVX.
            unsafe { [_mm256_set1_ps(x); 2] }
        }
        #[inline(always)]
        fn load(self, from: &[f32; LANES]) -> Self::V {
            // SAFETY: `self` proves AVX; both loads stay inside the array and need no alignment.
            unsafe { [_mm256_loadu_ps(from.as_ptr()), _mm256_loadu_ps(from.as_ptr().add(8))] }
        }
        #[inline(always)]
        fn store(self, x: Self::V, to: &mut [f32; LANES]) {
            // SAFETY: `self` proves AVX; both stores stay inside the array and need no alignment.
            unsafe {
                _mm256_storeu_ps(to.as_mut_ptr(), x[0]);
                _mm256_storeu_ps(to.as_mut_ptr().add(8), x[1]);
            }
        }
        #[inline(always)]
        unsafe fn store_past(self, x: Self::V, to: &mut [f32; LANES]) {
            let at = to.as_mut_ptr();
            if !at.addr().is_multiple_of(64) {
                return self.store(x, to);
            }
            // SAFETY: `self` proves AVX; both stores stay inside the array and are where they must be; the caller settles them.
            unsafe {
                _mm256_stream_ps(at, x[0]);
                _mm256_stream_ps(at.add(8), x[1]);
            }
        }
        #[inline(always)]
        fn settle(self) {
            super::fence();
        }
        #[inline(always)]
        fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
            // SAFETY: `self` proves FMA.
            unsafe { [_mm256_fmadd_ps(a[0], b[0], c[0]), _mm256_fmadd_ps(a[1], b[1], c[1])] }
        }
        #[inline(always)]
        fn mul(self, a: Self::V, b: Self::V) -> Self::V {
            // SAFETY: `self` proves AVX.
            unsafe { [_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1])] }
        }
        #[inline(always)]
        fn halves(self, from: &[u8; 2 * LANES]) -> Self::V {
            // SAFETY: `self` proves F16C; both loads stay inside the array and need no alignment.
            unsafe {
                let from = from.as_ptr().cast::<__m128i>();
                [_mm256_cvtph_ps(_mm_loadu_si128(from)), _mm256_cvtph_ps(_mm_loadu_si128(from.add(1)))]
            }
        }
        #[inline(always)]
        fn half(self, from: [u8; 2]) -> Self::V {
            // SAFETY: `self` proves F16C.
            unsafe { [_mm256_cvtph_ps(_mm_set1_epi16(i16::from_le_bytes(from))); 2] }
        }
        #[inline(always)]
        fn singles(self, from: &[u8; 4 * LANES]) -> Self::V {
            // SAFETY: `self` proves AVX; both loads stay inside the array and need no alignment, and any bytes are
            // numbers.
            unsafe {
                let from = from.as_ptr().cast::<f32>();
                [_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8))]
            }
        }
        #[inline(always)]
        fn put_singles(self, x: Self::V, to: &mut [u8; 4 * LANES]) {
            // SAFETY: `self` proves AVX; both stores stay inside the array and need no alignment.
            unsafe {
                let to = to.as_mut_ptr().cast::<f32>();
                _mm256_storeu_ps(to, x[0]);
                _mm256_storeu_ps(to.add(8), x[1]);
            }
        }
        #[inline(always)]
        fn brains(self, from: &[u8; 2 * LANES]) -> Self::V {
            // SAFETY: `self` proves AVX2; both loads stay inside the array and need no alignment.
            unsafe {
                let from = from.as_ptr().cast::<__m128i>();
                let one = |from| {
                    let words = _mm256_cvtepu16_epi32(_mm_loadu_si128(from));
                    _mm256_castsi256_ps(_mm256_slli_epi32::<16>(words))
                };
                [one(from), one(from.add(1))]
            }
        }
        #[inline(always)]
        fn bytes(self, from: &[u8; LANES]) -> Self::V {
            // SAFETY: `self` proves AVX2; the load is the array and needs no alignment.
            unsafe {
                let bytes = _mm_loadu_si128(from.as_ptr().cast());
                let one = |bytes| _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
                [one(bytes), one(_mm_srli_si128::<8>(bytes))]
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use super::{Isa, Kernel, LANES};
    use std::arch::x86_64::*;

    /// Made only inside [`run`], so whoever holds one may use AVX-512 (F, BW, VL).
    #[derive(Clone, Copy)]
    pub(super) struct Avx512(());

    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl")]
    pub(super) fn run<K: Kernel>(kernel: K) -> K::Out {
        kernel.run(Avx512(()))
    }

    impl Isa for Avx512 {
        type V = __m512;
        const SUMS: usize = 8;
        #[inline(always)]
        fn ask(self, from: &u8) {
            // SAFETY: a prefetch reads nothing and never faults.
            #[allow(unused_unsafe, reason = "older compilers have it as an unsafe function")]
            unsafe {
                _mm_prefetch::<_MM_HINT_T1>(std::ptr::from_ref(from).cast())
            };
        }
        #[inline(always)]
        fn splat(self, x: f32) -> Self::V {
            // SAFETY: `self` proves AVX-512.
            unsafe { _mm512_set1_ps(x) }
        }
        #[inline(always)]
        fn load(self, from: &[f32; LANES]) -> Self::V {
            // SAFETY: `self` proves AVX-512; the load is the array and needs no alignment.
            unsafe { _mm512_loadu_ps(from.as_ptr()) }
        }
        #[inline(always)]
        fn store(self, x: Self::V, to: &mut [f32; LANES]) {
            // SAFETY: `self` proves AVX-512; the store is the array and needs no alignment.
            unsafe { _mm512_storeu_ps(to.as_mut_ptr(), x) }
        }
        #[inline(always)]
        unsafe fn store_past(self, x: Self::V, to: &mut [f32; LANES]) {
            let at = to.as_mut_ptr();
            if !at.addr().is_multiple_of(64) {
                return self.store(x, to);
            }
            // SAFETY: `self` proves AVX-512; the store is the array and is where it must be; the caller settles it.
            unsafe { _mm512_stream_ps(at, x) }
        }
        #[inline(always)]
        fn settle(self) {
            super::fence();
        }
        #[inline(always)]
        fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
            // SAFETY: `self` proves AVX-512.
            unsafe { _mm512_fmadd_ps(a, b, c) }
        }
        #[inline(always)]
        fn mul(self, a: Self::V, b: Self::V) -> Self::V {
            // SAFETY: `self` proves AVX-512.
            unsafe { _mm512_mul_ps(a, b) }
        }
        #[inline(always)]
        fn halves(self, from: &[u8; 2 * LANES]) -> Self::V {
            // SAFETY: `self` proves AVX-512; the load is the array and needs no alignment.
            unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.as_ptr().cast())) }
        }
        #[inline(always)]
        fn half(self, from: [u8; 2]) -> Self::V {
            // SAFETY: `self` proves AVX-512.
            unsafe { _mm512_cvtph_ps(_mm256_set1_epi16(i16::from_le_bytes(from))) }
        }
        #[inline(always)]
        fn singles(self, from: &[u8; 4 * LANES]) -> Self::V {
            // SAFETY: `self` proves AVX-512; the load is the array and needs no alignment, and any bytes are numbers.
            unsafe { _mm512_loadu_ps(from.as_ptr().cast()) }
        }
        #[inline(always)]
        fn put_singles(self, x: Self::V, to: &mut [u8; 4 * LANES]) {
            // SAFETY: `self` proves AVX-512; the store is the array and needs no alignment.
            unsafe { _mm512_storeu_ps(to.as_mut_ptr().cast(), x) }
        }
        #[inline(always)]
        fn brains(self, from: &[u8; 2 * LANES]) -> Self::V {
            // SAFETY: `self` proves AVX-512; the load is the array and needs no alignment.
            unsafe {
                let words = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.as_ptr().cast()));
                _mm512_castsi512_ps(_mm512_slli_epi32::<16>(words))
            }
        }
        #[inline(always)]
        fn bytes(self, from: &[u8; LANES]) -> Self::V {
            // SAFETY: `self` proves AVX-512; the load is the array and needs no alignment.
            unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from.as_ptr().cast()))) }
        }
    }
}

#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
mod neon {
    use super::{Isa, Kernel, LANES};
    use crate::simd::neon::widen;
    use std::arch::aarch64::*;

    /// Made only inside [`run`], so whoever holds one may use NEON.
    #[derive(Clone, Copy)]
    pub(super) struct Neon(());

    #[target_feature(enable = "neon")]
    pub(super) fn run<K: Kernel>(kernel: K) -> K::Out {
        kernel.run(Neon(()))
    }

    impl Isa for Neon {
        type V = [float32x4_t; 4];
        const SUMS: usize = 6;
        #[inline(always)]
        fn splat(self, x: f32) -> Self::V {
            // SAFETY: `self` proves NEON.
            unsafe { [vdupq_n_f32(x); 4] }
        }
        #[inline(always)]
        fn load(self, from: &[f32; LANES]) -> Self::V {
            let from = from.as_ptr();
            // SAFETY: `self` proves NEON; four times four elements are the array.
            unsafe {
                [vld1q_f32(from), vld1q_f32(from.add(4)), vld1q_f32(from.add(8)), vld1q_f32(from.add(12))]
            }
        }
        #[inline(always)]
        fn store(self, x: Self::V, to: &mut [f32; LANES]) {
            for (x, to) in x.into_iter().zip(to.as_chunks_mut::<4>().0) {
                // SAFETY: `self` proves NEON; the store is the chunk.
                unsafe { vst1q_f32(to.as_mut_ptr(), x) };
            }
        }
        #[inline(always)]
        fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
            // SAFETY: `self` proves NEON.
            let one = |i: usize| unsafe { vfmaq_f32(c[i], a[i], b[i]) };
            [one(0), one(1), one(2), one(3)]
        }
        #[inline(always)]
        fn mul(self, a: Self::V, b: Self::V) -> Self::V {
            // SAFETY: `self` proves NEON.
            let one = |i: usize| unsafe { vmulq_f32(a[i], b[i]) };
            [one(0), one(1), one(2), one(3)]
        }
        #[inline(always)]
        fn halves(self, from: &[u8; 2 * LANES]) -> Self::V {
            // SAFETY: `self` proves NEON; four times eight bytes are the array.
            let one = |i: usize| unsafe { widen(vreinterpret_u16_u8(vld1_u8(from.as_ptr().add(8 * i)))) };
            [one(0), one(1), one(2), one(3)]
        }
        #[inline(always)]
        fn half(self, from: [u8; 2]) -> Self::V {
            // SAFETY: `self` proves NEON.
            unsafe { [widen(vdup_n_u16(u16::from_le_bytes(from))); 4] }
        }
        #[inline(always)]
        fn singles(self, from: &[u8; 4 * LANES]) -> Self::V {
            // SAFETY: `self` proves NEON; four times sixteen bytes are the array, and any bytes are numbers.
            let one = |i: usize| unsafe { vreinterpretq_f32_u8(vld1q_u8(from.as_ptr().add(16 * i))) };
            [one(0), one(1), one(2), one(3)]
        }
        #[inline(always)]
        fn put_singles(self, x: Self::V, to: &mut [u8; 4 * LANES]) {
            for (x, to) in x.into_iter().zip(to.as_chunks_mut::<16>().0) {
                // SAFETY: `self` proves NEON; the store is the chunk.
                unsafe { vst1q_u8(to.as_mut_ptr(), vreinterpretq_u8_f32(x)) };
            }
        }
        #[inline(always)]
        fn brains(self, from: &[u8; 2 * LANES]) -> Self::V {
            // SAFETY: `self` proves NEON; four times eight bytes are the array.
            let one = |i: usize| unsafe {
                let words = vreinterpret_u16_u8(vld1_u8(from.as_ptr().add(8 * i)));
                vreinterpretq_f32_u32(vshll_n_u16::<16>(words))
            };
            [one(0), one(1), one(2), one(3)]
        }
        #[inline(always)]
        fn bytes(self, from: &[u8; LANES]) -> Self::V {
            // SAFETY: `self` proves NEON; the load is the array.
            unsafe {
                let bytes = vld1q_s8(from.as_ptr().cast());
                let (low, high) = (vmovl_s8(vget_low_s8(bytes)), vmovl_high_s8(bytes));
                let one = |words| vcvtq_f32_s32(words);
                [
                    one(vmovl_s16(vget_low_s16(low))),
                    one(vmovl_high_s16(low)),
                    one(vmovl_s16(vget_low_s16(high))),
                    one(vmovl_high_s16(high)),
                ]
            }
        }
    }
}
