//! The tile instructions, and whether this machine and this process have them.
//!
//! A core has eight tiles of up to sixteen rows of 64 bytes. One instruction adds to a tile C, `[16, 16]` of 32 bits, the product of
//! A, `[16, 64]` bytes, and B, whose row `i` has elements `4 i..4 i + 4` of each of sixteen columns: what a strip of a weight is.
//! The instructions are spelt out, because the library has no stable functions for them. The source is Intel's Architecture
//! Instruction Set Extensions Programming Reference, chapter 3.
#![allow(unsafe_code)]

use std::arch::asm;

/// How the tiles are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// All of sixteen rows of 64 bytes.
    Full,
    /// Products over 32 elements: the A tiles, 4 and 5, have 32 bytes a row, and the B tiles, 6 and 7, eight rows.
    Half,
    /// Products of so many tokens, at most sixteen: the B tiles, 6 and 7, have sixteen rows, all others one for each token.
    Tokens(u8),
}

/// What `ldtilecfg` reads.
#[repr(C, align(64))]
struct Config {
    palette: u8,
    start: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

const _: () = assert!(size_of::<Config>() == 64);

/// Tiles that are cut, on this thread, until this is dropped. Only where [`are_supported`] says so.
pub(super) struct Tiles(());

impl Tiles {
    /// Cuts the tiles; what they hold then is zero.
    ///
    /// # Safety
    /// The tiles [`are_supported`].
    pub(super) unsafe fn cut(shape: Shape) -> Self {
        let mut config =
            Config { palette: 1, start: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };
        config.row_bytes[..8].fill(64);
        config.rows[..8].fill(16);
        match shape {
            Shape::Full => {}
            Shape::Half => {
                config.row_bytes[4..6].fill(32);
                config.rows[6..8].fill(8);
            }
            Shape::Tokens(tokens) => config.rows[..6].fill(tokens),
        }
        // SAFETY: the caller says that the instruction is there; it reads the 64 bytes.
        unsafe {
            asm!("ldtilecfg [{}]", in(reg) &raw const config, options(nostack, readonly, preserves_flags))
        };
        Self(())
    }

    /// Empties tile `T`.
    #[inline(always)]
    pub(super) fn zero<const T: u8>(&self) {
        // SAFETY: `self` proves the instruction. No compiler keeps anything in tiles.
        unsafe { asm!("tilezero tmm{t}", t = const T, options(nomem, nostack, preserves_flags)) };
    }

    /// Reads tile `T` from rows that begin `STRIDE` bytes apart.
    ///
    /// # Safety
    /// The tile's rows can be read there.
    #[inline(always)]
    pub(super) unsafe fn load<const T: u8, const STRIDE: usize>(&self, from: *const u8) {
        // SAFETY: `self` proves the instruction, the caller that the memory can be read.
        unsafe {
            asm!("tileloadd tmm{t}, [{from} + {stride}]", t = const T, from = in(reg) from, stride = in(reg) STRIDE,
                options(readonly, nostack, preserves_flags));
        }
    }

    /// The same, of what is not read again before the second cache has to be asked.
    ///
    /// # Safety
    /// The tile's rows can be read there.
    #[inline(always)]
    pub(super) unsafe fn load_once<const T: u8, const STRIDE: usize>(&self, from: *const u8) {
        // SAFETY: `self` proves the instruction, the caller that the memory can be read.
        unsafe {
            asm!("tileloaddt1 tmm{t}, [{from} + {stride}]", t = const T, from = in(reg) from, stride = in(reg) STRIDE,
                options(readonly, nostack, preserves_flags));
        }
    }

    /// Writes tile `T`, one of up to sixteen rows of 64 bytes.
    #[inline(always)]
    pub(super) fn store<const T: u8, E>(&self, to: &mut Sums<E>) {
        const { assert!(size_of::<Sums<E>>() == 1024) };
        // SAFETY: `self` proves the instruction; the array has the 1024 bytes that are written, of numbers of any bits.
        unsafe {
            asm!("tilestored [{to} + {stride}], tmm{t}", t = const T, to = in(reg) to.0.as_mut_ptr(), stride = in(reg) 64_usize,
                options(nostack, preserves_flags));
        }
    }

