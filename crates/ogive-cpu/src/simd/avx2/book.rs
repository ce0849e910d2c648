//! Formats of one to three bits, unpacked for the kernels of [`Packed::Coded`](crate::linear::Packed).
//!
//! Groups are looked up one by one, four or eight to a register: a gather is no faster on Intel's processors, and far slower on AMD's. Signs and
//! scales are made for a block at a time.
#![allow(unsafe_code)]

use super::codes::{load, load_half};
use crate::linear::{
    Book, CODED, Eight, FACTOR, IQ1, IQ2_S, IQ2_XS, IQ2_XXS, IQ3_S, IQ3_XXS, LOW, RAISE, SCALES,
};
use std::arch::x86_64::*;

/// A block that is unpacked.
type Coded = [u8; CODED];

/// Unpacks a row.
#[target_feature(enable = "avx2,f16c")]
pub(in crate::simd) fn unpack(book: Book, row: &[u8], to: &mut [u8]) {
    let to = to.as_chunks_mut().0;
    match book {
        Book::Iq1S => row.as_chunks().0.iter().zip(to).for_each(|(b, to)| iq1_s(b, to)),
        Book::Iq1M => row.as_chunks().0.iter().zip(to).for_each(|(b, to)| iq1_m(b, to)),
        Book::Iq2Xxs => row.as_chunks().0.iter().zip(to).for_each(|(b, to)| iq2_xxs(b, to)),
        Book::Iq2Xs => row.as_chunks().0.iter().zip(to).for_each(|(b, to)| iq2_xs(b, to)),
        Book::Iq2S => row.as_chunks().0.iter().zip(to).for_each(|(b, to)| iq2_s(b, to)),
        Book::Iq3Xxs => row.as_chunks().0.iter().zip(to).for_each(|(b, to)| iq3_xxs(b, to)),
        Book::Iq3S => row.as_chunks().0.iter().zip(to).for_each(|(b, to)| iq3_s(b, to)),
        Book::Tq1 => row.as_chunks().0.iter().zip(to).for_each(|(b, to)| tq1_0(b, to)),
    }
}

#[target_feature(enable = "avx2,f16c")]
fn iq1_s(b: &[u8; 50], to: &mut Coded) {
    put_factor(to, half([b[0], b[1]]) / 8.0);
    let rest = load_half(b, 34);
    let scale = _mm_and_si128(_mm_srli_epi16::<12>(rest), _mm_set1_epi16(7));
    put_scales(to, _mm_or_si128(scale, _mm_slli_epi16::<8>(scale)));
    // Three bits each, of four to a word: up to the same place, and down from there.
    let up = _mm256_set1_epi64x(0x0010_0080_0400_2000);
    let mut codes = [0; 8];
    for half in 0..2 {
        let rest = _mm256_broadcastsi128_si256(if half == 0 { rest } else { _mm_srli_si128::<8>(rest) });
        let each = _mm256_setr_epi64x(
            0x0100_0100_0100_0100,
            0x0302_0302_0302_0302,
            0x0504_0504_0504_0504,
            0x0706_0706_0706_0706,
        );
        let high = _mm256_srli_epi16::<5>(_mm256_mullo_epi16(_mm256_shuffle_epi8(rest, each), up));
        put_codes(&mut codes, half, load_half(b, 2 + 16 * half), high, 0x0700);
    }
    for (j, codes) in codes.into_iter().enumerate() {
        let down = _mm256_set1_epi8(-((b[35 + 2 * j] >> 7).cast_signed()));
        put(to, j, shifted(eights(&IQ1, codes), down));
    }
}

