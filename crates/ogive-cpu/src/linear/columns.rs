//! Dense weights in strips, with a lane for each row, and the activations that meet them.
//!
//! A product's sum has four lanes (see [`super::dense`]), and word `i` of a row (an element, or two neighbours of bf16) is in lane
//! `i % 4`. With a row in each lane of a register those four sums are four chains through every fourth word; nothing is added across
//! a register, and a value of one token is multiplied with sixteen rows, or thirty-two.
//!
//! So a strip of sixteen rows is the first word of every row, then the second of every row, and so on. One token goes straight
//! through it with four chains under way; many take one lane after the other.

// Closures would not be inlined: the library functions that call them lack the instructions of whoever calls these.
#![allow(clippy::needless_range_loop)]

use super::{
    dense::{Dense, LANES},
    strips::STRIP,
};

/// Tokens of a piece at most.
const TOKENS: usize = 12;
/// Words of a line of the cache.
const LINE: usize = 16;
/// Steps that such words are, one for each lane of the sum.
const STEPS: usize = LINE / LANES;

impl Dense {
    /// Bytes of what a row has in a step.
    const fn word(self) -> usize {
        match self {
            Self::F16 => 2,
            Self::F32 | Self::Bf16 => 4,
        }
    }

    /// Bytes of a row of `k` in a strip.
    pub(crate) fn strip_row_bytes(self, k: usize) -> usize {
        self.padded(k) * self.bytes()
    }
}

/// Lays sixteen equally long rows into `strip`, which is zeros.
///
/// # Panics
/// If the strip is too short.
pub(crate) fn pack(kind: Dense, rows: &[&[u8]; STRIP], strip: &mut [u8]) {
    match kind.word() {
        2 => lay::<2>(rows, strip),
        _ => lay::<4>(rows, strip),
    }
}

/// The same for words of `W` bytes.
fn lay<const W: usize>(rows: &[&[u8]; STRIP], strip: &mut [u8]) {
    let to = strip.as_chunks_mut::<W>().0.as_chunks_mut::<STRIP>().0;
    // A line of the cache of each row at a time, or half of one.
    let whole = rows.map(|row| row.as_chunks::<W>().0.as_chunks::<LINE>().0);
    let count = whole.iter().map(|row| row.len()).fold(to.len() / LINE, usize::min);
    let (to, rest) = to.split_at_mut(count * LINE);
    for (i, to) in to.as_chunks_mut::<LINE>().0.iter_mut().enumerate() {
        let words = whole.map(|row| &row[i]);
        for (w, to) in to.iter_mut().enumerate() {
            *to = words.map(|words| words[w]);
        }
    }
    for (r, row) in rows.iter().enumerate() {
        let row = row.get(count * LINE * W..).unwrap_or_default();
        for (to, from) in rest.iter_mut().zip(row.chunks(W)) {
            to[r][..from.len()].copy_from_slice(from);
        }
    }
}

/// Gives back row `r` of a strip: [`pack`], read backwards.
///
/// # Panics
/// If there is no such row, or it is longer than the strip's.
pub(crate) fn unpack(kind: Dense, strip: &[u8], r: usize, row: &mut [u8]) {
    assert!(r < STRIP);
    let word = kind.word();
    for (i, to) in row.chunks_mut(word).enumerate() {
        let at = (i * STRIP + r) * word;
        to.copy_from_slice(&strip[at..at + to.len()]);
    }
}

/// What activations are multiplied as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// In single precision.
    Single,
    /// Rounded to bf16, in single precision, the odd ones before the even ones.
    OddEven,
    /// Rounded to bf16, two neighbours in a word.
    Pairs,
}

/// Which steps stream through a weight, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Few {
    /// Up to how many tokens.
    pub(crate) tokens: usize,
    /// Into pieces of how many they are cut.
    pub(crate) together: usize,
    /// Into pieces of how many the tokens of other steps are cut: at most [`TOKENS`].
    pub(crate) many: usize,
}

/// Some rows of activations: for each lane of the sum, step by step, the values of all tokens.
#[derive(Clone, Debug, Default)]
pub(crate) struct Columns {
    /// How many tokens there are.
    pub(crate) tokens: usize,
    /// Bits of a single or of a pair. `[LANES, steps, tokens]`, with two steps for one of the weight's where the odd and the even
    /// ones are apart.
    pub(crate) values: Vec<u32>,
    /// Of pairs the smallest exponent, as [`least`] has it.
    pub(crate) least: i32,
}

impl Columns {
    /// How many pieces `n` tokens make.
    pub(crate) fn count(n: usize, few: Few) -> usize {
        n.div_ceil(if n <= few.tokens { few.together } else { few.many })
    }

