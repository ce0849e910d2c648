//! Formats of one to three bits, unpacked where tables are looked up in registers (VBMI).
//!
//! A grid's entries are numbers of levels, so that 64 of them fill two registers, and one instruction finds 32 of them in those. So 1024 entries
//! are found by sixteen and put together by a tree; IQ1's 2048 are as well found in memory, by [AVX2](crate::simd::avx2::book). Then bits are
//! spread to bytes, and levels are found by a last look into a register.
#![allow(unsafe_code)]

use crate::{
    linear::{Book, CODED, RAISE},
    simd::avx2::{
        self,
        book::{even, half, nibbles, put_factor, put_scales},
        codes::load,
    },
};
use ogive_tensor::grids;
use std::arch::x86_64::*;

/// A block that is unpacked.
type Coded = [u8; CODED];

/// Whether the machine has what is enabled here.
pub(in crate::simd) fn is_supported() -> bool {
    is_x86_feature_detected!("avx512vbmi")
}

/// Unpacks a row.
#[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl,avx512vbmi")]
pub(in crate::simd) fn unpack(book: Book, row: &[u8], to: &mut [u8]) {
    let blocks = to.as_chunks_mut().0;
    match book {
        Book::Iq2Xxs => row.as_chunks().0.iter().zip(blocks).for_each(|(b, to)| iq2_xxs(b, to)),
        Book::Iq2Xs => row.as_chunks().0.iter().zip(blocks).for_each(|(b, to)| iq2_xs(b, to)),
        Book::Iq2S => row.as_chunks().0.iter().zip(blocks).for_each(|(b, to)| iq2_s(b, to)),
        Book::Iq3Xxs => row.as_chunks().0.iter().zip(blocks).for_each(|(b, to)| iq3_xxs(b, to)),
        Book::Iq3S => row.as_chunks().0.iter().zip(blocks).for_each(|(b, to)| iq3_s(b, to)),
        Book::Iq1S | Book::Iq1M | Book::Tq1 | Book::Tq2 => avx2::book::unpack(book, row, to),
    }
}

#[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl,avx512vbmi")]
fn iq2_xxs(b: &[u8; 66], to: &mut Coded) {
    put_factor(to, half([b[0], b[1]]) / 8.0);
    // Eight times four codes, four times seven signs and a scale.
    let all = load_all(b, 2);
    let order = _mm512_set_epi64(
        0,
        0,
        0,
        0,
        0x3b3a_3938_3332_3130,
        0x2b2a_2928_2322_2120,
        0x1b1a_1918_1312_1110,
        0x0b0a_0908_0302_0100,
    );
    let codes = _mm512_castsi512_si256(_mm512_permutexvar_epi8(order, all));
    let s = _mm512_cvtepi64_epi16(_mm512_srli_epi64::<60>(all));
    put_scales(to, _mm_or_si128(s, _mm_slli_epi16::<8>(s)));
    let sevens = _mm512_multishift_epi64_epi8(_mm512_set1_epi64(0x352e_2720), all);
    let signs = even(_mm256_and_si256(_mm512_cvtepi64_epi32(sevens), _mm256_set1_epi8(127)));
    eights(look_up(&grids::IQ2_XXS, _mm512_cvtepu8_epi16(codes)), array(signs), to);
}

#[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl,avx512vbmi")]
fn iq2_xs(b: &[u8; 74], to: &mut Coded) {
    put_factor(to, half([b[0], b[1]]) / 8.0);
    put_scales(to, nibbles([b[66], b[67], b[68], b[69], b[70], b[71], b[72], b[73]]));
    let all = load_all(b, 2);
    let signs = even(_mm512_cvtepi16_epi8(_mm512_srli_epi16::<9>(all)));
    eights(look_up(&grids::IQ2_XS, all), array(signs), to);
}

#[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl,avx512vbmi")]
fn iq2_s(b: &[u8; 82], to: &mut Coded) {
    put_factor(to, half([b[0], b[1]]) / 8.0);
    put_scales(to, nibbles([b[74], b[75], b[76], b[77], b[78], b[79], b[80], b[81]]));
    let high = i64::from_le_bytes([b[66], b[67], b[68], b[69], b[70], b[71], b[72], b[73]]);
    let each = _mm256_setr_epi64x(
        0x0e0c_0a08_0604_0200,
        0x1e1c_1a18_1614_1210,
        0x2e2c_2a28_2624_2220,
        0x3e3c_3a38_3634_3230,
    );
    let high = _mm256_multishift_epi64_epi8(each, _mm256_set1_epi64x(high));
    // What is above the two bits is above the table's length.
    let high = _mm512_slli_epi16::<8>(_mm512_cvtepu8_epi16(high));
    let codes = _mm512_or_si512(_mm512_cvtepu8_epi16(load(b, 2)), high);
    eights(look_up(&grids::IQ2_S, codes), array(load(b, 34)), to);
}

#[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl,avx512vbmi")]
fn iq3_xxs(b: &[u8; 98], to: &mut Coded) {
    put_factor(to, half([b[0], b[1]]) / 4.0);
    let words = load(b, 66);
    let s = _mm256_cvtepi32_epi16(_mm256_srli_epi32::<28>(words));
    put_scales(to, _mm_or_si128(s, _mm_slli_epi16::<8>(s)));
    // Of two words each; the last window of each ends with its scale.
    let sevens = _mm256_multishift_epi64_epi8(_mm256_set1_epi64x(0x352e_2720_150e_0700), words);
    let signs = array(even(_mm256_and_si256(sevens, _mm256_set1_epi8(127))));
    for (i, at) in [2, 34].into_iter().enumerate() {
        fours(
            look_up(&grids::IQ3_XXS, _mm512_cvtepu8_epi16(load(b, at))),
            &grids::IQ3_XXS_LEVELS,
            [signs[2 * i], signs[2 * i + 1]],
            i,
            to,
        );
    }
}

