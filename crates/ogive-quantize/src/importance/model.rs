//! Importances of a model's weights, as it was run, under the names and in the columns of its GGUF file.
//!
//! A weight is called otherwise in a checkpoint and in a GGUF file, and may be changed on the way: its rows in another order, turned, cut or put
//! together. What a change does to columns it is not asked but shown by: it is made to a matrix whose elements are the numbers of
//! their columns. Where the columns do not come out as columns, the weight is left out, whatever the change was written for. What multiplies rows
//! is seen by a matrix of ones, and does not move columns.

use super::{Importance, Squares};
use crate::Result;
use crate::input::{Input, Origin, Piece, folded};
use crate::mix::{Facts, Mix, Shape};
use crate::{FileFormat, importance};
use ogive_tensor::{Config, HostWeight, WeightInfo};
use ogive_weights::{Change, GgufSource, translations};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// A weight of more elements is not shown a change as a whole, if a part of it will do.
const LARGE: usize = 1 << 24;

/// Of a column of the one the column of the other.
type Order = Option<Vec<usize>>;

impl Importance {
    /// Importances of the model at `input`, of `squares` by the names of its checkpoint: those that its weights have when it is run
    /// (`Calibration` in the crate `ogive` collects them). Also which of its matrices, of those that are packed, have none.
    ///
    /// # Errors
    /// If it is a GGUF file of an architecture that has no translation, or nothing was collected of any matrix.
    pub fn of_model(input: &Input, squares: &BTreeMap<String, Squares>) -> Result<(Self, Vec<String>)> {
        let mut all = Self::new();
        let mut take = |tensor: &str, squares: Squares| {
            let shape = input.tensors.iter().find(|t| t.name == tensor).and_then(|t| folded(&t.dims).ok());
            let fits = |[matrices, _, cols]: [usize; 3]| squares.means(matrices, cols).is_some();
            if shape.is_some_and(fits) {
                all.insert(tensor, squares);
            }
        };
        match &input.origin {
            Origin::Gguf(gguf) => {
                let name = gguf.metadata().str("general.architecture")?;
                let known = translations();
                let found = known.iter().rev().find(|t| t.architecture() == name && t.projector().is_none());
                let found = found.ok_or_else(|| {
                    importance::unfit(format!("the GGUF architecture `{name}` has no translation"))
                })?;
                let config = found.config(gguf)?;
                for origin in GgufSource::new(Arc::clone(gguf), found, &config)?.origins() {
                    let Some(own) = squares.get(&origin.name) else { continue };
                    let shape = |name: &String| folded(gguf.tensor(name)?.dims()).ok();
                    let shapes: Option<Vec<[usize; 3]>> = origin.of.iter().map(shape).collect();
                    let order = match (&origin.change, shapes) {
                        (None, _) => None,
                        (Some(change), Some(shapes)) => match order(change, &shapes, &config, Of::Given) {
                            Some(order) => order,
                            None => continue,
                        },
                        _ => continue,
                    };
                    origin.of.iter().for_each(|tensor| take(tensor, put(own, order.as_deref(), true)));
                }
            }
            Origin::Folder { source, config } => {
                let infos: HashMap<String, WeightInfo> =
                    source.tensors().into_iter().map(|t| (t.name.clone(), t)).collect();
                for tensor in &input.tensors {
                    let Some(Piece::Named(name, change)) = tensor.pieces.first() else { continue };
                    let stacked = if tensor.pieces.len() > 1 { stacked(name) } else { None };
                    let own = squares.get(name).or_else(|| squares.get(&stacked?));
                    let (Some(own), Some(info)) = (own, infos.get(name)) else { continue };
                    let order = match change {
                        None => None,
                        Some(change) => match order(change, &[info.shape], config, Of::Made) {
                            Some(order) => order,
                            None => continue,
                        },
                    };
                    take(&tensor.name, put(own, order.as_deref(), false));
                }
            }
        }
        if all.is_empty() {
            let why = "nothing was collected of any of the model's matrices; was another model run?";
            return Err(importance::unfit(why));
        }
        let without = without(&all, input)?;
        Ok((all, without))
    }
}

