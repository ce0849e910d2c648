//! Packed weights times 8-bit activations: which formats have kernels, and the definition of their product.
//!
//! Within a scale block of the weight (16 of NVFP4, 32 elements, or 256 of a K-quant with its integer sub-scales) the sum is an exact
//! integer; only then is it scaled and added, block after block. So the result does not depend on how a kernel lays its
//! lanes, and one with wider registers or repacked weights gives the same bits. For each block of activations in order:
//!
//! ```text
//! p = 0
//! for each scale block of the weight in it:
//!     p = fma(d, Σ scale_i Σ code_j a_j, p)
//!     p = fma(m, Σ min_i Σ a_j, p)            (formats with minima)
//! sum = fma(activation scale, p, sum)
//! ```
//!
//! A factor that the weight has for a whole row beside that multiplies the sum.

use super::{
    book::{CODED, FACTOR, RAISE, SCALES},
    quantise::{Quantised, block_len},
};
use half::f16;
use ogive_tensor as t;
use ogive_tensor::Format;

/// A format with kernels of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Packed {
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Iq4Nl,
    Mxfp4,
    Nvfp4,
    Q2K,
    Q3K,
    Q4K,
    Q5K,
    Q6K,
    Iq4Xs,
    Tq2,
    /// What [`Book`](super::Book)s come to.
    Coded,
}

impl Packed {
    const ALL: &[(Self, &'static Format)] = &[
        (Self::Q4_0, &t::Q4_0),
        (Self::Q4_1, &t::Q4_1),
        (Self::Q5_0, &t::Q5_0),
        (Self::Q5_1, &t::Q5_1),
        (Self::Q8_0, &t::Q8_0),
        (Self::Iq4Nl, &t::IQ4_NL),
        (Self::Mxfp4, &t::MXFP4),
        (Self::Nvfp4, &t::NVFP4),
        (Self::Q2K, &t::Q2_K),
        (Self::Q3K, &t::Q3_K),
        (Self::Q4K, &t::Q4_K),
        (Self::Q5K, &t::Q5_K),
        (Self::Q6K, &t::Q6_K),
        (Self::Iq4Xs, &t::IQ4_XS),
        (Self::Tq2, &t::TQ2_0),
    ];

    /// Which one `format` is. By address, not by name: someone else's format of the same name decodes as it likes.
    pub(crate) fn of(format: &'static Format) -> Option<Self> {
        Self::ALL.iter().find(|(_, f)| std::ptr::eq(*f, format)).map(|p| p.0)
    }

    /// Elements and bytes of a block, which is a scale block but for NVFP4: its blocks have four.
    pub(crate) const fn block(self) -> (usize, usize) {
        match self {
            Self::Q4_0 | Self::Iq4Nl => (32, 18),
            Self::Q4_1 => (32, 20),
            Self::Q5_0 => (32, 22),
            Self::Q5_1 => (32, 24),
            Self::Q8_0 => (32, 34),
            Self::Mxfp4 => (32, 17),
            Self::Nvfp4 => (64, 36),
            Self::Q2K => (256, 84),
            Self::Q3K => (256, 110),
            Self::Q4K => (256, 144),
            Self::Q5K => (256, 176),
            Self::Q6K => (256, 210),
            Self::Iq4Xs => (256, 136),
            Self::Tq2 => (256, 66),
            Self::Coded => (256, CODED),
        }
    }

    /// Elements of a scale block.
    pub(crate) const fn scaled(self) -> usize {
        match self {
            Self::Nvfp4 => 16,
            _ => self.block().0,
        }
    }

    /// Whether this architecture has kernels for it. Where it has none a weight is decoded, by its scalar twin as well.
    pub(crate) const fn is_multiplied(self) -> bool {
        cfg!(target_arch = "x86_64") || !matches!(self, Self::Nvfp4)
    }

    /// Whether blocks have minima.
    pub(crate) const fn has_min(self) -> bool {
        matches!(self, Self::Q4_1 | Self::Q5_1 | Self::Q2K | Self::Q4K | Self::Q5K)
    }
}

/// The levels of IQ4_NL and IQ4_XS.
pub(crate) const IQ4_LEVELS: [i8; 16] =
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// The levels of MXFP4 and NVFP4, doubled.
pub(crate) const E2M1_LEVELS: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// A scale block as integers and its two factors.
pub(crate) struct Block {
    /// Signed codes; a block of 16 or 32 fills the first.
    pub(crate) codes: [i8; 256],
    /// What each 16 codes are multiplied with.
    pub(crate) scales: [i16; 16],
    /// What each 16 activations are multiplied with.
    pub(crate) mins: [i16; 16],
    /// The factor of the codes.
    pub(crate) d: f32,
    /// The factor of the minima, with its sign.
    pub(crate) m: f32,
}

impl Block {
    /// Unpacks the bytes of a row.
    pub(crate) fn row(format: Packed, row: &[u8]) -> Vec<Self> {
        let blocks = row.chunks_exact(format.block().1);
        match format {
            Packed::Nvfp4 => blocks.flat_map(|b| (0..4).map(|i| Self::sixteen(b, i))).collect(),
            _ => blocks.map(|b| Self::read(format, b)).collect(),
        }
    }

