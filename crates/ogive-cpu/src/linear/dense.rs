//! Dense weights times activations in single precision, and the definition of their product.
//!
//! Sums run in four lanes, element `k` in lane `k % 4`, each a chain of fused multiply-adds; lanes 0 and 1 are added, then 2 and 3,
//! then both. That is what one 128-bit register does, or one lane of wider ones for each of several rows. A row that ends inside the
//! lanes is padded with zeros. BF16 weights differ only in the order of `k`: a pair of neighbours is in one lane, the odd one
//! before the even one, so of each eight elements first the odd and then the even ones, which is what falls out of a register of pairs
//! without a shuffle (and the order of AVX-512's `vdpbf16ps`).
//!
//! More lanes would be sums that a tile of rows and tokens must put down and take up more often: it has registers for one lane of each.
//!
//! AMX multiplies pairs of bf16 thirty-two elements at a time, in an order that no other instruction has. It makes some seventeen times the
//! products of vectors, so BF16 weights on its path have a product of their own, [`dot_in_tiles`], which all its kernels make to the bit.

use half::{bf16, f16};
use std::borrow::Cow;

/// Lanes of a single precision sum.
pub(crate) const LANES: usize = 4;

/// How the elements of a dense row are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Dense {
    F32,
    F16,
    Bf16,
}

impl Dense {
    /// Bytes of an element.
    pub(crate) const fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }

    /// Elements a row of `k` is padded to.
    pub(crate) fn padded(self, k: usize) -> usize {
        k.next_multiple_of(match self {
            Self::F32 | Self::F16 => LANES,
            Self::Bf16 => 2 * LANES,
        })
    }

    /// One row in the order the sum takes, padded with zeros to the length of `out`.
    pub(crate) fn decode(self, row: &[u8], out: &mut [f32]) {
        out[row.len() / self.bytes()..].fill(0.0);
        let halves = row.chunks_exact(2).map(|b| [b[0], b[1]]);
        match self {
            Self::F32 => {
                for (b, o) in row.chunks_exact(4).zip(out) {
                    *o = f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
                }
            }
            Self::F16 => halves.zip(out).for_each(|(b, o)| *o = f16::from_le_bytes(b).to_f32()),
            Self::Bf16 => {
                out.fill(0.0);
                halves.enumerate().for_each(|(k, b)| out[odd_first(k)] = bf16::from_le_bytes(b).to_f32());
            }
        }
    }
}

/// Where element `k` stands when each eight have the odd ones first.
fn odd_first(k: usize) -> usize {
    k / (2 * LANES) * (2 * LANES) + k % (2 * LANES) / 2 + if k.is_multiple_of(2) { LANES } else { 0 }
}

/// Activations as `kind` takes them: rows of `padded(k)`.
pub(crate) fn prepare(kind: Dense, x: &[f32], k: usize) -> Cow<'_, [f32]> {
    let stride = kind.padded(k);
    if kind != Dense::Bf16 && stride == k {
        return x.into();
    }
    let mut out = vec![0.0; x.len().checked_div(k).unwrap_or(0) * stride];
    for (x, o) in x.chunks_exact(k.max(1)).zip(out.chunks_exact_mut(stride.max(1))) {
        match kind {
            Dense::Bf16 => {
                x.iter().enumerate().for_each(|(k, &v)| o[odd_first(k)] = bf16::from_f32(v).to_f32());
            }
            _ => o[..k].copy_from_slice(x),
        }
    }
    out.into()
}

/// Rows of a [`Quads`] tile.
#[cfg(target_arch = "x86_64")]
pub(crate) const TILE: usize = 16;

/// Decoded rows side by side, for registers of more than four lanes: the first four elements of every row, the next four of every
/// row, and so on.
#[cfg(target_arch = "x86_64")]
pub(crate) type Quads = [[f32; LANES]; TILE];

/// Puts a row, padded and in order, in its place.
///
/// # Panics
/// If a tile has no row `r`.
#[inline(always)] // and compiled with the instructions of whoever calls it
#[cfg(target_arch = "x86_64")]
pub(crate) fn lay(row: &[f32], r: usize, tile: &mut [Quads]) {
    assert!(r < TILE);
    tile.iter_mut().zip(row.as_chunks().0).for_each(|(quads, quad)| quads[r] = *quad);
}

/// Elements that an instruction for tiles of bf16 adds before it adds to the sum.
pub(crate) const CHUNK: usize = 32;

/// `x · w` of two rows in bf16 as AMX adds it: of each 32 elements the even ones are a chain of fused multiply-adds, and the odd ones; the
/// two are added, and then to the sum. Denormal numbers are taken for zero and made zero. Elements that are missing are zeros.
///
/// The source is the operation of `TDPBF16PS` in Intel's Software Developer's Manual, volume 2. Where the definition says so, a number that
/// would be rounded up to the least normal one is zero here, and the instruction keeps it.
#[inline(always)]
pub(crate) fn dot_in_tiles(x: &[u16], w: &[u16]) -> f32 {
    let flush = |v: f32| if v.abs() < f32::MIN_POSITIVE { 0.0_f32.copysign(v) } else { v };
    let value = |bits: u16| flush(bf16::from_bits(bits).to_f32());
    let mut sum = 0.0;
    for (x, w) in x.chunks(CHUNK).zip(w.chunks(CHUNK)) {
        let mut chains = [0.0_f32; 2];
        for (i, (&x, &w)) in x.iter().zip(w).enumerate() {
            chains[i % 2] = flush(value(x).mul_add(value(w), chains[i % 2]));
        }
        sum = flush(sum + flush(chains[0] + chains[1]));
    }
    sum
}

/// `x · w` of two rows, padded and in order.
#[inline(always)]
pub(crate) fn dot(x: &[f32], w: &[f32]) -> f32 {
    let mut sums = [0.0_f32; LANES];
    for (x, w) in x.chunks_exact(LANES).zip(w.chunks_exact(LANES)) {
        for ((s, &x), &w) in sums.iter_mut().zip(x).zip(w) {
            *s = x.mul_add(w, *s);
        }
    }
    (sums[0] + sums[1]) + (sums[2] + sums[3])
}
