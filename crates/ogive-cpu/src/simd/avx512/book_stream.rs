//! A strip of a format of one to three bits times up to eight tokens: its tables are looked up in registers (VBMI), its rows never unpacked.
//!
//! A word of codes is four codes of each of sixteen rows, which are 64 for one look. What stands in an entry then spreads to four neighbours of
//! each row by a shift within eight bytes, as do their signs, and both together name a level in one more register. So a token costs a product for
//! each 64 weights, and they cost four instructions and their share of a look; rows that are unpacked before are written, read and summed across
//! besides, which takes twice as long. A block is read in the order of its bytes, as everywhere.
#![allow(unsafe_code)]
// Closures would not be inlined: the library functions that call them lack these instructions.
#![allow(clippy::needless_range_loop)]

use super::{
    book::{self, Split, find},
    many::{four, two},
    packed_many,
    panel::Panel,
    put_lanes,
    strip::{self, Block, word},
};
use crate::{
    linear::{Book, Form, Job, Packed, RAISE, STRIP, Tile},
    pool::Stripe,
    simd::avx2::{
        ahead::{AHEAD, Ahead, Level},
        book_strip::digits_at,
        codes,
        panel::Lanes,
    },
};
use ogive_tensor::grids;
use std::arch::x86_64::*;

/// Codes of 32 weights of each row: a part of a block.
pub(super) struct Part {
    /// Lower and upper bytes of the entries that four codes name, in words; of fours those of the first four codes and those of the next.
    entries: [__m512i; 2],
    next: [__m512i; 2],
    /// What tells levels of an entry from those below zero or those that are shifted, a byte for each eight.
    signs: __m512i,
    /// What its halves are multiplied with, 16 bits each.
    pub(super) scales: __m512i,
}

/// Up to so many tokens memory may take longer than the arithmetic.
const WAITS: usize = 2;