    /// Scale block `i` of a block of NVFP4.
    fn sixteen(b: &[u8], i: usize) -> Self {
        let d = half_scale(b[i]);
        let mut o = Self { codes: [0; 256], scales: [1; 16], mins: [1; 16], d, m: 0.0 };
        for (j, q) in b[4 + 8 * i..][..8].iter().enumerate() {
            let level = |q: u8| E2M1_LEVELS[usize::from(q)];
            (o.codes[j], o.codes[j + 8]) = (level(q & 15), level(q >> 4));
        }
        o
    }

    /// Unpacks the bytes of one block that is one scale block.
    fn read(format: Packed, b: &[u8]) -> Self {
        let mut o = Self { codes: [0; 256], scales: [1; 16], mins: [1; 16], d: 0.0, m: 0.0 };
        let half = |at: usize| f16::from_le_bytes([b[at], b[at + 1]]).to_f32();
        o.d = half(0);
        match format {
            Packed::Coded => {
                o.d = f32::from_le_bytes([b[FACTOR], b[FACTOR + 1], b[FACTOR + 2], b[FACTOR + 3]]);
                o.scales.iter_mut().zip(&b[SCALES..]).for_each(|(s, b)| *s = i16::from(*b));
                o.codes.iter_mut().zip(b).for_each(|(c, b)| *c = b.wrapping_sub(RAISE).cast_signed());
            }
            Packed::Q4_0 => o.nibbles(&b[2..], |q| q as i8 - 8),
            Packed::Q4_1 => {
                o.m = half(2);
                o.nibbles(&b[4..], |q| q as i8);
            }
            Packed::Q5_0 => o.five_bits(&b[2..], 16),
            Packed::Q5_1 => {
                o.m = half(2);
                o.five_bits(&b[4..], 0);
            }
            Packed::Q8_0 => o.codes.iter_mut().zip(&b[2..34]).for_each(|(o, &q)| *o = q as i8),
            Packed::Iq4Nl => o.nibbles(&b[2..], |q| IQ4_LEVELS[usize::from(q)]),
            Packed::Mxfp4 => {
                o.d = half_power(b[0]);
                o.nibbles(&b[1..], |q| E2M1_LEVELS[usize::from(q)]);
            }
            Packed::Nvfp4 => unreachable!("it has four scale blocks, which are read one by one"),
            Packed::Q2K => {
                (o.d, o.m) = (half(80), -half(82));
                for (&b, (s, m)) in b.iter().zip(o.scales.iter_mut().zip(&mut o.mins)) {
                    (*s, *m) = (i16::from(b & 15), i16::from(b >> 4));
                }
                o.fill(|n, j, l| (b[16 + 32 * n + l] >> (2 * j) & 3) as i8);
            }
            Packed::Q3K => {
                o.d = half(108);
                o.scales = q3_scales(&b[96..108]);
                o.fill(|n, j, l| {
                    ((b[32 + 32 * n + l] >> (2 * j) & 3) | (b[l] >> (4 * n + j) & 1) << 2) as i8 - 4
                });
            }
            Packed::Q4K => {
                o.pairs(b);
                o.fill(|n, j, l| (b[16 + 64 * n + 32 * (j / 2) + l] >> (4 * (j % 2)) & 15) as i8);
            }
            Packed::Q5K => {
                o.pairs(b);
                o.fill(|n, j, l| {
                    let low = b[48 + 64 * n + 32 * (j / 2) + l] >> (4 * (j % 2)) & 15;
                    (low | (b[16 + l] >> (4 * n + j) & 1) << 4) as i8
                });
            }
            Packed::Q6K => {
                o.d = half(208);
                o.scales.iter_mut().zip(&b[192..208]).for_each(|(s, &b)| *s = i16::from(b as i8));
                o.fill(|n, j, l| {
                    let low = b[64 * n + 32 * (j % 2) + l] >> (4 * (j / 2)) & 15;
                    (low | (b[128 + 32 * n + l] >> (2 * j) & 3) << 4) as i8 - 32
                });
            }
            Packed::Tq2 => {
                o.d = half(64);
                o.fill(|n, j, l| (b[32 * n + l] >> (2 * j) & 3) as i8 - 1);
            }
            Packed::Iq4Xs => {
                let scales = iq4_xs_scales(b);
                o.scales.iter_mut().enumerate().for_each(|(i, s)| *s = scales[i / 2]);
                o.fill(|n, j, l| {
                    let i = 4 * n + j;
                    IQ4_LEVELS[usize::from(b[8 + 16 * i + l % 16] >> (4 * (l / 16)) & 15)]
                });
            }
        }
        o
    }

    /// 32 codes from the halves of 16 bytes.
    fn nibbles(&mut self, q: &[u8], level: impl Fn(u8) -> i8) {
        for (j, &q) in q[..16].iter().enumerate() {
            (self.codes[j], self.codes[j + 16]) = (level(q & 15), level(q >> 4));
        }
    }

