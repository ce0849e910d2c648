//! Instruction sets, and the choice among them.
//!
//! The choice is a value that is made once, when the backend is built, and travels with each weight. So two backends in
//! one process can take different paths, which is how tests compare them.

/// A loop of eight, written out: what differs between its turns is then known to the compiler, which rolls up a loop that asks for lines.
#[cfg(target_arch = "x86_64")]
macro_rules! eight {
    ($i:ident => $turn:block) => {
        eight!($i => $turn, 0 1 2 3 4 5 6 7)
    };
    ($i:ident => $turn:block, $($n:literal)+) => {
        $({
            let $i: usize = $n;
            $turn
        })+
    };
}

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod formats;
#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
mod neon;
#[cfg(target_arch = "x86_64")]
mod vendor;

use crate::{
    linear::{self, Book, Columns, Few, Form, Job, Lines, Quantised, Side},
    pool::Stripe,
    weight::Kernel,
};
pub(crate) mod ops;
pub(crate) mod peak;

use ogive_tensor::{Error, Result};
#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
use std::arch::is_aarch64_feature_detected;
use std::fmt;

/// The environment variable that forces a path.
pub(crate) const FORCE: &str = "OGIVE_CPU_FORCE";

/// A set of kernels. All paths give the same bits, which [`Path::Scalar`] defines; BF16 weights alone have other last bits on
/// [`Path::Amx`], whose instruction for them adds in an order of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Path {
    /// Plain Rust.
    Scalar,
    /// What every 64-bit ARM has.
    Neon,
    /// The same with `sdot`, as most since 2018 have it.
    NeonDotprod,
    /// The same with `smmla` for prompts, too: Apple since the M2, Graviton since the 3rd.
    NeonI8mm,
    /// AVX2 with FMA and F16C.
    Avx2,
    /// The same with VNNI on vectors of 256 bits: Intel's Core since the 12th generation.
    AvxVnni,
    /// AVX-512 (F, BW, VL) with VNNI, and what [`Path::Avx2`] needs.
    Avx512,
    /// AMX with products of bytes and of bf16, on Linux, and what [`Path::Avx512`] needs.
    Amx,
}

impl Path {
    /// Every path, best first.
    pub const ALL: &[Self] = &[
        Self::Amx,
        Self::Avx512,
        Self::AvxVnni,
        Self::Avx2,
        Self::NeonI8mm,
        Self::NeonDotprod,
        Self::Neon,
        Self::Scalar,
    ];

    /// The name that `OGIVE_CPU_FORCE` knows it by.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Neon => "neon",
            Self::NeonDotprod => "neon-dotprod",
            Self::NeonI8mm => "neon-i8mm",
            Self::Avx2 => "avx2",
            Self::AvxVnni => "avx-vnni",
            Self::Avx512 => "avx512",
            Self::Amx => "amx",
        }
    }

    /// Whether this machine can take it.
    pub fn is_supported(self) -> bool {
        match self {
            Self::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => {
                avx2::ahead::look();
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("fma")
                    && is_x86_feature_detected!("f16c")
            }
            #[cfg(target_arch = "x86_64")]
            Self::AvxVnni => Self::Avx2.is_supported() && (avx2::vnni::has_vex() || avx2::vnni::has_evex()),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                Self::Avx2.is_supported()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512vnni")
            }
            #[cfg(target_arch = "x86_64")]
            Self::Amx => Self::Avx512.is_supported() && amx::tile::are_supported(),
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Self::Neon => is_aarch64_feature_detected!("neon"),
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Self::NeonDotprod => Self::Neon.is_supported() && is_aarch64_feature_detected!("dotprod"),
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Self::NeonI8mm => Self::NeonDotprod.is_supported() && is_aarch64_feature_detected!("i8mm"),
            #[allow(unreachable_patterns, reason = "what another architecture has")]
            _ => false,
        }
    }

    /// The best path of this machine, or the one that `OGIVE_CPU_FORCE` names.
    ///
    /// # Errors
    /// If `OGIVE_CPU_FORCE` names a path that is not known, or one that the machine cannot take.
    pub fn choose() -> Result<Self> {
        Self::forced(std::env::var_os(FORCE).as_deref().map(|v| v.to_string_lossy()).as_deref())
    }

    fn forced(name: Option<&str>) -> Result<Self> {
        let best = || Self::ALL.iter().copied().find(|p| p.is_supported()).unwrap_or(Self::Scalar);
        let Some(name) = name.filter(|n| !n.is_empty()) else { return Ok(best()) };
        let known = Self::ALL.iter().map(|p| p.name()).collect::<Vec<_>>().join(", ");
        match Self::ALL.iter().copied().find(|p| p.name() == name) {
            None => Err(Error::missing_among(&format!("{FORCE}={name}"), &known)),
            Some(p) if !p.is_supported() => {
                Err(Error::unsupported(&format!("{FORCE}={name}"), "this machine lacks the instructions"))
            }
            Some(p) => Ok(p),
        }
    }
}

