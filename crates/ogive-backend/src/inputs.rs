//! Rows of a step that come in as vectors in place of tokens: what a model is shown of an image.

use ogive_tensor::{Error, Result};
use std::{ops::Range, sync::Arc};

/// Vectors that stand for consecutive tokens of a sequence, as a tower has made them of an image.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Vectors {
    /// `[rows, dim]`, row by row: what stands where tokens' embeddings would.
    pub values: Arc<[f32]>,
    /// Elements of a row.
    pub dim: usize,
    /// What is added to these rows behind the first blocks, one after the other, `[rows, dim]` each (DeepStack; Meng et al. 2024,
    /// <https://arxiv.org/abs/2406.04334>).
    pub deeper: Vec<Arc<[f32]>>,
    /// Where each row stands, in time, down and across, counted from where the sequence is; what follows stands behind the largest of these
    /// numbers. None where rows stand one behind the other as tokens do.
    pub places: Vec<[u32; 3]>,
    /// Whether rows see each other to both sides. They must all be in one step then.
    pub mutual: bool,
}

impl Vectors {
    /// Rows that stand and are seen as tokens are.
    ///
    /// # Errors
    /// If there are none, or no whole number of rows of `dim` elements.
    pub fn new(values: impl Into<Arc<[f32]>>, dim: usize) -> Result<Self> {
        let values = values.into();
        if values.is_empty() || dim == 0 || !values.len().is_multiple_of(dim) {
            let why = format!("{} numbers are no rows of {dim}", values.len());
            return Err(Error::invalid("vectors in place of tokens", why));
        }
        Ok(Self { values, dim, deeper: Vec::new(), places: Vec::new(), mutual: false })
    }

    /// The same with something to add behind each of the first blocks.
    ///
    /// # Errors
    /// If there is not as much of it for each as there are vectors.
    pub fn deeper(mut self, deeper: Vec<Arc<[f32]>>) -> Result<Self> {
        if let Some(other) = deeper.iter().find(|values| values.len() != self.values.len()) {
            let why = format!("{} numbers to add to {}", other.len(), self.values.len());
            return Err(Error::invalid("vectors in place of tokens", why));
        }
        self.deeper = deeper;
        Ok(self)
    }

    /// The same at places of a grid.
    ///
    /// # Errors
    /// If there is not one for each row, or if one is further away than the rows there are: a sequence could then run out of positions.
    pub fn places(mut self, places: Vec<[u32; 3]>) -> Result<Self> {
        let rows = self.rows();
        let far = |place: &[u32; 3]| place.iter().any(|at| usize::try_from(*at).is_ok_and(|at| at >= rows));
        if places.len() != rows || places.iter().any(far) {
            let why = format!("{} places, all below {rows}, are needed for as many rows", rows);
            return Err(Error::invalid("vectors in place of tokens", why));
        }
        self.places = places;
        Ok(self)
    }

    /// The same where rows see each other to both sides.
    #[must_use]
    pub fn mutual(self) -> Self {
        Self { mutual: true, ..self }
    }

    /// Some of the rows by themselves, copied.
    ///
    /// # Errors
    /// If there are no such rows, or if rows must stay together: they see each other, or have places.
    pub fn part(&self, rows: Range<usize>) -> Result<Self> {
        let wrong = |why: String| Err(Error::invalid("vectors in place of tokens", why));
        if rows.start >= rows.end || rows.end > self.rows() {
            return wrong(format!("rows {} to {} of {} were asked for", rows.start, rows.end, self.rows()));
        }
        if self.mutual || !self.places.is_empty() {
            return wrong("rows that see each other, or stand in a grid, cannot be taken apart".into());
        }
        let of = |values: &[f32]| values[rows.start * self.dim..rows.end * self.dim].into();
        let deeper = self.deeper.iter().map(|values| of(values)).collect();
        Self::new(of(&self.values) as Arc<[f32]>, self.dim)?.deeper(deeper)
    }

    /// How many tokens they stand for.
    pub fn rows(&self) -> usize {
        self.values.len() / self.dim.max(1)
    }

    /// How many positions further what follows stands than where these begin.
    pub fn advance(&self) -> usize {
        let furthest = self.places.iter().flatten().max();
        furthest.map_or(self.rows(), |at| usize::try_from(*at).map_or(usize::MAX, |at| at + 1))
    }

    /// Where row `row` stands from where these begin.
    pub fn place(&self, row: usize) -> [u32; 3] {
        self.places.get(row).copied().unwrap_or([u32::try_from(row).unwrap_or(u32::MAX); 3])
    }
}

/// Rows of a step that have vectors in place of tokens.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Input {
    /// Which rows of the step.
    pub rows: Range<usize>,
    /// The first one's row of `of`.
    pub first: usize,
    /// Their vectors, and those of the rows that are in other steps.
    pub of: Arc<Vectors>,
}

impl Input {
    /// The rows of the step from `start` on, for rows `part` of the vectors; none beyond those there are.
    pub fn new(start: usize, part: Range<usize>, of: Arc<Vectors>) -> Self {
        let end = part.end.min(of.rows());
        let first = part.start.min(end);
        Self { rows: start..start + (end - first), first, of }
    }

    /// What stands in these rows' place, and what is added to them behind the first blocks: of `values`, all vectors or all that is added.
    pub fn part<'a>(&self, values: &'a [f32]) -> &'a [f32] {
        let (from, n) = (self.first * self.of.dim, self.rows.len() * self.of.dim);
        values.get(from..from + n).unwrap_or_default()
    }

    /// Whether all vectors are in this step.
    pub fn is_whole(&self) -> bool {
        self.first == 0 && self.rows.len() == self.of.rows()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn six() -> Vectors {
        Vectors::new((0..12).map(|i| i as f32).collect::<Vec<_>>(), 2).unwrap()
    }

    #[test]
    fn a_part_has_its_rows() {
        let of = Arc::new(six());
        let input = Input::new(10, 2..5, Arc::clone(&of));
        assert_eq!((input.rows.clone(), input.is_whole()), (10..13, false));
        assert_eq!(input.part(&of.values), [4., 5., 6., 7., 8., 9.]);
        assert!(Input::new(0, 0..99, Arc::clone(&of)).is_whole());
        assert!(Input::new(3, 7..9, of).rows.is_empty());
    }

    #[test]
    fn what_follows_stands_behind_the_furthest() {
        assert_eq!((six().advance(), six().place(4)), (6, [4; 3]));
        let grid = (0..6).map(|i| [0, i / 3, i % 3]).collect();
        let placed = six().places(grid).unwrap();
        assert_eq!((placed.advance(), placed.place(5)), (3, [0, 1, 2]));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert!(Vectors::new(vec![], 2).is_err());
        assert!(Vectors::new(vec![0.0; 5], 2).is_err());
        assert!(Vectors::new(vec![0.0; 5], 0).is_err());
        assert!(six().places(vec![[0; 3]; 5]).is_err());
        assert!(six().places(vec![[0, 6, 0]; 6]).is_err());
        assert!(six().deeper(vec![vec![0.0; 11].into()]).is_err());
        let deep = six().deeper(vec![vec![0.5; 12].into()]).unwrap();
        let part = deep.part(2..4).unwrap();
        assert_eq!((&*part.values, &*part.deeper[0]), (&[4., 5., 6., 7.][..], &[0.5; 4][..]));
        let grid = || six().places(vec![[0; 3]; 6]);
        assert!(deep.part(2..7).is_err() && deep.part(2..2).is_err());
        assert!(deep.clone().mutual().part(0..2).is_err() && grid().unwrap().part(0..2).is_err());
    }
}
