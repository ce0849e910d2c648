//! The K-quants: superblocks of 256 elements whose sub-blocks have small integer scales under one or two f16 factors.
//!
//! Each layout is written down once, in the byte table of its static; `decode` reads it with a loop per sub-block and no
//! branch per element, `k_encode` writes it. Two-level scales are what sets these apart from the older formats: a
//! sub-block pays 4 to 8 bits for its scale and not 16.

use super::{Format, half_at, k_encode};

/// Elements of a superblock.
pub(super) const LEN: usize = 256;

/// 2 bits, affine in sub-blocks of 16: `d · s · q - dmin · m`.
///
/// | bytes | what |
/// |---|---|
/// | 0–15 | byte `i` belongs to elements `16i..16i + 16`: `s` in the low half, `m` in the high half |
/// | 16–79 | `q`: bits `2j` and `2j + 1` of byte `16 + 32n + l` are element `128n + 32j + l` |
/// | 80–81 | `d`, f16 |
/// | 82–83 | `dmin`, f16 |
pub static Q2_K: Format = Format {
    name: "q2_k",
    block_len: LEN,
    block_bytes: 84,
    decode: |b, out| {
        let (d, dmin) = (half_at(b, 80), half_at(b, 82));
        for (i, o) in out.chunks_exact_mut(16).enumerate() {
            let (scale, min) = (d * f32::from(b[i] & 15), dmin * f32::from(b[i] >> 4));
            let shift = two_bit_shift(i);
            for (&q, o) in b[16..80][two_bit_start(i)..][..16].iter().zip(o) {
                *o = scale * f32::from((q >> shift) & 3) - min;
            }
        }
    },
    encode: Some(k_encode::q2_k),
};

/// 3 bits, symmetric in sub-blocks of 16: `d · (s - 32) · (q - 4)`.
///
/// | bytes | what |
/// |---|---|
/// | 0–31 | bit `4n + j` of byte `l` is the third bit of element `128n + 32j + l` |
/// | 32–95 | the low two bits of `q`: bits `2j` and `2j + 1` of byte `32 + 32n + l` are of element `128n + 32j + l` |
/// | 96–103 | the low four bits of `s`: the low half of byte `96 + i` is of scale `i`, the high half of scale `i + 8` |
/// | 104–107 | the high two bits of `s`: bits `2k` and `2k + 1` of byte `104 + i` are of scale `4k + i` |
/// | 108–109 | `d`, f16 |
pub static Q3_K: Format = Format {
    name: "q3_k",
    block_len: LEN,
    block_bytes: 110,
    decode: |b, out| {
        let d = half_at(b, 108);
        for (i, o) in out.chunks_exact_mut(16).enumerate() {
            let scale = (b[96 + i % 8] >> (4 * (i / 8)) & 15) | (b[104 + i % 4] >> (2 * (i / 4)) & 3) << 4;
            let scale = d * f32::from(scale as i8 - 32);
            let (shift, bit) = (two_bit_shift(i), (i / 2) as u32);
            let third = &b[16 * (i % 2)..][..16];
            for ((&q, &t), o) in b[32..96][two_bit_start(i)..][..16].iter().zip(third).zip(o) {
                *o = scale * f32::from(((q >> shift) & 3 | ((t >> bit) & 1) << 2) as i8 - 4);
            }
        }
    },
    encode: Some(k_encode::q3_k),
};

/// 4 bits, affine in sub-blocks of 32: `d · s · q - dmin · m`.
///
/// | bytes | what |
/// |---|---|
/// | 0–1 | `d`, f16 |
/// | 2–3 | `dmin`, f16 |
/// | 4–15 | eight 6-bit pairs `s`, `m`. For `i < 4`: `s` is the low six bits of byte `4 + i`, `m` of byte `8 + i`. For `i ≥ 4`: their low four bits are the low and high half of byte `8 + i`, their high two bits the top of bytes `i` and `4 + i` |
/// | 16–143 | `q`: the low half of byte `16 + 32j + l` is element `64j + l`, the high half element `64j + 32 + l` |
pub static Q4_K: Format = Format {
    name: "q4_k",
    block_len: LEN,
    block_bytes: 144,
    decode: |b, out| {
        let pairs = Pairs::read(b);
        for (j, (q, o)) in b[16..144].chunks_exact(32).zip(out.chunks_exact_mut(64)).enumerate() {
            let ((s0, m0), (s1, m1)) = (pairs.at(2 * j), pairs.at(2 * j + 1));
            let (low, high) = o.split_at_mut(32);
            for ((&q, l), h) in q.iter().zip(low).zip(high) {
                *l = s0 * f32::from(q & 15) - m0;
                *h = s1 * f32::from(q >> 4) - m1;
            }
        }
    },
    encode: Some(k_encode::q4_k),
};

