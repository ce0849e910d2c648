//! A step that was checked once, so that operators can trust its indices, and what they compute once for all layers.
//!
//! Sines and cosines belong to the step and not to an operator: sixteen layers rotate by the same positions.

use ogive_backend::{Batch, Plan, Rope};
use ogive_tensor::{Error, Result, Tensor};
use std::sync::{Arc, Mutex};

/// What [`Plan::device`] is here.
#[derive(Debug, Default)]
pub(crate) struct CpuPlan {
    angles: Mutex<Vec<(Key, Arc<Angles>)>>,
}

/// Frequencies, by their address, which the entry keeps alive; those by the first place, if by several; and the factor's bits.
type Key = (Arc<[f32]>, Option<Arc<[f32]>>, u32);

/// Cosine and sine for each row of a step and each frequency.
#[derive(Debug)]
pub(crate) struct Angles {
    /// `[rows, half]`
    pub(crate) cos: Vec<f32>,
    /// `[rows, half]`
    pub(crate) sin: Vec<f32>,
}

impl CpuPlan {
    /// The angles of `rope` at the places of `batch`.
    pub(crate) fn angles(&self, rope: &Rope, batch: &Batch) -> Result<Arc<Angles>> {
        let poisoned = |_| Error::invalid("rope", "another thread failed while it computed the angles");
        let (axes, factor) = (rope.axes_in(batch)?, rope.factor.to_bits());
        let first = axes.map(|[first, ..]| first);
        let mut known = self.angles.lock().map_err(poisoned)?;
        let same = |(of, by, factor_of): &Key| {
            Arc::ptr_eq(of, &rope.inv_freq)
                && by.as_ref().map(Arc::as_ptr) == first.map(Arc::as_ptr)
                && *factor_of == factor
        };
        if let Some((_, angles)) = known.iter().find(|(key, _)| same(key)) {
            return Ok(Arc::clone(angles));
        }
        let angles = Arc::new(Angles::new(rope, batch, axes));
        known.push(((Arc::clone(&rope.inv_freq), first.cloned(), factor), Arc::clone(&angles)));
        Ok(angles)
    }
}

impl Angles {
    /// The product of position and frequency is rounded to single precision, as the models were trained with; its sine
    /// is then computed in double precision, because at position 100,000 a single's is no longer the same everywhere.
    fn new(rope: &Rope, batch: &Batch, axes: Option<&[Arc<[f32]>; 3]>) -> Self {
        let n = batch.positions.len() * rope.inv_freq.len();
        let mut angles = Self { cos: Vec::with_capacity(n), sin: Vec::with_capacity(n) };
        let mut push = |angle: f32| {
            let (s, c) = f64::from(angle).sin_cos();
            angles.cos.push(c as f32 * rope.factor);
            angles.sin.push(s as f32 * rope.factor);
        };
        match axes {
            None => {
                for position in &batch.positions {
                    rope.inv_freq.iter().for_each(|frequency| push(*position as f32 * frequency));
                }
            }
            Some([time, down, across]) => {
                for [t, h, w] in &batch.places {
                    let by = time.iter().zip(down.iter()).zip(across.iter());
                    by.for_each(|((a, b), c)| push(*t as f32 * a + *h as f32 * b + *w as f32 * c));
                }
            }
        }
        angles
    }
}

/// Checks that a batch is what it says.
pub(crate) fn check(batch: &Batch) -> Result<()> {
    let rows = batch.tokens.len();
    let wrong = |why: String| Err(Error::invalid("plan", why));
    batch.check_rows()?;
    let mut next = 0usize;
    for (i, span) in batch.spans.iter().enumerate() {
        let end = span.start.checked_add(span.len);
        if span.start != next || end.is_none_or(|end| end > rows) {
            let why = format!("span {i} has {} rows from {}", span.len, span.start);
            return wrong(format!("{why}, but must begin at {next} and end within {rows}"));
        }
        // Token numbers are positions, which are 32 bits wide.
        if span.past.checked_add(span.len).is_none_or(|c| u32::try_from(c).is_err()) {
            return wrong(format!("span {i} follows {} tokens, more than can be counted", span.past));
        }
        next += span.len;
    }
    if let Some(row) = batch.outputs.iter().find(|&&row| row as usize >= rows) {
        return wrong(format!("row {row} is wanted of a step of {rows} rows"));
    }
    Ok(())
}

/// What this backend made of a step.
pub(crate) fn device(plan: &Plan) -> Result<&CpuPlan> {
    plan.device().ok_or_else(|| Error::foreign("plan"))
}

/// Checks that `x` has a row for each row of the step.
pub(crate) fn rows_fit(at: &str, x: &Tensor, plan: &Plan) -> Result<()> {
    device(plan)?;
    let rows = plan.batch().tokens.len();
    if x.shape().first() != rows {
        return Err(Error::shape(at, x.shape(), x.shape().with_first(rows)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ogive_backend::BlockTable;

    fn batch() -> Batch {
        let mut b = Batch::default();
        b.push(&[1, 2, 3], 0, vec![BlockTable::default()], [0, 1]);
        b.push(&[4], 7, vec![BlockTable::default()], [2, 3]);
        b.want_last();
        b
    }

    #[test]
    fn wrong_steps_are_refused() {
        assert!(check(&batch()).is_ok());
        let spoil: [fn(&mut Batch); 6] = [
            |b| b.positions.truncate(2),
            |b| b.types.push(0),
            |b| b.spans[1].start = 2,
            |b| b.spans[1].len = 2,
            |b| b.spans[0].past = usize::MAX,
            |b| b.outputs.push(4),
        ];
        for spoil in spoil {
            let mut b = batch();
            spoil(&mut b);
            assert!(check(&b).is_err());
        }
    }

    #[test]
    fn angles_are_computed_once() {
        let (plan, rope) = (CpuPlan::default(), Rope::new([1.0, 0.01]));
        let mut batch = Batch::default();
        batch.push(&[0; 2], 0, Vec::new(), [0, 1]);
        batch.positions = vec![0, 100_000];
        let a = plan.angles(&rope, &batch).unwrap();
        assert!(Arc::ptr_eq(&a, &plan.angles(&rope.clone(), &batch).unwrap()));
        assert!(!Arc::ptr_eq(&a, &plan.angles(&rope.clone().factor(0.5), &batch).unwrap()));
        batch.place(0, &[[0; 3], [100_000, 5, 5]]);
        let by_place = plan.angles(&rope.clone().axes(&[0, 1]).unwrap(), &batch).unwrap();
        assert!(!Arc::ptr_eq(&a, &by_place));
        assert_eq!((by_place.sin[2], by_place.sin[3]), (a.sin[2], f64::from(5.0f32 * 0.01).sin() as f32));
        assert_eq!((a.cos[0], a.sin[0]), (1.0, 0.0));
        assert!((f64::from(a.sin[2]) - 100_000f64.sin()).abs() < 1e-7);
    }
}
