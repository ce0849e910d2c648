//! What the benches share: numbers that look like a model's and are the same on every run, and a clock that others do not disturb.

use std::time::Duration;

/// `n` values around 0 with a deviation near `scale`, as sums of uniform numbers.
pub fn values(n: usize, scale: f32) -> Vec<f32> {
    let mut state = 7u64;
    let mut uniform = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..n).map(|_| scale * (uniform() + uniform() + uniform())).collect()
}

/// What this thread has been on a processor for, where the system says. It counts in steps of some milliseconds.
pub fn own_time() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(Duration::from_nanos(stat.split_whitespace().next()?.parse().ok()?))
}
