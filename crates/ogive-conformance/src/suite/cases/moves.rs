//! Operators that only move values: upload, download, split, concat, outputs.

use super::{Case, shape, up};
use crate::Oracle;
use ogive_backend::tensor::Tensor;
use ogive_backend::{Activation, Axis, Backend, Batch};

pub(super) fn add(cases: &mut Vec<Case>) {
    cases.push(Case::new("upload/round-trip", |lab| {
        for dims in [&[1][..], &[7], &[3, 5], &[2, 3, 4], &[2, 3, 2, 2], &[0, 4], &[33, 129]] {
            let values = lab.random.normal(dims.iter().product());
            lab.same(&format!("{dims:?}"), lab.moved(), &|b| Ok(vec![up(b, &values, dims)?]));
            lab.same(&format!("{dims:?}, flat"), lab.moved(), &|b| {
                Ok(vec![up(b, &values, dims)?.reshape([values.len()])?])
            });
        }
        Ok(())
    }));

    cases.push(Case::new("upload/refused", |lab| {
        lab.refuses("too few values", |_| Ok(()), |b, ()| up(b, &[1.0; 5], &[2, 3]));
        lab.refuses("too many values", |_| Ok(()), |b, ()| up(b, &[1.0; 7], &[2, 3]));
        lab.refuses(
            "a shape past counting",
            |_| Ok(()),
            |b, ()| b.upload(&[1.0], [usize::MAX, usize::MAX].into()),
        );
        Ok(())
    }));

    for axis in [Axis::Rows, Axis::Cols] {
        let name = format!("{axis:?}").to_lowercase();
        cases.push(Case::new(format!("split/{name}"), move |lab| {
            for (dims, sizes) in splits(axis) {
                let values = lab.random.normal(dims.iter().product());
                lab.same(&format!("{dims:?} into {sizes:?}"), lab.moved(), &|b| {
                    b.split(&up(b, &values, &dims)?, axis, &sizes)
                });
            }
            Ok(())
        }));
        cases.push(Case::new(format!("concat/{name}"), move |lab| {
            for (dims, sizes) in splits(axis) {
                let values = lab.random.normal(dims.iter().product());
                lab.same(&format!("{dims:?} from {sizes:?}"), lab.moved(), &|b| {
                    let parts = b.split(&up(b, &values, &dims)?, axis, &sizes)?;
                    let x = b.concat(&parts.iter().collect::<Vec<_>>(), axis)?;
                    let twice = b.concat(&[&x, &x], axis)?;
                    Ok(vec![x, twice])
                });
            }
            Ok(())
        }));
        cases.push(Case::new(format!("split/{name}/parts-are-their-own"), move |lab| {
            let values = lab.random.normal(24);
            lab.same("overwriting a part", lab.moved(), &|b| {
                let x = up(b, &values, &[4, 6])?;
                let sizes = if axis == Axis::Rows { [1, 3] } else { [2, 4] };
                let mut parts = b.split(&x, axis, &sizes)?;
                b.mul(parts.swap_remove(1), &up(b, &[0.0], &[1])?)?;
                Ok(vec![x, parts.swap_remove(0)])
            });
            Ok(())
        }));
    }

    cases.push(Case::new("split/refused", |lab| {
        let x = |b: &dyn Backend| up(b, &[1.0; 12], &[3, 4]);
        for (axis, sizes) in [
            (Axis::Rows, &[1, 1][..]),
            (Axis::Rows, &[2, 2]),
            (Axis::Rows, &[usize::MAX, 4]),
            (Axis::Cols, &[3]),
            (Axis::Cols, &[]),
            (Axis::Cols, &[1, 2, 3]),
        ] {
            lab.refuses(&format!("{sizes:?} of {axis:?} of [3, 4]"), x, |b, x| b.split(&x, axis, sizes));
        }
        let two = |a: &'static [usize], c: &'static [usize]| {
            move |b: &dyn Backend| {
                let one = |d: &[usize]| b.upload(&vec![0.0; d.iter().product()], shape(d));
                Ok([one(a)?, one(c)?])
            }
        };
        let join = |axis| move |b: &dyn Backend, [x, y]: [Tensor; 2]| b.concat(&[&x, &y], axis);
        lab.refuses("concat of rows with other columns", two(&[2, 3], &[2, 4]), join(Axis::Rows));
        lab.refuses("concat of columns with other rows", two(&[2, 3], &[3, 3]), join(Axis::Cols));
        lab.refuses("concat of other ranks", two(&[2, 3], &[2, 3, 1]), join(Axis::Rows));
        lab.refuses("concat of nothing", |_| Ok(()), |b, ()| b.concat(&[], Axis::Rows));
        Ok(())
    }));

    cases.push(Case::new("outputs", |lab| {
        for (dims, wanted) in [
            (&[5, 3][..], &[4][..]),
            (&[5, 3], &[0, 2, 4]),
            (&[5, 3], &[3, 1, 3]),
            (&[5, 3], &[]),
            (&[1, 1], &[0]),
            (&[5, 2, 3], &[1, 4]),
        ] {
            let values = lab.random.normal(dims.iter().product());
            lab.same(&format!("{wanted:?} of {dims:?}"), lab.moved(), &|b| {
                let mut batch = Batch::default();
                batch.push(&vec![1; dims[0]], 0, Vec::new(), [0, 1]);
                batch.outputs = wanted.to_vec();
                Ok(vec![b.outputs(&up(b, &values, dims)?, &b.plan(batch)?)?])
            });
        }
        let setup = |rows: usize| {
            move |b: &dyn Backend| {
                let mut batch = Batch::default();
                batch.push(&[1, 2], 0, Vec::new(), [0, 1]);
                batch.want_last();
                Ok((up(b, &vec![0.0; rows * 3], &[rows, 3])?, b.plan(batch)?))
            }
        };
        lab.refuses("fewer rows than the step", setup(1), |b, (x, plan)| b.outputs(&x, &plan));
        lab.refuses("more rows than the step", setup(3), |b, (x, plan)| b.outputs(&x, &plan));
        Ok(())
    }));

    cases.push(Case::new("bring", |lab| {
        let (first, second) = (lab.random.normal(15), lab.random.normal(15));
        lab.defined("into the place of another", lab.moved(), &|b| {
            let from = Oracle;
            let there = b.bring(&up(&from, &first, &[3, 5])?, &from, None)?;
            Ok(vec![b.bring(&up(&from, &second, &[3, 5])?, &from, Some(there))?])
        });
        lab.defined("where someone holds that", lab.moved(), &|b| {
            let from = Oracle;
            let held = b.bring(&up(&from, &first, &[3, 5])?, &from, None)?;
            let brought = b.bring(&up(&from, &second, &[3, 5])?, &from, Some(held.clone()))?;
            Ok(vec![held, brought])
        });
        lab.defined("of another shape, and its own", lab.moved(), &|b| {
            let there = up(b, &first, &[5, 3])?;
            let x = up(b, &second, &[3, 5])?;
            Ok(vec![b.bring(&x, b, Some(there))?, x])
        });
        Ok(())
    }));

    cases.push(Case::new("reshape/shares-but-does-not-leak", |lab| {
        // Two shapes of one buffer: an operator that takes one by value may not change the other.
        let values = lab.random.normal(12);
        lab.same("exp of a view", lab.each(1.0), &|b| {
            let x = up(b, &values, &[3, 4])?;
            let y = b.activate(x.clone().reshape([4, 3])?, Activation::Exp)?;
            Ok(vec![x, y])
        });
        Ok(())
    }));
}

