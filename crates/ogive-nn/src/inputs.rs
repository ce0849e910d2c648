//! Rows that come in as vectors in place of tokens, as images do: where a decoder takes them in.
//!
//! A few operators that there are do all of it, so that every backend can. Their numbers go up within the step: it is one of many rows, which
//! is not recorded.

use crate::Step;
use crate::backend::{Axis, Input};
use crate::tensor::{Error, Result, Tensor};
use std::{ops::Range, sync::Arc};

/// `x` with the step's vectors where their rows are. `[n, dim] -> [n, dim]`
///
/// # Errors
/// If vectors have another number of elements than rows of `x`, if rows are not in order or none of the step's; else as
/// [all operators](crate::backend::Backend#errors).
pub fn placed(s: &Step<'_>, x: Tensor) -> Result<Tensor> {
    each(s, x, |input| Some(&input.of.values), |_, given| Ok(given))
}

/// `x` with what the step's vectors bring for the stream behind block `block`, added to their rows (DeepStack). `[n, dim] -> [n, dim]`
///
/// # Errors
/// As [`placed`].
pub fn deepened(s: &Step<'_>, x: Tensor, block: usize) -> Result<Tensor> {
    each(s, x, |input| input.of.deeper.get(block), |x, given| s.backend.add(x, &given))
}

/// For how many blocks the step's vectors bring something.
pub fn depth(s: &Step<'_>) -> usize {
    s.plan.batch().inputs.iter().map(|input| input.of.deeper.len()).max().unwrap_or(0)
}

/// `x` with the rows of each input that has `values` replaced by what `f` makes of them and of what is given for them.
fn each<'b>(
    s: &Step<'b>,
    x: Tensor,
    values: impl Fn(&'b Input) -> Option<&'b Arc<[f32]>>,
    f: impl Fn(Tensor, Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    let inputs = s.plan.batch().inputs.iter();
    let given: Vec<(&Input, &[f32])> =
        inputs.filter_map(|input| Some((input, input.part(values(input)?)))).collect();
    if given.is_empty() {
        return Ok(x);
    }
    let (b, n, dim) = (s.backend, x.shape().rows(), x.shape().cols());
    // Rows between inputs, perhaps none, and each one's own.
    let (mut sizes, mut next) = (Vec::new(), 0);
    for (input, _) in &given {
        let Range { start, end } = input.rows;
        if start < next || end <= start || end > n || input.of.dim != dim {
            let width = input.of.dim;
            let why = format!(
                "vectors of {width} elements for rows {start} to {end}, in a step of {n} rows of {dim}"
            );
            return Err(Error::invalid("vectors in place of tokens", why));
        }
        sizes.extend([start - next, end - start]);
        next = end;
    }
    sizes.push(n - next);
    let kept: Vec<usize> = sizes.iter().copied().filter(|rows| *rows > 0).collect();
    let mut parts = b.split(&x, Axis::Rows, &kept)?.into_iter();
    drop(x);
    let mut part = |rows: usize| if rows > 0 { parts.next() } else { None };
    let mut all = Vec::with_capacity(kept.len());
    for ((_, values), pair) in given.iter().zip(sizes.chunks_exact(2)) {
        all.extend(part(pair[0]));
        if let Some(own) = part(pair[1]) {
            let values = b.upload(values, own.shape())?;
            all.push(f(own, values)?);
        }
    }
    all.extend(part(n - next));
    b.concat(&all.iter().collect::<Vec<_>>(), Axis::Rows)
}
