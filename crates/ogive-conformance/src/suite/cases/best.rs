//! The largest logits, of all and of what was kept for that. Values are small multiples of a quarter, so that a backend that keeps halves has the same ties.

use super::{Case, up};
use crate::Oracle;
use crate::suite::lab::Lab;
use ogive_backend::Backend;
use ogive_backend::tensor::Result;

pub(super) fn add(cases: &mut Vec<Case>) {
    cases.push(Case::new("best/ties", |lab| {
        for (n, cols) in [(1, 1), (3, 10), (2, 259), (1, 32_003), (0, 4), (3, 0)] {
            let x: Vec<f32> = (0..n * cols).map(|_| lab.random.below(40) as f32 / 4.0 - 5.0).collect();
            best(lab, &x, n, cols)?;
            best(lab, &vec![1.0; n * cols], n, cols)?;
        }
        Ok(())
    }));
    cases.push(Case::new("best/nan-and-infinity", |lab| {
        let (nan, inf) = (f32::NAN, f32::INFINITY);
        best(lab, &[nan, 1.0, inf, -inf, 2.0, nan, inf, -0.0, 0.0, -nan], 2, 5)?;
        best(lab, &[nan; 6], 2, 3)?;
        best(lab, &[-inf, nan, -inf, -0.0, 0.0, -0.0], 2, 3)?;
        let mut x: Vec<f32> = (0..5000).map(|_| lab.random.below(400) as f32 / 4.0).collect();
        x.iter_mut().step_by(7).for_each(|v| *v = nan);
        x[4321] = inf;
        best(lab, &x, 1, 5000)
    }));
}

fn best(lab: &mut Lab<'_>, x: &[f32], n: usize, cols: usize) -> Result<()> {
    // Indices, and values as bits: NaN is not equal to itself.
    let look = |b: &dyn Backend| {
        let x = up(b, x, &[n, cols])?;
        let mut rows = Vec::new();
        for k in [0, 1, 2, 40, cols, cols + 3] {
            let kept = b.top_k(x.clone(), k)?;
            for row in [b.best(&x, k)?, b.best(&kept, k)?, b.best(&kept, k.min(2))?].concat() {
                rows.push(
                    row.into_iter().map(|(i, v)| (i, if v.is_nan() { 0 } else { v.to_bits() })).collect(),
                );
            }
        }
        Ok::<(Vec<Vec<(u32, u32)>>, Vec<u32>), _>((rows, b.argmax(&x)?))
    };
    let (subject, want) = (lab.subject(), look(&Oracle)?);
    if let Some(got) = lab.guarded(&format!("[{n}, {cols}]"), || look(&*subject)) {
        lab.check(got.1 == want.1, || format!("[{n}, {cols}]: argmax {:?} and not {:?}", got.1, want.1));
        let differ = (0..want.0.len().max(got.0.len())).find(|&i| got.0.get(i) != want.0.get(i));
        lab.check(differ.is_none(), || {
            let at = differ.unwrap_or(0);
            let first = |rows: &[Vec<(u32, u32)>]| {
                rows.get(at)
                    .map(|row| row.iter().take(8).map(|&(i, v)| (i, f32::from_bits(v))).collect::<Vec<_>>())
            };
            format!("[{n}, {cols}]: list {at} is {:?}.. and not {:?}..", first(&got.0), first(&want.0))
        });
    }
    Ok(())
}
