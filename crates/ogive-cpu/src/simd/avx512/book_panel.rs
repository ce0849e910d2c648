//! Two strips of a format of one to three bits, unpacked for many tokens: what a [`Panel`] has of [`Packed::Coded`](crate::linear::Packed), without
//! the rows of it.
#![allow(unsafe_code)]
// Closures would not be inlined: the library functions that call them lack these instructions.
#![allow(clippy::needless_range_loop)]

use super::{
    book_stream::{TQ1, digits, factor, index, levels, part},
    panel::{Panel, Scaling, bytes, put},
    strip,
};
use crate::{
    linear::{RAISE, STRIP},
    simd::avx2::{book_strip::digits_at, panel::Lanes},
};
use std::arch::x86_64::*;

impl Panel {
    /// Unpacks two equally long strips of whole blocks of `N` bytes a row.
    #[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl,avx512vnni,avx512vbmi")]
    pub(super) fn unpack_coded<const BOOK: u8, const N: usize>(&mut self, strips: [&[u8]; 2]) {
        let count = strip::blocks::<N>(strips[0]).len();
        self.scaling = Scaling::Integers;
        self.codes.resize(count * 64, [Lanes([[0; 4]; STRIP]); 2]);
        self.starts.resize(count * 16, [Lanes([0; STRIP]); 2]);
        self.scales.resize(count * 16, [Lanes([0; STRIP]); 2]);
        self.d.resize(count, [Lanes([0.0; STRIP]); 2]);
        self.mins.clear();
        self.m.clear();
        let raise = _mm512_set1_epi8(RAISE.cast_signed());
        let levels = _mm512_sub_epi8(levels::<BOOK>(), raise);
        for half in 0..2 {
            for (b, block) in strip::blocks::<N>(strips[half])[..count].iter().enumerate() {
                let codes = &mut self.codes[b * 64..][..64];
                let scales = &mut self.scales[b * 16..][..16];
                if BOOK == TQ1 {
                    for w in 0..13 {
                        let (first, apart, many) = digits_at(w);
                        for (digit, code) in digits(block, w).into_iter().take(many).enumerate() {
                            let code = _mm512_sub_epi8(code, _mm512_set1_epi8(1));
                            put(&mut codes[first + apart * digit][half], code);
                        }
                    }
                    scales.iter_mut().for_each(|scale| scale[half] = Lanes([1; STRIP]));
                } else {
                    for p in 0..8 {
                        let part = part::<BOOK, N>(block, p);
                        macro_rules! codes {
                            ($($q:literal)*) => {$({
                                let code = _mm512_permutexvar_epi8(index::<BOOK>(&part, $q), levels);
                                put(&mut codes[8 * p + $q][half], code);
                            })*};
                        }
                        codes!(0 1 2 3 4 5 6 7);
                        let low = _mm512_and_si512(part.scales, _mm512_set1_epi32(0xffff));
                        put(&mut scales[2 * p][half], low);
                        put(&mut scales[2 * p + 1][half], _mm512_srli_epi32::<16>(part.scales));
                    }
                }
                for (codes, start) in codes.as_chunks::<4>().0.iter().zip(&mut self.starts[b * 16..]) {
                    let mut sum = _mm512_setzero_si512();
                    for codes in codes {
                        // The first factor is 128.
                        sum = _mm512_dpbusd_epi32(sum, _mm512_set1_epi8(-128), bytes(&codes[half]));
                    }
                    put(&mut start[half], _mm512_sub_epi32(_mm512_setzero_si512(), sum));
                }
                put(&mut self.d[b][half], _mm512_castps_si512(factor::<BOOK, N>(block)));
            }
        }
    }
}
