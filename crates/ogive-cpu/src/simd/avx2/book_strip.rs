//! Reading a strip of a format of one to three bits: what the codes of eight rows name, four or eight neighbouring weights of each.
//!
//! No register of AVX2 holds a table, so codes are looked up one by one. What that leaves are signs and scales, and those cost a fraction of what they do
//! row by row, as they stand side by side: eight rows have their 32 signs in one register, from which a byte goes where an eight wants it. So rows are
//! looked up across and not along, though an eight along would need as many moves.
#![allow(unsafe_code)]

use super::{
    book::{eights_of_sevens, even},
    strip::Block,
};
use crate::linear::{Book, Eight, IQ1, IQ2_S, IQ2_XS, IQ2_XXS, IQ3_S, IQ3_XXS, STRIP};
use std::arch::{asm, x86_64::*};

pub(super) const OF_IQ1_S: u8 = Book::Iq1S as u8;
pub(super) const OF_IQ1_M: u8 = Book::Iq1M as u8;
pub(super) const OF_IQ2_XXS: u8 = Book::Iq2Xxs as u8;
pub(super) const OF_IQ2_XS: u8 = Book::Iq2Xs as u8;
pub(super) const OF_IQ2_S: u8 = Book::Iq2S as u8;
pub(super) const OF_IQ3_XXS: u8 = Book::Iq3Xxs as u8;
pub(super) const OF_IQ3_S: u8 = Book::Iq3S as u8;
pub(super) const OF_TQ1: u8 = Book::Tq1 as u8;

/// Whether codes name four weights and not eight.
pub(super) const fn of_fours(book: u8) -> bool {
    matches!(book, OF_IQ3_XXS | OF_IQ3_S)
}

/// Whether levels have signs of their own; IQ1's are raised by [`LOW`](crate::linear::LOW) instead.
pub(super) const fn has_signs(book: u8) -> bool {
    !matches!(book, OF_IQ1_S | OF_IQ1_M)
}

/// Whether a sub-scale is for 32 weights, and not for 16.
pub(super) const fn has_one_scale(book: u8) -> bool {
    !matches!(book, OF_IQ1_M | OF_IQ2_XS | OF_IQ2_S)
}

/// A word of each of a strip's rows.
pub(super) type Word = [u8; 4 * STRIP];

/// The words of a block that are whole.
pub(super) fn words<const N: usize>(b: &Block<N>) -> &[Word] {
    b.as_flattened().as_chunks().0
}

/// A word of eight rows, those of half `H`.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn rows<const H: usize>(word: &Word) -> __m256i {
    const { assert!(H < 2) };
    // SAFETY: the 32 bytes are in the first or the second half of the array.
    unsafe { _mm256_loadu_si256(word.as_ptr().add(32 * H).cast()) }
}

/// Codes of a block that are more than a byte, sixteen bits each: for each part and each half of the rows four registers, of each row two codes. None has
/// more bits than its book's codes.
#[repr(align(64))]
pub(super) struct Names<const BOOK: u8>([[[u16; 16]; 4]; 16]);

impl<const BOOK: u8> Names<BOOK> {
    /// None so far.
    pub(super) const NONE: Self = Self([[[0; 16]; 4]; 16]);

