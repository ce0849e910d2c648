//! The rates at which this machine computes: the ceilings of reading a prompt, where each weight meets hundreds of tokens.
//!
//! Nothing but multiply-adds into registers, as many at once as the units take; what a kernel reaches beside it is what
//! its loads, its unpacking and its scales leave over. Vectors are as wide as the machine has them.
#![allow(unsafe_code)]

use serde::Serialize;
use std::hint::black_box;
use std::thread;
use std::time::Instant;

/// Sums that are added to at once: more than two units with a latency of five need.
const SUMS: usize = 16;
/// Rounds of a pass: some milliseconds.
const ROUNDS: usize = 1 << 20;
/// Passes of which the best counts.
const PASSES: usize = 3;

/// Operations a second by all threads together; a multiplication and an addition are two. `None` where the machine has no
/// instruction for it.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Peaks {
    /// 8-bit integers, sums of 32 bits.
    pub(crate) int8: Option<f64>,
    /// bf16, sums in single precision.
    pub(crate) bf16: Option<f64>,
    /// Single precision.
    pub(crate) f32: Option<f64>,
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn measure(_threads: usize) -> Peaks {
    Peaks::default()
}

/// Measures for a fraction of a second.
#[cfg(target_arch = "x86_64")]
pub(crate) fn measure(threads: usize) -> Peaks {
    let has512 = is_x86_feature_detected!("avx512f");
    let int8 = has512 && is_x86_feature_detected!("avx512vnni");
    let bf16 = has512 && is_x86_feature_detected!("avx512bf16");
    let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
    // SAFETY: each is only called where its instructions were found.
    unsafe {
        Peaks {
            int8: int8.then(|| rate(threads, 64, || x86::int8())),
            bf16: bf16.then(|| rate(threads, 32, || x86::bf16())),
            f32: match (has512, avx2) {
                (true, _) => Some(rate(threads, 16, || x86::wide())),
                (_, true) => Some(rate(threads, 8, || x86::narrow())),
                _ => None,
            },
        }
    }
}

/// Operations a second of a pass with so many products an instruction, on all threads at once.
fn rate(threads: usize, products: usize, pass: impl Fn() + Sync) -> f64 {
    let all = || {
        let start = Instant::now();
        thread::scope(|s| {
            for _ in 0..threads {
                s.spawn(&pass);
            }
        });
        (2 * products * SUMS * ROUNDS * threads) as f64 / start.elapsed().as_secs_f64()
    };
    (0..PASSES).map(|_| all()).fold(0.0, f64::max)
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{ROUNDS, SUMS, black_box};
    use std::arch::x86_64::*;

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
    pub(super) fn wide() {
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
    pub(super) fn narrow() {
        let (a, b) = (black_box(_mm256_set1_ps(0.5)), black_box(_mm256_set1_ps(0.25)));
        // Sixteen registers in all: two are the factors.
        let mut sums = [_mm256_setzero_ps(); SUMS - 4];
        for _ in 0..ROUNDS * SUMS / sums.len() {
            for s in &mut sums {
                *s = _mm256_fmadd_ps(a, b, *s);
            }
        }
        black_box(sums);
    }
}
