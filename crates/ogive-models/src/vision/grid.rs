//! Patches in rows and columns, and what is learned of their places: all of it on the host.

use ogive_nn::backend::{Axis, Backend};
use ogive_nn::tensor::{Error, HostWeight, Result, Tensor};
use ogive_nn::{Loader, Step};

/// The patches of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grid {
    pub(crate) rows: usize,
    pub(crate) cols: usize,
}

fn refused(why: String) -> Error {
    Error::invalid("patches of an image", why)
}

impl Grid {
    /// The grid of `patches`, of `len` numbers each.
    ///
    /// # Errors
    /// If there are others than the grid has, or none.
    pub(crate) fn of(patches: &[f32], [rows, cols]: [usize; 2], len: usize) -> Result<Self> {
        let numbers = rows.checked_mul(cols).and_then(|n| n.checked_mul(len));
        match numbers {
            Some(numbers) if numbers > 0 && numbers == patches.len() => Ok(Self { rows, cols }),
            _ => {
                let found = patches.len();
                Err(refused(format!(
                    "{rows} rows of {cols} patches of {len} numbers are needed, and {found} numbers given"
                )))
            }
        }
    }

    /// The same if it has `side` rows and columns, which are all that a tower knows.
    ///
    /// # Errors
    /// If it has others.
    pub(crate) fn only(self, side: usize) -> Result<Self> {
        if self.rows == side && self.cols == side {
            return Ok(self);
        }
        let why =
            format!("{} rows of {}; the tower was made for {side} rows of {side}", self.rows, self.cols);
        Err(refused(why))
    }

    /// The same if it has as many rows as columns.
    ///
    /// # Errors
    /// If it has others.
    pub(crate) fn square(self) -> Result<Self> {
        match self.rows == self.cols {
            true => Ok(self),
            false => Err(refused(format!("{} rows of {}; the tower sees squares", self.rows, self.cols))),
        }
    }

    /// The same if it has no more than `side` rows and columns.
    ///
    /// # Errors
    /// If it has more.
    pub(crate) fn within(self, side: usize) -> Result<Self> {
        if self.rows <= side && self.cols <= side {
            return Ok(self);
        }
        let why =
            format!("{} rows of {}; the tower knows {side} rows of {side} at most", self.rows, self.cols);
        Err(refused(why))
    }

    /// How many there are.
    pub(crate) fn len(self) -> usize {
        self.rows * self.cols
    }

    /// The grid of its blocks of `size` rows and columns.
    ///
    /// # Errors
    /// If they do not cut it evenly.
    pub(crate) fn merged(self, size: usize) -> Result<Self> {
        if size == 0 || !self.rows.is_multiple_of(size) || !self.cols.is_multiple_of(size) {
            let why =
                format!("{} rows of {} are not made of blocks of {size} by {size}", self.rows, self.cols);
            return Err(refused(why));
        }
        Ok(Self { rows: self.rows / size, cols: self.cols / size })
    }

    /// The numbers of all patches, counted row by row: those of a block of `size` rows and columns next to each other, block after block.
    ///
    /// # Errors
    /// If blocks do not cut it evenly.
    pub(crate) fn in_blocks(self, size: usize) -> Result<Vec<usize>> {
        let blocks = self.merged(size)?;
        let within = |block: usize| {
            let first = block / blocks.cols * size * self.cols + block % blocks.cols * size;
            (0..size * size).map(move |i| first + i / size * self.cols + i % size)
        };
        Ok((0..blocks.len()).flat_map(within).collect())
    }

    /// Windows of `side` rows and columns, the last ones with what is left: the numbers of their patches, window after window, and how many
    /// each has.
    pub(crate) fn windows(self, side: usize) -> (Vec<usize>, Vec<usize>) {
        let (mut order, mut lengths) = (Vec::with_capacity(self.len()), Vec::new());
        let side = side.max(1);
        for top in (0..self.rows).step_by(side) {
            for left in (0..self.cols).step_by(side) {
                let (bottom, right) =
                    (self.rows.min(top.saturating_add(side)), self.cols.min(left.saturating_add(side)));
                order.extend(
                    (top..bottom).flat_map(|row| (left..right).map(move |col| row * self.cols + col)),
                );
                lengths.push((bottom - top) * (right - left));
            }
        }
        (order, lengths)
    }

    /// Where these patches are: no time, the row, the column.
    pub(crate) fn places(self, order: &[usize]) -> Vec<[u32; 3]> {
        let of = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        order.iter().map(|i| [0, of(i / self.cols), of(i % self.cols)]).collect()
    }
}

/// Rows of `width` numbers in another order.
pub(crate) fn gathered(values: &[f32], width: usize, order: &[usize]) -> Vec<f32> {
    order.iter().flat_map(|row| &values[row * width..][..width]).copied().collect()
}

/// All rows but the first, which is a token of its own. `[1 + n, dim] -> [n, dim]`
pub(crate) fn behind_class(s: &Step<'_>, x: &Tensor) -> Result<Tensor> {
    let n = x.shape().rows().saturating_sub(1);
    let parts = s.backend.split(x, Axis::Rows, &[1, n])?;
    parts
        .into_iter()
        .nth(1)
        .ok_or_else(|| Error::invalid("split", "the backend gave another number of parts"))
}

/// What is learned of places, added to patches.
#[derive(Debug)]
pub(crate) struct Positions {
    /// `[rows, dim]`
    table: Vec<f32>,
    dim: usize,
}

