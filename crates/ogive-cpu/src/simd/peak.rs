//! Passes that do nothing but multiply and add into registers, as many at once as the units take: what a kernel reaches beside one
//! is what its loads, its unpacking and its scales leave over. And reading that does nothing else. Vectors are as wide as the machine has
//! them.
#![allow(unsafe_code)]

/// Rounds of a pass: some milliseconds.
const ROUNDS: usize = 1 << 20;

/// A pass that this machine can run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pass {
    run: unsafe fn(),
    /// Products of a round.
    products: usize,
}

impl Pass {
    /// Operations of one pass: two for each product.
    pub(crate) fn operations(self) -> f64 {
        2.0 * self.products as f64 * ROUNDS as f64
    }

    pub(crate) fn run(self) {
        // SAFETY: `passes` makes one only where its instructions were found.
        unsafe { (self.run)() }
    }
}

/// With 8-bit integers, bf16 and single precision.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn passes() -> [Option<Pass>; 3] {
    [None; 3]
}

/// With 8-bit integers, bf16 and single precision.
#[cfg(target_arch = "x86_64")]
pub(crate) fn passes() -> [Option<Pass>; 3] {
    use x86::{FEW, SUMS};
    let has512 = is_x86_feature_detected!("avx512f");
    let vnni = has512 && is_x86_feature_detected!("avx512vnni");
    let bf16 = has512 && is_x86_feature_detected!("avx512bf16");
    let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
    let pass = |run, products| Some(Pass { run, products });
    let int8 = match (vnni, avx2) {
        (true, _) => pass(x86::int8 as unsafe fn(), 64 * SUMS),
        (_, true) if is_x86_feature_detected!("avxvnni") => pass(x86::int8_avx_vnni, 32 * FEW),
        (_, true) => pass(x86::int8_narrow, 32 * FEW),
        _ => None,
    };
    let single = match (has512, avx2) {
        (true, _) => pass(x86::single, 16 * SUMS),
        (_, true) => pass(x86::single_narrow, 8 * FEW),
        _ => None,
    };
    [int8, if bf16 { pass(x86::bf16, 32 * SUMS) } else { None }, single]
}

/// The sum of all words of `bytes` but for a rest of less than 512 bytes.
pub(crate) fn read(bytes: &[u8]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the instructions were found.
            return unsafe { x86::read(bytes) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the instructions were found.
            return unsafe { x86::read_narrow(bytes) };
        }
    }
    sum(bytes)
}

/// Several sums side by side, so that nothing but memory is waited for.
#[inline(always)] // and compiled with the instructions of whoever calls it
fn sum(bytes: &[u8]) -> u64 {
    let mut sums = [0_u64; 64];
    for chunk in bytes.as_chunks::<8>().0.chunks_exact(sums.len()) {
        for (s, v) in sums.iter_mut().zip(chunk) {
            *s = s.wrapping_add(u64::from_ne_bytes(*v));
        }
    }
    sums.into_iter().fold(0, u64::wrapping_add)
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{ROUNDS, sum};
    use std::arch::x86_64::*;
    use std::hint::black_box;

    /// Sums that are added to at once: more than two units with a latency of five need.
    pub(super) const SUMS: usize = 16;
    /// The same where a vector has but sixteen registers, some of them for factors.
    pub(super) const FEW: usize = 12;

    #[target_feature(enable = "avx512f")]
    pub(super) fn read(bytes: &[u8]) -> u64 {
        sum(bytes)
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn read_narrow(bytes: &[u8]) -> u64 {
        sum(bytes)
    }

    #[target_feature(enable = "avx512f,avx512vnni")]
    pub(super) fn int8() {
        let (a, b) = (black_box(_mm512_set1_epi8(3)), black_box(_mm512_set1_epi8(-2)));
        let mut sums = [_mm512_setzero_si512(); SUMS];
        for _ in 0..ROUNDS {
            for s in &mut sums {
                *s = _mm512_dpbusd_epi32(*s, a, b);
            }
        }
        black_box(sums);
    }

    #[target_feature(enable = "avx2,avxvnni")]
    pub(super) fn int8_avx_vnni() {
        let (a, b) = (black_box(_mm256_set1_epi8(3)), black_box(_mm256_set1_epi8(-2)));
        let mut sums = [_mm256_setzero_si256(); FEW];
        for _ in 0..ROUNDS {
            for s in &mut sums {
                *s = _mm256_dpbusd_avx_epi32(*s, a, b);
            }
        }
        black_box(sums);
    }

    /// Three instructions for what one of VNNI does. A factor is the sum itself, or the products would be made only once.
    #[target_feature(enable = "avx2")]
    pub(super) fn int8_narrow() {
        let (a, ones) = (black_box(_mm256_set1_epi8(3)), black_box(_mm256_set1_epi16(1)));
        let mut sums = [black_box(_mm256_set1_epi8(-2)); FEW];
        for _ in 0..ROUNDS {
            for s in &mut sums {
                *s = _mm256_add_epi32(*s, _mm256_madd_epi16(_mm256_maddubs_epi16(a, *s), ones));
            }
        }
        black_box(sums);
    }

    #[target_feature(enable = "avx512f,avx512bf16")]
    pub(super) fn bf16() {
        let one = black_box(_mm512_set1_ps(0.5));
        let a = black_box(_mm512_cvtne2ps_pbh(one, one));
        let mut sums = [_mm512_setzero_ps(); SUMS];
        for _ in 0..ROUNDS {
            for s in &mut sums {
                *s = _mm512_dpbf16_ps(*s, a, a);
            }
        }
        black_box(sums);
    }

    #[target_feature(enable = "avx512f")]
    pub(super) fn single() {
        let (a, b) = (black_box(_mm512_set1_ps(0.5)), black_box(_mm512_set1_ps(0.25)));
        let mut sums = [_mm512_setzero_ps(); SUMS];
        for _ in 0..ROUNDS {
            for s in &mut sums {
                *s = _mm512_fmadd_ps(a, b, *s);
            }
        }
        black_box(sums);
    }

    #[target_feature(enable = "avx2,fma")]
    pub(super) fn single_narrow() {
        let (a, b) = (black_box(_mm256_set1_ps(0.5)), black_box(_mm256_set1_ps(0.25)));
        let mut sums = [_mm256_setzero_ps(); FEW];
        for _ in 0..ROUNDS {
            for s in &mut sums {
                *s = _mm256_fmadd_ps(a, b, *s);
            }
        }
        black_box(sums);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_meets_every_word() {
        let bytes: Vec<u8> = (0..1000_u64).flat_map(u64::to_ne_bytes).collect();
        assert_eq!([read(&bytes), sum(&bytes)], [(0..960_u64).sum::<u64>(); 2]);
    }
}