/// The definition, which has the same bits without this: there each fused multiply-add is a call, and they are most of its time.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "fma")]
fn fused(job: &Job<'_>, out: &mut Stripe<'_>) {
    linear::scalar::inlined(job, out);
}

/// The dispatch: every kernel that has more than one path is called from here.
#[allow(unsafe_code)]
impl Path {
    /// Fills a stripe of a product.
    pub(crate) fn stripe(self, job: &Job<'_>, out: &mut Stripe<'_>) {
        match self {
            // SAFETY: weights are only made for paths that the machine supports.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => unsafe { avx2::stripe::<{ avx2::vnni::NONE }>(job, out) },
            // SAFETY: the same.
            #[cfg(target_arch = "x86_64")]
            Self::AvxVnni if avx2::vnni::has_vex() => unsafe {
                avx2::stripe::<{ avx2::vnni::VEX }>(job, out);
            },
            // SAFETY: the same: a machine with VNNI in neither encoding does not support the path.
            #[cfg(target_arch = "x86_64")]
            Self::AvxVnni => unsafe { avx2::stripe::<{ avx2::vnni::EVEX }>(job, out) },
            // SAFETY: the same.
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => unsafe { avx512::stripe(job, out) },
            // SAFETY: the same.
            #[cfg(target_arch = "x86_64")]
            Self::Amx => unsafe { amx::stripe(job, out) },
            // SAFETY: the same.
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Self::Neon => unsafe { neon::stripe(neon::Plain, job, out) },
            // SAFETY: the same.
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Self::NeonDotprod => unsafe { neon::stripe(neon::Dotprod::new(), job, out) },
            // SAFETY: the same.
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Self::NeonI8mm => unsafe { neon::stripe(neon::I8mm::new(), job, out) },
            // SAFETY: the instruction was just found.
            #[cfg(target_arch = "x86_64")]
            _ if is_x86_feature_detected!("fma") => unsafe { fused(job, out) },
            _ => linear::scalar::stripe(job, out),
        }
    }