    /// Writes those of a block. They are read from memory again, which a compiler is kept from seeing through: it would take them out of registers one by
    /// one. And they are all written before the first is read, as a read waits for what was written just before.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn fill(&mut self, words: &[Word]) {
        if matches!(BOOK, OF_IQ2_XXS | OF_IQ3_XXS | OF_TQ1) {
            return;
        }
        for p in 0..8 {
            self.fill_part::<0>(words, p);
            self.fill_part::<1>(words, p);
        }
        // SAFETY: this is no instruction.
        unsafe { asm!("/* {} */", in(reg) self, options(nostack, preserves_flags)) };
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn fill_part<const H: usize>(&mut self, words: &[Word], p: usize) {
        let to = &mut self.0[2 * p + H];
        match BOOK {
            OF_IQ2_XS => {
                let [first, second] = &words[2..].as_chunks::<2>().0[p];
                let mask = _mm256_set1_epi16(511);
                put(&mut to[0], _mm256_and_si256(rows::<H>(first), mask));
                put(&mut to[1], _mm256_and_si256(rows::<H>(second), mask));
            }
            OF_IQ2_S => {
                let [codes, _] = &words[4..].as_chunks::<2>().0[p];
                let high = down(rows::<H>(&words[2 + p / 4]), 8 * (p % 4));
                put_bytes::<2>(to, 0, rows::<H>(codes), high, 3);
            }
            OF_IQ1_S | OF_IQ1_M => {
                let (codes, rest) = iq1::<BOOK, H>(words, p);
                match BOOK {
                    OF_IQ1_S => put_bytes::<3>(to, 0, rows::<H>(codes), rest, 7),
                    _ => put_bytes::<4>(to, 0, rows::<H>(codes), rest, 7),
                }
            }
            _ => {
                let [first, second, _] = &words[3..].as_chunks::<3>().0[p];
                let high = down(rows::<H>(&words[1 + p / 4]), 8 * (p % 4));
                put_bytes::<1>(to, 0, rows::<H>(first), high, 1);
                put_bytes::<1>(to, 2, rows::<H>(second), _mm256_srli_epi32::<4>(high), 1);
            }
        }
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn put(to: &mut [u16; 16], v: __m256i) {
    // SAFETY: 32 bytes are written to an array of 32.
    unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), v) };
}

/// Writes a word's codes, the first and the third to `to[i]` and the others behind: their low bytes, and of each `STEP` bits those of `mask` above.
#[inline]
#[target_feature(enable = "avx2")]
fn put_bytes<const STEP: i32>(to: &mut [[u16; 16]; 4], i: usize, low: __m256i, high: __m256i, mask: i32) {
    let bytes = _mm256_set1_epi16(0xff);
    let bits = |n: i32| _mm256_and_si256(high, _mm256_set1_epi32(mask << (STEP * n)));
    let up = |v, by: i32| _mm256_sll_epi32(v, _mm_cvtsi32_si128(by));
    let even = _mm256_or_si256(up(bits(0), 8), up(bits(2), 24 - 2 * STEP));
    let odd = _mm256_or_si256(up(bits(1), 8 - STEP), up(bits(3), 24 - 3 * STEP));
    put(&mut to[i], _mm256_or_si256(_mm256_and_si256(low, bytes), even));
    put(&mut to[i + 1], _mm256_or_si256(_mm256_srli_epi16::<8>(low), odd));
}

/// Codes of part `p` of IQ1, and what else is of it, from the lowest bit on.
#[inline]
#[target_feature(enable = "avx2")]
fn iq1<const BOOK: u8, const H: usize>(words: &[Word], p: usize) -> (&Word, __m256i) {
    let scales = if BOOK == OF_IQ1_M { 2 } else { 0 };
    let three = &words[scales..].as_chunks::<3>().0[p / 2];
    (&three[1 + p % 2], down(rows::<H>(&three[0]), 16 * (p % 2)))
}

/// 32 weights of the eight rows of half `H`: an eighth of a block.
pub(super) struct Part<'a, const BOOK: u8, const H: usize> {
    /// The words that have codes, where those are bytes.
    bytes: [&'a Word; 2],
    names: &'a [[u16; 16]; 4],
    /// Signs, a byte for each eight weights; of IQ2_XS two bytes, and the second register has the third and fourth eight. Of IQ1 what its shift takes
    /// away, as many bytes.
    signs: [__m256i; 2],
    /// The sub-scales of its halves, in both words of a lane.
    pub(super) scales: [__m256i; 2],
}

