//! Whose processor this is, where the same instructions are not as fast on all.

use std::{arch::x86_64::__cpuid, sync::LazyLock};

/// AMD's numbers of the family and the model, if AMD made it: family 0x19 is Zen 3 and Zen 4, 0x1a Zen 5.
static AMD: LazyLock<Option<(u32, u32)>> = LazyLock::new(|| {
    let vendor = __cpuid(0);
    let is_amd = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes).concat() == b"AuthenticAMD";
    let version = __cpuid(1).eax;
    let field = |at: u32, bits: u32| (version >> at) & ((1 << bits) - 1);
    // The family is the sum of two fields, where the first is full, and the model then has its upper half elsewhere.
    is_amd.then_some((field(8, 4) + field(20, 8), field(4, 4) | field(16, 4) << 4))
});

/// Whether AMD made it: it multiplies integers and pairs of bf16 at other rates than Intel's.
pub(super) fn is_amd() -> bool {
    AMD.is_some()
}

/// Whether lines that are asked for go into the first cache: Zen 5 and what AMD makes after it.
pub(super) fn asks_first() -> bool {
    AMD.is_some_and(|(family, _)| family >= 0x1a)
}

/// Whether it reads ahead of a stream, of which memory sets the pace, at least as fast as if it is asked for lines. Zen 4 does: two cores
/// read Q4_0 at 85 % of plain reads, at 69 if asked for every line, at 55 if asked for the heads of pages; Q4_K at 86 % and 82, Q6_K at 92 and 87.
pub(super) fn reads_ahead() -> bool {
    AMD.is_some_and(|(family, model)| {
        family == 0x19 && matches!(model, 0x10..=0x1f | 0x60..=0x7f | 0xa0..=0xaf)
    })
}

/// The same for F32 and F16, for which it holds of Zen 3 too. Its two cores read F32 at 83 to 94 % of plain reads, and at 75 to 82 if asked;
/// but Q8_0 at 68 to 75 and 73 to 81, Q5_0 at 54 to 65 and 69 to 77, BF16 at 70 to 78 and 73 to 83.
pub(super) fn reads_ahead_of_numbers() -> bool {
    AMD.is_some_and(|(family, _)| family == 0x19)
}
