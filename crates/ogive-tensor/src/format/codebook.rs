//! IQ1 to IQ3: codes that stand for eight or four elements at once, whose levels a table has.
//!
//! Each layout is written down once, in the byte table of its static; `codebook_encode` writes what is read here. All scales are odd numbers of some fraction of `d`, so a decoder
//! multiplies `d` with whole numbers and no rounding depends on their order: the products of a half, five bits and six fit single
//! precision. The shift by an eighth that IQ1's levels have is therefore part of the level, in eighths, and no minimum.

use super::{
    Format, codebook_encode, grids,
    grids::{eights, fours, signs},
    half_at,
};
use half::f16;

/// Elements of a superblock.
pub(super) const LEN: usize = 256;

pub(super) static IQ2_XXS_GRID: [[i8; 8]; 256] = eights(&grids::IQ2_XXS, grids::IQ2_LEVELS);
pub(super) static IQ2_XS_GRID: [[i8; 8]; 512] = eights(&grids::IQ2_XS, grids::IQ2_LEVELS);
pub(super) static IQ2_S_GRID: [[i8; 8]; 1024] = eights(&grids::IQ2_S, grids::IQ2_LEVELS);
pub(super) static IQ3_XXS_GRID: [[i8; 4]; 256] = fours(&grids::IQ3_XXS, grids::IQ3_XXS_LEVELS);
pub(super) static IQ3_S_GRID: [[i8; 4]; 512] = fours(&grids::IQ3_S, grids::IQ3_S_LEVELS);
pub(super) static IQ1_GRID: [[i8; 8]; 2048] = eights(&grids::IQ1, grids::IQ1_LEVELS);

/// 2 bits, eights of [`grids::IQ2_XXS`] with signs: `d / 8 · (2 s + 1) · ±level`, a scale for each 32 elements.
///
/// | bytes | what |
/// |---|---|
/// | 0–1 | `d`, f16 |
/// | 2–65 | for each 32 elements the codes of four eights, a byte each, and a word of 32 bits: bits `7 i` to `7 i + 6` are the [`signs`] of eight `i`, the highest four `s` |
pub static IQ2_XXS: Format = Format {
    name: "iq2_xxs",
    block_len: LEN,
    block_bytes: 66,
    decode: |b, out| {
        let d = half_at(b, 0) / 8.0;
        for (b, o) in b[2..66].chunks_exact(8).zip(out.chunks_exact_mut(32)) {
            let rest = word_at(b, 4);
            for (i, o) in o.chunks_exact_mut(8).enumerate() {
                let levels = &IQ2_XXS_GRID[usize::from(b[i])];
                put(d * odd(rest >> 28), levels, signs((rest >> (7 * i)) as u8), o);
            }
        }
    },
    encode: Some(codebook_encode::iq2_xxs),
};

/// 2 bits, eights of [`grids::IQ2_XS`] with signs: `d / 8 · (2 s + 1) · ±level`, a scale for each 16 elements.
///
/// | bytes | what |
/// |---|---|
/// | 0–1 | `d`, f16 |
/// | 2–65 | 16 bits for each eight: nine of its code, then seven of its [`signs`] |
/// | 66–73 | `s`: the low half of byte `66 + i` is of elements `32 i..32 i + 16`, the high half of the next 16 |
pub static IQ2_XS: Format = Format {
    name: "iq2_xs",
    block_len: LEN,
    block_bytes: 74,
    decode: |b, out| {
        let d = half_at(b, 0) / 8.0;
        for (i, o) in out.chunks_exact_mut(8).enumerate() {
            let both = u16::from_le_bytes([b[2 + 2 * i], b[3 + 2 * i]]);
            let s = b[66 + i / 4] >> (4 * (i / 2 % 2)) & 15;
            put(d * odd(s.into()), &IQ2_XS_GRID[usize::from(both & 511)], signs((both >> 9) as u8), o);
        }
    },
    encode: Some(codebook_encode::iq2_xs),
};

/// 2 bits, eights of [`grids::IQ2_S`] with signs: `d / 8 · (2 s + 1) · ±level`, a scale for each 16 elements.
///
/// | bytes | what |
/// |---|---|
/// | 0–1 | `d`, f16 |
/// | 2–33 | the low eight bits of each eight's code |
/// | 34–65 | signs: bit `j` of byte `34 + i` is of element `8 i + j` |
/// | 66–73 | the high two bits: bits `2 j` and `2 j + 1` of byte `66 + i` are of eight `4 i + j` |
/// | 74–81 | `s`, as in [`IQ2_XS`] |
pub static IQ2_S: Format = Format {
    name: "iq2_s",
    block_len: LEN,
    block_bytes: 82,
    decode: |b, out| {
        let d = half_at(b, 0) / 8.0;
        for (i, o) in out.chunks_exact_mut(8).enumerate() {
            let high = b[66 + i / 4] >> (2 * (i % 4)) & 3;
            let s = b[74 + i / 4] >> (4 * (i / 2 % 2)) & 15;
            put(d * odd(s.into()), &IQ2_S_GRID[code(b[2 + i], high)], b[34 + i], o);
        }
    },
    encode: Some(codebook_encode::iq2_s),
};

