//! Up to four extents, held inline: a shape is copied at every operator and must not allocate.

use std::fmt;

/// The extents of a tensor, outermost first; one to four of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    dims: [usize; 4],
    rank: usize,
}

impl Shape {
    /// The extents as a slice.
    pub fn dims(&self) -> &[usize] {
        &self.dims[..self.rank]
    }

    /// Number of elements; the largest number there is where they are more, so that no buffer ever fits.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        product(self.dims())
    }

    /// The first extent.
    pub fn first(&self) -> usize {
        self.dims[0]
    }

    /// Everything but the last extent, multiplied up.
    pub fn rows(&self) -> usize {
        product(&self.dims[..self.rank - 1])
    }

    /// The last extent.
    pub fn cols(&self) -> usize {
        self.dims[self.rank - 1]
    }

    /// The same shape with another first extent.
    #[must_use]
    pub fn with_first(mut self, n: usize) -> Self {
        self.dims[0] = n;
        self
    }

    /// The same shape with another last extent.
    #[must_use]
    pub fn with_cols(mut self, cols: usize) -> Self {
        self.dims[self.rank - 1] = cols;
        self
    }
}

fn product(dims: &[usize]) -> usize {
    dims.iter().fold(1, |n, d| n.saturating_mul(*d))
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(d: [usize; N]) -> Self {
        const { assert!(N >= 1 && N <= 4, "a shape has one to four extents") };
        let mut dims = [1; 4];
        dims[..N].copy_from_slice(&d);
        Self { dims, rank: N }
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.dims())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_times_cols_is_len() {
        for s in [Shape::from([5]), [2, 3].into(), [2, 3, 4].into(), [2, 3, 4, 0].into()] {
            assert_eq!(s.rows() * s.cols(), s.len());
        }
        assert_eq!(Shape::from([2, 3, 4]).with_cols(7).with_first(9).dims(), [9, 3, 7]);
    }
}