    /// Adds to tile `C` the products of tile `A`, signed bytes, and tile `B`, signed bytes.
    #[inline(always)]
    pub(super) fn signed<const C: u8, const A: u8, const B: u8>(&self) {
        // SAFETY: `self` proves the instruction.
        unsafe {
            asm!("tdpbssd tmm{c}, tmm{a}, tmm{b}", c = const C, a = const A, b = const B,
                options(nomem, nostack, preserves_flags));
        }
    }

    /// The same where `B` has unsigned bytes.
    #[inline(always)]
    pub(super) fn unsigned<const C: u8, const A: u8, const B: u8>(&self) {
        // SAFETY: `self` proves the instruction.
        unsafe {
            asm!("tdpbsud tmm{c}, tmm{a}, tmm{b}", c = const C, a = const A, b = const B,
                options(nomem, nostack, preserves_flags));
        }
    }

    /// The same of bf16 in single precision, two neighbours where there are four bytes.
    #[inline(always)]
    pub(super) fn bf16<const C: u8, const A: u8, const B: u8>(&self) {
        // SAFETY: `self` proves the instruction.
        unsafe {
            asm!("tdpbf16ps tmm{c}, tmm{a}, tmm{b}", c = const C, a = const A, b = const B,
                options(nomem, nostack, preserves_flags));
        }
    }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        // SAFETY: `self` proves the instruction. Empty tiles cost nothing when the system changes threads.
        unsafe { asm!("tilerelease", options(nomem, nostack, preserves_flags)) };
    }
}

/// What a tile C holds: sixteen tokens of sixteen rows of the weight.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Sums<E>(pub(super) [[E; 16]; 16]);

/// Whether there are tiles with products of bytes and of bf16, and the system lets this process use them.
#[cfg(target_os = "linux")]
pub(in crate::simd) fn are_supported() -> bool {
    use std::sync::OnceLock;
    static SUPPORTED: OnceLock<bool> = OnceLock::new();
    *SUPPORTED.get_or_init(|| processor_has_them() && system_lets_us())
}

/// Other systems are not asked.
#[cfg(not(target_os = "linux"))]
pub(in crate::simd) fn are_supported() -> bool {
    false
}

#[cfg(target_os = "linux")]
fn processor_has_them() -> bool {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    /// Of leaf 7: products of bf16, tiles, products of bytes.
    const WANTED: u32 = 1 << 22 | 1 << 24 | 1 << 25;
    /// Of leaf 1: the system has set up the saving of registers.
    const SAVED: u32 = 1 << 27;
    // SAFETY: every x86-64 processor has the instruction. Newer compilers have it as a safe function.
    #[allow(unused_unsafe)]
    unsafe {
        __cpuid(0).eax >= 7 && __cpuid(1).ecx & SAVED != 0 && __cpuid_count(7, 0).edx & WANTED == WANTED
    }
}

/// The registers are large, so Linux gives them to a process only on request, once for all its threads.
#[cfg(target_os = "linux")]
fn system_lets_us() -> bool {
    const ARCH_REQ_XCOMP_PERM: usize = 0x1023;
    const XFEATURE_XTILEDATA: usize = 18;
    const SYS_ARCH_PRCTL: isize = 158;
    let result: isize;
    // SAFETY: the call takes two numbers and touches no memory of ours. Kernels that do not know it refuse.
    unsafe {
        asm!("syscall", inlateout("rax") SYS_ARCH_PRCTL => result, in("rdi") ARCH_REQ_XCOMP_PERM,
            in("rsi") XFEATURE_XTILEDATA, out("rcx") _, out("r11") _, options(nostack));
    }
    result == 0
}
