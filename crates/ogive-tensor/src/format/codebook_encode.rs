//! Packing numbers for formats whose codes stand for eight or four elements at once.
//!
//! A scale is searched for each sub-block first, as K-quants' are (`search`), then the superblock's factor is taken so that the largest can be
//! stored, and then scales and codes are chosen anew, for what is stored, and the factor fitted to them, in turn. ggml leaves codes as they
//! were before scales were rounded. Of signs that must come in pairs the one is false that costs least, for the scale at hand.

use super::book::{Book, LISTED};
use super::codebook::{IQ1_GRID, IQ2_S_GRID, IQ2_XS_GRID, IQ2_XXS_GRID, IQ3_S_GRID, IQ3_XXS_GRID, LEN};
use super::k_encode::{half_not_below, through_half};
use super::search::inverse;
use super::{grids, put_half};
use half::f16;
use std::sync::LazyLock;

static IQ2_XXS_BOOK: LazyLock<Book<8, 2>> = LazyLock::new(|| Book::new(&IQ2_XXS_GRID, &grids::IQ2_LEVELS));
static IQ2_XS_BOOK: LazyLock<Book<8, 2>> = LazyLock::new(|| Book::new(&IQ2_XS_GRID, &grids::IQ2_LEVELS));
static IQ2_S_BOOK: LazyLock<Book<8, 2>> = LazyLock::new(|| Book::new(&IQ2_S_GRID, &grids::IQ2_LEVELS));
static IQ3_XXS_BOOK: LazyLock<Book<4, 7>> =
    LazyLock::new(|| Book::new(&IQ3_XXS_GRID, &grids::IQ3_XXS_LEVELS));
static IQ3_S_BOOK: LazyLock<Book<4, 7>> = LazyLock::new(|| Book::new(&IQ3_S_GRID, &grids::IQ3_S_LEVELS));
/// In eighths, as the shift is.
static IQ1_BOOK: LazyLock<Book<8, 2>> =
    LazyLock::new(|| Book::new(&IQ1_GRID.map(|e| e.map(|level| 8 * level)), &[-8, 0, 8]));

/// Entries of a book's lists that are looked at while scales are searched for, which stay the same with more.
const QUICK: usize = 8;

/// What is chosen for a sub-block, of at most 32 elements.
#[derive(Clone, Copy, Default)]
struct Choice {
    /// What the scale multiplies: levels with their signs, or with their shift.
    levels: [f32; 32],
    /// Of each group of elements that a code stands for.
    codes: [u16; 8],
    /// Of each eight: which elements are negative, or, of IQ1, 1 if the shift is.
    signs: [u8; 4],
}

impl Choice {
    /// The scale that fits best, and what of Σ w x² it explains.
    fn fit(&self, x: &[f32], w: &[f32]) -> (f32, f32) {
        let (mut qx, mut qq) = ([0.0_f32; 8], [0.0_f32; 8]);
        let parts = x.as_chunks::<8>().0.iter().zip(w.as_chunks::<8>().0).zip(self.levels.as_chunks::<8>().0);
        for ((x, w), q) in parts {
            for lane in 0..8 {
                qx[lane] += w[lane] * q[lane] * x[lane];
                qq[lane] += w[lane] * q[lane] * q[lane];
            }
        }
        let (qx, qq) = (qx.iter().sum::<f32>(), qq.iter().sum::<f32>());
        (qx / qq, qx * qx / qq)
    }

    /// What elements are off by, squared and summed up by importance.
    fn error(&self, x: &[f32], w: &[f32], scale: f32) -> f32 {
        let mut sums = [0.0_f32; 8];
        let parts = x.as_chunks::<8>().0.iter().zip(w.as_chunks::<8>().0).zip(self.levels.as_chunks::<8>().0);
        for ((x, w), q) in parts {
            for lane in 0..8 {
                sums[lane] += w[lane] * (scale * q[lane] - x[lane]).powi(2);
            }
        }
        sums.iter().sum()
    }
}

/// What is different between formats.
struct Kind {
    /// Elements to a scale.
    sub: usize,
    /// The greatest scale `s`, of `2 s + 1`.
    fine: u8,
    /// The parts of `d` that levels count.
    parts: f32,
    /// The least size that an entry of the grid has for all of its elements.
    least: f32,
    /// First scales to try, as parts of the root of the mean square.
    starts: &'static [f32],
    /// Chooses levels for numbers, by their importances, times the inverse of a scale, among so many entries of a book's lists.
    choose: fn(&[f32], &[f32], f32, usize, &mut Choice),
}

/// A superblock before packing.
struct Block {
    d: f32,
    scales: [u8; 16],
    choices: [Choice; 16],
}

