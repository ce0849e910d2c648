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

/// Frequencies, by their address, which the entry keeps alive; and the factor's bits.
type Key = (Arc<[f32]>, u32);

/// Cosine and sine for each row of a step and each frequency.
#[derive(Debug)]
pub(crate) struct Angles {
    /// `[rows, half]`
    pub(crate) cos: Vec<f32>,
    /// `[rows, half]`
    pub(crate) sin: Vec<f32>,
}

impl CpuPlan {
    /// The angles of `rope` at `positions`.
    pub(crate) fn angles(&self, rope: &Rope, positions: &[u32]) -> Result<Arc<Angles>> {
        let poisoned = |_| Error::invalid("rope", "another thread failed while it computed the angles");
        let mut known = self.angles.lock().map_err(poisoned)?;
        let factor = rope.factor.to_bits();
        let same = |(of, by): &Key| Arc::ptr_eq(of, &rope.inv_freq) && *by == factor;
        if let Some((_, angles)) = known.iter().find(|(key, _)| same(key)) {
            return Ok(Arc::clone(angles));
        }
        let angles = Arc::new(Angles::new(rope, positions));
        known.push(((Arc::clone(&rope.inv_freq), factor), Arc::clone(&angles)));
        Ok(angles)
    }
}

impl Angles {
    /// The product of position and frequency is rounded to single precision, as the models were trained with; its sine
    /// is then computed in double precision, because at position 100,000 a single's is no longer the same everywhere.
    pub(crate) fn new(rope: &Rope, positions: &[u32]) -> Self {
        let n = positions.len() * rope.inv_freq.len();
        let (mut cos, mut sin) = (Vec::with_capacity(n), Vec::with_capacity(n));
        for &position in positions {
            for &frequency in rope.inv_freq.iter() {
                let (s, c) = f64::from(position as f32 * frequency).sin_cos();
                cos.push(c as f32 * rope.factor);
                sin.push(s as f32 * rope.factor);
            }
        }
        Self { cos, sin }
    }
}

/// Checks that a batch is what it says.
pub(crate) fn check(batch: &Batch) -> Result<()> {
    let rows = batch.tokens.len();
    let wrong = |why: String| Err(Error::invalid("plan", why));
    if batch.positions.len() != rows || batch.types.len() != rows {
        let (p, t) = (batch.positions.len(), batch.types.len());
        return wrong(format!("{rows} tokens with {p} positions and {t} segments"));
    }
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
        let a = plan.angles(&rope, &[0, 100_000]).unwrap();
        assert!(Arc::ptr_eq(&a, &plan.angles(&rope.clone(), &[0, 100_000]).unwrap()));
        assert!(!Arc::ptr_eq(&a, &plan.angles(&rope.factor(0.5), &[0, 100_000]).unwrap()));
        assert_eq!((a.cos[0], a.sin[0]), (1.0, 0.0));
        assert!((f64::from(a.sin[2]) - 100_000f64.sin()).abs() < 1e-7);
    }
}