/// Fills a stripe of the result, of a weight in strips.
pub(super) fn stripe(job: &Job<'_>, book: Book, out: &mut Stripe<'_>) {
    assert!(book::is_supported(), "others have no such strips");
    // SAFETY: the machine has what is enabled there: that much is asked for here, and the rest by whoever made the weight.
    unsafe { streamed(job, book, out) }
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni,avx512vbmi")]
fn streamed(job: &Job<'_>, book: Book, out: &mut Stripe<'_>) {
    match book {
        Book::Iq1S => of_book::<{ Book::Iq1S as u8 }, 50>(job, out),
        Book::Iq1M => of_book::<{ Book::Iq1M as u8 }, 56>(job, out),
        Book::Iq2Xxs => of_book::<{ Book::Iq2Xxs as u8 }, 66>(job, out),
        Book::Iq2Xs => of_book::<{ Book::Iq2Xs as u8 }, 74>(job, out),
        Book::Iq2S => of_book::<{ Book::Iq2S as u8 }, 82>(job, out),
        Book::Iq3Xxs => of_book::<{ Book::Iq3Xxs as u8 }, 98>(job, out),
        Book::Iq3S => of_book::<{ Book::Iq3S as u8 }, 110>(job, out),
        Book::Tq1 => of_book::<TQ1, 54>(job, out),
    }
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni,avx512vbmi")]
fn of_book<const BOOK: u8, const N: usize>(job: &Job<'_>, out: &mut Stripe<'_>) {
    if job.w.wants(job.input.n()) != Form::Tiles {
        let unpack = |panel: &mut Panel, strips: [&[u8]; 2]| panel.unpack_coded::<BOOK, N>(strips);
        return packed_many::<{ codes::CODED }, N>(job, Packed::Coded, &unpack, out);
    }
    for first in (0..out.width()).step_by(STRIP) {
        let Some(strip) = job.strip(first) else { return };
        let mut t = 0;
        for tile in job.input.tiles() {
            t += match tile.tokens {
                8 => put_lanes(out, t, first, stream::<BOOK, N, 8>(strip, tile)),
                7 => put_lanes(out, t, first, stream::<BOOK, N, 7>(strip, tile)),
                6 => put_lanes(out, t, first, stream::<BOOK, N, 6>(strip, tile)),
                5 => put_lanes(out, t, first, stream::<BOOK, N, 5>(strip, tile)),
                4 => put_lanes(out, t, first, stream::<BOOK, N, 4>(strip, tile)),
                3 => put_lanes(out, t, first, stream::<BOOK, N, 3>(strip, tile)),
                2 => put_lanes(out, t, first, stream::<BOOK, N, 2>(strip, tile)),
                _ => put_lanes(out, t, first, stream::<BOOK, N, 1>(strip, tile)),
            };
        }
    }
}

/// Products of a strip's rows with the tokens of a tile, which are `T`. `BOOK` is the format's number among [`Book`]s, `N` its bytes of a block.
#[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl,avx512vnni,avx512vbmi")]
pub(super) fn stream<const BOOK: u8, const N: usize, const T: usize>(
    strip: &[u8],
    tile: &Tile,
) -> [Lanes<f32>; T] {
    let blocks = strip::blocks::<N>(strip);
    let acts = tile.codes.as_chunks::<T>().0.as_chunks::<64>().0;
    let sixteens = tile.sixteens.as_chunks::<T>().0.as_chunks::<8>().0;
    let levels = levels::<BOOK>();
    let level = if T <= WAITS { Level::while_waiting() } else { Some(Level::here()) };
    let mut out = [_mm512_setzero_ps(); T];
    if BOOK == TQ1 {
        return ternary::<N, T>(blocks, tile);
    }
    let each = blocks.iter().zip(acts).zip(sixteens).zip(tile.scales.as_chunks::<T>().0);
    for (((block, acts), sixteens), act_scales) in each {
        let (mut sums, mut raised) = ([_mm512_setzero_si512(); T], [_mm512_setzero_si512(); T]);
        for p in 0..8 {
            let ahead = Ahead::of(block.as_flattened(), p, 8, level, AHEAD);
            let part = part::<BOOK, N>(block, p);
            // Written out, so that a compiler knows every shift.
            macro_rules! half {
                ($left:literal: $($q:literal)*) => {{
                    let mut products = [_mm512_setzero_si512(); T];
                    $(
                        ahead.ask($q, 8);
                        let codes = _mm512_permutexvar_epi8(index::<BOOK>(&part, $q), levels);
                        for t in 0..T {
                            products[t] = _mm512_dpbusd_epi32(products[t], codes, four(acts[8 * p + $q][t]));
                        }
                    )*
                    let scale = _mm512_srai_epi32::<16>(_mm512_slli_epi32::<$left>(part.scales));
                    for t in 0..T {
                        sums[t] = _mm512_add_epi32(sums[t], _mm512_mullo_epi32(products[t], scale));
                    }
                }};
            }
            half!(16: 0 1 2 3);
            half!(0: 4 5 6 7);
            for t in 0..T {
                raised[t] = _mm512_dpwssd_epi32(raised[t], part.scales, two(sixteens[p][t]));
            }
        }
        let d = factor::<BOOK, N>(block);
        const { assert!(RAISE == 1 << 6) };
        for t in 0..T {
            let sum = _mm512_sub_epi32(sums[t], _mm512_slli_epi32::<6>(raised[t]));
            let p = _mm512_mul_ps(d, _mm512_cvtepi32_ps(sum));
            out[t] = _mm512_fmadd_ps(_mm512_set1_ps(act_scales[t]), p, out[t]);
        }
    }
    lanes(out)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn lanes<const T: usize>(sums: [__m512; T]) -> [Lanes<f32>; T] {
    let mut lanes = [Lanes([0.0; 16]); T];
    for t in 0..T {
        // SAFETY: 64 bytes are written to an array of 64 that starts at a multiple of 64.
        unsafe { _mm512_store_ps(lanes[t].0.as_mut_ptr(), sums[t]) };
    }
    lanes
}

/// Five digits of each byte of TQ1_0, two bits each.
static DIGITS: Split<256> = {
    let (mut digits, mut byte) = ([0; 256], 0);
    while byte < 256 {
        let (mut rest, mut digit) = (byte as u8, 0);
        while digit < 5 {
            digits[byte] |= ((rest as u16 * 3) >> 8) << (2 * digit);
            rest = rest.wrapping_mul(3);
            digit += 1;
        }
        byte += 1;
    }
    book::split(&digits)
};

/// The digits of word `w`, of which the last has one less.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub(super) fn digits<const N: usize>(block: &Block<N>, w: usize) -> [__m512i; 5] {
    let [four, fifth] = find(&DIGITS, [word(block, w), _mm512_setzero_si512()]);
    let two = _mm512_set1_epi8(3);
    [
        _mm512_and_si512(four, two),
        _mm512_and_si512(_mm512_srli_epi32::<2>(four), two),
        _mm512_and_si512(_mm512_srli_epi32::<4>(four), two),
        _mm512_and_si512(_mm512_srli_epi32::<6>(four), two),
        _mm512_and_si512(fifth, two),
    ]
}

/// The same of TQ1_0, which has no sub-scales: a word's digits are far from each other, and met one after the other.
#[inline]
#[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl,avx512vnni,avx512vbmi")]
fn ternary<const N: usize, const T: usize>(blocks: &[Block<N>], tile: &Tile) -> [Lanes<f32>; T] {
    let acts = tile.codes.as_chunks::<T>().0.as_chunks::<64>().0;
    let sixteens = tile.sixteens.as_chunks::<T>().0.as_chunks::<8>().0;
    let level = if T <= WAITS { Level::while_waiting() } else { Some(Level::here()) };
    let mut out = [_mm512_setzero_ps(); T];
    let each = blocks.iter().zip(acts).zip(sixteens).zip(tile.scales.as_chunks::<T>().0);
    for (((block, acts), sixteens), act_scales) in each {
        let (mut sums, mut raised) = ([_mm512_setzero_si512(); T], [_mm512_setzero_si512(); T]);
        let ahead = Ahead::of(block.as_flattened(), 0, 1, level, AHEAD);
        for w in 0..13 {
            ahead.ask(w, 13);
            let (first, apart, many) = digits_at(w);
            let digits = digits(block, w);
            for digit in 0..many {
                for t in 0..T {
                    sums[t] =
                        _mm512_dpbusd_epi32(sums[t], digits[digit], four(acts[first + apart * digit][t]));
                }
            }
        }
        for sums in sixteens {
            for t in 0..T {
                raised[t] = _mm512_dpwssd_epi32(raised[t], _mm512_set1_epi16(1), two(sums[t]));
            }
        }
        let d = factor::<TQ1, N>(block);
        for t in 0..T {
            let p = _mm512_mul_ps(d, _mm512_cvtepi32_ps(_mm512_sub_epi32(sums[t], raised[t])));
            out[t] = _mm512_fmadd_ps(_mm512_set1_ps(act_scales[t]), p, out[t]);
        }
    }
    lanes(out)
}

const IQ1_S: u8 = Book::Iq1S as u8;
const IQ1_M: u8 = Book::Iq1M as u8;
const IQ2_XXS: u8 = Book::Iq2Xxs as u8;
const IQ2_XS: u8 = Book::Iq2Xs as u8;
const IQ2_S: u8 = Book::Iq2S as u8;
const IQ3_XXS: u8 = Book::Iq3Xxs as u8;
const IQ3_S: u8 = Book::Iq3S as u8;
pub(super) const TQ1: u8 = Book::Tq1 as u8;

/// Whether codes name four weights, of three bits a level, and not eight of two.
const fn of_fours(book: u8) -> bool {
    matches!(book, IQ3_XXS | IQ3_S)
}

/// Raised levels by number; behind them those with the other sign, or shifted down. Further bits of a number count for nothing.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn levels<const BOOK: u8>() -> __m512i {
    const fn eights(levels: [i8; 4], shifted: bool) -> [u8; 64] {
        let (mut out, mut i) = ([0; 64], 0);
        while i < 64 {
            let level = levels[i % 4];
            let level = match (i / 4 % 2, shifted) {
                (0, _) => level,
                (_, true) => level - 2,
                _ => -level,
            };
            out[i] = RAISE.wrapping_add_signed(level);
            i += 1;
        }
        out
    }
    const fn fours(levels: [i8; 8]) -> [u8; 64] {
        let (mut out, mut i) = ([0; 64], 0);
        while i < 64 {
            out[i] = RAISE.wrapping_add_signed(if i / 8 % 2 == 0 { levels[i % 8] } else { -levels[i % 8] });
            i += 1;
        }
        out
    }
    book::register(match BOOK {
        // In eighths, which are shifted by one.
        IQ1_S | IQ1_M => const { &eights([-7, 1, 9, 0], true) },
        IQ3_XXS => const { &fours(grids::IQ3_XXS_LEVELS) },
        IQ3_S => const { &fours(grids::IQ3_S_LEVELS) },
        _ => const { &eights(grids::IQ2_LEVELS, false) },
    })
}

/// Shifts that bring bits `first + step * i` of a word to the lowest of its byte `i`.
const fn shifts(first: usize, step: usize) -> i64 {
    let (mut out, mut i) = (0, 0);
    while i < 8 {
        let bit = first + i % 4 * step + 32 * (i / 4);
        out |= (bit as i64 & 63) << (8 * i);
        i += 1;
    }
    out
}

/// The bits of each word from `first + step * i` on in its byte `i`, and others above them.
#[inline]
#[target_feature(enable = "avx512f,avx512vbmi")]
fn spread(v: __m512i, first: usize, step: usize) -> __m512i {
    _mm512_multishift_epi64_epi8(_mm512_set1_epi64(shifts(first, step)), v)
}

/// Each word shifted right.
#[inline]
#[target_feature(enable = "avx512f")]
fn down(v: __m512i, by: usize) -> __m512i {
    _mm512_srlv_epi32(v, _mm512_set1_epi32(by as i32))
}

/// The bits of `low` where `mask` has them, and of `high` elsewhere.
#[inline]
#[target_feature(enable = "avx512f")]
fn join(low: __m512i, high: __m512i, mask: i32) -> __m512i {
    _mm512_ternarylogic_epi32::<0xca>(_mm512_set1_epi32(mask), low, high)
}

/// The numbers of the levels of weights `4 q..4 q + 4` of a part, for [`levels`].
#[inline]
#[target_feature(enable = "avx512f,avx512vbmi")]
pub(super) fn index<const BOOK: u8>(part: &Part, q: usize) -> __m512i {
    let (eight, half) = (q / 2, q % 2);
    // IQ2_XS has its codes, and their signs with them, in another order.
    let place = if BOOK == IQ2_XS { [0, 2, 1, 3][eight] } else { eight };
    // A bit before, so that the sign comes behind the number.
    let sign = |bits: usize| spread(part.signs, (64 + 8 * place + 4 * half - bits) % 64, 1);
    if of_fours(BOOK) {
        let [even, odd] = if q < 4 { part.entries } else { part.next };
        let level = spread(if half == 0 { even } else { odd }, 16 * (eight % 2), 3);
        return join(level, sign(3), 0x0707_0707);
    }
    let sign = match BOOK {
        // A bit for all of an eight, in the place where levels want it.
        IQ1_S => part.signs,
        IQ1_M => spread(part.signs, 4 * eight, 0),
        _ => sign(2),
    };
    join(spread(part.entries[half], 8 * place, 2), sign, 0x0303_0303)
}

/// Of four times seven signs in each word four times eight, an even number of which is set.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn sevens(words: __m512i) -> __m512i {
    whole_signs(_mm512_and_si512(spread(words, 0, 7), _mm512_set1_epi8(127)))
}