/// 3 bits, fours of [`grids::IQ3_XXS`] with signs: `d / 4 · (2 s + 1) · ±level`, a scale for each 32 elements.
///
/// | bytes | what |
/// |---|---|
/// | 0–1 | `d`, f16 |
/// | 2–65 | the code of each four |
/// | 66–97 | a word of 32 bits for each 32 elements: signs of eights and `s`, as in [`IQ2_XXS`] |
pub static IQ3_XXS: Format = Format {
    name: "iq3_xxs",
    block_len: LEN,
    block_bytes: 98,
    decode: |b, out| {
        let d = half_at(b, 0) / 4.0;
        for (i, o) in out.chunks_exact_mut(8).enumerate() {
            let rest = word_at(b, 66 + 4 * (i / 4));
            let (scale, signs) = (d * odd(rest >> 28), signs((rest >> (7 * (i % 4))) as u8));
            let (low, high) = o.split_at_mut(4);
            put(scale, &IQ3_XXS_GRID[usize::from(b[2 + 2 * i])], signs, low);
            put(scale, &IQ3_XXS_GRID[usize::from(b[3 + 2 * i])], signs >> 4, high);
        }
    },
    encode: Some(codebook_encode::iq3_xxs),
};

/// 3 bits, fours of [`grids::IQ3_S`] with signs: `d · (2 s + 1) · ±level`, a scale for each 32 elements.
///
/// | bytes | what |
/// |---|---|
/// | 0–1 | `d`, f16 |
/// | 2–65 | the low eight bits of each four's code |
/// | 66–73 | the ninth: bit `j` of byte `66 + i` is of four `8 i + j` |
/// | 74–105 | signs: bit `j` of byte `74 + i` is of element `8 i + j` |
/// | 106–109 | `s`: the low half of byte `106 + i` is of elements `64 i..64 i + 32`, the high half of the next 32 |
pub static IQ3_S: Format = Format {
    name: "iq3_s",
    block_len: LEN,
    block_bytes: 110,
    decode: |b, out| {
        let d = half_at(b, 0);
        for (i, o) in out.chunks_exact_mut(4).enumerate() {
            let high = b[66 + i / 8] >> (i % 8) & 1;
            let s = b[106 + i / 16] >> (4 * (i / 8 % 2)) & 15;
            let signs = b[74 + i / 2] >> (4 * (i % 2));
            put(d * odd(s.into()), &IQ3_S_GRID[code(b[2 + i], high)], signs, o);
        }
    },
    encode: Some(codebook_encode::iq3_s),
};

/// 1.56 bits, eights of [`grids::IQ1`]: `d / 8 · (2 s + 1) · (8 level ± 1)`, a scale and a shift for each 32 elements.
///
/// | bytes | what |
/// |---|---|
/// | 0–1 | `d`, f16 |
/// | 2–33 | the low eight bits of each eight's code |
/// | 34–49 | 16 bits for each 32 elements: bits `3 i` to `3 i + 2` are the high ones of eight `i`, then three bits of `s`; the highest is set where the shift is -1 |
pub static IQ1_S: Format = Format {
    name: "iq1_s",
    block_len: LEN,
    block_bytes: 50,
    decode: |b, out| {
        let d = half_at(b, 0) / 8.0;
        for (i, o) in out.chunks_exact_mut(8).enumerate() {
            let rest = u16::from_le_bytes([b[34 + 2 * (i / 4)], b[35 + 2 * (i / 4)]]);
            let high = (rest >> (3 * (i % 4)) & 7) as u8;
            shifted(d * odd(u32::from(rest >> 12 & 7)), code(b[2 + i], high), rest >> 15 == 1, o);
        }
    },
    encode: Some(codebook_encode::iq1_s),
};

/// 1.75 bits, eights of [`grids::IQ1`]: `d / 8 · (2 s + 1) · (8 level ± 1)`, a scale for each 16 elements and a shift for each eight.
///
/// | bytes | what |
/// |---|---|
/// | 0–31 | the low eight bits of each eight's code |
/// | 32–47 | the low half of byte `32 + i` is of eight `2 i`, the high half of the next: three high bits of the code, and one that is set where the shift is -1 |
/// | 48–55 | four words of 16 bits: bits `3 j` to `3 j + 2` of word `i` are `s` of elements `64 i + 16 j..64 i + 16 j + 16`; the highest four are bits `4 i` to `4 i + 3` of `d`, f16 |
pub static IQ1_M: Format = Format {
    name: "iq1_m",
    block_len: LEN,
    block_bytes: 56,
    decode: |b, out| {
        let words: [u16; 4] = std::array::from_fn(|i| u16::from_le_bytes([b[48 + 2 * i], b[49 + 2 * i]]));
        let d = words.iter().rev().fold(0, |d, w| d << 4 | w >> 12);
        let d = f16::from_bits(d).to_f32() / 8.0;
        for (i, o) in out.chunks_exact_mut(8).enumerate() {
            let rest = b[32 + i / 2] >> (4 * (i % 2)) & 15;
            let s = words[i / 8] >> (3 * (i / 2 % 4)) & 7;
            shifted(d * odd(s.into()), code(b[i], rest & 7), rest >> 3 == 1, o);
        }
    },
    encode: Some(codebook_encode::iq1_m),
};

/// The code of these bits.
fn code(low: u8, high: u8) -> usize {
    usize::from(low) | usize::from(high) << 8
}

fn word_at(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

/// `2 s + 1`
fn odd(s: u32) -> f32 {
    (2 * s + 1) as f32
}

/// As many elements as there are levels; bit `j` of `signs` is of element `j`.
fn put(scale: f32, levels: &[i8], signs: u8, out: &mut [f32]) {
    for (j, (&level, o)) in levels.iter().zip(out).enumerate() {
        *o = scale * f32::from(if signs >> j & 1 == 1 { -level } else { level });
    }
}

/// Eight elements of IQ1.
fn shifted(scale: f32, code: usize, down: bool, out: &mut [f32]) {
    for (&level, o) in IQ1_GRID[code].iter().zip(out) {
        *o = scale * f32::from(8 * level + if down { -1 } else { 1 });
    }
}
