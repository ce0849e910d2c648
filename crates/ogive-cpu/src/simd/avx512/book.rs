//! Formats of one to three bits, unpacked where tables are looked up in registers (VBMI).
//!
//! A grid's entries are numbers of levels, two bytes, so that 128 lower or upper ones fill two registers, and one instruction finds 64 of them in those:
//! 1024 entries are found by eight for each byte, and put together by a tree. IQ1's 2048 are as well found in memory, by
//! [AVX2](crate::simd::avx2::book). Instructions that move bytes are what there is least room for, so codes are turned once, before they are
//! looked up: then a shift within eight bytes spreads what stands in them to 64 codes that are neighbours, and another look into a register
//! finds their levels.
#![allow(unsafe_code)]

use crate::{
    linear::{Book, CODED, RAISE},
    simd::avx2::{
        self,
        book::{even, four_digits, half, nibbles, put_factor, put_scales, three, three_of_half},
        codes::{load, load_half},
    },
};
use ogive_tensor::grids;
use std::arch::x86_64::*;

/// A block that is unpacked.
type Coded = [u8; CODED];
/// Lower bytes of a grid's entries, and upper ones.
pub(super) type Split<const N: usize> = [[u8; N]; 2];

pub(super) static IQ1: Split<2048> = split(&grids::IQ1);
pub(super) static IQ2_XXS: Split<256> = split(&grids::IQ2_XXS);
pub(super) static IQ2_XS: Split<512> = split(&grids::IQ2_XS);
pub(super) static IQ2_S: Split<1024> = split(&grids::IQ2_S);
pub(super) static IQ3_XXS: Split<256> = split(&grids::IQ3_XXS);
pub(super) static IQ3_S: Split<512> = split(&grids::IQ3_S);

pub(super) const fn split<const N: usize>(grid: &[u16; N]) -> Split<N> {
    let mut out = [[0; N]; 2];
    let mut i = 0;
    while i < N {
        [out[0][i], out[1][i]] = grid[i].to_le_bytes();
        i += 1;
    }
    out
}

/// Whether the machine has what is enabled here.
pub(in crate::simd) fn is_supported() -> bool {
    is_x86_feature_detected!("avx512vbmi")
}

/// Unpacks the blocks of a row of eights, two at a time, whose codes fill a register.
macro_rules! eights {
    ($row:ident, $to:ident, $grid:expr, $start:ident) => {{
        let (two, rest) = $row.as_chunks().0.as_chunks::<2>();
        let (to, last) = $to.as_chunks_mut::<CODED>().0.as_chunks_mut::<2>();
        for (b, [first, second]) in two.iter().zip(to) {
            let mut codes = [_mm512_setzero_si512(); 2];
            let signs = [$start(&b[0], &mut codes, 0, first), $start(&b[1], &mut codes, 1, second)];
            let entries = look_up($grid, codes);
            eights(entries[0], signs[0], first);
            eights(entries[1], signs[1], second);
        }
        for (b, to) in rest.iter().zip(last) {
            let mut codes = [_mm512_setzero_si512(); 2];
            let signs = $start(b, &mut codes, 0, to);
            eights(look_up($grid, codes)[0], signs, to);
        }
    }};
}

/// Unpacks a row.
#[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl,avx512vbmi")]
pub(in crate::simd) fn unpack(book: Book, row: &[u8], to: &mut [u8]) {
    match book {
        Book::Iq2Xxs => eights!(row, to, &IQ2_XXS, iq2_xxs),
        Book::Iq2Xs => eights!(row, to, &IQ2_XS, iq2_xs),
        Book::Iq2S => eights!(row, to, &IQ2_S, iq2_s),
        Book::Iq3Xxs => {
            row.as_chunks().0.iter().zip(to.as_chunks_mut().0).for_each(|(b, to)| iq3_xxs(b, to));
        }
        Book::Iq3S => row.as_chunks().0.iter().zip(to.as_chunks_mut().0).for_each(|(b, to)| iq3_s(b, to)),
        Book::Tq1 => row.as_chunks().0.iter().zip(to.as_chunks_mut().0).for_each(|(b, to)| tq1_0(b, to)),
        Book::Iq1S | Book::Iq1M => avx2::book::unpack(book, row, to),
    }
}