#[target_feature(enable = "avx2,f16c")]
fn iq1_m(b: &[u8; 56], to: &mut Coded) {
    let words = u64::from_le_bytes([b[48], b[49], b[50], b[51], b[52], b[53], b[54], b[55]]);
    let d = words >> 12 & 15 | words >> 24 & 0xf0 | words >> 36 & 0xf00 | words >> 48 & 0xf000;
    put_factor(to, half((d as u16).to_le_bytes()) / 8.0);
    put_scales(to, iq1_m_scales(b));
    let mut codes = [0; 8];
    for half in 0..2 {
        // The halves of bytes are four bits: the higher ones come to the next.
        let rest = i64::from_le_bytes(std::array::from_fn(|i| b[32 + 8 * half + i]));
        let rest = _mm_cvtsi64_si128(rest);
        let rest = _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(rest, _mm_srli_epi16::<4>(rest)));
        put_codes(&mut codes, half, load_half(b, 16 * half), _mm256_slli_epi16::<8>(rest), 0x0700);
    }
    let rests: &[[u8; 2]] = b[32..48].as_chunks().0;
    for (j, codes) in codes.into_iter().enumerate() {
        let bit = _mm256_setr_epi64x(8, 8 << 4, 8 << 8, 8 << 12);
        let rest = _mm256_set1_epi64x(u16::from_le_bytes(rests[j]).into());
        let down = _mm256_cmpeq_epi64(_mm256_and_si256(rest, bit), bit);
        put(to, j, shifted(eights(&IQ1, codes), down));
    }
}

/// Sub-scales of IQ1_M: three bits each, four to 16 bits.
#[inline]
#[target_feature(enable = "avx2")]
fn iq1_m_scales(b: &[u8; 56]) -> __m128i {
    let words = i64::from_le_bytes([b[48], b[49], b[50], b[51], b[52], b[53], b[54], b[55]]);
    let each = _mm256_setr_epi64x(
        0x0100_0100_0100_0100,
        0x0302_0302_0302_0302,
        0x0504_0504_0504_0504,
        0x0706_0706_0706_0706,
    );
    let words = _mm256_shuffle_epi8(_mm256_set1_epi64x(words), each);
    // Up to the same place, and down from there.
    let up = _mm256_set1_epi64x(0x0001_0008_0040_0200);
    let s = _mm256_srli_epi16::<9>(_mm256_mullo_epi16(words, up));
    let s = _mm256_and_si256(s, _mm256_set1_epi16(7));
    _mm_packus_epi16(_mm256_castsi256_si128(s), _mm256_extracti128_si256::<1>(s))
}

#[target_feature(enable = "avx2,f16c")]
fn iq2_xxs(b: &[u8; 66], to: &mut Coded) {
    put_factor(to, half([b[0], b[1]]) / 8.0);
    let both = [load(b, 2), load(b, 34)].map(|v| _mm256_castsi256_ps(v));
    let words = _mm256_castps_si256(_mm256_shuffle_ps::<0b11_01_11_01>(both[0], both[1]));
    let signs = sevens(_mm256_permute4x64_epi64::<0b11_01_10_00>(words), to);
    let codes: &[[u8; 8]] = b[2..].as_chunks().0;
    for j in 0..8 {
        let e = |i: usize| i64::from_le_bytes(IQ2_XXS[usize::from(codes[j][i])].0.map(i8::cast_unsigned));
        put(to, j, signed(_mm256_setr_epi64x(e(0), e(1), e(2), e(3)), signs[j]));
    }
}

#[target_feature(enable = "avx2,f16c")]
fn iq2_xs(b: &[u8; 74], to: &mut Coded) {
    put_factor(to, half([b[0], b[1]]) / 8.0);
    put_scales(to, nibbles([b[66], b[67], b[68], b[69], b[70], b[71], b[72], b[73]]));
    let high = [_mm256_srli_epi16::<9>(load(b, 2)), _mm256_srli_epi16::<9>(load(b, 34))];
    let signs = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packus_epi16(high[0], high[1]));
    let signs = array(even(signs));
    let codes: &[[u8; 8]] = b[2..66].as_chunks().0;
    for j in 0..8 {
        put(to, j, signed(eights(&IQ2_XS, u64::from_le_bytes(codes[j])), signs[j]));
    }
}