/// The same of bytes of seven signs.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn whole_signs(sevens: __m512i) -> __m512i {
    // Of four bits.
    let odd = _mm512_broadcast_i32x4(_mm_setr_epi8(
        0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0,
    ));
    let four = _mm512_xor_si512(sevens, _mm512_srli_epi16::<4>(sevens));
    let four = _mm512_and_si512(four, _mm512_set1_epi8(15));
    _mm512_or_si512(sevens, _mm512_shuffle_epi8(odd, four))
}

/// `2 s + 1` for two sub-scales of so many `bits` from bits `at` on, 16 bits each.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn odd_scales(words: __m512i, at: [usize; 2], mask: i32) -> __m512i {
    let [low, high] = at.map(|at| _mm512_set1_epi32(at as i32));
    let mask = _mm512_set1_epi32(mask);
    let low = _mm512_and_si512(_mm512_srlv_epi32(words, low), mask);
    let high = _mm512_and_si512(_mm512_srlv_epi32(words, high), mask);
    let both = _mm512_or_si512(low, _mm512_slli_epi32::<16>(high));
    _mm512_add_epi16(_mm512_add_epi16(both, both), _mm512_set1_epi16(1))
}

/// Part `p` of a block's eight, whose words lie as [`Book::place`] has it.
#[inline]
#[target_feature(enable = "avx2,avx512f,avx512bw,avx512vl,avx512vbmi")]
pub(super) fn part<const BOOK: u8, const N: usize>(b: &Block<N>, p: usize) -> Part {
    let (byte, none) = (8 * (p % 4), _mm512_setzero_si512());
    let of_eights = |entries, signs, scales| Part { entries, next: [none; 2], signs, scales };
    match BOOK {
        IQ2_XXS => {
            let rest = word(b, 2 * p + 1);
            let entries = find(&book::IQ2_XXS, [word(b, 2 * p), none]);
            of_eights(entries, sevens(rest), odd_scales(rest, [28; 2], 15))
        }
        IQ2_XS => {
            // Two codes of sixteen bits in a word: lower bytes of the first and the third, of the second and the fourth, and so upper ones.
            let [first, second] = [word(b, 2 + 2 * p), word(b, 3 + 2 * p)];
            let lower = join(first, _mm512_slli_epi32::<8>(second), 0x00ff_00ff);
            let upper = join(_mm512_srli_epi32::<8>(first), second, 0x00ff_00ff);
            let signs = _mm512_and_si512(_mm512_srli_epi16::<1>(upper), _mm512_set1_epi8(127));
            let scales = odd_scales(word(b, p / 4), [byte, byte + 4], 15);
            of_eights(find(&book::IQ2_XS, [lower, upper]), whole_signs(signs), scales)
        }
        IQ2_S => {
            let upper = spread(down(word(b, 2 + p / 4), byte), 0, 2);
            let scales = odd_scales(word(b, p / 4), [byte, byte + 4], 15);
            of_eights(find(&book::IQ2_S, [word(b, 4 + 2 * p), upper]), word(b, 5 + 2 * p), scales)
        }
        IQ1_S => {
            let (at, rest) = (16 * (p % 2), word(b, 3 * (p / 2)));
            let entries = find(&book::IQ1, [word(b, 3 * (p / 2) + 1 + p % 2), spread(down(rest, at), 0, 3)]);
            // All bits of a row whose last is set.
            let lower = _mm512_srai_epi32::<31>(_mm512_sllv_epi32(rest, _mm512_set1_epi32(16 - at as i32)));
            of_eights(entries, lower, odd_scales(rest, [at + 12; 2], 7))
        }
        IQ1_M => {
            let (at, rest) = (16 * (p % 2), word(b, 2 + 3 * (p / 2)));
            let rest = down(rest, at);
            let entries = find(&book::IQ1, [word(b, 2 + 3 * (p / 2) + 1 + p % 2), spread(rest, 0, 4)]);
            // The last of four bits comes to the third.
            let lower = _mm512_and_si512(_mm512_srli_epi32::<1>(rest), _mm512_set1_epi32(0x7fff));
            let (scales, first) = (word(b, p / 4), 16 * (p / 2 % 2) + 6 * (p % 2));
            of_eights(entries, lower, odd_scales(scales, [first, first + 3], 7))
        }
        IQ3_XXS => {
            let rest = word(b, 3 * p + 2);
            Part {
                entries: words_of_entries(find(&book::IQ3_XXS, [word(b, 3 * p), none])),
                next: words_of_entries(find(&book::IQ3_XXS, [word(b, 3 * p + 1), none])),
                signs: sevens(rest),
                scales: odd_scales(rest, [28; 2], 15),
            }
        }
        _ => {
            let upper = down(word(b, 1 + p / 4), byte);
            let [first, second] = [spread(upper, 0, 1), spread(upper, 4, 1)];
            Part {
                entries: words_of_entries(find(&book::IQ3_S, [word(b, 3 + 3 * p), first])),
                next: words_of_entries(find(&book::IQ3_S, [word(b, 4 + 3 * p), second])),
                signs: word(b, 5 + 3 * p),
                scales: odd_scales(word(b, 0), [4 * p; 2], 15),
            }
        }
    }
}

