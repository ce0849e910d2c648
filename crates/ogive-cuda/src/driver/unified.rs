//! What is free where the device's memory is the machine's own (GB10, Jetson).
//!
//! The driver counts there as used what holds files that were read, so whoever has just downloaded or checked a model would find no room for it. The
//! system gives that back to whoever asks for memory, and says how much there is with it (`MemAvailable` of proc_meminfo(5)). Memory that
//! would have to be swapped out is in neither figure, and is not counted on: where it ends, the system ends processes.

/// Bytes of `total` that could be had, where the driver says that `free` are free.
pub(super) fn free(free: u64, total: u64) -> u64 {
    let told = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| available(&text));
    larger(free, told, total)
}

fn larger(free: u64, available: Option<u64>, total: u64) -> u64 {
    free.max(available.unwrap_or(0)).min(total)
}

/// What `/proc/meminfo` says could be had, in bytes.
fn available(meminfo: &str) -> Option<u64> {
    let value = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    value.trim().strip_suffix("kB")?.trim_end().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_files_is_free() {
        let text = "MemTotal:       125513944 kB\nMemFree:          801234 kB\nMemAvailable:   98765432 kB\n";
        assert_eq!(available(text), Some(98_765_432 * 1024));
        for none in [
            "",
            "MemFree: 1 kB",
            "MemAvailable: 1",
            "MemAvailable: x kB",
            "MemAvailable: -1 kB",
            "MemAvailable: 18446744073709551615 kB",
        ] {
            assert_eq!(available(none), None, "{none}");
        }
        assert_eq!(larger(5, None, 9), 5);
        assert_eq!(larger(5, Some(7), 9), 7);
        assert_eq!(larger(5, Some(3), 9), 5);
        assert_eq!(larger(5, Some(12), 9), 9);
    }
}
