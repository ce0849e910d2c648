//! Which pixels of a line a new one is made of, and how much of each: the same for all lines, so it is computed once.
//!
//! The arithmetic is that of torch's `_compute_indices_min_size_weights_aa`, in double precision, as it is there for 8-bit images.

use super::Filter;
use std::ops::Range;

impl Filter {
    /// How far it reaches to either side, in pixels.
    fn reach(self) -> f64 {
        match self {
            Self::Bilinear => 1.0,
            Self::Bicubic => 2.0,
        }
    }

    /// Its value `x` pixels from the middle.
    fn at(self, x: f64) -> f64 {
        const A: f64 = -0.5;
        let x = x.abs();
        match self {
            Self::Bilinear => (1.0 - x).max(0.0),
            Self::Bicubic if x < 1.0 => ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0,
            Self::Bicubic if x < 2.0 => (((x - 5.0) * x + 8.0) * x - 4.0) * A,
            Self::Bicubic => 0.0,
        }
    }
}

/// The pixels that make a new one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tap {
    /// The first of them.
    pub(super) first: usize,
    /// Where their weights begin among all, and how many there are.
    from: usize,
    count: usize,
}

/// The taps of some neighbouring pixels of a resized line.
#[derive(Debug)]
pub(super) struct Taps {
    taps: Vec<Tap>,
    /// Those of a tap add up to one.
    pub(super) weights: Vec<f64>,
    /// The largest weight of the whole line, whether or not all of it is wanted.
    pub(super) largest: f64,
}

impl Taps {
    /// The taps of pixels `wanted` of a line of `from` pixels that is resized to `to`.
    pub(super) fn new(from: usize, to: usize, wanted: Range<usize>, filter: Filter) -> Self {
        let scale = from as f64 / to as f64;
        // Shrinking, the filter grows with what a new pixel covers; growing, it stays as it is.
        let stretch = scale.max(1.0);
        let reach = filter.reach() * stretch;
        let most = reach.ceil() as usize * 2 + 1;
        let mut all = Self { taps: Vec::with_capacity(wanted.len()), weights: Vec::new(), largest: 0.0 };
        let mut weights = Vec::with_capacity(most);
        for i in 0..to {
            let middle = scale * (i as f64 + 0.5);
            let first = ((middle - reach + 0.5) as i64).max(0) as usize;
            let end = ((middle + reach + 0.5) as usize).min(from);
            let count = end.saturating_sub(first).min(most);
            weights.clear();
            weights
                .extend((0..count).map(|j| filter.at(((j + first) as f64 - middle + 0.5) * (1.0 / stretch))));
            let sum: f64 = weights.iter().sum();
            if sum != 0.0 {
                weights.iter_mut().for_each(|w| *w /= sum);
            }
            all.largest = weights.iter().copied().fold(all.largest, f64::max);
            if wanted.contains(&i) {
                all.taps.push(Tap { first, from: all.weights.len(), count });
                all.weights.extend_from_slice(&weights);
            }
        }
        all
    }

    /// How many pixels they make.
    pub(super) fn len(&self) -> usize {
        self.taps.len()
    }

    /// Those of some of the pixels they make.
    pub(super) fn each(&self, of: Range<usize>) -> impl Iterator<Item = &Tap> {
        self.taps[of].iter()
    }

    /// The pixels that any of them reads.
    pub(super) fn reads(&self) -> Range<usize> {
        self.reads_of(0..self.len())
    }

    /// The pixels that some of them read.
    pub(super) fn reads_of(&self, of: Range<usize>) -> Range<usize> {
        let taps = &self.taps[of];
        let first = taps.first().map_or(0, |tap| tap.first);
        first..taps.last().map_or(first, |tap| tap.first + tap.count)
    }
}

/// The weights of [`Taps`] as a kind of arithmetic takes them.
#[derive(Debug)]
pub(super) struct Weights<W> {
    pub(super) values: Vec<W>,
    /// Binary digits behind the point, where they are integers.
    pub(super) shift: u32,
}

impl<W> Weights<W> {
    /// Those of one new pixel.
    pub(super) fn of(&self, tap: &Tap) -> &[W] {
        &self.values[tap.from..tap.from + tap.count]
    }
}