impl<'a, const BOOK: u8, const H: usize> Part<'a, BOOK, H> {
    /// Part `p` of a block's eight, whose words lie as [`Book::place`] has it. `names` are the block's.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn of(words: &'a [Word], p: usize, names: &'a Names<BOOK>) -> Self {
        let names = &names.0[2 * p + H];
        let mask = |v, mask: i32| _mm256_and_si256(v, _mm256_set1_epi32(mask));
        // Part `p` of four in a word.
        let byte = |word: &Word| down(rows::<H>(word), 8 * (p % 4));
        match BOOK {
            OF_IQ2_XXS => {
                let [codes, rest] = &words.as_chunks::<2>().0[p];
                let rest = rows::<H>(rest);
                let scale = odd(_mm256_srli_epi32::<28>(rest));
                Self { bytes: [codes; 2], names, signs: [eights_of_sevens(rest); 2], scales: [scale; 2] }
            }
            OF_IQ2_XS => {
                let both = &words[2..].as_chunks::<2>().0[p];
                let codes = [rows::<H>(&both[0]), rows::<H>(&both[1])];
                let signs = [even(_mm256_srli_epi16::<9>(codes[0])), even(_mm256_srli_epi16::<9>(codes[1]))];
                let scales = nibbles(byte(&words[p / 4]));
                Self { bytes: [&both[0]; 2], names, signs, scales }
            }
            OF_IQ2_S => {
                let [codes, signs] = &words[4..].as_chunks::<2>().0[p];
                let scales = nibbles(byte(&words[p / 4]));
                Self { bytes: [codes; 2], names, signs: [rows::<H>(signs); 2], scales }
            }
            OF_IQ1_S => {
                let (codes, rest) = iq1::<BOOK, H>(words, p);
                let set = _mm256_srai_epi32::<31>(_mm256_slli_epi32::<16>(rest));
                let scale = odd(mask(_mm256_srli_epi32::<12>(rest), 7));
                Self { bytes: [codes; 2], names, signs: [mask(set, 0x0202_0202); 2], scales: [scale; 2] }
            }
            OF_IQ1_M => {
                let (codes, rest) = iq1::<BOOK, H>(words, p);
                // The last of each four bits comes to the second of a byte.
                let low = _mm256_or_si256(
                    mask(_mm256_srli_epi32::<2>(rest), 2),
                    mask(_mm256_slli_epi32::<2>(rest), 2 << 8),
                );
                let high = _mm256_or_si256(
                    mask(_mm256_slli_epi32::<6>(rest), 2 << 16),
                    mask(_mm256_slli_epi32::<10>(rest), 2 << 24),
                );
                let scales = down(rows::<H>(&words[p / 4]), 16 * (p / 2 % 2) + 6 * (p % 2));
                let scales = [odd(mask(scales, 7)), odd(mask(_mm256_srli_epi32::<3>(scales), 7))];
                Self { bytes: [codes; 2], names, signs: [_mm256_or_si256(low, high); 2], scales }
            }
            OF_IQ3_XXS => {
                let [first, second, rest] = &words.as_chunks::<3>().0[p];
                let rest = rows::<H>(rest);
                let scale = odd(_mm256_srli_epi32::<28>(rest));
                Self { bytes: [first, second], names, signs: [eights_of_sevens(rest); 2], scales: [scale; 2] }
            }
            _ => {
                let [first, second, signs] = &words[3..].as_chunks::<3>().0[p];
                let scale = odd(mask(down(rows::<H>(&words[0]), 4 * p), 15));
                Self { bytes: [first, second], names, signs: [rows::<H>(signs); 2], scales: [scale; 2] }
            }
        }
    }

    /// Eight `e` of rows 0, 1, 4 and 5 (`k` is 0) or of 2, 3, 6 and 7: levels without signs, or IQ1's, which are raised.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn eight(&self, e: usize, k: usize) -> __m256i {
        let entry = |r: usize| {
            let of_two = self.names[e % 2][2 * r + e / 2];
            match BOOK {
                OF_IQ2_XXS => &IQ2_XXS[usize::from(self.bytes[0][32 * H + 4 * r + e])],
                OF_IQ2_XS => look_up(&IQ2_XS, self.names[e / 2][2 * r + e % 2]),
                OF_IQ2_S => look_up(&IQ2_S, of_two),
                _ => look_up(&IQ1, of_two),
            }
        };
        let low = two(entry(2 * k), entry(2 * k + 1));
        let levels = _mm256_set_m128i(two(entry(4 + 2 * k), entry(5 + 2 * k)), low);
        match BOOK {
            // The same for all 32 weights.
            OF_IQ1_S if k == 0 => {
                _mm256_sub_epi8(levels, _mm256_unpacklo_epi32(self.signs[0], self.signs[0]))
            }
            OF_IQ1_S => _mm256_sub_epi8(levels, _mm256_unpackhi_epi32(self.signs[0], self.signs[0])),
            OF_IQ1_M => _mm256_sub_epi8(levels, self.bytes_of_eight(e, k)),
            _ => levels,
        }
    }

    /// Four `q` of eight rows: levels without signs.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn four(&self, q: usize) -> __m256i {
        let entry = |r: usize| {
            let entry = match BOOK {
                OF_IQ3_XXS => &IQ3_XXS[usize::from(self.bytes[q / 4][32 * H + 4 * r + q % 4])],
                _ => look_up(&IQ3_S, self.names[2 * (q / 4) + q % 2][2 * r + q % 4 / 2]),
            };
            i32::from_le_bytes(entry.map(i8::cast_unsigned))
        };
        _mm256_setr_epi32(entry(0), entry(1), entry(2), entry(3), entry(4), entry(5), entry(6), entry(7))
    }

    /// -1 in each byte of [`Self::eight`] that has a sign.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn signs_of_eight(&self, e: usize, k: usize) -> __m256i {
        let bit = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64.cast_signed());
        _mm256_cmpeq_epi8(_mm256_and_si256(self.bytes_of_eight(e, k), bit), bit)
    }

    /// -1 in each byte of [`Self::four`] that has a sign.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn signs_of_four(&self, q: usize) -> __m256i {
        let each = _mm_setr_epi32(0, 0x0404_0404, 0x0808_0808, 0x0c0c_0c0c);
        let each = _mm_add_epi8(each, _mm_set1_epi8((q / 2) as i8));
        let bit =
            _mm256_set1_epi32(if q.is_multiple_of(2) { 0x0804_0201 } else { 0x8040_2010_u32.cast_signed() });
        let bytes = _mm256_shuffle_epi8(self.signs[0], _mm256_broadcastsi128_si256(each));
        _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit), bit)
    }

    /// The byte that `signs` has for eight `e`, for each of its weights.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn bytes_of_eight(&self, e: usize, k: usize) -> __m256i {
        let (from, at) = if BOOK == OF_IQ2_XS { (e / 2, e % 2 * 2) } else { (0, e) };
        let each = |r: usize| 0x0101_0101_0101_0101 * (4 * r + at) as i64;
        let each = _mm_set_epi64x(each(2 * k + 1), each(2 * k));
        _mm256_shuffle_epi8(self.signs[from], _mm256_broadcastsi128_si256(each))
    }
}

