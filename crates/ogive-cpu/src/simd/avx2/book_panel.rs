//! A strip of a format of one to three bits, unpacked for several tokens: a [`Panel`] of [`CODED`](super::codes::CODED), or, where codes are small,
//! of one whose sums fit 16 bits for longer. Eights become fours by a move of halves, where rows that are unpacked one by one are transposed.
#![allow(unsafe_code)]

use super::{
    book_strip::{
        Names, OF_TQ1, Part, digit, digits_at, digits_of, factor, has_signs, of_fours, rows, words,
    },
    codes::{CODED, SMALL, TQ2, offset},
    panel::{Lanes, Panel},
    strip::blocks,
};
use crate::linear::Book;
use std::arch::x86_64::*;

/// What a panel of a book's codes is multiplied as.
pub(super) const fn multiplied_as(book: Book) -> u8 {
    match book {
        Book::Iq1S | Book::Iq1M | Book::Iq3S => SMALL,
        Book::Tq1 => TQ2,
        _ => CODED,
    }
}

impl Panel {
    /// Unpacks a strip of whole blocks of `N` bytes a row.
    #[target_feature(enable = "avx2,f16c")]
    pub(super) fn unpack_coded<const BOOK: u8, const F: u8, const N: usize>(&mut self, strip: &[u8]) {
        let blocks = blocks::<N>(strip);
        let mut names = Names::<BOOK>::NONE;
        self.set_len::<F>(blocks.len());
        for (b, block) in blocks.iter().enumerate() {
            if BOOK == OF_TQ1 {
                self.unpack_digits::<F, N, 0>(b, block);
                self.unpack_digits::<F, N, 1>(b, block);
                continue;
            }
            let words = words(block);
            names.fill(words);
            put::<_, 0>(&mut self.d[b], _mm256_castps_si256(factor::<BOOK, N, 0>(block)));
            put::<_, 1>(&mut self.d[b], _mm256_castps_si256(factor::<BOOK, N, 1>(block)));
            for p in 0..8 {
                self.unpack_part::<BOOK, F, 0>(8 * b + p, &Part::of(words, p, &names));
                self.unpack_part::<BOOK, F, 1>(8 * b + p, &Part::of(words, p, &names));
            }
        }
    }

    /// Part `p` of all.
    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    fn unpack_part<const BOOK: u8, const F: u8, const H: usize>(
        &mut self,
        p: usize,
        part: &Part<'_, BOOK, H>,
    ) {
        let codes = &mut self.codes.as_chunks_mut::<8>().0[p];
        let raise = _mm256_set1_epi8(offset(F) as i8);
        let signed =
            |levels, signs| _mm256_add_epi8(_mm256_sub_epi8(_mm256_xor_si256(levels, signs), signs), raise);
        // Written out, so that a compiler knows every shift.
        macro_rules! eights {
            ($($e:literal)*) => {$({
                let mut both = [part.eight($e, 0), part.eight($e, 1)];
                if has_signs(BOOK) {
                    both = [signed(both[0], part.signs_of_eight($e, 0)), signed(both[1], part.signs_of_eight($e, 1))];
                }
                let [low, high] = both.map(|v| _mm256_castsi256_ps(v));
                put::<_, H>(&mut codes[2 * $e], _mm256_castps_si256(_mm256_shuffle_ps::<0b10_00_10_00>(low, high)));
                put::<_, H>(&mut codes[2 * $e + 1], _mm256_castps_si256(_mm256_shuffle_ps::<0b11_01_11_01>(low, high)));
            })*};
        }
        macro_rules! fours {
            ($($q:literal)*) => {$(
                put::<_, H>(&mut codes[$q], signed(part.four($q), part.signs_of_four($q)));
            )*};
        }
        if of_fours(BOOK) {
            fours!(0 1 2 3 4 5 6 7);
        } else {
            eights!(0 1 2 3);
        }
        let scales = &mut self.scales.as_chunks_mut::<2>().0[p];
        put::<_, H>(&mut scales[0], part.scales[0]);
        put::<_, H>(&mut scales[1], part.scales[1]);
        let pair = _mm256_blend_epi16::<0xaa>(part.scales[0], part.scales[1]);
        put::<_, H>(&mut self.mins[p], _mm256_mullo_epi16(pair, _mm256_set1_epi16(-offset(F))));
    }

    /// A block of TQ1_0, whose sub-scales are one.
    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    fn unpack_digits<const F: u8, const N: usize, const H: usize>(
        &mut self,
        b: usize,
        block: &[[u8; N]; 16],
    ) {
        let codes = &mut self.codes.as_chunks_mut::<64>().0[b];
        for (w, word) in words(block).iter().enumerate() {
            let (first, apart, many) = digits_at(w);
            let mut rest = digits_of(rows::<H>(word));
            for i in 0..many {
                let code;
                (code, rest) = digit(rest);
                put::<_, H>(&mut codes[first + apart * i], code);
            }
        }
        let one = |n: i16| _mm256_set1_epi16(n);
        self.scales.as_chunks_mut::<16>().0[b].iter_mut().for_each(|scale| put::<_, H>(scale, one(1)));
        self.mins.as_chunks_mut::<8>().0[b].iter_mut().for_each(|min| put::<_, H>(min, one(-offset(F))));
        put::<_, H>(&mut self.d[b], _mm256_castps_si256(factor::<OF_TQ1, N, H>(block)));
    }
}

/// Writes what half `H` of the rows have.
#[inline]
#[target_feature(enable = "avx2")]
fn put<T, const H: usize>(to: &mut Lanes<T>, v: __m256i) {
    const { assert!(size_of::<Lanes<T>>() == 64 && H < 2) };
    let to: *mut __m256i = to.0.as_mut_ptr().cast();
    // SAFETY: the array has 64 bytes and starts at a multiple of 64. Its elements are numbers of any bits.
    unsafe { _mm256_store_si256(to.add(H), v) };
}
