//! Which columns of a matrix matter: how large the activations are that they meet, as llama.cpp's importance matrices say it.
//!
//! An error of a weight costs the more, the larger what it is multiplied by. So a file has, for each matrix of a model under its GGUF name, the
//! squares of its inputs by column, summed over the tokens of some text, and over how many. Experts have their own sums and
//! counts. Sums and counts are kept apart and not as means, so that what was collected in parts can be put together.

mod dat;
mod file;
mod model;

use crate::{Error, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Importances of a model's columns, by tensor.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Importance {
    entries: BTreeMap<String, Squares>,
    /// What texts they are of, as somebody named them: the paths of files.
    pub datasets: Vec<String>,
    /// Pieces of text that were read; 0 where it is not known.
    pub chunks: u32,
    /// Tokens of such a piece; 0 where it is not known.
    pub chunk_size: u32,
    /// The file they were read from.
    pub path: Option<PathBuf>,
}

/// The squares of a matrix's inputs, or of several matrices'.
#[derive(Clone, Debug, PartialEq)]
pub struct Squares {
    /// Matrix after matrix, column by column.
    sums: Vec<f32>,
    /// Rows that went into them: a count for all, or one for each matrix.
    counts: Vec<u64>,
}

impl Squares {
    /// Sums of squares, `[matrices, cols]`, and the number of rows that each is of: one count for all matrices, or one for each.
    ///
    /// # Errors
    /// If a sum is negative or no finite number, or if sums or counts are missing or do not fit each other.
    pub fn new(sums: Vec<f32>, counts: Vec<u64>) -> Result<Self, String> {
        if let Some((i, v)) = sums.iter().enumerate().find(|(_, v)| !(0.0..=f32::MAX).contains(*v)) {
            return Err(format!("sum {i} is {v}, where squares give a finite number of at least 0"));
        }
        if sums.is_empty() || counts.is_empty() || !sums.len().is_multiple_of(counts.len()) {
            return Err(format!("{} sums and {} counts do not fit each other", sums.len(), counts.len()));
        }
        Ok(Self { sums, counts })
    }

    /// Sums of squares, matrix after matrix.
    pub fn sums(&self) -> &[f32] {
        &self.sums
    }

    /// The rows that they are of: one number for all matrices, or one for each.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// The mean square of each column, `[matrices, cols]`; `None` if they are not of so many matrices and columns. Of a matrix that no row met, all
    /// columns count alike.
    fn means(&self, matrices: usize, cols: usize) -> Option<Vec<f32>> {
        let fits = [1, matrices].contains(&self.counts.len());
        if matrices.checked_mul(cols) != Some(self.sums.len()) || !fits {
            return None;
        }
        let each = self.sums.len() / self.counts.len();
        let of = |(sums, count): (&[f32], &u64)| -> Vec<f32> {
            match count {
                0 => vec![1.0; sums.len()],
                n => sums.iter().map(|v| v / *n as f32).collect(),
            }
        };
        Some(self.sums.chunks(each.max(1)).zip(&self.counts).flat_map(of).collect())
    }

    /// Matrices that no row met, and how many there are.
    pub fn unmet(&self) -> (usize, usize) {
        (self.counts.iter().filter(|n| **n == 0).count(), self.counts.len())
    }
}

impl Importance {
    /// Of nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in what the tensor of this GGUF name met, in place of what was known of it.
    pub fn insert(&mut self, tensor: impl Into<String>, squares: Squares) {
        self.entries.insert(tensor.into(), squares);
    }

    /// What the tensor of this GGUF name met.
    pub fn get(&self, tensor: &str) -> Option<&Squares> {
        self.entries.get(tensor)
    }

    /// Everything, by GGUF's names and in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Squares)> {
        self.entries.iter().map(|(name, squares)| (&**name, squares))
    }

    /// Tensors of which something is known.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is known of any.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// What columns of a tensor count, `[matrices, cols]`; `None` if nothing is known of it.
    ///
    /// # Errors
    /// If it was another tensor that had this name: one of other columns, or of another number of matrices.
    pub fn of(&self, tensor: &str, matrices: usize, cols: usize) -> Result<Option<Vec<f32>>> {
        let Some(squares) = self.get(tensor) else { return Ok(None) };
        let wrong = || {
            let (sums, counts) = (squares.sums.len(), squares.counts.len());
            let why = format!(
                "it says {sums} sums and {counts} counts of {tensor}, which has {cols} columns in {matrices} matrices; \
                 was it made of this model?"
            );
            self.wrong(why)
        };
        squares.means(matrices, cols).ok_or_else(wrong).map(Some)
    }

    /// An error about these importances.
    pub(crate) fn wrong(&self, why: impl Into<String>) -> Error {
        let path = self.path.as_deref().map_or("those given".into(), Path::to_string_lossy);
        Error::Importance { doing: format!("using the importances {path}"), why: why.into() }
    }
}

/// An error about importances that are being made.
fn unfit(why: impl Into<String>) -> Error {
    Error::Importance { doing: "collecting importances".into(), why: why.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_sums_by_counts_and_experts_that_nobody_met_count_alike() {
        let squares = Squares::new(vec![2.0, 4.0, 9.0, 0.0, 5.0, 5.0], vec![2, 3, 0]).unwrap();
        assert_eq!(squares.unmet(), (1, 3));
        assert_eq!(squares.means(3, 2).unwrap(), [1.0, 2.0, 3.0, 0.0, 1.0, 1.0]);
        // One count for all matrices, as of old files and of heads.
        let squares = Squares::new(vec![2.0, 4.0, 6.0, 8.0], vec![2]).unwrap();
        assert_eq!(squares.means(2, 2).unwrap(), [1.0, 2.0, 3.0, 4.0]);
        assert_eq!(squares.means(1, 4).unwrap(), [1.0, 2.0, 3.0, 4.0]);
    }

    #[test]
    fn another_tensor_of_the_name_is_refused_by_name() {
        let mut all = Importance::new();
        all.insert("blk.0.ffn_down.weight", Squares::new(vec![1.0; 6], vec![1, 1]).unwrap());
        assert_eq!(all.of("blk.1.ffn_down.weight", 2, 3).unwrap(), None);
        assert_eq!(all.of("blk.0.ffn_down.weight", 2, 3).unwrap().unwrap(), [1.0; 6]);
        for (matrices, cols) in [(1, 6), (2, 4), (3, 2), (0, 0), (usize::MAX, 2)] {
            let e = all.of("blk.0.ffn_down.weight", matrices, cols).unwrap_err().to_string();
            assert!(e.contains("blk.0.ffn_down.weight") && e.contains("of this model?"), "{e}");
        }
    }

    #[test]
    fn what_no_squares_give_is_refused() {
        for value in [f32::NAN, f32::INFINITY, -1.0] {
            let e = Squares::new(vec![1.0, value], vec![1]).unwrap_err();
            assert!(e.contains("sum 1 is"), "{e}");
        }
        assert!(Squares::new(vec![], vec![1]).is_err() && Squares::new(vec![1.0], vec![]).is_err());
        assert!(Squares::new(vec![1.0; 3], vec![1; 2]).is_err());
    }
}