/// The entry that one of [`Names`] names, in the grid of the same book.
#[inline(always)]
fn look_up<T, const M: usize>(grid: &[T; M], name: u16) -> &T {
    const { assert!(M.is_power_of_two()) };
    debug_assert!(usize::from(name) < M);
    // SAFETY: `Names` of a book have no more bits than its codes, which are the numbers of its grid's entries.
    unsafe { grid.get_unchecked(usize::from(name)) }
}

/// Two entries.
#[inline]
#[target_feature(enable = "avx2")]
fn two(low: &Eight, high: &Eight) -> __m128i {
    // SAFETY: eight bytes are read of each, which lie as eight bytes should.
    unsafe {
        let low = _mm_load_sd((&raw const *low).cast());
        _mm_castpd_si128(_mm_loadh_pd(low, (&raw const *high).cast()))
    }
}

/// Each word shifted right.
#[inline]
#[target_feature(enable = "avx2")]
fn down(v: __m256i, by: usize) -> __m256i {
    _mm256_srl_epi32(v, _mm_cvtsi32_si128(by as i32))
}

/// `2 s + 1`, in both words of a lane.
#[inline]
#[target_feature(enable = "avx2")]
fn odd(s: __m256i) -> __m256i {
    let scale = _mm256_or_si256(_mm256_add_epi32(s, s), _mm256_set1_epi32(1));
    _mm256_or_si256(scale, _mm256_slli_epi32::<16>(scale))
}

