//! What several tests of the formats need: the shared test data, and numbers that are the same on every run.

#![allow(dead_code, reason = "each test binary uses a part")]

use std::path::PathBuf;

/// The folder of shared test data; `None`, and a line that says so, where it is missing.
pub(crate) fn shared() -> Option<PathBuf> {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let path = std::env::var_os("OGIVE_SHARED").map_or(here, PathBuf::from);
    if path.is_dir() {
        return Some(path);
    }
    #[allow(clippy::print_stderr, reason = "a skipped test says so")]
    {
        eprintln!("skipped: shared test data not found");
    }
    None
}

/// A small generator (xorshift64*), because a test wants the same numbers on every platform and not good ones.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// From -1 to 1.
    pub(crate) fn even(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    /// About normal: a sum of twelve even ones.
    pub(crate) fn bell(&mut self) -> f32 {
        (0..12).map(|_| self.even()).sum::<f32>() / 2.0
    }

    pub(crate) fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| (self.next() >> 56) as u8).collect()
    }
}

/// Root of the mean square difference.
pub(crate) fn rmse(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let sum: f64 = a.iter().zip(b).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum();
    (sum / a.len() as f64).sqrt()
}