/// Lower bytes of eights' codes and upper ones, for [`look_up`].
pub(super) type Codes = [__m512i; 2];

/// Adds the codes of block `k` of two, and gives signs; factor and scales are written. So do the next.
#[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl,avx512vbmi")]
fn iq2_xxs(b: &[u8; 66], codes: &mut Codes, k: usize, to: &mut Coded) -> [u64; 4] {
    put_factor(to, half([b[0], b[1]]) / 8.0);
    // Eight times four codes, four times seven signs and a scale.
    let all = load_all(b, 2);
    let scales = _mm512_set_epi64(0, 0, 0, 0, 0, 0, 0x3f3f_3737_2f2f_2727, 0x1f1f_1717_0f0f_0707);
    let scales = _mm512_castsi512_si128(_mm512_permutexvar_epi8(scales, all));
    put_scales(to, _mm_and_si128(_mm_srli_epi16::<4>(scales), _mm_set1_epi8(15)));
    let sevens = _mm512_multishift_epi64_epi8(_mm512_set1_epi64(0x352e_2720), all);
    let lower = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 0, 0, 0, 0, 0, 0, 0, 0);
    let sevens = _mm512_castsi512_si256(_mm512_permutexvar_epi32(lower, sevens));
    let signs = even(_mm256_and_si256(sevens, _mm256_set1_epi8(127)));
    static ORDER: [[u8; 64]; 2] = [of_eights(0, 8, 1, 0), of_eights(1, 8, 1, 0)];
    codes[0] = _mm512_mask_permutexvar_epi8(codes[0], BLOCK[k], register(&ORDER[k]), all);
    array(signs)
}

#[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl,avx512vbmi")]
fn iq2_xs(b: &[u8; 74], codes: &mut Codes, k: usize, to: &mut Coded) -> [u64; 4] {
    put_factor(to, half([b[0], b[1]]) / 8.0);
    put_scales(to, nibbles([b[66], b[67], b[68], b[69], b[70], b[71], b[72], b[73]]));
    let all = load_all(b, 2);
    let signs = even(_mm512_cvtepi16_epi8(_mm512_srli_epi16::<9>(all)));
    static LOWER: [[u8; 64]; 2] = [of_eights(0, 8, 2, 0), of_eights(1, 8, 2, 0)];
    static UPPER: [[u8; 64]; 2] = [of_eights(0, 8, 2, 1), of_eights(1, 8, 2, 1)];
    codes[0] = _mm512_mask_permutexvar_epi8(codes[0], BLOCK[k], register(&LOWER[k]), all);
    codes[1] = _mm512_mask_permutexvar_epi8(codes[1], BLOCK[k], register(&UPPER[k]), all);
    array(signs)
}

#[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl,avx512vbmi")]
fn iq2_s(b: &[u8; 82], codes: &mut Codes, k: usize, to: &mut Coded) -> [u64; 4] {
    put_factor(to, half([b[0], b[1]]) / 8.0);
    put_scales(to, nibbles([b[74], b[75], b[76], b[77], b[78], b[79], b[80], b[81]]));
    static LOWER: [[u8; 64]; 2] = [of_eights(0, 4, 1, 0), of_eights(1, 4, 1, 0)];
    // Two bits of each code, at twice its number.
    static UPPER: [[u8; 64]; 2] = [of_eights(0, 8, 2, 0), of_eights(1, 8, 2, 0)];
    let low = _mm512_castsi256_si512(load(b, 2));
    codes[0] = _mm512_mask_permutexvar_epi8(codes[0], BLOCK[k], register(&LOWER[k]), low);
    let high =
        _mm512_set1_epi64(i64::from_le_bytes([b[66], b[67], b[68], b[69], b[70], b[71], b[72], b[73]]));
    codes[1] = _mm512_mask_multishift_epi64_epi8(codes[1], BLOCK[k], register(&UPPER[k]), high);
    array(load(b, 34))
}