/// Entries of 16 bits of a word's first and third code, and of its second and fourth.
#[inline]
#[target_feature(enable = "avx512f")]
fn words_of_entries([lower, upper]: [__m512i; 2]) -> [__m512i; 2] {
    let even = join(lower, _mm512_slli_epi32::<8>(upper), 0x00ff_00ff);
    [even, join(_mm512_srli_epi32::<8>(lower), upper, 0x00ff_00ff)]
}

/// A block's factor, as [`Book::factor`] has it.
#[inline]
#[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl")]
pub(super) fn factor<const BOOK: u8, const N: usize>(b: &Block<N>) -> __m512 {
    if BOOK == IQ1_M {
        // Four bits of each of four sixteens.
        let [low, high] = [word(b, 0), word(b, 1)];
        let bits = |v: __m512i, down: u32, mask: i32| {
            _mm512_and_si512(
                _mm512_srlv_epi32(v, _mm512_set1_epi32(down.cast_signed())),
                _mm512_set1_epi32(mask),
            )
        };
        let low = _mm512_or_si512(bits(low, 12, 15), bits(low, 24, 0xf0));
        let high = _mm512_or_si512(bits(high, 12, 15), bits(high, 24, 0xf0));
        let d = _mm512_cvtepi32_epi16(_mm512_or_si512(low, _mm512_slli_epi32::<8>(high)));
        return _mm512_mul_ps(_mm512_cvtph_ps(d), _mm512_set1_ps(0.125));
    }
    // SAFETY: the block's last 32 bytes are read.
    let d = unsafe { _mm256_loadu_si256(b.as_ptr().cast::<u8>().add(STRIP * N - 32).cast()) };
    let by = match BOOK {
        IQ3_S | TQ1 => 1.0,
        IQ3_XXS => 0.25,
        _ => 0.125,
    };
    _mm512_mul_ps(_mm512_cvtph_ps(d), _mm512_set1_ps(by))
}
