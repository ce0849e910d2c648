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

/// Whether it reads ahead of one stream so well that being asked for lines of memory only disturbs it. Zen 4 does: asked for every line
/// a core reads 20 GB/s, and left alone up to twice as much. Zen 5 left alone reads K-quants at half of the rate that it makes when asked,
/// and nothing faster.
pub(super) fn reads_ahead() -> bool {
    *AMD == Some(0x19)
}