/// 5 bits, affine in sub-blocks of 32: `d · s · q - dmin · m`.
///
/// | bytes | what |
/// |---|---|
/// | 0–15 | `d`, `dmin` and the pairs, as in [`Q4_K`] |
/// | 16–47 | bit `i` of byte `16 + l` is the fifth bit of element `32i + l` |
/// | 48–175 | the low four bits of `q`, as in [`Q4_K`] |
pub static Q5_K: Format = Format {
    name: "q5_k",
    block_len: LEN,
    block_bytes: 176,
    decode: |b, out| {
        let pairs = Pairs::read(b);
        let fifth = &b[16..48];
        for (j, (q, o)) in b[48..176].chunks_exact(32).zip(out.chunks_exact_mut(64)).enumerate() {
            let ((s0, m0), (s1, m1)) = (pairs.at(2 * j), pairs.at(2 * j + 1));
            let (low, high) = o.split_at_mut(32);
            for (((&q, &f), l), h) in q.iter().zip(fifth).zip(low).zip(high) {
                let f = f >> (2 * j);
                *l = s0 * f32::from(q & 15 | (f & 1) << 4) - m0;
                *h = s1 * f32::from(q >> 4 | (f & 2) << 3) - m1;
            }
        }
    },
    encode: Some(k_encode::q5_k),
};

/// 6 bits, symmetric in sub-blocks of 16: `d · s · (q - 32)`.
///
/// | bytes | what |
/// |---|---|
/// | 0–127 | the low four bits of `q`: the low half of byte `64n + l` is of element `128n + l`, the high half of element `128n + 64 + l`, for `l` in `0..64` |
/// | 128–191 | the high two bits: bits `2j` and `2j + 1` of byte `128 + 32n + l` are of element `128n + 32j + l` |
/// | 192–207 | `s`, i8 |
/// | 208–209 | `d`, f16 |
pub static Q6_K: Format = Format {
    name: "q6_k",
    block_len: LEN,
    block_bytes: 210,
    decode: |b, out| {
        let d = half_at(b, 208);
        for (i, o) in out.chunks_exact_mut(16).enumerate() {
            let scale = d * f32::from(b[192 + i] as i8);
            let (start, shift, high_shift) = (six_bit_start(i), six_bit_shift(i), two_bit_shift(i));
            let high = &b[128..192][two_bit_start(i)..][..16];
            for ((&q, &h), o) in b[start..][..16].iter().zip(high).zip(o) {
                *o = scale * f32::from(((q >> shift) & 15 | ((h >> high_shift) & 3) << 4) as i8 - 32);
            }
        }
    },
    encode: Some(k_encode::q6_k),
};

/// Where the 2-bit fields of sub-block `i` of 16 elements begin: 128 elements share 32 bytes.
pub(super) fn two_bit_start(i: usize) -> usize {
    32 * (i / 8) + 16 * (i % 2)
}

/// Which bits of those bytes they are.
pub(super) fn two_bit_shift(i: usize) -> usize {
    2 * (i / 2 % 4)
}

/// Where the low four bits of sub-block `i` of a [`Q6_K`] block begin.
pub(super) fn six_bit_start(i: usize) -> usize {
    64 * (i / 8) + 16 * (i % 4)
}

/// Which half of those bytes they are.
pub(super) fn six_bit_shift(i: usize) -> usize {
    4 * (i / 4 % 2)
}

/// The unpacked scales and minima of [`Q4_K`] and [`Q5_K`].
struct Pairs {
    d: f32,
    dmin: f32,
    scales: [u8; 8],
    mins: [u8; 8],
}

impl Pairs {
    fn read(b: &[u8]) -> Self {
        let (mut scales, mut mins) = ([0; 8], [0; 8]);
        let p = &b[4..16];
        for i in 0..4 {
            (scales[i], mins[i]) = (p[i] & 63, p[4 + i] & 63);
            scales[4 + i] = p[8 + i] & 15 | p[i] >> 6 << 4;
            mins[4 + i] = p[8 + i] >> 4 | p[4 + i] >> 6 << 4;
        }
        Self { d: half_at(b, 0), dmin: half_at(b, 2), scales, mins }
    }

    /// Factor and minimum of sub-block `i`.
    fn at(&self, i: usize) -> (f32, f32) {
        (self.d * f32::from(self.scales[i]), self.dmin * f32::from(self.mins[i]))
    }
}