/// The matrices that are packed and of which nothing is known.
fn without(all: &Importance, input: &Input) -> Result<Vec<String>> {
    let shapes: Vec<Shape<'_>> = input.tensors.iter().map(|t| (&*t.name, &*t.dims)).collect();
    let types = Mix::new(FileFormat::find("q8_0")?).choose(&Facts::of(&input.metadata), &shapes)?;
    let packed = shapes.iter().zip(types).filter(|(_, ty)| ty.is_some()).map(|((name, _), _)| *name);
    Ok(packed.filter(|name| all.get(name).is_none()).map(str::to_owned).collect())
}

/// What the weights of experts that are kept one by one are called together: without the number.
fn stacked(name: &str) -> Option<String> {
    let (before, after) = name.split_once(".experts.")?;
    let (_, leaf) = after.split_once('.')?;
    Some(format!("{before}.experts.{leaf}"))
}

/// Which side of a change is a file's and which a checkpoint's.
#[derive(Clone, Copy, PartialEq)]
enum Of {
    /// The file's tensors are given, and what is made is the checkpoint's.
    Given,
    /// The checkpoint's weight is given, and what is made is the file's.
    Made,
}

/// What a change does to columns: `Some(None)` if nothing, `Some(order)` if column `i` of what is made is column `order[i]` of what is given,
/// and `None` if they do not come out as columns. A weight that the change turns is turned back when it is loaded.
fn order(change: &Change, shapes: &[[usize; 3]], config: &Config, file: Of) -> Option<Order> {
    let cols = shapes.first()?[2];
    // In single precision column numbers are exact so far.
    if shapes.iter().any(|s| s[2] != cols) || cols > 1 << 24 {
        return None;
    }
    let made = |number: fn(usize, usize) -> usize, most: usize| -> Option<(Vec<f32>, usize)> {
        let matrix = |[experts, rows, cols]: &[usize; 3]| {
            let experts = *experts.min(&most);
            let one = |row: usize| (0..*cols).map(move |col| number(row, col) as f32);
            let values: Vec<f32> = (0..experts * rows).flat_map(|row| one(row % rows)).collect();
            HostWeight::from_f32("columns", [experts, *rows, *cols], &values).ok()
        };
        let made = change.apply(&shapes.iter().map(matrix).collect::<Option<Vec<_>>>()?, config).ok()?;
        Some((made.to_vec(), made.shape[2]))
    };
    let large = shapes.iter().any(|s| s.iter().fold(1, |n: usize, d| n.saturating_mul(*d)) > LARGE);
    let shown = |number: fn(usize, usize) -> usize| {
        let of = |most: usize| undone(made(number, most)?, &made(|_, _| 1, most)?.0);
        // Experts are changed alike: of many large ones two show it, unless the change wants all.
        large.then(|| of(2)).flatten().or_else(|| of(usize::MAX))
    };
    let by_column = shown(|_, col| col)?;
    let rows_alike = |(values, width): &(Vec<f32>, usize)| -> Option<Vec<usize>> {
        let first = values.get(..*width)?;
        let alike = values.chunks_exact((*width).max(1)).all(|row| row == first);
        alike.then(|| first.iter().map(|v| *v as usize).collect())
    };
    let order = rows_alike(&by_column).or_else(|| match file {
        // Turned: each row is of one column.
        Of::Given => {
            let (values, width) = &by_column;
            let rows = values.chunks_exact((*width).max(1));
            let one = |row: &[f32]| row.iter().all(|v| *v == row[0]).then_some(row[0] as usize);
            let order: Vec<usize> = rows.map(one).collect::<Option<_>>()?;
            // Experts one behind the other must agree.
            let own = order.get(..cols)?;
            order.chunks(cols).all(|other| other == own).then(|| own.to_vec())
        }
        Of::Made => rows_alike(&shown(|row, _| row)?),
    })?;
    let mut sorted = order.clone();
    sorted.sort_unstable();
    if !sorted.iter().copied().eq(0..order.len()) {
        return None;
    }
    Some((sorted != order).then_some(order))
}

