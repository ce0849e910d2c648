//! Values side by side that are weighed with the same weights: in 8 bits with integers, and in single precision.

use super::taps::{Taps, Weights};

/// Rows that are turned together.
pub(super) const ROWS: usize = 16;
/// Values that are added up side by side: a pixel of each of those rows.
pub(super) const LANES: usize = ROWS * 3;

/// Most binary digits behind the point of a weight, as in torch and Pillow.
const MOST_DIGITS: u32 = 22;

/// What a value is between the passes.
pub(super) trait Element: Copy + Default {
    type Weight: Copy;

    fn of(level: u8) -> Self;

    fn weights(taps: &Taps) -> Weights<Self::Weight>;

    /// The sums of rows of lanes, each times its weight.
    fn weigh<'a>(
        rows: impl Iterator<Item = (&'a [Self; LANES], &'a Self::Weight)>,
        shift: u32,
    ) -> [Self; LANES]
    where
        Self: 'a;

    /// Rounded to 8 bits.
    fn level(self) -> u8;
}

impl Element for u8 {
    type Weight = i16;

    fn of(level: u8) -> Self {
        level
    }

    /// As many digits as the largest weight leaves in 15 bits. Sums fit 32: weights are at most 2^15 and add up to less than 2^23, and a value
    /// is less than 2^8.
    fn weights(taps: &Taps) -> Weights<i16> {
        let fits = |digits: u32| 0.5 + taps.largest * f64::from(1u32 << digits) < f64::from(1u32 << 15);
        let shift = (0..MOST_DIGITS).find(|digits| !fits(digits + 1)).unwrap_or(MOST_DIGITS);
        let one = f64::from(1u32 << shift);
        let values = taps.weights.iter().map(|w| (w * one).round() as i16).collect();
        Weights { values, shift }
    }

    #[inline(always)]
    fn weigh<'a>(rows: impl Iterator<Item = (&'a [Self; LANES], &'a i16)>, shift: u32) -> [Self; LANES] {
        let half = if shift == 0 { 0 } else { 1i32 << (shift - 1) };
        let mut sums = [half; LANES];
        for (row, weight) in rows {
            for (sum, value) in sums.iter_mut().zip(row) {
                *sum += i32::from(*value) * i32::from(*weight);
            }
        }
        sums.map(|sum| (sum >> shift).clamp(0, 255) as Self)
    }

    fn level(self) -> u8 {
        self
    }
}

impl Element for f32 {
    type Weight = Self;

    fn of(level: u8) -> Self {
        Self::from(level)
    }

    fn weights(taps: &Taps) -> Weights<Self> {
        Weights { values: taps.weights.iter().map(|w| *w as Self).collect(), shift: 0 }
    }

    #[inline(always)]
    fn weigh<'a>(rows: impl Iterator<Item = (&'a [Self; LANES], &'a Self)>, _: u32) -> [Self; LANES] {
        let mut sums = [0.0; LANES];
        for (row, weight) in rows {
            for (sum, value) in sums.iter_mut().zip(row) {
                *sum += value * weight;
            }
        }
        sums
    }

    fn level(self) -> u8 {
        self.clamp(0.0, 255.0).round_ties_even() as u8
    }
}