    /// 32 codes from a word of fifth bits and 16 bytes.
    fn five_bits(&mut self, b: &[u8], offset: i8) {
        self.nibbles(&b[4..], |q| q as i8);
        for (j, c) in self.codes[..32].iter_mut().enumerate() {
            *c += ((b[j / 8] >> (j % 8) & 1) << 4) as i8 - offset;
        }
    }

    /// 256 codes: `at(n, j, l)` is element `128 n + 32 j + l`.
    fn fill(&mut self, at: impl Fn(usize, usize, usize) -> i8) {
        self.codes.iter_mut().enumerate().for_each(|(i, c)| *c = at(i / 128, i / 32 % 4, i % 32));
    }

    /// Factors, scales and minima of Q4_K and Q5_K.
    fn pairs(&mut self, b: &[u8]) {
        let half = |at: usize| f16::from_le_bytes([b[at], b[at + 1]]).to_f32();
        (self.d, self.m) = (half(0), -half(2));
        let (scales, mins) = k_pairs(&b[4..16]);
        for i in 0..16 {
            (self.scales[i], self.mins[i]) = (i16::from(scales[i / 2]), i16::from(mins[i / 2]));
        }
    }
}

/// The eight 6-bit pairs of scale and minimum that Q4_K and Q5_K keep in 12 bytes.
#[inline(always)]
pub(crate) fn k_pairs(p: &[u8]) -> ([u8; 8], [u8; 8]) {
    let word = |i: usize| u32::from_le_bytes([p[i], p[i + 1], p[i + 2], p[i + 3]]);
    let (a, b, c) = (word(0), word(4), word(8));
    let (six, four, two) = (0x3f3f_3f3f, 0x0f0f_0f0f, 0x3030_3030);
    let join = |low: u32, high: u32| (u64::from(low) | u64::from(high) << 32).to_le_bytes();
    (join(a & six, c & four | a >> 2 & two), join(b & six, c >> 4 & four | b >> 2 & two))
}

/// The sixteen 6-bit scales of Q3_K.
#[inline(always)]
pub(crate) fn q3_scales(p: &[u8]) -> [i16; 16] {
    std::array::from_fn(|i| {
        let s = (p[i % 8] >> (4 * (i / 8)) & 15) | (p[8 + i % 4] >> (2 * (i / 4)) & 3) << 4;
        i16::from(s) - 32
    })
}

/// The eight 6-bit scales of IQ4_XS.
#[inline(always)]
pub(crate) fn iq4_xs_scales(b: &[u8]) -> [i16; 8] {
    let high = u16::from_le_bytes([b[2], b[3]]);
    std::array::from_fn(|i| {
        let low = i16::from(b[4 + i / 2] >> (4 * (i % 2)) & 15);
        (low | ((high >> (2 * i) & 3) << 4).cast_signed()) - 32
    })
}

/// `2^(e - 128)`: MXFP4's scale for doubled levels.
#[inline(always)]
pub(crate) fn half_power(e: u8) -> f32 {
    f32::from_bits(if e < 2 { 0x0020_0000 << e } else { u32::from(e - 1) << 23 })
}

/// Half of NVFP4's scale for doubled levels: E4M3 whose sign is ignored, but for ggml's zero (`0x7f`).
#[inline(always)]
pub(crate) fn half_scale(s: u8) -> f32 {
    // E4M3's bits are those of an f16 that is 2^8 times as small.
    if s == 0x7f { 0.0 } else { f16::from_bits(u16::from(s & 0x7f) << 7).to_f32() * 128.0 }
}

/// One row, unpacked, times one row of activations.
pub(crate) fn dot(format: Packed, row: &[Block], x: &Quantised) -> f32 {
    let len = format.scaled();
    let a_len = block_len(x.codes.len());
    let blocks = row.chunks(a_len / len).zip(x.codes.chunks(a_len)).zip(x.sums.chunks(a_len / 16));
    blocks.zip(&x.scales).fold(0.0, |sum, (((ws, codes), sums), &scale)| {
        let p = ws.iter().zip(codes.chunks(len)).zip(sums.chunks(len / 16)).fold(0.0, |p, ((w, a), s)| {
            let p = w.d.mul_add(w.codes_by(a) as f32, p);
            if format.has_min() { w.m.mul_add(w.mins_by(s) as f32, p) } else { p }
        });
        scale.mul_add(p, sum)
    })
}

impl Block {
    /// At most 256 · 128 · 128 · 127 in magnitude.
    fn codes_by(&self, a: &[i8]) -> i32 {
        // Of a fixed length, so that they are multiplied several at a time wherever this runs.
        let (a, codes) = (a.as_chunks::<16>().0, self.codes.as_chunks::<16>().0);
        let subs = a.iter().zip(codes).zip(&self.scales);
        subs.map(|((a, c), &s)| {
            let products = a.iter().zip(c).map(|(&a, &c)| i32::from(a) * i32::from(c));
            i32::from(s) * products.sum::<i32>()
        })
        .sum()
    }

    fn mins_by(&self, sums: &[i16]) -> i32 {
        sums.iter().zip(&self.mins).map(|(&s, &m)| i32::from(s) * i32::from(m)).sum()
    }
}