impl Block {
    fn of(kind: &Kind, x: &[f32], importance: &[f32]) -> Self {
        let alike = [1.0; LEN];
        let w = if importance.is_empty() { &alike } else { importance };
        let mut it = Self { d: 0.0, scales: [0; 16], choices: [Choice::default(); 16] };
        let mut fits = [0.0; 16];
        let parts = || x.chunks_exact(kind.sub).zip(w.chunks_exact(kind.sub));
        for (fit, (x, w)) in fits.iter_mut().zip(parts()) {
            *fit = search(kind, x, w);
        }
        let greatest = fits.iter().fold(0.0, |m, s| f32::max(m, *s));
        if greatest > 0.0 {
            it.d = half_not_below(greatest / f32::from(2 * kind.fine + 1) * kind.parts);
        }
        let mut least = it.choose(kind, x, w, &fits, (QUICK, 1));
        for how in [(LISTED, 1), (LISTED, 0)] {
            let (mut ax, mut aa) = (0.0, 0.0);
            for (i, (x, w)) in parts().enumerate() {
                let factor = f32::from(2 * it.scales[i] + 1) / kind.parts;
                for ((x, w), q) in x.iter().zip(w).zip(it.choices[i].levels) {
                    ax += w * factor * q * x;
                    aa += w * (factor * q) * (factor * q);
                }
                fits[i] = it.choices[i].fit(x, w).0;
            }
            let mut other = Self { d: through_half(ax / aa), ..it };
            let error =
                if other.d.is_finite() { other.choose(kind, x, w, &fits, how) } else { f32::INFINITY };
            if error >= least || error.is_nan() {
                break;
            }
            (it, least) = (other, error);
        }
        it
    }

    /// Scales near those given, with levels for them, and what elements are then off by. How thorough: how much of a list is looked at, and how many
    /// scales on either side.
    fn choose(&mut self, kind: &Kind, x: &[f32], w: &[f32], fits: &[f32; 16], how: (usize, u8)) -> f32 {
        let (unit, (look, beside)) = (self.d / kind.parts, how);
        let mut sum = 0.0;
        for (i, (x, w)) in x.chunks_exact(kind.sub).zip(w.chunks_exact(kind.sub)).enumerate() {
            // NaN, as of 0 / 0, becomes 0.
            let near = ((fits[i] / unit - 1.0) / 2.0).round().clamp(0.0, f32::from(kind.fine)) as u8;
            let mut least = f32::INFINITY;
            for scale in near.saturating_sub(beside)..=kind.fine.min(near + beside) {
                let (mut choice, factor) = (Choice::default(), unit * f32::from(2 * scale + 1));
                (kind.choose)(x, w, inverse(factor), look, &mut choice);
                let error = choice.error(x, w, factor);
                if error < least {
                    (least, self.scales[i], self.choices[i]) = (error, scale, choice);
                }
            }
            sum += least;
        }
        sum
    }
}

/// The scale that fits best of a list of starts, each improved by a step of least squares.
fn search(kind: &Kind, x: &[f32], w: &[f32]) -> f32 {
    let (squares, sum) = x.iter().zip(w).fold((0.0, 0.0), |(s, n), (x, w)| (s + w * x * x, n + w));
    let size = (squares / sum).sqrt();
    if size == 0.0 || size.is_nan() {
        return 0.0;
    }
    let (mut best, mut most) = (0.0, 0.0);
    let mut choice = Choice::default();
    // Numbers of one size need none of those, and grids have few entries of one level.
    let alike = x.iter().all(|x| x.abs() > 0.9 * size);
    for start in kind.starts.iter().copied().chain(alike.then_some(1.0 / kind.least)) {
        (kind.choose)(x, w, 1.0 / (start * size), QUICK, &mut choice);
        let (scale, gain) = choice.fit(x, w);
        if gain > most && scale > 0.0 && scale.is_finite() {
            (best, most) = (scale, gain);
        }
    }
    best
}

/// Levels of eights of numbers, by their sizes and signs; `PAIRED` signs come in pairs.
fn signed<const N: usize, const BORDERS: usize, const PAIRED: bool>(
    book: &Book<N, BORDERS>,
    x: &[f32],
    w: &[f32],
    inverse: f32,
    look: usize,
    to: &mut Choice,
) {
    let eights = x.as_chunks::<8>().0.iter().zip(w.as_chunks::<8>().0);
    for (i, (x, w)) in eights.enumerate() {
        let mut v = x.map(|x| (x * inverse).abs());
        let mut signs = x.iter().enumerate().fold(0, |s, (j, x)| s | u8::from(*x < 0.0) << j);
        if PAIRED && signs.count_ones() % 2 == 1 {
            let j = cheapest(&v, w, book.least, book.borders[0]);
            v[j] = -v[j];
            signs ^= 1 << j;
        }
        to.signs[i] = signs;
        for (j, (v, w)) in v.as_chunks::<N>().0.iter().zip(w.as_chunks::<N>().0).enumerate() {
            let code = book.nearest(v, w, look);
            to.codes[i * (8 / N) + j] = code as u16;
            to.levels[8 * i + N * j..][..N].copy_from_slice(&book.entries[code]);
        }
        for (j, level) in to.levels[8 * i..][..8].iter_mut().enumerate() {
            *level = if signs >> j & 1 == 1 { -*level } else { *level };
        }
    }
}