    /// The tokens of piece `i` of so many: all have the same number, or one less.
    pub(crate) fn tokens(n: usize, few: Few, i: usize) -> std::ops::Range<usize> {
        let count = Self::count(n, few);
        i * n / count..(i + 1) * n / count
    }

    /// Lays rows of `k` elements.
    #[inline(always)] // and compiled with the instructions of whoever calls it
    pub(crate) fn fill(&mut self, side: Side, x: &[f32], k: usize) {
        self.tokens = x.len() / k;
        match self.tokens {
            12 => self.lay::<12>(side, x, k),
            11 => self.lay::<11>(side, x, k),
            10 => self.lay::<10>(side, x, k),
            9 => self.lay::<9>(side, x, k),
            8 => self.lay::<8>(side, x, k),
            7 => self.lay::<7>(side, x, k),
            6 => self.lay::<6>(side, x, k),
            5 => self.lay::<5>(side, x, k),
            4 => self.lay::<4>(side, x, k),
            3 => self.lay::<3>(side, x, k),
            2 => self.lay::<2>(side, x, k),
            1 => self.lay::<1>(side, x, k),
            n => assert_eq!(n, 0, "a piece is of at most {TOKENS} tokens"),
        }
    }

    /// The same for `T` rows: a line of words of each at a time, which lie in the lanes four steps on.
    #[inline(always)]
    fn lay<const T: usize>(&mut self, side: Side, x: &[f32], k: usize) {
        let steps = side.steps(k);
        let mut smallest = [u32::MAX; LINE];
        self.values.resize(LANES * steps * T, 0);
        let lanes = self.values.as_chunks_mut::<T>().0;
        // Loops, as a closure in one of the library's functions may be compiled without vectors.
        for first in (0..steps).step_by(STEPS) {
            let mut lines = [[0; LINE]; T];
            for t in 0..T {
                side.line(&x[t * k..(t + 1) * k], first / STEPS, &mut lines[t]);
                if side == Side::Pairs {
                    for w in 0..LINE {
                        smallest[w] =
                            smallest[w].min(magnitude(lines[t][w])).min(magnitude(lines[t][w] >> 16));
                    }
                }
            }
            for l in 0..LANES {
                let lane = &mut lanes[l * steps + first..(l + 1) * steps];
                if let Some(lane) = lane.first_chunk_mut::<STEPS>() {
                    for s in 0..STEPS {
                        for t in 0..T {
                            lane[s][t] = lines[t][s * LANES + l];
                        }
                    }
                } else {
                    for (s, to) in lane.iter_mut().enumerate() {
                        for t in 0..T {
                            to[t] = lines[t][s * LANES + l];
                        }
                    }
                }
            }
        }
        self.least = exponent(smallest.into_iter().fold(u32::MAX, u32::min));
    }
}

impl Side {
    /// Steps of a row of `k` elements: one word for each lane, or two where odd and even ones are apart.
    fn steps(self, k: usize) -> usize {
        match self {
            Self::Single => k.div_ceil(LANES),
            Self::OddEven => k.div_ceil(2 * LANES) * 2,
            Self::Pairs => k.div_ceil(2 * LANES),
        }
    }

    /// The words of [`STEPS`] steps of a row, each with its lanes in order; what is behind the row's end is zero.
    #[inline(always)]
    fn line(self, row: &[f32], i: usize, to: &mut [u32; LINE]) {
        match self {
            Self::Single => {
                let x = whole::<LINE>(row, i);
                to.iter_mut().zip(&x).for_each(|(to, x)| *to = x.to_bits());
            }
            Self::Pairs => {
                let x = whole::<{ 2 * LINE }>(row, i);
                for w in 0..LINE {
                    to[w] = bf16_bits(x[2 * w + 1]) | bf16_bits(x[2 * w]) >> 16;
                }
            }
            Self::OddEven => {
                let x = whole::<LINE>(row, i);
                for w in 0..LINE {
                    let (eight, of) = (w / (2 * LANES), w % (2 * LANES));
                    to[w] = bf16_bits(x[eight * 2 * LANES + of % LANES * 2 + 1 - of / LANES]);
                }
            }
        }
    }
}

/// Elements `i * N` and those that follow, zeros behind the row's end.
#[inline(always)]
fn whole<const N: usize>(row: &[f32], i: usize) -> [f32; N] {
    let rest = &row[(i * N).min(row.len())..];
    match rest.first_chunk() {
        Some(x) => *x,
        None => {
            let mut x = [0.0; N];
            x[..rest.len()].copy_from_slice(rest);
            x
        }
    }
}

/// The bits in single precision of `v` rounded to bf16: to nearest, ties to even.
#[inline(always)]
pub(super) fn bf16_bits(v: f32) -> u32 {
    let bits = v.to_bits();
    let nearest = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
    let nan = bits | 1 << 22;
    (if bits & 0x7fff_ffff > 0x7f80_0000 { nan } else { nearest }) & 0xffff_0000
}