/// The same of the halves of each lane's first byte.
#[inline]
#[target_feature(enable = "avx2")]
fn nibbles(v: __m256i) -> [__m256i; 2] {
    let low = _mm256_set1_epi32(15);
    [odd(_mm256_and_si256(v, low)), odd(_mm256_and_si256(_mm256_srli_epi32::<4>(v), low))]
}

/// The factor of eight rows' blocks, as [`Book::factor`] has it.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(super) fn factor<const BOOK: u8, const N: usize, const H: usize>(b: &Block<N>) -> __m256 {
    if BOOK == OF_IQ1_M {
        // Four bits of each of four sixteens.
        let [low, high] = [rows::<H>(&words(b)[0]), rows::<H>(&words(b)[1])];
        let bits = |v, mask: i32| _mm256_and_si256(v, _mm256_set1_epi32(mask));
        let low =
            _mm256_or_si256(bits(_mm256_srli_epi32::<12>(low), 15), bits(_mm256_srli_epi32::<24>(low), 0xf0));
        let high = _mm256_or_si256(
            bits(_mm256_srli_epi32::<4>(high), 0xf00),
            bits(_mm256_srli_epi32::<16>(high), 0xf000),
        );
        let d = _mm256_or_si256(low, high);
        let d = _mm_packus_epi32(_mm256_castsi256_si128(d), _mm256_extracti128_si256::<1>(d));
        return _mm256_mul_ps(_mm256_cvtph_ps(d), _mm256_set1_ps(0.125));
    }
    const { assert!(H < 2 && STRIP * N >= 32) };
    // SAFETY: sixteen of the block's last 32 bytes are read.
    let d = unsafe { _mm_loadu_si128(b.as_ptr().cast::<u8>().add(STRIP * N - 32 + 16 * H).cast()) };
    let by = match BOOK {
        OF_IQ3_S | OF_TQ1 => 1.0,
        OF_IQ3_XXS => 0.25,
        _ => 0.125,
    };
    _mm256_mul_ps(_mm256_cvtph_ps(d), _mm256_set1_ps(by))
}

/// What tells the digits of TQ1_0's bytes from each other: less by 128, so that a comparison with signs tells. Three times as much is less by as much.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn digits_of(bytes: __m256i) -> __m256i {
    _mm256_xor_si256(bytes, _mm256_set1_epi8(i8::MIN))
}

/// The first digit of each byte, and what has the next one first.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn digit(v: __m256i) -> (__m256i, __m256i) {
    // A third of 256 and two thirds; what is true is -1.
    let one = _mm256_cmpgt_epi8(v, _mm256_set1_epi8((85_u8 ^ 128).cast_signed()));
    let two = _mm256_cmpgt_epi8(v, _mm256_set1_epi8((170_u8 ^ 128).cast_signed()));
    let digit = _mm256_sub_epi8(_mm256_sub_epi8(_mm256_setzero_si256(), one), two);
    (digit, _mm256_add_epi8(_mm256_add_epi8(v, v), v))
}

/// Where the first digits of a word of TQ1_0 are, in fours, how far the next are from them, and how many there are.
pub(in crate::simd) const fn digits_at(w: usize) -> (usize, usize, usize) {
    match w {
        0..8 => (w, 8, 5),
        8..12 => (32 + w, 4, 5),
        _ => (60, 1, 4),
    }
}