/// Which of eight sizes costs least if its sign is false: its level then is the least, on the other side.
fn cheapest(v: &[f32; 8], w: &[f32; 8], level: f32, border: f32) -> usize {
    let costs: [f32; 8] = std::array::from_fn(|j| {
        w[j] * if v[j] < border { 4.0 * level * v[j] } else { (level + v[j]).powi(2) }
    });
    (1..8).fold(0, |best, j| if costs[j] < costs[best] { j } else { best })
}

/// Levels of eights of numbers for IQ1, whose shift is the same for `EIGHTS` of them.
fn shifted<const EIGHTS: usize>(x: &[f32], w: &[f32], inverse: f32, look: usize, to: &mut Choice) {
    let book = &*IQ1_BOOK;
    for part in 0..x.len() / (8 * EIGHTS) {
        let mut least = f32::INFINITY;
        for (shift, down) in [(1.0, 0), (-1.0, 1)] {
            let (mut codes, mut levels, mut error) = ([0; EIGHTS], [[0.0; 8]; EIGHTS], 0.0);
            for i in 0..EIGHTS {
                let at = part * EIGHTS + i;
                let (x, w) = (&x.as_chunks::<8>().0[at], &w.as_chunks::<8>().0[at]);
                let v = x.map(|x| x * inverse - shift);
                let code = book.nearest(&v, w, look);
                let entry = &book.entries[code];
                error += (0..8).map(|j| w[j] * (entry[j] - v[j]).powi(2)).sum::<f32>();
                (codes[i], levels[i]) = (code as u16, entry.map(|level| level + shift));
            }
            if error < least {
                least = error;
                for i in 0..EIGHTS {
                    let at = part * EIGHTS + i;
                    (to.codes[at], to.signs[at]) = (codes[i], down);
                    to.levels[8 * at..][..8].copy_from_slice(&levels[i]);
                }
            }
        }
    }
}

/// Levels of 8, 25 and 43.
const IQ2_XS_KIND: Kind = Kind {
    sub: 16,
    fine: 15,
    parts: 8.0,
    least: 8.0,
    starts: &[0.034, 0.042, 0.051, 0.063, 0.077],
    choose: |x, w, inverse, look, to| signed::<8, 2, true>(&IQ2_XS_BOOK, x, w, inverse, look, to),
};
const IQ2_XXS_KIND: Kind = Kind {
    sub: 32,
    choose: |x, w, inverse, look, to| signed::<8, 2, true>(&IQ2_XXS_BOOK, x, w, inverse, look, to),
    ..IQ2_XS_KIND
};
const IQ2_S_KIND: Kind = Kind {
    choose: |x, w, inverse, look, to| signed::<8, 2, false>(&IQ2_S_BOOK, x, w, inverse, look, to),
    ..IQ2_XS_KIND
};
/// Levels from 4 to 62.
const IQ3_XXS_KIND: Kind = Kind {
    sub: 32,
    fine: 15,
    parts: 4.0,
    least: 4.0,
    starts: &[0.026, 0.032, 0.039, 0.047, 0.057, 0.069],
    choose: |x, w, inverse, look, to| signed::<4, 7, true>(&IQ3_XXS_BOOK, x, w, inverse, look, to),
};
/// Odd levels from 1 to 15.
const IQ3_S_KIND: Kind = Kind {
    parts: 1.0,
    least: 1.0,
    starts: &[0.105, 0.127, 0.154, 0.187, 0.226, 0.274],
    choose: |x, w, inverse, look, to| signed::<4, 7, false>(&IQ3_S_BOOK, x, w, inverse, look, to),
    ..IQ3_XXS_KIND
};
/// Levels about -8, 0 and 8.
const IQ1_S_KIND: Kind = Kind {
    sub: 32,
    fine: 7,
    parts: 8.0,
    least: 9.0,
    starts: &[0.112, 0.138, 0.17, 0.21, 0.259],
    choose: shifted::<4>,
};
const IQ1_M_KIND: Kind = Kind { sub: 16, choose: shifted::<1>, ..IQ1_S_KIND };

/// IQ2_XXS and IQ3_XXS: signs of eight `i` in bits `7 i` to `7 i + 6` of a word, and the scale above them.
fn signs_and_scale(choice: &Choice, scale: u8) -> [u8; 4] {
    let signs =
        choice.signs.iter().enumerate().fold(0, |s, (i, signs)| s | u32::from(signs & 127) << (7 * i));
    (signs | u32::from(scale) << 28).to_le_bytes()
}