type Split = (Vec<usize>, Vec<usize>);

fn splits(axis: Axis) -> Vec<Split> {
    let cases: &[(&[usize], &[usize])] = match axis {
        Axis::Rows => &[
            (&[6, 3], &[6]),
            (&[6, 3], &[1, 2, 3]),
            (&[6, 1], &[1; 6]),
            (&[4, 2, 3], &[3, 1]),
            (&[4, 5], &[0, 4, 0]),
            (&[5], &[2, 3]),
            (&[70, 65], &[7, 63]),
        ],
        Axis::Cols => &[
            (&[3, 6], &[6]),
            (&[3, 6], &[1, 2, 3]),
            (&[1, 6], &[1; 6]),
            (&[2, 3, 4], &[3, 1]),
            (&[5, 4], &[0, 4, 0]),
            (&[0, 4], &[1, 3]),
            (&[5], &[2, 3]),
            (&[7, 130], &[64, 65, 1]),
        ],
    };
    cases.iter().map(|(dims, sizes)| (dims.to_vec(), sizes.to_vec())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_split_adds_up() {
        for axis in [Axis::Rows, Axis::Cols] {
            for (dims, sizes) in splits(axis) {
                let extent = if axis == Axis::Rows { dims.first() } else { dims.last() };
                assert_eq!(sizes.iter().sum::<usize>(), *extent.unwrap());
            }
        }
    }
}