/// The smallest exponent of what is not zero among pairs of bf16, as they have it; far below all where something is too small to be
/// a normal number.
pub(crate) fn least(pairs: impl Iterator<Item = u32>) -> i32 {
    exponent(pairs.fold(u32::MAX, |least, pair| least.min(magnitude(pair)).min(magnitude(pair >> 16))))
}

/// What orders the lower halves of words, numbers in bf16, by their magnitudes: zero comes after all others.
#[inline(always)]
fn magnitude(word: u32) -> u32 {
    (word & 0x7fff).wrapping_sub(1)
}

/// [`least`] of the smallest [`magnitude`].
fn exponent(magnitude: u32) -> i32 {
    match magnitude.wrapping_add(1) {
        0 => i32::MAX,
        denormal if denormal >> 7 == 0 => -1000,
        normal => (normal >> 7).cast_signed(),
    }
}

/// Whether sums of products of such numbers are never denormal, be they added in what order: instructions for pairs of bf16 take
/// denormals for zero. Each product is a multiple of `2^(a - 127 - 7 + b - 127 - 7)`, and so is every sum, rounded or not.
#[cfg(any(test, target_arch = "x86_64"))]
pub(crate) fn stay_normal(a: i32, b: i32) -> bool {
    a.saturating_add(b) >= 2 * (127 + 7) - 126
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::bf16;

    #[test]
    fn what_is_laid_in_strips_can_be_read_back() {
        for kind in [Dense::F32, Dense::F16, Dense::Bf16] {
            for k in [1, 4, 16, 33, 64, 100] {
                let rows: Vec<Vec<u8>> = (0..STRIP)
                    .map(|r| (0..k * kind.bytes()).map(|i| (i * 7 + r * 31 + 1) as u8).collect())
                    .collect();
                let mut strip = vec![0; STRIP * kind.strip_row_bytes(k)];
                pack(kind, &std::array::from_fn(|r| &*rows[r]), &mut strip);
                for (r, want) in rows.iter().enumerate() {
                    let mut row = vec![0; want.len()];
                    unpack(kind, &strip, r, &mut row);
                    assert_eq!(row, *want, "{kind:?} of {k}, row {r}");
                }
            }
        }
    }

    #[test]
    fn columns_have_what_rows_have() {
        let k = 70;
        let x: Vec<f32> = (0..3 * k).map(|i| (i as f32 - 100.3) / 7.0).collect();
        let rounded =
            |t: usize, i: usize| if i < k { bf16::from_f32(x[t * k + i]).to_f32().to_bits() } else { 0 };
        for side in [Side::Single, Side::OddEven, Side::Pairs] {
            let mut columns = Columns::default();
            columns.fill(side, &x, k);
            let steps = columns.values.len() / LANES / 3;
            for (i, value) in columns.values.iter().enumerate() {
                let (t, step, lane) = (i % 3, i / 3 % steps, i / 3 / steps);
                let want = match side {
                    Side::Single => x[t * k..][..k].get(step * LANES + lane).map_or(0, |v| v.to_bits()),
                    Side::OddEven => rounded(t, step / 2 * 2 * LANES + 2 * lane + 1 - step % 2),
                    Side::Pairs => {
                        let first = step * 2 * LANES + 2 * lane;
                        rounded(t, first + 1) | rounded(t, first) >> 16
                    }
                };
                assert_eq!(*value, want, "{side:?} token {t} step {step} lane {lane}");
            }
        }
    }

    #[test]
    fn rounding_is_that_of_the_crate() {
        for bits in (0..=u32::MAX).step_by(65_521).chain([0x7f80_0000, 0x7fc0_0001, 0x7f80_0001, 0xff80_0000])
        {
            let (got, want) =
                (f32::from_bits(bf16_bits(f32::from_bits(bits))), bf16::from_f32(f32::from_bits(bits)));
            assert!(got.to_bits() == want.to_f32().to_bits() || got.is_nan() && want.is_nan(), "{bits:#x}");
        }
    }

    #[test]
    fn what_is_too_small_is_seen() {
        let of = |pairs: &[u32]| least(pairs.iter().copied());
        assert_eq!((of(&[]), of(&[0x8000_0000])), (i32::MAX, i32::MAX));
        assert_eq!((of(&[0x3f80_4000]), of(&[0x0001_3f80])), (0x7f, -1000));
        let one = 127;
        assert!(stay_normal(one, i32::MAX) && stay_normal(one, one) && stay_normal(one - 60, one - 52));
        assert!(!stay_normal(one - 60, one - 53) && !stay_normal(-1000, 254));
    }
}