pub(super) fn iq2_xxs(x: &[f32], importance: &[f32], b: &mut [u8]) {
    let it = Block::of(&IQ2_XXS_KIND, x, importance);
    put_half(b, 0, it.d);
    for ((b, choice), scale) in b[2..].chunks_exact_mut(8).zip(&it.choices).zip(it.scales) {
        (0..4).for_each(|i| b[i] = choice.codes[i] as u8);
        b[4..].copy_from_slice(&signs_and_scale(choice, scale));
    }
}

pub(super) fn iq2_xs(x: &[f32], importance: &[f32], b: &mut [u8]) {
    let it = Block::of(&IQ2_XS_KIND, x, importance);
    b.fill(0);
    put_half(b, 0, it.d);
    for (i, choice) in it.choices.iter().enumerate() {
        for j in 0..2 {
            let both = choice.codes[j] | u16::from(choice.signs[j] & 127) << 9;
            b[2 + 4 * i + 2 * j..][..2].copy_from_slice(&both.to_le_bytes());
        }
        b[66 + i / 2] |= it.scales[i] << (4 * (i % 2));
    }
}

pub(super) fn iq2_s(x: &[f32], importance: &[f32], b: &mut [u8]) {
    let it = Block::of(&IQ2_S_KIND, x, importance);
    b.fill(0);
    put_half(b, 0, it.d);
    for (i, choice) in it.choices.iter().enumerate() {
        for j in 0..2 {
            let at = 2 * i + j;
            b[2 + at] = choice.codes[j] as u8;
            b[34 + at] = choice.signs[j];
            b[66 + at / 4] |= ((choice.codes[j] >> 8) as u8) << (2 * (at % 4));
        }
        b[74 + i / 2] |= it.scales[i] << (4 * (i % 2));
    }
}

pub(super) fn iq3_xxs(x: &[f32], importance: &[f32], b: &mut [u8]) {
    let it = Block::of(&IQ3_XXS_KIND, x, importance);
    put_half(b, 0, it.d);
    let (codes, rest) = b[2..].split_at_mut(64);
    for (i, choice) in it.choices[..8].iter().enumerate() {
        codes[8 * i..][..8].iter_mut().zip(choice.codes).for_each(|(b, code)| *b = code as u8);
        rest[4 * i..][..4].copy_from_slice(&signs_and_scale(choice, it.scales[i]));
    }
}

pub(super) fn iq3_s(x: &[f32], importance: &[f32], b: &mut [u8]) {
    let it = Block::of(&IQ3_S_KIND, x, importance);
    b.fill(0);
    put_half(b, 0, it.d);
    for (i, choice) in it.choices[..8].iter().enumerate() {
        for (j, code) in choice.codes.iter().enumerate() {
            b[2 + 8 * i + j] = *code as u8;
            b[66 + i] |= ((code >> 8) as u8) << j;
        }
        b[74 + 4 * i..][..4].copy_from_slice(&choice.signs);
        b[106 + i / 2] |= it.scales[i] << (4 * (i % 2));
    }
}

pub(super) fn iq1_s(x: &[f32], importance: &[f32], b: &mut [u8]) {
    let it = Block::of(&IQ1_S_KIND, x, importance);
    put_half(b, 0, it.d);
    for (i, choice) in it.choices[..8].iter().enumerate() {
        let mut rest = u16::from(it.scales[i]) << 12 | u16::from(choice.signs[0]) << 15;
        for (j, code) in choice.codes[..4].iter().enumerate() {
            b[2 + 4 * i + j] = *code as u8;
            rest |= (code >> 8) << (3 * j);
        }
        b[34 + 2 * i..][..2].copy_from_slice(&rest.to_le_bytes());
    }
}

pub(super) fn iq1_m(x: &[f32], importance: &[f32], b: &mut [u8]) {
    let it = Block::of(&IQ1_M_KIND, x, importance);
    let d = f16::from_f32(it.d).to_bits();
    let mut words: [u16; 4] = std::array::from_fn(|i| (d >> (4 * i) & 15) << 12);
    for (i, choice) in it.choices.iter().enumerate() {
        for (j, code) in choice.codes[..2].iter().enumerate() {
            b[2 * i + j] = *code as u8;
        }
        let half = |j: usize| (choice.codes[j] >> 8) as u8 | choice.signs[j] << 3;
        b[32 + i] = half(0) | half(1) << 4;
        words[i / 4] |= u16::from(it.scales[i]) << (3 * (i % 4));
    }
    for (b, word) in b[48..].chunks_exact_mut(2).zip(words) {
        b.copy_from_slice(&word.to_le_bytes());
    }
}
