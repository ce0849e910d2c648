//! Formats of one to three bits, whose codes name groups of levels: IQ1 to IQ3, and TQ1_0, whose bytes hold five.
//!
//! Their groups come from tables, a step that no product wants to know of. So some rows at a time are unpacked to one form ([`Packed::Coded`],
//! which is what all of them come to: 256 codes, sixteen sub-scales and a factor), and its kernels multiply them. What is here is the
//! definition; paths unpack to the same bytes faster. On AVX2, and where a register is a table of bytes (VBMI), weights in strips need no unpacked rows:
//! their words are looked up, and multiplied, in registers for one token (with VBMI for up to eight) and from a panel for more, up to twice as fast.

use super::{FEW_CODED, Input, Job};
use crate::{pool::Stripe, weight::CpuWeight};
use half::f16;
use ogive_tensor::{self as t, Format, grids};
use std::cell::RefCell;

/// Bytes of a block that is unpacked: codes, raised by [`RAISE`], at [`SCALES`] a byte for each sixteen of them, at [`FACTOR`] their factor in single
/// precision; the rest is left alone, so that codes begin at a line of the cache.
pub(crate) const CODED: usize = 320;
/// Where a block's sub-scales begin.
pub(crate) const SCALES: usize = 256;
/// Where its factor begins.
pub(crate) const FACTOR: usize = 272;
/// What codes are raised by.
pub(crate) const RAISE: u8 = 64;
/// What those are raised by that are never below -15, where more of their products shall fit 16 bits.
pub(crate) const LOW: u8 = 16;
/// Rows that are unpacked together for more than a few tokens.
const ROWS: usize = 64;
/// And for a few, so that they stay in the first cache: as many as kernels for a few tokens read together. ARM's lay strips.
const FEW_ROWS: usize = if cfg!(target_arch = "x86_64") { 4 } else { 32 };

/// One of the formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Book {
    Iq1S,
    Iq1M,
    Iq2Xxs,
    Iq2Xs,
    Iq2S,
    Iq3Xxs,
    Iq3S,
    Tq1,
}

/// Eight levels that a code names. Aligned: read as a word, and never from two lines of the cache.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub(crate) struct Eight(pub(crate) [i8; 8]);

const fn aligned<const N: usize>(eights: [[i8; 8]; N]) -> [Eight; N] {
    let (mut all, mut i) = ([Eight([0; 8]); N], 0);
    while i < N {
        all[i] = Eight(eights[i]);
        i += 1;
    }
    all
}

/// Levels of IQ1 in eighths, raised by [`LOW`], and one more: its shift of an eighth adds nothing, or takes two away.
pub(crate) static IQ1: [Eight; 2048] = aligned(grids::eights(&grids::IQ1, [9, 17, 25, 0]));
pub(crate) static IQ2_XXS: [Eight; 256] = aligned(grids::eights(&grids::IQ2_XXS, grids::IQ2_LEVELS));
pub(crate) static IQ2_XS: [Eight; 512] = aligned(grids::eights(&grids::IQ2_XS, grids::IQ2_LEVELS));
pub(crate) static IQ2_S: [Eight; 1024] = aligned(grids::eights(&grids::IQ2_S, grids::IQ2_LEVELS));
pub(crate) static IQ3_XXS: [[i8; 4]; 256] = grids::fours(&grids::IQ3_XXS, grids::IQ3_XXS_LEVELS);
pub(crate) static IQ3_S: [[i8; 4]; 512] = grids::fours(&grids::IQ3_S, grids::IQ3_S_LEVELS);