#[target_feature(enable = "avx2,f16c")]
fn iq2_s(b: &[u8; 82], to: &mut Coded) {
    put_factor(to, half([b[0], b[1]]) / 8.0);
    put_scales(to, nibbles([b[74], b[75], b[76], b[77], b[78], b[79], b[80], b[81]]));
    let signs = array(load(b, 34));
    // Two bits each, of four to a byte.
    let up = _mm256_set1_epi64x(0x0100_0400_1000_4000);
    let mut codes = [0; 8];
    for half in 0..2 {
        let rest = i32::from_le_bytes(std::array::from_fn(|i| b[66 + 4 * half + i]));
        let four = _mm256_cvtepu8_epi64(_mm_cvtsi32_si128(rest));
        // The byte of each quarter, in its four words.
        let each = _mm256_broadcastsi128_si256(_mm_set_epi64x(
            0x8008_8008_8008_8008_u64.cast_signed(),
            0x8000_8000_8000_8000_u64.cast_signed(),
        ));
        let high = _mm256_shuffle_epi8(four, each);
        let high = _mm256_srli_epi16::<6>(_mm256_mullo_epi16(high, up));
        put_codes(&mut codes, half, load_half(b, 2 + 16 * half), high, 0x0300);
    }
    for (j, codes) in codes.into_iter().enumerate() {
        put(to, j, signed(eights(&IQ2_S, codes), signs[j]));
    }
}

#[target_feature(enable = "avx2,f16c")]
fn iq3_xxs(b: &[u8; 98], to: &mut Coded) {
    put_factor(to, half([b[0], b[1]]) / 4.0);
    let signs = sevens(load(b, 66), to);
    let codes: &[[u8; 8]] = b[2..66].as_chunks().0;
    for j in 0..8 {
        let e = |i: usize| i32::from_le_bytes(IQ3_XXS[usize::from(codes[j][i])].map(i8::cast_unsigned));
        let levels = _mm256_setr_epi32(e(0), e(1), e(2), e(3), e(4), e(5), e(6), e(7));
        put(to, j, signed(levels, signs[j]));
    }
}

#[target_feature(enable = "avx2,f16c")]
fn iq3_s(b: &[u8; 110], to: &mut Coded) {
    put_factor(to, half([b[0], b[1]]));
    let s = nibbles([b[106], b[107], b[108], b[109], 0, 0, 0, 0]);
    put_scales(to, _mm_unpacklo_epi8(s, s));
    let signs = array(load(b, 74));
    let mut codes = [[0; 8]; 2];
    for half in 0..4 {
        // A bit each, of sixteen to a word.
        let bit = _mm256_setr_epi64x(
            0x0008_0004_0002_0001,
            0x0080_0040_0020_0010,
            0x0800_0400_0200_0100,
            0x8000_4000_2000_1000_u64.cast_signed(),
        );
        let rest = i16::from_le_bytes([b[66 + 2 * half], b[67 + 2 * half]]);
        let high = _mm256_cmpeq_epi16(_mm256_and_si256(_mm256_set1_epi16(rest), bit), bit);
        put_codes(&mut codes[half / 2], half % 2, load_half(b, 2 + 16 * half), high, 0x0100);
    }
    let codes: &[[u64; 2]] = codes.as_flattened().as_chunks().0;
    for j in 0..8 {
        put(to, j, signed(fours(&IQ3_S, codes[j]), signs[j]));
    }
}

#[target_feature(enable = "avx2,f16c")]
fn tq1_0(b: &[u8; 54], to: &mut Coded) {
    put_factor(to, half([b[52], b[53]]));
    put_scales(to, _mm_setzero_si128());
    let mut v = load(b, 0);
    for j in 0..5 {
        put(to, j, digit(v));
        v = three(v);
    }
    // Digit after digit of sixteen bytes, two in a register.
    let one = _mm256_castsi128_si256(load_half(b, 32));
    let mut v = _mm256_inserti128_si256::<1>(one, three_of_half(load_half(b, 32)));
    for j in 5..7 {
        put(to, j, digit(v));
        v = three(three(v));
    }
    // The last of them, and four digits of four bytes.
    let last = four_digits([b[48], b[49], b[50], b[51]]);
    put(to, 7, digit(_mm256_inserti128_si256::<1>(v, last)));
}

