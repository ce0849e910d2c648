//! Dense weights in strips, with a lane for each row, and the activations that meet them.
//!
//! A product's sum has four lanes (see [`super::dense`]), and word `i` of a row (an element, or two neighbours of bf16) is in lane
//! `i % 4`. With a row in each lane of a register those four sums are four chains through every fourth word; nothing is added across
//! a register, and a value of one token is multiplied with sixteen rows, or thirty-two.
//!
//! So a strip of sixteen rows is the first word of every row, then the second of every row, and so on. One token goes straight
//! through it with four chains under way; many take one lane after the other.

use super::{
    dense::{Dense, LANES},
    strips::STRIP,
};

/// Tokens of a piece at most: with two registers of rows, twenty-four sums.
const TOKENS: usize = 12;
/// Words of a line of the cache.
const LINE: usize = 16;

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
        n.div_ceil(if n <= few.tokens { few.together } else { TOKENS })
    }

    /// The tokens of piece `i` of so many: all have the same number, or one less.
    pub(crate) fn tokens(n: usize, few: Few, i: usize) -> std::ops::Range<usize> {
        let count = Self::count(n, few);
        i * n / count..(i + 1) * n / count
    }

    /// Lays rows of `k` elements.
    #[inline(always)] // and compiled with the instructions of whoever calls it
    pub(crate) fn fill(&mut self, side: Side, x: &[f32], k: usize) {
        let tokens = x.len() / k;
        let rows: Vec<Vec<u32>> = x.chunks_exact(k).map(|x| words(side, x)).collect();
        let steps = rows.first().map_or(0, |row| row.len() / LANES);
        self.tokens = tokens;
        self.least = match side {
            Side::Pairs => rows.iter().map(|row| least(row.iter().copied())).min().unwrap_or(i32::MAX),
            _ => i32::MAX,
        };
        self.values.resize(LANES * steps * tokens, 0);
        match tokens {
            12 => self.lay::<12>(&rows),
            11 => self.lay::<11>(&rows),
            10 => self.lay::<10>(&rows),
            9 => self.lay::<9>(&rows),
            8 => self.lay::<8>(&rows),
            7 => self.lay::<7>(&rows),
            6 => self.lay::<6>(&rows),
            5 => self.lay::<5>(&rows),
            4 => self.lay::<4>(&rows),
            3 => self.lay::<3>(&rows),
            2 => self.lay::<2>(&rows),
            1 => self.lay::<1>(&rows),
            n => assert_eq!(n, 0, "a piece is of at most {TOKENS} tokens"),
        }
    }

    /// Lays the words of `T` rows side by side.
    #[inline(always)]
    fn lay<const T: usize>(&mut self, rows: &[Vec<u32>]) {
        let Some(rows) = rows.first_chunk::<T>() else { return };
        let to = self.values.as_chunks_mut::<T>().0;
        let (words, steps) = (to.len(), to.len() / LANES);
        let place = |word: usize| word % LANES * steps + word / LANES;
        // A line of the cache of each row at a time.
        let lines = rows.each_ref().map(|row| row.as_chunks::<LINE>().0);
        for i in 0..words / LINE {
            let lines = lines.map(|line| &line[i]);
            for w in 0..LINE {
                to[place(i * LINE + w)] = lines.map(|line| line[w]);
            }
        }
        for w in words / LINE * LINE..words {
            to[place(w)] = rows.each_ref().map(|row| row[w]);
        }
    }
}

/// A row's words in steps of four, one for each lane of the sum.
#[inline(always)]
fn words(side: Side, x: &[f32]) -> Vec<u32> {
    let step = if side == Side::Single { LANES } else { 2 * LANES };
    let each = if side == Side::Pairs { LANES } else { step };
    let mut row = vec![0; x.len().div_ceil(step) * each];
    match side {
        Side::Single => row.iter_mut().zip(x).for_each(|(to, v)| *to = v.to_bits()),
        Side::Pairs => {
            let (pairs, last) = x.as_chunks();
            for (to, [even, odd]) in row.iter_mut().zip(pairs) {
                *to = bf16_bits(*odd) | bf16_bits(*even) >> 16;
            }
            if let ([even], Some(to)) = (last, row.get_mut(pairs.len())) {
                *to = bf16_bits(*even) >> 16;
            }
        }
        Side::OddEven => {
            for (to, x) in row.chunks_exact_mut(step).zip(x.chunks(step)) {
                for (i, v) in x.iter().enumerate() {
                    to[(i + 1) % 2 * LANES + i / 2] = bf16_bits(*v);
                }
            }
        }
    }
    row
}

/// The bits in single precision of `v` rounded to bf16: to nearest, ties to even.
#[inline(always)]
fn bf16_bits(v: f32) -> u32 {
    let bits = v.to_bits();
    let nearest = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
    let nan = bits | 1 << 22;
    (if bits & 0x7fff_ffff > 0x7f80_0000 { nan } else { nearest }) & 0xffff_0000
}

/// The smallest exponent of what is not zero among pairs of bf16, as they have it; far below all where something is too small to be
/// a normal number.
#[inline(always)]
pub(crate) fn least(pairs: impl Iterator<Item = u32>) -> i32 {
    // Magnitudes are ordered as their bits are; what is zero comes after all others when one is taken off.
    let one = |half: u32| (half as u16 & 0x7fff).wrapping_sub(1);
    let smallest = pairs.fold(u16::MAX, |least, pair| least.min(one(pair)).min(one(pair >> 16)));
    match i32::from(smallest.wrapping_add(1)) {
        0 => i32::MAX,
        denormal if denormal >> 7 == 0 => -1000,
        normal => normal >> 7,
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