impl Positions {
    /// Reads the table `name` of rows of `dim` elements.
    ///
    /// # Errors
    /// If there are not `rows`, or of another length; else as [all that read](Loader#errors).
    pub(crate) fn load(l: &Loader<'_>, name: &str, [rows, dim]: [usize; 2]) -> Result<Self> {
        let host = l.tensor(name)?;
        let [a, b, cols] = host.shape;
        if a.checked_mul(b) != Some(rows) || cols != dim || dim == 0 {
            let why = format!("{:?} where {rows} places of {dim} elements are configured", host.shape);
            return Err(Error::invalid(&host.name, format!("{why}; do weights and config belong together?")));
        }
        Ok(Self { table: host.to_vec(), dim })
    }

    /// The rows of these places, as the backend has them. `[n, dim]`
    ///
    /// # Errors
    /// If there is none for a place; else as [all operators](Backend#errors).
    pub(crate) fn rows(&self, b: &dyn Backend, order: &[usize]) -> Result<Tensor> {
        let known = self.table.len() / self.dim;
        if let Some(beyond) = order.iter().find(|i| **i >= known) {
            return Err(refused(format!("one is at place {beyond}, and {known} were learned")));
        }
        b.upload(&gathered(&self.table, self.dim, order), [order.len(), self.dim].into())
    }

    /// The same where the first row is that of a token of its own, `class`, that is computed as a patch of zeros: with what it is, and without what a
    /// convolution with biases makes of zeros.
    ///
    /// # Errors
    /// If they have other elements.
    pub(crate) fn with_class(mut self, class: &HostWeight, bias: Option<&HostWeight>) -> Result<Self> {
        for (host, sign) in [(Some(class), 1.0), (bias, -1.0)] {
            let Some(host) = host else { continue };
            let values = host.to_vec();
            if values.len() != self.dim || self.table.len() < self.dim {
                let why = format!("{:?} where {} elements are configured", host.shape, self.dim);
                return Err(Error::invalid(
                    &host.name,
                    format!("{why}; do weights and config belong together?"),
                ));
            }
            self.table.iter_mut().zip(values).for_each(|(to, value)| *to += sign * value);
        }
        Ok(self)
    }

    /// The same table if it is a square of places.
    ///
    /// # Errors
    /// If it is none, or has none.
    pub(crate) fn square(self) -> Result<Self> {
        let (known, side) = (self.table.len() / self.dim, self.side());
        if side == 0 || side * side != known {
            return Err(refused(format!("{known} places were learned, which are no square")));
        }
        Ok(self)
    }

    fn side(&self) -> usize {
        (self.table.len() / self.dim).isqrt()
    }

    /// A [`square`](Self::square) of places, stretched over a grid so that its corners are the grid's: what is between four of them has its part of each. `[n, dim]`
    ///
    /// # Errors
    /// As [all operators](Backend#errors).
    pub(crate) fn between(&self, b: &dyn Backend, grid: Grid, order: &[usize]) -> Result<Tensor> {
        let (side, dim) = (self.side(), self.dim);
        // The place before it, the one behind, and the part of the latter.
        let at = |i: usize, of: usize| {
            let (whole, left) = (i * (side - 1) / (of - 1).max(1), i * (side - 1) % (of - 1).max(1));
            (whole, (whole + 1).min(side - 1), left as f32 / (of - 1).max(1) as f32)
        };
        let mut rows = Vec::with_capacity(order.len() * dim);
        for i in order {
            let ((up, down, y), (left, right, x)) =
                (at(i / grid.cols, grid.rows), at(i % grid.cols, grid.cols));
            let corner = |row: usize, col: usize| &self.table[(row * side + col) * dim..][..dim];
            let corners = [corner(up, left), corner(up, right), corner(down, left), corner(down, right)];
            let parts = [(1.0 - y) * (1.0 - x), (1.0 - y) * x, y * (1.0 - x), y * x];
            let sum =
                |c: usize| corners.iter().zip(parts).map(|(corner, part)| corner[c] * part).sum::<f32>();
            rows.extend((0..dim).map(sum));
        }
        b.upload(&rows, [order.len(), dim].into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_and_windows_have_their_patches() {
        let grid = Grid::of(&[0.0; 48], [4, 6], 2).unwrap();
        let order = grid.in_blocks(2).unwrap();
        assert_eq!(order[..8], [0, 1, 6, 7, 2, 3, 8, 9]);
        assert_eq!(order[12..16], [12, 13, 18, 19]);
        assert_eq!(grid.places(&order)[2..5], [[0, 1, 0], [0, 1, 1], [0, 0, 2]]);
        let (order, lengths) = Grid { rows: 3, cols: 4 }.windows(3);
        assert_eq!((order[..4].to_vec(), lengths), (vec![0, 1, 2, 4], vec![9, 3]));
        assert_eq!(Grid { rows: 1, cols: 2 }.windows(usize::MAX).1, [2]);
    }

    #[test]
    fn what_is_no_grid_is_refused() {
        for (n, grid, len) in [(48, [4, 6], 3), (0, [0, 6], 2), (0, [4, 6], 0), (8, [usize::MAX, 2], 4)] {
            assert!(Grid::of(&vec![0.0; n], grid, len).is_err(), "{n} in {grid:?}");
        }
        let grid = Grid { rows: 4, cols: 6 };
        assert!(grid.merged(0).is_err() && grid.merged(4).is_err() && grid.only(4).is_err());
    }
}