/// Four bytes, times three, times nine and times 27.
#[inline]
#[target_feature(enable = "avx2")]
pub(in crate::simd) fn four_digits(bytes: [u8; 4]) -> __m128i {
    let v = _mm_set1_epi32(i32::from_le_bytes(bytes));
    let powers = _mm_setr_epi32(0x0001_0001, 0x0003_0003, 0x0009_0009, 0x001b_001b);
    let mask = _mm_set1_epi16(255);
    let even = _mm_and_si128(_mm_mullo_epi16(_mm_and_si128(v, mask), powers), mask);
    let odd = _mm_slli_epi16::<8>(_mm_mullo_epi16(_mm_srli_epi16::<8>(v), powers));
    _mm_or_si128(even, odd)
}

/// Bytes times three.
#[inline]
#[target_feature(enable = "avx2")]
pub(in crate::simd) fn three_of_half(v: __m128i) -> __m128i {
    _mm_add_epi8(_mm_add_epi8(v, v), v)
}

/// The same of 32.
#[inline]
#[target_feature(enable = "avx2")]
pub(in crate::simd) fn three(v: __m256i) -> __m256i {
    _mm256_add_epi8(_mm256_add_epi8(v, v), v)
}

/// `byte · 3 / 256`, raised and less by one.
#[inline]
#[target_feature(enable = "avx2")]
fn digit(v: __m256i) -> __m256i {
    let from = |v, least: u8| {
        let least = _mm256_set1_epi8(least.cast_signed());
        _mm256_cmpeq_epi8(_mm256_max_epu8(v, least), v)
    };
    // What is true is -1.
    let less = _mm256_sub_epi8(_mm256_set1_epi8(RAISE as i8 - 1), from(v, 86));
    _mm256_sub_epi8(less, from(v, 171))
}

/// Writes half `i` of 32 codes, 16 bits each: their low bytes, and high bits as a mask has them. Four are a word, because a compiler that sees
/// sixteen bits takes them one by one from the register, which is slower than shifts.
#[inline]
#[target_feature(enable = "avx2")]
fn put_codes(codes: &mut [u64; 8], i: usize, low: __m128i, high: __m256i, mask: i16) {
    let high = _mm256_and_si256(high, _mm256_set1_epi16(mask));
    let to: &mut [u64; 4] = &mut codes.as_chunks_mut().0[i];
    // SAFETY: 32 bytes are written to an array of 32.
    unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), _mm256_or_si256(_mm256_cvtepu8_epi16(low), high)) };
}

#[inline]
#[target_feature(enable = "f16c")]
pub(in crate::simd) fn half(b: [u8; 2]) -> f32 {
    _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(u16::from_le_bytes(b).into())))
}

pub(in crate::simd) fn put_factor(to: &mut Coded, d: f32) {
    to[FACTOR..FACTOR + 4].copy_from_slice(&d.to_le_bytes());
}

/// Sixteen sub-scales, of which each is `2 s + 1`.
#[inline]
#[target_feature(enable = "avx2")]
pub(in crate::simd) fn put_scales(to: &mut Coded, s: __m128i) {
    let s = _mm_add_epi8(_mm_add_epi8(s, s), _mm_set1_epi8(1));
    const { assert!(SCALES + 16 <= CODED) };
    // SAFETY: the 16 bytes are inside the array.
    unsafe { _mm_storeu_si128(to.as_mut_ptr().add(SCALES).cast(), s) };
}

/// Writes codes `32 j..32 j + 32`.
#[inline]
#[target_feature(enable = "avx2")]
fn put(to: &mut Coded, j: usize, codes: __m256i) {
    assert!(32 * j + 32 <= CODED);
    // SAFETY: the 32 bytes are inside the array.
    unsafe { _mm256_storeu_si256(to.as_mut_ptr().add(32 * j).cast(), codes) };
}

/// The halves of eight bytes, one after the other.
#[inline]
#[target_feature(enable = "avx2")]
pub(in crate::simd) fn nibbles(b: [u8; 8]) -> __m128i {
    let (v, low) = (_mm_cvtsi64_si128(i64::from_le_bytes(b)), _mm_set1_epi8(15));
    _mm_unpacklo_epi8(_mm_and_si128(v, low), _mm_and_si128(_mm_srli_epi16::<4>(v), low))
}

