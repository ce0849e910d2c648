//! How much the error of each element counts while it is packed.
//!
//! A trait and not a slice of ones where all count alike: every search is compiled twice, and the one without importances multiplies by nothing.

/// The importances of a stretch of elements, none of them negative.
pub(super) trait Importance: Copy {
    /// Starts of an affine search. Where some elements hardly count, the best codes cut off more of the extremes.
    const STARTS: u8;
    /// How often what a search has found is fitted once more.
    const ROUNDS: usize;
    /// Whether what a fit is off by is measured. A formula gives it from the sums that there are, but by taking large numbers from each other:
    /// where some elements count a million times what others do, little is left of it that is true.
    const MEASURED: bool;

    /// That of element `i`.
    fn at(self, i: usize) -> f32;

    /// Those of the eight elements from `8 i` on.
    fn eight(self, i: usize) -> [f32; 8];

    /// Those of the `len` elements from `start` on.
    fn part(self, start: usize, len: usize) -> Self;

    /// The sum of all, of which there are `len`.
    fn sum(self, len: usize) -> f32;
}

/// All count alike.
#[derive(Clone, Copy)]
pub(super) struct Alike;

impl Importance for Alike {
    const STARTS: u8 = 16;
    const ROUNDS: usize = 0;
    const MEASURED: bool = false;

    fn at(self, _: usize) -> f32 {
        1.0
    }

    fn eight(self, _: usize) -> [f32; 8] {
        [1.0; 8]
    }

    fn part(self, _: usize, _: usize) -> Self {
        self
    }

    fn sum(self, len: usize) -> f32 {
        len as f32
    }
}

impl Importance for &[f32] {
    const STARTS: u8 = 28;
    const ROUNDS: usize = 4;
    const MEASURED: bool = true;

    fn at(self, i: usize) -> f32 {
        self[i]
    }

    fn eight(self, i: usize) -> [f32; 8] {
        self.as_chunks().0[i]
    }

    fn part(self, start: usize, len: usize) -> Self {
        &self[start..start + len]
    }

    fn sum(self, _: usize) -> f32 {
        self.iter().sum()
    }
}