    /// Unpacks a row of a weight whose codes name groups of levels.
    pub(crate) fn unpack(self, book: Book, row: &[u8], to: &mut [u8]) {
        match self {
            // SAFETY: weights are only made for paths that the machine supports.
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 | Self::Amx if avx512::book::is_supported() => unsafe {
                avx512::book::unpack(book, row, to);
            },
            // SAFETY: the same.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 | Self::AvxVnni | Self::Avx512 | Self::Amx => unsafe {
                avx2::book::unpack(book, row, to);
            },
            _ => linear::unpack(book, row, to),
        }
    }

    /// Whether its packed products can read weights in strips.
    pub(crate) fn has_strips(self) -> bool {
        self != Self::Scalar
    }

    /// Whether those of a format whose codes name groups of levels can.
    pub(crate) fn has_coded_strips(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        return match self {
            Self::Avx2 | Self::AvxVnni => true,
            // Without VBMI rows are unpacked: nobody has tried there whether AVX2's strips are faster, as their figures here say they are for one token.
            Self::Avx512 | Self::Amx => avx512::book::is_supported(),
            _ => false,
        };
        #[cfg(not(target_arch = "x86_64"))]
        false
    }

    /// Whether its dense products can.
    pub(crate) fn has_dense_strips(self) -> bool {
        matches!(self, Self::Avx2 | Self::AvxVnni | Self::Avx512 | Self::Amx)
    }

    /// Whether it multiplies pairs of bf16 faster than singles.
    pub(crate) fn has_pairs(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        return matches!(self, Self::Avx512 | Self::Amx) && avx512::columns::are_pairs_fast();
        #[cfg(not(target_arch = "x86_64"))]
        false
    }

    /// How packed products of `n` tokens want their activations, with weights in strips or not.
    #[cfg_attr(not(target_arch = "x86_64"), expect(unused_variables, reason = "all others want rows"))]
    pub(crate) fn wants(self, n: usize, kernel: Kernel, strips: bool) -> Form {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Amx if n >= amx::from(kernel, strips) => Form::Groups,
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 | Self::Amx if strips && n <= avx512::streams(kernel) => Form::Tiles,
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 | Self::Amx if strips || n >= avx512::laid_from(kernel) => Form::Slices,
            _ => Form::Rows,
        }
    }

    /// Rounds a row of activations.
    pub(crate) fn quantise(self, x: &[f32], out: &mut Quantised) {
        match self {
            // SAFETY: activations are only rounded for weights, and those only made for paths that the machine supports.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 | Self::AvxVnni | Self::Avx512 | Self::Amx => unsafe { avx2::quantise(x, out) },
            // SAFETY: the same.
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Self::Neon | Self::NeonDotprod | Self::NeonI8mm => unsafe { neon::quantise(x, out) },
            _ => out.fill(x),
        }
    }

    /// How many tokens stream through dense strips, activations laid so.
    #[cfg_attr(not(target_arch = "x86_64"), expect(unused_variables, reason = "others have no such strips"))]
    pub(crate) fn few_columns(self, side: Side) -> Few {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 | Self::Amx => avx512::columns::few(side),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 | Self::AvxVnni => avx2::columns::few(side),
            _ => Few { tokens: 0, together: 1, many: 1 },
        }
    }

    /// Lays rows of `k` activations for dense strips.
    pub(crate) fn lay(self, side: Side, x: &[f32], k: usize, out: &mut Columns) {
        match self {
            // SAFETY: activations are only laid for weights, and those only made for paths that the machine supports.
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 | Self::Amx => unsafe { avx512::columns::lay(side, x, k, out) },
            // SAFETY: the same.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 | Self::AvxVnni => unsafe { avx2::columns::lay(side, x, k, out) },
            _ => out.fill(side, x, k),
        }
    }

    /// Lays rows of `k` activations for tiles of bf16, all there are or some of them.
    pub(crate) fn lay_lines(self, x: &[f32], k: usize, alone: bool, out: &mut Lines) {
        match self {
            // SAFETY: the same.
            #[cfg(target_arch = "x86_64")]
            Self::Amx => unsafe { amx::dense::lay(x, k, alone, out) },
            _ => out.fill(x, k, alone),
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_can_be_forced_and_an_unknown_one_is_an_error() {
        assert_eq!(Path::forced(Some("scalar")).unwrap(), Path::Scalar);
        assert!(Path::forced(None).unwrap().is_supported());
        assert_eq!(Path::forced(Some("")).unwrap(), Path::forced(None).unwrap());
        let e = Path::forced(Some("mmx")).unwrap_err().to_string();
        assert_eq!(
            e,
            "OGIVE_CPU_FORCE=mmx: there is nothing of this name; known are amx, avx512, avx-vnni, avx2, neon-i8mm, neon-dotprod, neon, scalar"
        );
    }
}
