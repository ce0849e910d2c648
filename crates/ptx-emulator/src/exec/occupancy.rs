//! How many blocks a multiprocessor holds.
//!
//! Registers do not count: PTX does not say how many the compiler of the driver would take.

/// What a multiprocessor of an architecture has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Multiprocessor {
    /// Threads.
    pub threads: u32,
    /// Blocks.
    pub blocks: u32,
    /// Bytes of shared memory.
    pub shared: u32,
    /// Bytes of shared memory that one block may opt into.
    pub shared_per_block: u32,
}

/// The multiprocessor of a compute capability (80 for `sm_80`), by the tables of the programming guide.
#[must_use]
pub fn multiprocessor(arch: u32) -> Multiprocessor {
    let (threads, blocks, shared, opt_in) = match arch {
        ..=61 => (2048, 32, 96, 48),
        62..=74 => (2048, 32, 96, 96),
        75 => (1024, 16, 64, 64),
        76..=80 => (2048, 32, 164, 163),
        81..=88 => (1536, 16, 100, 99),
        89 => (1536, 24, 100, 99),
        90..=119 => (2048, 32, 228, 227),
        _ => (1536, 24, 100, 99),
    };
    Multiprocessor { threads, blocks, shared: shared << 10, shared_per_block: opt_in << 10 }
}

/// Blocks of this size that one multiprocessor holds at once.
#[must_use]
pub fn blocks_per_multiprocessor(arch: u32, threads: u32, shared: u32) -> u32 {
    let sm = multiprocessor(arch);
    let by_threads = sm.threads / threads.max(1).next_multiple_of(32);
    // The driver keeps 1 KiB of every block's for itself, from compute capability 8 on.
    let own = if arch >= 80 { 1024 } else { 0 };
    let by_shared =
        sm.shared.checked_div(shared.saturating_add(own).next_multiple_of(128)).unwrap_or(u32::MAX);
    sm.blocks.min(by_threads).min(by_shared)
}
