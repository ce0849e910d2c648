//! A strip of a format of one to three bits times one token, looked up and multiplied in registers; several tokens have it unpacked.
//!
//! A sign turns the activation and not the level, which stays without one and small, so that sums of two products or more fit 16 bits. For several
//! tokens that would be an instruction each, so two of them are unpacked for already.
#![allow(unsafe_code)]
// An index counts words, and says where their digits are.
#![allow(clippy::needless_range_loop)]

use super::{
    Ahead, SCRATCH, SLICE,
    ahead::{Level, distance},
    book_panel::multiplied_as,
    book_strip::{
        Names, OF_IQ1_S, OF_IQ3_S, OF_TQ1, Part, Word, digit, digits_at, digits_of, factor, has_one_scale,
        has_signs, of_fours, rows, words,
    },
    codes::{SMALL, TQ2},
    many::join,
    meet,
    panel::{self, Lanes},
    put,
    strip::{Block, blocks},
    vnni::{NONE, add_scaled, add_short, add_words, short},
};
use crate::{
    linear::{Book, Job, LOW, Quantised, STRIP},
    pool::Stripe,
};
use std::arch::x86_64::*;

/// Fills a stripe of the result, of a weight in strips.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn stripe<const V: u8>(job: &Job<'_>, book: Book, out: &mut Stripe<'_>) {
    macro_rules! of {
        ($book:ident, $bytes:literal) => {
            of_book::<V, { Book::$book as u8 }, { multiplied_as(Book::$book) }, $bytes>(job, out)
        };
    }
    match book {
        Book::Iq1S => of!(Iq1S, 50),
        Book::Iq1M => of!(Iq1M, 56),
        Book::Iq2Xxs => of!(Iq2Xxs, 66),
        Book::Iq2Xs => of!(Iq2Xs, 74),
        Book::Iq2S => of!(Iq2S, 82),
        Book::Iq3Xxs => of!(Iq3Xxs, 98),
        Book::Iq3S => of!(Iq3S, 110),
        Book::Tq1 => of!(Tq1, 54),
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn of_book<const V: u8, const BOOK: u8, const F: u8, const N: usize>(job: &Job<'_>, out: &mut Stripe<'_>) {
    for first in (0..out.width()).step_by(STRIP) {
        let Some(strip) = job.strip(first) else { return };
        if let [x] = job.input.quantised() {
            put(out, 0, first, &stream::<V, BOOK, N>(strip, x).0);
            continue;
        }
        SCRATCH.with_borrow_mut(|scratch| {
            for (i, part) in strip.chunks(SLICE / 256 * N * STRIP).enumerate() {
                scratch.panel.unpack_coded::<BOOK, F, N>(part);
                meet::<V, F>(&scratch.panel, job, Some(Ahead::after(part)), i * SLICE, out, first);
            }
        });
    }
}

/// Products of a strip's rows with a token. `BOOK` is the format's number among [`Book`]s, `N` its bytes of a block.
#[target_feature(enable = "avx2,fma,f16c")]
fn stream<const V: u8, const BOOK: u8, const N: usize>(strip: &[u8], x: &Quantised) -> Lanes<f32> {
    let level = Level::while_waiting();
    let (mut out, mut names) = ([_mm256_setzero_ps(); 2], Names::<BOOK>::NONE);
    let of_x = x.codes.as_chunks::<256>().0.iter().zip(x.sums.as_chunks::<16>().0).zip(&x.scales);
    for (block, ((codes, sums), scale)) in blocks::<N>(strip).iter().zip(of_x) {
        let ahead = |piece, pieces| Ahead::of(block.as_flattened(), piece, pieces, level, distance(1));
        let products = if BOOK == OF_TQ1 {
            ahead(0, 1).ask(0, 1);
            let of_codes: i32 = sums.iter().map(|&s| i32::from(s)).sum();
            ternary::<V, N>(block, codes, of_codes)
        } else {
            let words = words(block);
            names.fill(words);
            let mut parts = [[_mm256_setzero_si256(); 2]; 2];
            let mut raised = [_mm256_setzero_si256(); 2];
            let of_part = codes.as_chunks().0.iter().zip(sums.as_chunks().0);
            for (p, (a, sums)) in of_part.enumerate().take(8) {
                ahead(p, 8).ask(0, 1);
                add_part::<V, BOOK, 0>(words, &names, p, a, *sums, &mut parts[0], &mut raised[0]);
                add_part::<V, BOOK, 1>(words, &names, p, a, *sums, &mut parts[1], &mut raised[1]);
            }
            let mut products = parts.map(|parts| across::<BOOK>(parts));
            if !has_signs(BOOK) {
                const { assert!(LOW == 1 << 4) };
                products[0] = _mm256_sub_epi32(products[0], _mm256_slli_epi32::<4>(raised[0]));
                products[1] = _mm256_sub_epi32(products[1], _mm256_slli_epi32::<4>(raised[1]));
            }
            products
        };
        let d = [factor::<BOOK, N, 0>(block), factor::<BOOK, N, 1>(block)];
        for h in 0..2 {
            let p = _mm256_mul_ps(d[h], _mm256_cvtepi32_ps(products[h]));
            out[h] = _mm256_fmadd_ps(_mm256_set1_ps(*scale), p, out[h]);
        }
    }
    let mut lanes = Lanes([0.0; panel::ROWS]);
    // SAFETY: the array has 64 bytes and starts at a multiple of 64.
    unsafe {
        _mm256_store_ps(lanes.0.as_mut_ptr(), out[0]);
        _mm256_store_ps(lanes.0.as_mut_ptr().add(8), out[1]);
    }
    lanes
}

/// How many of a part's four eights, or eight fours, are added before they are scaled: those that have one scale, as far as sums of pairs fit 16 bits.
/// Two always do (`2 · 2 · 127 · 62 < 2^15`), and so do IQ1_S's four, none of whose levels is above 25, and IQ3_S's eight, whose levels are at most 15.
const fn together(v: u8, book: u8) -> usize {
    let all = if of_fours(book) { 8 } else { 4 };
    match (has_one_scale(book), v == NONE) {
        (true, false) => all,
        (true, true) if matches!(book, OF_IQ1_S | OF_IQ3_S) => all,
        _ => 2,
    }
}

/// Adds the products of part `p` of eight rows, scaled. Of eights the first register has rows 0, 1, 4 and 5, the second 2, 3, 6 and 7, in two lanes each.
#[inline]
#[target_feature(enable = "avx2")]
fn add_part<const V: u8, const BOOK: u8, const H: usize>(
    words: &[Word],
    names: &Names<BOOK>,
    p: usize,
    a: &[i8; 32],
    [low, high]: [i16; 2],
    sums: &mut [__m256i; 2],
    raised: &mut __m256i,
) {
    let part = Part::<BOOK, H>::of(words, p, names);
    let one = _mm256_set1_epi8(1);
    let together = const { together(V, BOOK) };
    let mut products = [_mm256_setzero_si256(); 2];
    // Written out, so that a compiler knows every shift.
    macro_rules! eights {
        ($($e:literal)*) => {$({
            let a = _mm256_set1_epi64x(i64::from_le_bytes(a.as_chunks().0[$e].map(i8::cast_unsigned)));
            if $e % together == 0 {
                products = [_mm256_setzero_si256(); 2];
            }
            for k in 0..2 {
                let mut a = a;
                if has_signs(BOOK) {
                    a = _mm256_sign_epi8(a, _mm256_or_si256(part.signs_of_eight($e, k), one));
                }
                // Small or not, what counts here is that levels have no signs.
                products[k] = short::<V, SMALL>(products[k], part.eight($e, k), a);
            }
            if $e % together == together - 1 {
                let scale = part.scales[$e / 2];
                sums[0] = add_scaled::<V>(sums[0], products[0], _mm256_unpacklo_epi32(scale, scale));
                sums[1] = add_scaled::<V>(sums[1], products[1], _mm256_unpackhi_epi32(scale, scale));
            }
        })*};
    }
    macro_rules! fours {
        ($($q:literal)*) => {$({
            let a = _mm256_set1_epi32(i32::from_le_bytes(a.as_chunks().0[$q].map(i8::cast_unsigned)));
            let a = _mm256_sign_epi8(a, _mm256_or_si256(part.signs_of_four($q), one));
            if $q % together == 0 {
                products[0] = _mm256_setzero_si256();
            }
            products[0] = short::<V, SMALL>(products[0], part.four($q), a);
            if $q % together == together - 1 {
                sums[0] = add_scaled::<V>(sums[0], products[0], part.scales[$q / 4]);
            }
        })*};
    }
    if of_fours(BOOK) {
        fours!(0 1 2 3 4 5 6 7);
    } else {
        eights!(0 1 2 3);
    }
    if !has_signs(BOOK) {
        let pair = _mm256_blend_epi16::<0xaa>(part.scales[0], part.scales[1]);
        *raised = add_words::<V>(*raised, pair, _mm256_set1_epi32(join(low, high)));
    }
}

/// The sums of eight rows, a lane each.
#[inline]
#[target_feature(enable = "avx2")]
fn across<const BOOK: u8>(sums: [__m256i; 2]) -> __m256i {
    if of_fours(BOOK) {
        return sums[0];
    }
    let [low, high] = [_mm256_castsi256_ps(sums[0]), _mm256_castsi256_ps(sums[1])];
    let first = _mm256_castps_si256(_mm256_shuffle_ps::<0b10_00_10_00>(low, high));
    let second = _mm256_castps_si256(_mm256_shuffle_ps::<0b11_01_11_01>(low, high));
    _mm256_add_epi32(first, second)
}

/// Sums of a block of TQ1_0, whose digits are one too large, so that `of_codes`, the sum of all activations, is taken away. Products of a lane, one of each
/// word, fit 16 bits: `13 · 2 · 127 · 2 < 2^15`.
#[inline]
#[target_feature(enable = "avx2")]
fn ternary<const V: u8, const N: usize>(block: &Block<N>, codes: &[i8; 256], of_codes: i32) -> [__m256i; 2] {
    let fours: &[[i8; 4]] = codes.as_chunks().0;
    // A sum for each place of a digit, so that none waits for the one before.
    let mut sums = [[_mm256_setzero_si256(); 2]; 5];
    let words = words(block);
    macro_rules! word {
        ($w:expr, $($i:literal)*) => {{
            let (first, apart, _) = digits_at($w);
            let mut rest = [digits_of(rows::<0>(&words[$w])), digits_of(rows::<1>(&words[$w]))];
            $({
                let a = fours[first + apart * $i].map(i8::cast_unsigned);
                let a = _mm256_set1_epi32(i32::from_le_bytes(a));
                for h in 0..2 {
                    let code;
                    (code, rest[h]) = digit(rest[h]);
                    sums[$i][h] = short::<V, TQ2>(sums[$i][h], code, a);
                }
            })*
        }};
    }
    // In two loops, so that a compiler knows how far digits are from each other.
    for w in 0..8 {
        word!(w, 0 1 2 3 4);
    }
    for w in 8..12 {
        word!(w, 0 1 2 3 4);
    }
    word!(12, 0 1 2 3);
    let mut out = [_mm256_set1_epi32(-of_codes); 2];
    for sums in sums {
        out[0] = add_short::<V>(out[0], sums[0]);
        out[1] = add_short::<V>(out[1], sums[1]);
    }
    out
}
