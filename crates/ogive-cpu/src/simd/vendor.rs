//! Whose processor this is, where the same instructions are not as fast on all.

use std::{arch::x86_64::__cpuid, sync::LazyLock};

/// AMD's number of the family, if AMD made it: 0x19 is Zen 3 and Zen 4, 0x1a Zen 5.
static AMD: LazyLock<Option<u32>> = LazyLock::new(|| {
    let vendor = __cpuid(0);
    let is_amd = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes).concat() == b"AuthenticAMD";
    let version = __cpuid(1).eax;
    // The sum of two fields, where the first is full.
    is_amd.then_some(((version >> 8) & 0xf) + ((version >> 20) & 0xff))
});

/// Whether AMD made it: it multiplies integers and pairs of bf16 at other rates than Intel's.
pub(super) fn is_amd() -> bool {
    AMD.is_some()
}

/// Whether lines that are asked for go into the first cache: Zen 5 and what AMD makes after it.
pub(super) fn asks_first() -> bool {
    AMD.is_some_and(|family| family >= 0x1a)
}

/// Whether it reads ahead of a stream, of which memory sets the pace, at least as fast as if it is asked for lines. Zen 4 does: two cores
/// read Q4_0 at 85 % of plain reads, at 69 if asked for every line, at 55 if asked for the heads of pages; Q4_K at 86 % and 82, Q6_K at 92 and 87.
pub(super) fn reads_ahead() -> bool {
    *AMD == Some(0x19)
}