#[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl,avx512vbmi")]
fn iq3_xxs(b: &[u8; 98], to: &mut Coded) {
    put_factor(to, half([b[0], b[1]]) / 4.0);
    let words = load(b, 66);
    let s = _mm256_cvtepi32_epi16(_mm256_srli_epi32::<28>(words));
    put_scales(to, _mm_or_si128(s, _mm_slli_epi16::<8>(s)));
    // Of two words each.
    let sevens = _mm256_multishift_epi64_epi8(_mm256_set1_epi64x(0x352e_2720_150e_0700), words);
    let signs = array(even(_mm256_and_si256(sevens, _mm256_set1_epi8(127))));
    let codes = _mm512_permutexvar_epi8(register(&OF_FOURS), load_all(b, 2));
    fours(look_up(&IQ3_XXS, [codes; 2]), &grids::IQ3_XXS_LEVELS, signs, to);
}

#[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl,avx512vbmi")]
fn iq3_s(b: &[u8; 110], to: &mut Coded) {
    put_factor(to, half([b[0], b[1]]));
    let s = nibbles([b[106], b[107], b[108], b[109], 0, 0, 0, 0]);
    put_scales(to, _mm_unpacklo_epi8(s, s));
    let signs = array(load(b, 74));
    // A bit of each code.
    let high = u64::from_le_bytes([b[66], b[67], b[68], b[69], b[70], b[71], b[72], b[73]]);
    let order = register(&OF_FOURS);
    let codes = [load_all(b, 2), _mm512_movm_epi8(high)].map(|v| _mm512_permutexvar_epi8(order, v));
    fours(look_up(&IQ3_S, codes), &grids::IQ3_S_LEVELS, signs, to);
}

#[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl,avx512vbmi")]
fn tq1_0(b: &[u8; 54], to: &mut Coded) {
    put_factor(to, half([b[52], b[53]]));
    put_scales(to, _mm_setzero_si128());
    let both = |low, high| _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high);
    // Five digits of 32 bytes, then five of sixteen, two by two.
    let v = load(b, 0);
    let first = both(v, three(v));
    let nine = |v| _mm512_add_epi8(_mm512_slli_epi16::<3>(_mm512_and_si512(v, _mm512_set1_epi8(31))), v);
    let second = nine(first);
    put_digits(to, 0, first);
    put_digits(to, 1, second);
    let half = load_half(b, 32);
    let half = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(half), three_of_half(half));
    put_digits(to, 2, both(three(_mm512_extracti64x4_epi64::<1>(second)), half));
    let half = three(three(half));
    let fifth = three_of_half(_mm256_extracti128_si256::<1>(half));
    let last = four_digits([b[48], b[49], b[50], b[51]]);
    put_digits(to, 3, both(half, _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(fifth), last)));
}

/// Writes codes `64 j..64 j + 64`: of each byte, times three, what is above eight bits, raised and less by one.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn put_digits(to: &mut Coded, j: usize, v: __m512i) {
    let code = |digit: u8| _mm512_set1_epi8((RAISE - 1 + digit).cast_signed());
    let from = |least: u8| _mm512_cmpge_epu8_mask(v, _mm512_set1_epi8(least.cast_signed()));
    let codes = _mm512_mask_blend_epi8(from(86), code(0), code(1));
    put(to, j, _mm512_mask_blend_epi8(from(171), codes, code(2)), 0);
}

/// The bytes of a register that each of two blocks' codes come to: words of entries are made of halves of sixteen bytes.
const BLOCK: [u64; 2] = [0x00ff_00ff_00ff_00ff, 0xff00_ff00_ff00_ff00];

/// The byte that becomes word `word` of block `k`, when lower and upper bytes are put together.
const fn place(k: usize, word: usize) -> usize {
    16 * (word / 8) + 8 * k + word % 8
}

/// Where to find the codes of block `k`, of which that of eight `8 j + i` comes to word `4 i + j`. `four` is how far four eights are from the next,
/// `each` how far an eight is from the next, and the first is at `from`.
const fn of_eights(k: usize, four: u8, each: u8, from: u8) -> [u8; 64] {
    let mut out = [0; 64];
    let mut word = 0;
    while word < 32 {
        let eight = (8 * (word % 4) + word / 4) as u8;
        out[place(k, word)] = eight / 4 * four + eight % 4 * each + from;
        word += 1;
    }
    out
}

/// The same of fours: of each half of a block fours `2 i` and `2 i + 1` and those sixteen behind them come to words `4 i..4 i + 4`.
static OF_FOURS: [u8; 64] = {
    let mut out = [0; 64];
    let mut word = 0;
    while word < 32 {
        let four = (16 * (word / 2 % 2) + 2 * (word / 4) + word % 2) as u8;
        out[place(0, word)] = four;
        out[place(1, word)] = 32 + four;
        word += 1;
    }
    out
};