#[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl,avx512vbmi")]
fn iq3_s(b: &[u8; 110], to: &mut Coded) {
    put_factor(to, half([b[0], b[1]]));
    let s = nibbles([b[106], b[107], b[108], b[109], 0, 0, 0, 0]);
    put_scales(to, _mm_unpacklo_epi8(s, s));
    let signs = array(load(b, 74));
    for (i, at) in [2, 34].into_iter().enumerate() {
        let high = u32::from_le_bytes([b[66 + 4 * i], b[67 + 4 * i], b[68 + 4 * i], b[69 + 4 * i]]);
        let low = _mm512_cvtepu8_epi16(load(b, at));
        let codes = _mm512_mask_add_epi16(low, high, low, _mm512_set1_epi16(256));
        fours(look_up(&grids::IQ3_S, codes), &grids::IQ3_S_LEVELS, [signs[2 * i], signs[2 * i + 1]], i, to);
    }
}

/// 64 bytes of a block.
#[inline]
#[target_feature(enable = "avx512f")]
fn load_all<const N: usize>(b: &[u8; N], at: usize) -> __m512i {
    assert!(at + 64 <= N);
    // SAFETY: the 64 bytes from `at` are inside the array.
    unsafe { _mm512_loadu_si512(b.as_ptr().add(at).cast()) }
}

/// Entries of a grid; bits of codes above its length count for nothing.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn look_up<const N: usize>(grid: &[u16; N], codes: __m512i) -> __m512i {
    const { assert!(N.is_power_of_two() && N >= 256 && N <= 1024) };
    let register = |i: usize| {
        let part: &[u16; 32] = &grid.as_chunks().0[i];
        // SAFETY: 64 bytes are read from an array of 64.
        unsafe { _mm512_loadu_si512(part.as_ptr().cast()) }
    };
    // The lower five bits count in a register, the sixth tells two apart, and the next are the branches of the tree.
    let mut found = [codes; 16];
    for i in 0..N / 64 {
        found[i] = _mm512_permutex2var_epi16(register(2 * i), codes, register(2 * i + 1));
    }
    let (mut count, mut bit) = (N / 128, 64);
    while count > 0 {
        let upper = _mm512_test_epi16_mask(codes, _mm512_set1_epi16(bit));
        for i in 0..count {
            found[i] = _mm512_mask_blend_epi16(upper, found[2 * i], found[2 * i + 1]);
        }
        (count, bit) = (count / 2, bit * 2);
    }
    found[0]
}

/// Writes a block of eights: entries of two bits a level, and a sign for each code.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn eights(entries: __m512i, signs: [u64; 4], to: &mut Coded) {
    let levels = _mm512_set1_epi32(i32::from_le_bytes(grids::IQ2_LEVELS.map(i8::cast_unsigned)));
    let first = _mm512_setr_epi64(
        0,
        0x0001_0001_0001_0001,
        0x0002_0002_0002_0002,
        0x0003_0003_0003_0003,
        0x0004_0004_0004_0004,
        0x0005_0005_0005_0005,
        0x0006_0006_0006_0006,
        0x0007_0007_0007_0007,
    );
    for j in 0..4 {
        let which = _mm512_add_epi16(first, _mm512_set1_epi16(8 * j as i16));
        let each = _mm512_permutexvar_epi16(which, entries);
        let each = _mm512_multishift_epi64_epi8(_mm512_set1_epi64(0x0e0c_0a08_0604_0200), each);
        put(to, j, _mm512_permutexvar_epi8(each, levels), signs[j]);
    }
}

/// Writes half `i` of a block of fours: entries of three bits a level, and a sign for each code.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn fours(entries: __m512i, levels: &[i8; 8], signs: [u64; 2], i: usize, to: &mut Coded) {
    let levels = _mm512_set1_epi64(i64::from_le_bytes(levels.map(i8::cast_unsigned)));
    let parts = [_mm512_castsi512_si256(entries), _mm512_extracti64x4_epi64::<1>(entries)];
    for (j, part) in parts.into_iter().enumerate() {
        let each = _mm512_cvtepu32_epi64(part);
        let each = _mm512_multishift_epi64_epi8(_mm512_set1_epi64(0x1916_1310_0906_0300), each);
        put(to, 2 * i + j, _mm512_permutexvar_epi8(each, levels), signs[j]);
    }
}

/// Writes codes `64 j..64 j + 64`: levels with signs, raised.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn put(to: &mut Coded, j: usize, levels: __m512i, signs: u64) {
    let raise = _mm512_set1_epi8(RAISE as i8);
    let codes = _mm512_mask_sub_epi8(_mm512_add_epi8(levels, raise), signs, raise, levels);
    assert!(64 * j + 64 <= CODED);
    // SAFETY: the 64 bytes are inside the array.
    unsafe { _mm512_storeu_si512(to.as_mut_ptr().add(64 * j).cast(), codes) };
}

#[inline]
#[target_feature(enable = "avx2")]
fn array(v: __m256i) -> [u64; 4] {
    let mut out = [0; 4];
    // SAFETY: 32 bytes are written to an array of 32.
    unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), v) };
    out
}