/// Rows of whole numbers as they were before they were multiplied, by what came of ones; `None` if something else was done to them, or to columns.
fn undone((mut values, width): (Vec<f32>, usize), ones: &[f32]) -> Option<(Vec<f32>, usize)> {
    for (row, ones) in values.chunks_mut(width.max(1)).zip(ones.chunks(width.max(1))) {
        let factor = *ones.first()?;
        if factor == 0.0 || !factor.is_finite() || ones.iter().any(|one| *one != factor) {
            return None;
        }
        for v in row {
            let was = *v / factor;
            if (was - was.round()).abs() > 1e-6 * was.abs().max(1.0) {
                return None;
            }
            *v = was.round();
        }
    }
    Some((values, width))
}

/// Sums in another order of columns; `scatter` where `order` says of each where it goes, and not where it comes from.
fn put(squares: &Squares, order: Option<&[usize]>, scatter: bool) -> Squares {
    let Some(order) = order.filter(|o| !o.is_empty() && squares.sums.len().is_multiple_of(o.len())) else {
        return squares.clone();
    };
    let one = |sums: &[f32]| {
        let mut to = vec![0.0; sums.len()];
        for (i, o) in order.iter().enumerate() {
            let (to_at, from) = if scatter { (*o, i) } else { (i, *o) };
            to[to_at] = sums[from];
        }
        to
    };
    let sums = squares.sums.chunks_exact(order.len()).flat_map(one).collect();
    Squares { sums, counts: squares.counts.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ogive_tensor::serde_json::json;

    #[test]
    fn columns_are_followed_through_changes() {
        let config = Config(json!({"n": 2}));
        let of = |change: &Change, file| order(change, &[[1, 8, 6]], &config, file);
        for file in [Of::Given, Of::Made] {
            assert_eq!(of(&Change::split_rotary_pairs("n"), file), Some(None));
            assert_eq!(of(&Change::transposed(), file), Some(None));
            // Values that are no numbers of columns any more.
            assert_eq!(of(&Change::less_one(), file), None);
            // Rows that are multiplied, as Falcon-H1's are, and columns that are.
            let multiplied = |by: fn(usize) -> f32| {
                Change::new(
                    |of, _| Ok(of[0].clone()),
                    move |of, _| {
                        let values: Vec<f32> =
                            of[0].to_vec().iter().enumerate().map(|(i, v)| v * by(i)).collect();
                        HostWeight::from_f32("scaled", of[0].shape, &values)
                    },
                )
            };
            assert_eq!(of(&multiplied(|i| 0.3 + (i / 6) as f32), file), Some(None));
            assert_eq!(of(&multiplied(|i| 0.3 + (i % 6) as f32), file), None);
        }
        // Columns the other way round, by turning, ordering rows and turning back.
        let reversed = Change::new(
            |of, _| Ok(of[0].clone()),
            |of, _| of[0].transposed()?.reordered(&[5, 3, 4, 2, 1, 0])?.transposed(),
        );
        for file in [Of::Given, Of::Made] {
            assert_eq!(of(&reversed, file), Some(Some(vec![5, 3, 4, 2, 1, 0])));
        }
        let squares = Squares::new(vec![0.0, 1.0, 2.0, 10.0, 11.0, 12.0], vec![1, 1]).unwrap();
        assert_eq!(put(&squares, Some(&[1, 2, 0]), false).sums, [1.0, 2.0, 0.0, 11.0, 12.0, 10.0]);
        assert_eq!(put(&squares, Some(&[1, 2, 0]), true).sums, [2.0, 0.0, 1.0, 12.0, 10.0, 11.0]);
        assert_eq!(put(&squares, None, true), squares);
    }

    #[test]
    fn experts_have_a_name_together() {
        assert_eq!(
            stacked("model.layers.0.mlp.experts.12.w1.weight").unwrap(),
            "model.layers.0.mlp.experts.w1.weight"
        );
        assert_eq!(stacked("model.layers.0.mlp.w1.weight"), None);
    }
}