impl Book {
    pub(crate) const ALL: &[(Self, &'static Format)] = &[
        (Self::Iq1S, &t::IQ1_S),
        (Self::Iq1M, &t::IQ1_M),
        (Self::Iq2Xxs, &t::IQ2_XXS),
        (Self::Iq2Xs, &t::IQ2_XS),
        (Self::Iq2S, &t::IQ2_S),
        (Self::Iq3Xxs, &t::IQ3_XXS),
        (Self::Iq3S, &t::IQ3_S),
        (Self::Tq1, &t::TQ1_0),
    ];

    /// Which one `format` is, by address, as [`Packed::of`] has it.
    pub(crate) fn of(format: &'static Format) -> Option<Self> {
        Self::ALL.iter().find(|(_, f)| std::ptr::eq(*f, format)).map(|p| p.0)
    }

    /// Bytes of a block of 256.
    pub(crate) const fn bytes(self) -> usize {
        match self {
            Self::Iq1S => 50,
            Self::Iq1M => 56,
            Self::Iq2Xxs => 66,
            Self::Iq2Xs => 74,
            Self::Iq2S => 82,
            Self::Iq3Xxs => 98,
            Self::Iq3S => 110,
            Self::Tq1 => 54,
        }
    }

    /// Where a block's bytes that fill no word begin, and how many there are.
    pub(crate) const fn odd(self) -> (usize, usize) {
        match self {
            Self::Iq1M => (0, 0),
            Self::Tq1 => (52, 2),
            _ => (0, 2),
        }
    }

    /// Where word `w` of a row's block, of those that are whole, stands among the words of a strip's: in the order in which they are wanted, for
    /// 32 weights after 32.
    pub(crate) const fn place(self, w: usize) -> usize {
        match self {
            // Codes of 64 weights behind what else is of them; IQ1_M's scales come first.
            Self::Iq1S => match w {
                0..8 => 3 * (w / 2) + 1 + w % 2,
                _ => 3 * (w - 8),
            },
            Self::Iq1M => match w {
                0..8 => 2 + 3 * (w / 2) + 1 + w % 2,
                8..12 => 2 + 3 * (w - 8),
                _ => w - 12,
            },
            // Scales first.
            Self::Iq2Xs => (w + 2) % 18,
            // Scales, upper bits, then codes and their signs.
            Self::Iq2S => match w {
                0..8 => 4 + 2 * w,
                8..16 => 5 + 2 * (w - 8),
                16..18 => w - 14,
                _ => w - 18,
            },
            // Codes, and behind each two words of them what else is of these.
            Self::Iq3Xxs => match w {
                0..16 => 3 * (w / 2) + w % 2,
                _ => 3 * (w - 16) + 2,
            },
            Self::Iq3S => match w {
                0..16 => 3 + 3 * (w / 2) + w % 2,
                16..18 => w - 15,
                18..26 => 5 + 3 * (w - 18),
                _ => 0,
            },
            Self::Iq2Xxs | Self::Tq1 => w,
        }
    }

    /// A block's factor: what a sub-scale of one and a code of one are worth.
    pub(crate) fn factor(self, b: &[u8]) -> f32 {
        let half = |at: usize| f16::from_le_bytes([b[at], b[at + 1]]).to_f32();
        match self {
            Self::Iq1S | Self::Iq2Xxs | Self::Iq2Xs | Self::Iq2S => half(0) / 8.0,
            Self::Iq1M => {
                let top = |i: usize| u16::from(b[49 + 2 * i] >> 4) << (4 * i);
                f16::from_bits(top(0) | top(1) | top(2) | top(3)).to_f32() / 8.0
            }
            Self::Iq3Xxs => half(0) / 4.0,
            Self::Iq3S => half(0),
            Self::Tq1 => half(52),
        }
    }

    /// Unpacks a block.
    fn block(self, b: &[u8], to: &mut [u8; CODED]) {
        to[FACTOR..FACTOR + 4].copy_from_slice(&self.factor(b).to_le_bytes());
        for (i, s) in to[SCALES..FACTOR].iter_mut().enumerate() {
            *s = self.scale(b, i);
        }
        for (i, to) in to[..256].as_chunks_mut().0.iter_mut().enumerate() {
            *to = self.eight(b, i);
        }
    }

    /// Sub-scale `i` of sixteen.
    fn scale(self, b: &[u8], i: usize) -> u8 {
        let nibble = |at: usize, i: usize| b[at + i / 2] >> (4 * (i % 2)) & 15;
        let s = match self {
            Self::Iq1S => b[35 + 2 * (i / 2)] >> 4 & 7,
            Self::Iq1M => {
                let word = u16::from_le_bytes([b[48 + 2 * (i / 4)], b[49 + 2 * (i / 4)]]);
                (word >> (3 * (i % 4)) & 7) as u8
            }
            Self::Iq2Xxs => b[9 + 8 * (i / 2)] >> 4,
            Self::Iq2Xs => nibble(66, i),
            Self::Iq2S => nibble(74, i),
            Self::Iq3Xxs => b[69 + 4 * (i / 2)] >> 4,
            Self::Iq3S => nibble(106, i / 2),
            Self::Tq1 => 0,
        };
        2 * s + 1
    }

    /// Codes `8 i..8 i + 8`, raised.
    fn eight(self, b: &[u8], i: usize) -> [u8; 8] {
        let code = |at: usize, i: usize, high: u8| usize::from(b[at + i]) | usize::from(high) << 8;
        let seven = |at: usize| {
            let word = u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
            grids::signs((word >> (7 * (i % 4))) as u8)
        };
        match self {
            Self::Iq1S => {
                let rest = u16::from_le_bytes([b[34 + 2 * (i / 4)], b[35 + 2 * (i / 4)]]);
                shifted(code(2, i, (rest >> (3 * (i % 4)) & 7) as u8), rest >> 15 == 1)
            }
            Self::Iq1M => {
                let rest = b[32 + i / 2] >> (4 * (i % 2)) & 15;
                shifted(code(0, i, rest & 7), rest >> 3 == 1)
            }
            Self::Iq2Xxs => {
                let at = 2 + 8 * (i / 4);
                signed(IQ2_XXS[code(at, i % 4, 0)].0, seven(at + 4))
            }
            Self::Iq2Xs => {
                let both = u16::from_le_bytes([b[2 + 2 * i], b[3 + 2 * i]]);
                signed(IQ2_XS[usize::from(both & 511)].0, grids::signs((both >> 9) as u8))
            }
            Self::Iq2S => signed(IQ2_S[code(2, i, b[66 + i / 4] >> (2 * (i % 4)) & 3)].0, b[34 + i]),
            Self::Iq3Xxs => {
                let fours = [IQ3_XXS[code(2, 2 * i, 0)], IQ3_XXS[code(2, 2 * i + 1, 0)]];
                signed(two(fours), seven(66 + 4 * (i / 4)))
            }
            Self::Iq3S => {
                let high = |j: usize| b[66 + i / 4] >> (2 * (i % 4) + j) & 1;
                let four = |j: usize| IQ3_S[code(2, 2 * i + j, high(j))];
                signed(two([four(0), four(1)]), b[74 + i])
            }
            Self::Tq1 => std::array::from_fn(|j| {
                let (byte, digit) = match 8 * i + j {
                    e @ 0..160 => (e % 32, e / 32),
                    e @ 160..240 => (32 + e % 16, e / 16 - 10),
                    e => (48 + e % 4, e / 4 - 60),
                };
                let power = [1, 3, 9, 27, 81][digit];
                RAISE - 1 + ((u16::from(b[byte].wrapping_mul(power)) * 3) >> 8) as u8
            }),
        }
    }
}

fn two([low, high]: [[i8; 4]; 2]) -> [i8; 8] {
    std::array::from_fn(|j| if j < 4 { low[j] } else { high[j - 4] })
}

/// Levels with signs, raised.
fn signed(levels: [i8; 8], signs: u8) -> [u8; 8] {
    let sign = |j: usize| if signs >> j & 1 == 1 { -levels[j] } else { levels[j] };
    std::array::from_fn(|j| RAISE.wrapping_add_signed(sign(j)))
}

/// Levels of IQ1, raised.
fn shifted(code: usize, down: bool) -> [u8; 8] {
    IQ1[code].0.map(|level| (RAISE - LOW).wrapping_add_signed(level - if down { 2 } else { 0 }))
}

/// Unpacks a row: the definition.
pub(crate) fn unpack(book: Book, row: &[u8], to: &mut [u8]) {
    for (b, to) in row.chunks_exact(book.bytes()).zip(to.as_chunks_mut().0) {
        book.block(b, to);
    }
}

/// What a thread keeps from run to run.
#[derive(Default)]
struct Scratch {
    /// Unpacked rows, from a line of the cache on.
    rows: Vec<u8>,
    sums: Vec<f32>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Fills a stripe of the result that begins at row `first`, counted through all experts.
pub(super) fn stripe(w: &CpuWeight, book: Book, input: &Input, first: usize, out: &mut Stripe<'_>) {
    let (n, width, path) = (input.n(), out.width(), w.path());
    let most = if n <= FEW_CODED { FEW_ROWS } else { ROWS };
    let each = most.min(width);
    SCRATCH.with_borrow_mut(|Scratch { rows, sums }| {
        let row = w.shape()[2] / 256 * CODED;
        // They only grow: what is there is not cleared again for another weight.
        rows.resize(rows.len().max(each * row + 64), 0);
        sums.resize(sums.len().max(n * each), 0.0);
        let at = rows.as_ptr().align_offset(64).min(64);
        let rows = &mut rows[at..][..each * row];
        for start in (0..width).step_by(each.max(1)) {
            let count = each.min(width - start);
            for (r, to) in rows.chunks_exact_mut(row.max(1)).take(count).enumerate() {
                path.unpack(book, w.row(first + start + r), to);
            }
            let sums = &mut sums[..n * count];
            let job = Job { w, input, first: first + start, coded: Some((&*rows, row)) };
            path.stripe(&job, &mut Stripe::new(sums, count));
            for (t, sums) in sums.chunks_exact(count).enumerate() {
                out.row(t)[start..start + count].copy_from_slice(sums);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::Path;

    /// Random blocks with a factor that is some number, and blocks of one byte.
    fn rows(book: Book) -> Vec<u8> {
        let mut state = 1_u64;
        let mut bytes: Vec<u8> = (0..300 * book.bytes())
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 56) as u8
            })
            .collect();
        for (i, block) in bytes.chunks_exact_mut(book.bytes()).enumerate().take(256) {
            if i % 4 == 0 {
                block.fill(i as u8);
            }
        }
        bytes
    }

    #[test]
    fn what_is_unpacked_is_what_the_format_decodes_to() {
        for (book, format) in Book::ALL {
            assert_eq!((book.bytes(), 256), (format.block_bytes, format.block_len));
            let bytes = rows(*book);
            let (mut coded, mut values) = ([0; CODED], [0.0; 256]);
            for b in bytes.chunks_exact(format.block_bytes) {
                unpack(*book, b, &mut coded);
                (format.decode)(b, &mut values);
                let d = book.factor(b);
                for (i, v) in values.iter().enumerate() {
                    let code = i32::from(coded[i]) - i32::from(RAISE);
                    let want = (code * i32::from(coded[SCALES + i / 16])) as f32 * d;
                    assert!(want == *v || want.is_nan() && v.is_nan(), "{book:?} {i}: {want} and {v}");
                }
            }
        }
    }

    #[test]
    fn every_path_unpacks_to_the_same_bytes() {
        for (book, _) in Book::ALL {
            let bytes = rows(*book);
            // What is not written stays.
            let (mut want, mut got) = (vec![7; 300 * CODED], vec![7; 300 * CODED]);
            unpack(*book, &bytes, &mut want);
            for path in Path::ALL.iter().filter(|p| p.is_supported()) {
                for count in [1, 300] {
                    got.fill(7);
                    path.unpack(*book, &bytes[..count * book.bytes()], &mut got[..count * CODED]);
                    assert!(got[..count * CODED] == want[..count * CODED], "{book:?} {path}");
                }
            }
        }
    }
}
