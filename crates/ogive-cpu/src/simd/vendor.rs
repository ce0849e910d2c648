//! Whose processor this is, where the same instructions are not as fast on all.
//!
//! Kernels ask in every block, so an answer is one load: where a call might be made, as to a value that is made when it is first wanted, a
//! compiler keeps no vector in a register across it. One token of six packed formats took 1.06 to 1.19 times as long in caches on Zen 3
//! with one such question more.

use std::{
    arch::x86_64::__cpuid,
    sync::atomic::{AtomicU8, Ordering},
};

/// What holds of this processor; nothing before [`look`].
static TRAITS: AtomicU8 = AtomicU8::new(0);
const IS_AMD: u8 = 1;
const ASKS_FIRST: u8 = 2;
const READS_AHEAD: u8 = 4;
const READS_AHEAD_OF_F32: u8 = 8;
const ASKS_NEAR: u8 = 16;
const LOOKED: u8 = 128;

/// Finds out, once.
pub(super) fn look() {
    if has(LOOKED) {
        return;
    }
    let vendor = __cpuid(0);
    let is_amd = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes).concat() == b"AuthenticAMD";
    let version = __cpuid(1).eax;
    let field = |at: u32, bits: u32| (version >> at) & ((1 << bits) - 1);
    // The family is the sum of two fields, where the first is full, and the model then has its upper half elsewhere.
    let (family, model) = (field(8, 4) + field(20, 8), field(4, 4) | field(16, 4) << 4);
    let traits = if is_amd { of_amd(family, model) } else { 0 };
    TRAITS.store(LOOKED | traits, Ordering::Relaxed);
}

/// By AMD's numbers of families and models: family 0x19 is Zen 3 and Zen 4, 0x1a Zen 5.
fn of_amd(family: u32, model: u32) -> u8 {
    let zen_4 = family == 0x19 && matches!(model, 0x10..=0x1f | 0x60..=0x7f | 0xa0..=0xaf);
    let of = |trait_: u8, holds: bool| if holds { trait_ } else { 0 };
    IS_AMD
        | of(ASKS_FIRST, family >= 0x1a)
        | of(READS_AHEAD, zen_4)
        | of(READS_AHEAD_OF_F32, family == 0x19)
        | of(ASKS_NEAR, family <= 0x19 && !zen_4)
}

#[inline(always)]
fn has(trait_: u8) -> bool {
    TRAITS.load(Ordering::Relaxed) & trait_ != 0
}

/// Whether AMD made it: it multiplies integers and pairs of bf16 at other rates than Intel's.
#[inline(always)]
pub(super) fn is_amd() -> bool {
    has(IS_AMD)
}

/// Whether lines that are asked for go into the first cache: Zen 5 and what AMD makes after it.
#[inline(always)]
pub(super) fn asks_first() -> bool {
    has(ASKS_FIRST)
}

/// Whether it reads ahead of a stream, of which memory sets the pace, at least as fast as if it is asked for lines. Zen 4 does: two cores
/// read Q4_0 at 85 % of plain reads, at 69 if asked for every line, at 55 if asked for the heads of pages; Q4_K at 86 % and 82, Q6_K at 92 and 87.
#[inline(always)]
pub(super) fn reads_ahead() -> bool {
    has(READS_AHEAD)
}

/// The same for F32, for which it holds of Zen 3 too. Its two cores read F32 at 83 to 94 % of plain reads, and at 75 to 82 if asked.
#[inline(always)]
pub(super) fn reads_ahead_of_f32() -> bool {
    has(READS_AHEAD_OF_F32)
}

/// Whether one token that streams through a weight had better ask near by: what AMD made before Zen 4. Two Zen 3 cores that ask 2 kB ahead, and
/// not 6, read Q4_0 and Q8_0 at 1.08 times the rate, BF16 at 1.06, Q4_K at 1.04, Q6_K at 1.02, Q5_K at the same, and F16 at 1.02 of what
/// they do unasked. What reads ahead of a stream by itself begins anew with each page of 4 kB, and a second place in another page seems to be
/// in its way.
pub(super) fn asks_near() -> bool {
    has(ASKS_NEAR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_are_told_apart() {
        let zen = [
            (2, 0x17, 0x31),
            (3, 0x19, 0x01),
            (3, 0x19, 0x21),
            (3, 0x19, 0x44),
            (4, 0x19, 0x11),
            (4, 0x19, 0x61),
            (4, 0x19, 0xa0),
            (5, 0x1a, 0x02),
        ];
        for (generation, family, model) in zen {
            let traits = of_amd(family, model);
            let wanted = match generation {
                2 => IS_AMD | ASKS_NEAR,
                3 => IS_AMD | ASKS_NEAR | READS_AHEAD_OF_F32,
                4 => IS_AMD | READS_AHEAD | READS_AHEAD_OF_F32,
                _ => IS_AMD | ASKS_FIRST,
            };
            assert_eq!(traits, wanted, "Zen {generation}: {family:#x} {model:#x}");
        }
    }

    #[test]
    fn a_path_that_is_there_has_looked() {
        assert!(crate::Path::Scalar.is_supported() && crate::Path::ALL.iter().any(|p| p.is_supported()));
        let vendor = __cpuid(0);
        assert_eq!(is_amd(), vendor.ebx == u32::from_le_bytes(*b"Auth"));
    }
}
