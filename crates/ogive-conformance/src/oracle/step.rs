//! A step's plan. Nothing goes anywhere; what spans and outputs promise is checked once, so that operators may rely on
//! it.

use ogive_backend::tensor::{Error, Result};
use ogive_backend::{Batch, Plan};

/// The mark of a plan that was checked here.
struct Checked;

/// Checks a step: a position and a type for each row, spans in order and without gaps, countable contexts, outputs that
/// exist.
pub(super) fn plan(batch: Batch) -> Result<Plan> {
    let wrong = |why: String| Err(Error::invalid("plan", why));
    let n = batch.tokens.len();
    batch.check_rows()?;
    let (mut rows, mut contexts) = (0usize, 0usize);
    for (i, span) in batch.spans.iter().enumerate() {
        if span.start != rows {
            return wrong(format!("span {i} starts at row {} and not at row {rows}", span.start));
        }
        let end = span.start.checked_add(span.len).filter(|&end| end <= n);
        rows = match end {
            Some(end) => end,
            None => return wrong(format!("span {i} of {} rows does not fit the step's {n}", span.len)),
        };
        let context = span.past.checked_add(span.len).and_then(|c| contexts.checked_add(c));
        contexts = match context {
            Some(all) => all,
            None => return wrong(format!("span {i} has a past of {} tokens", span.past)),
        };
    }
    if let Some(row) = batch.outputs.iter().find(|&&row| row as usize >= n) {
        return wrong(format!("row {row} is wanted of {n}"));
    }
    Ok(Plan::new(batch, Checked))
}

/// The step of a plan that was made here.
pub(super) fn batch<'a>(at: &str, plan: &'a Plan) -> Result<&'a Batch> {
    plan.device::<Checked>().map(|_| plan.batch()).ok_or_else(|| Error::foreign("plan").within(at))
}