/// Four eights of a grid.
#[inline]
#[target_feature(enable = "avx2")]
fn eights<const N: usize>(grid: &[Eight; N], codes: u64) -> __m256i {
    const { assert!(N.is_power_of_two()) };
    let code = |i: usize| (codes >> (16 * i)) as usize & (N - 1);
    let e = |i: usize| i64::from_le_bytes(grid[code(i)].0.map(i8::cast_unsigned));
    _mm256_setr_epi64x(e(0), e(1), e(2), e(3))
}

/// Eight fours of a grid.
#[inline]
#[target_feature(enable = "avx2")]
fn fours<const N: usize>(grid: &[[i8; 4]; N], codes: [u64; 2]) -> __m256i {
    const { assert!(N.is_power_of_two()) };
    let code = |i: usize| (codes[i / 4] >> (16 * (i % 4))) as usize & (N - 1);
    let e = |i: usize| i32::from_le_bytes(grid[code(i)].map(i8::cast_unsigned));
    _mm256_setr_epi32(e(0), e(1), e(2), e(3), e(4), e(5), e(6), e(7))
}

/// Levels with signs, a bit each, raised.
#[inline]
#[target_feature(enable = "avx2")]
fn signed(levels: __m256i, signs: u32) -> __m256i {
    let spread = _mm256_setr_epi64x(0, 0x0101_0101_0101_0101, 0x0202_0202_0202_0202, 0x0303_0303_0303_0303);
    let all = _mm256_shuffle_epi8(_mm256_set1_epi32(signs.cast_signed()), spread);
    let mask = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64.cast_signed());
    let set = _mm256_cmpeq_epi8(_mm256_and_si256(all, mask), mask);
    let turned = _mm256_sub_epi8(_mm256_xor_si256(levels, set), set);
    _mm256_add_epi8(turned, _mm256_set1_epi8(RAISE as i8))
}

/// Levels of IQ1, raised by more than the table has it, less two where `down` is -1.
#[inline]
#[target_feature(enable = "avx2")]
fn shifted(levels: __m256i, down: __m256i) -> __m256i {
    let half = _mm256_add_epi8(_mm256_set1_epi8((RAISE - LOW) as i8 / 2), down);
    _mm256_add_epi8(levels, _mm256_add_epi8(half, half))
}

/// Of eight words with four times seven signs and a scale: the signs of 32 codes each. The scales are written.
#[inline]
#[target_feature(enable = "avx2")]
fn sevens(words: __m256i, to: &mut Coded) -> [u32; 8] {
    let s = _mm256_srli_epi32::<28>(words);
    let s = _mm256_or_si256(s, _mm256_slli_epi32::<8>(s));
    put_scales(to, _mm_packus_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256::<1>(s)));
    array(eights_of_sevens(words))
}

/// Of four times seven signs in each word four times eight, an even number of which is set.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn eights_of_sevens(words: __m256i) -> __m256i {
    let bits = |v: __m256i, mask: i32| _mm256_and_si256(v, _mm256_set1_epi32(mask));
    let low = _mm256_or_si256(bits(words, 0x7f), bits(_mm256_slli_epi32::<1>(words), 0x7f00));
    let high = _mm256_or_si256(
        bits(_mm256_slli_epi32::<2>(words), 0x7f_0000),
        bits(_mm256_slli_epi32::<3>(words), 0x7f00_0000),
    );
    even(_mm256_or_si256(low, high))
}

/// Bytes of seven signs with the eighth: an even number of them is set.
#[inline]
#[target_feature(enable = "avx2")]
pub(in crate::simd) fn even(sevens: __m256i) -> __m256i {
    // Of four bits.
    let odd = _mm256_broadcastsi128_si256(_mm_setr_epi8(
        0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0,
    ));
    let four = _mm256_xor_si256(sevens, _mm256_srli_epi16::<4>(sevens));
    let four = _mm256_and_si256(four, _mm256_set1_epi8(15));
    _mm256_or_si256(sevens, _mm256_shuffle_epi8(odd, four))
}

#[inline]
#[target_feature(enable = "avx2")]
fn array(v: __m256i) -> [u32; 8] {
    let mut out = [0; 8];
    // SAFETY: 32 bytes are written to an array of 32.
    unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), v) };
    out
}
