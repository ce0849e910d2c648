//! The rate at which this machine reads memory: the ceiling of decoding, where each token reads all weights once.

use std::hint::black_box;
use std::thread;
use std::time::Instant;

/// Bytes for each thread: more than caches hold, save for those of the largest servers.
const SHARE: usize = 1 << 29;
/// Passes of which the best counts.
const PASSES: usize = 3;

/// Memory to read.
#[derive(Debug)]
pub(crate) struct Memory(Vec<Vec<u64>>);

impl Memory {
    /// A share for each of so many threads.
    pub(crate) fn new(threads: usize) -> Self {
        // Not zero, which a system may keep once for all pages.
        Self((0..threads.max(1)).map(|t| (0..SHARE / 8).map(|i| (i ^ t) as u64).collect()).collect())
    }

    /// Bytes a second that all threads together read, plainly and in order.
    pub(crate) fn read_rate(&mut self) -> f64 {
        let pass = || {
            let start = Instant::now();
            thread::scope(|s| {
                for share in &self.0 {
                    s.spawn(move || black_box(sum(share)));
                }
            });
            (self.0.len() * SHARE) as f64 / start.elapsed().as_secs_f64()
        };
        (0..PASSES).map(|_| pass()).fold(0.0, f64::max)
    }
}

/// Several sums side by side, so that nothing but memory is waited for.
fn sum(values: &[u64]) -> u64 {
    let mut sums = [0_u64; 64];
    for chunk in values.chunks_exact(sums.len()) {
        for (s, v) in sums.iter_mut().zip(chunk) {
            *s = s.wrapping_add(*v);
        }
    }
    sums.into_iter().fold(0, u64::wrapping_add)
}