#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn register(v: &[u8; 64]) -> __m512i {
    // SAFETY: 64 bytes are read from an array of 64.
    unsafe { _mm512_loadu_si512(v.as_ptr().cast()) }
}

/// 64 bytes of a block.
#[inline]
#[target_feature(enable = "avx512f")]
fn load_all<const N: usize>(b: &[u8; N], at: usize) -> __m512i {
    assert!(at + 64 <= N);
    // SAFETY: the 64 bytes from `at` are inside the array.
    unsafe { _mm512_loadu_si512(b.as_ptr().add(at).cast()) }
}

/// Entries of a grid, of two blocks or two halves of one.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn look_up<const N: usize>(grid: &Split<N>, codes: Codes) -> [__m512i; 2] {
    let [lower, upper] = find(grid, codes);
    [_mm512_unpacklo_epi8(lower, upper), _mm512_unpackhi_epi8(lower, upper)]
}

/// Lower bytes of a grid's entries, and upper ones; bits of codes above its length count for nothing.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub(super) fn find<const N: usize>(grid: &Split<N>, [codes, upper]: Codes) -> [__m512i; 2] {
    const { assert!(N.is_power_of_two() && N >= 256 && N <= 2048) };
    // Seven bits count in two registers, and the next are the branches of a tree.
    let branches = [
        _mm512_movepi8_mask(codes),
        _mm512_test_epi8_mask(upper, _mm512_set1_epi8(1)),
        _mm512_test_epi8_mask(upper, _mm512_set1_epi8(2)),
        _mm512_test_epi8_mask(upper, _mm512_set1_epi8(4)),
    ];
    let mut bytes = [codes; 2];
    for (bytes, half) in bytes.iter_mut().zip(grid) {
        let parts = half.as_chunks::<64>().0;
        let mut found = [codes; 16];
        for i in 0..N / 128 {
            found[i] = _mm512_permutex2var_epi8(register(&parts[2 * i]), codes, register(&parts[2 * i + 1]));
        }
        let mut count = N / 128;
        for branch in branches {
            count /= 2;
            for i in 0..count {
                found[i] = _mm512_mask_blend_epi8(branch, found[2 * i], found[2 * i + 1]);
            }
        }
        *bytes = found[0];
    }
    bytes
}

/// Writes a block of eights in turned order: entries of two bits a level, and a sign for each code.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn eights(entries: __m512i, signs: [u64; 4], to: &mut Coded) {
    let levels = grids::IQ2_LEVELS.map(|l| RAISE.wrapping_add_signed(l));
    let levels = _mm512_set1_epi32(i32::from_le_bytes(levels));
    for (j, signs) in signs.into_iter().enumerate() {
        let bits = 0x0e0c_0a08_0604_0200 + 0x1010_1010_1010_1010 * j as i64;
        let each = _mm512_multishift_epi64_epi8(_mm512_set1_epi64(bits), entries);
        put(to, j, _mm512_permutexvar_epi8(each, levels), signs);
    }
}

/// Writes a block of fours in turned order: entries of three bits a level, and a sign for each code.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn fours(entries: [__m512i; 2], levels: &[i8; 8], signs: [u64; 4], to: &mut Coded) {
    let levels = levels.map(|l| RAISE.wrapping_add_signed(l));
    let levels = _mm512_set1_epi64(i64::from_le_bytes(levels));
    for (j, signs) in signs.into_iter().enumerate() {
        let bits = 0x1916_1310_0906_0300 + 0x2020_2020_2020_2020 * (j % 2) as i64;
        let each = _mm512_multishift_epi64_epi8(_mm512_set1_epi64(bits), entries[j / 2]);
        put(to, j, _mm512_permutexvar_epi8(each, levels), signs);
    }
}

/// Writes codes `64 j..64 j + 64`, raised, of those without signs; where a sign is set, what is above [`RAISE`] goes below it.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn put(to: &mut Coded, j: usize, codes: __m512i, signs: u64) {
    let twice = _mm512_set1_epi8((2 * RAISE).cast_signed());
    let codes = _mm512_mask_sub_epi8(codes, signs, twice, codes);
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
