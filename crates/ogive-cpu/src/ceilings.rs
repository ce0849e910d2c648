//! What this machine can do at most: the rates at which it reads memory and computes, which a figure is held against.
//!
//! Decoding is bounded by the one, for each token reads all weights once; reading a prompt by the other, for there each weight meets
//! hundreds of tokens. Both are measured and not looked up: on a shared machine they change by the minute, so whoever compares
//! measures them in the same run.

use crate::simd;
use std::hint::black_box;
use std::thread;
use std::time::Instant;

/// Passes of which the best counts.
const PASSES: usize = 3;

/// Memory to read, in large pages where the system has them, as weights in strips are.
#[derive(Debug)]
pub struct Memory(Vec<memmap2::MmapMut>);

impl Memory {
    /// `share` bytes for each of so many threads; more than caches hold, all together, or it is their rate that is measured.
    /// Where there is no such memory the rate is 0.
    #[must_use]
    pub fn new(threads: usize, share: usize) -> Self {
        let part = |t: usize| {
            let mut part = memmap2::MmapMut::map_anon(share.max(1)).ok()?;
            #[cfg(target_os = "linux")]
            let _ = part.advise(memmap2::Advice::HugePage);
            // Not zero, which a system may keep once for all pages.
            for (i, to) in part.as_chunks_mut::<8>().0.iter_mut().enumerate() {
                *to = (i ^ t).to_ne_bytes();
            }
            Some(part)
        };
        Self((0..threads.max(1)).map_while(part).collect())
    }

    /// Bytes a second that all threads together read, plainly and in order, in vectors as wide as the machine has them.
    #[must_use]
    pub fn read_rate(&self) -> f64 {
        let bytes: usize = self.0.iter().map(|share| share.len()).sum();
        best(bytes as f64, self.0.len(), |t| {
            black_box(self.0.get(t).map_or(0, |share| simd::peak::read(share)));
        })
    }
}

/// Operations a second by all threads together, of vector instructions (AMX's matrices are not among them); a multiplication and an
/// addition are two. `None` where the machine has no instructions for it that Ogive would use, and off x86-64, where none
/// is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Peaks {
    /// 8-bit integers, sums of 32 bits.
    pub int8: Option<f64>,
    /// bf16, sums in single precision.
    pub bf16: Option<f64>,
    /// Single precision.
    pub f32: Option<f64>,
}

impl Peaks {
    /// Measures for a fraction of a second, with so many threads.
    #[must_use]
    pub fn measure(threads: usize) -> Self {
        let threads = threads.max(1);
        let rate = |pass: simd::peak::Pass| best(pass.operations() * threads as f64, threads, |_| pass.run());
        let [int8, bf16, f32] = simd::peak::passes().map(|pass| pass.map(rate));
        Self { int8, bf16, f32 }
    }
}

/// `amount` a second when each of so many threads does its part, in the best of some passes.
fn best(amount: f64, threads: usize, part: impl Fn(usize) + Sync) -> f64 {
    let pass = || {
        let start = Instant::now();
        thread::scope(|s| {
            for t in 0..threads {
                let part = &part;
                s.spawn(move || part(t));
            }
        });
        amount / start.elapsed().as_secs_f64()
    };
    (0..PASSES).map(|_| pass()).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thread_does_its_part() {
        let done: Vec<_> = (0..3).map(|_| std::sync::atomic::AtomicUsize::new(0)).collect();
        let rate = best(1.0, 3, |t| {
            done[t].fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        });
        assert!(rate > 0.0 && done.iter().all(|d| d.load(std::sync::atomic::Ordering::Relaxed) == PASSES));
        assert!(Memory::new(2, 1 << 16).read_rate() > 0.0);
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn what_the_best_path_computes_with_has_a_rate() {
        let peaks = Peaks::measure(1);
        let vectors = crate::Path::choose().is_ok_and(|p| p != crate::Path::Scalar);
        assert!(
            !vectors || peaks.int8.is_some_and(|r| r > 0.0) && peaks.f32.is_some_and(|r| r > 0.0),
            "{peaks:?}"
        );
    }
}
