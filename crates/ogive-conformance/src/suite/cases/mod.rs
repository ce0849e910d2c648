//! The cases, a file for each family of operators, and what they share.

mod attend;
mod attend_cache;
mod best;
mod bits;
mod cache;
mod elementwise;
mod extremes;
mod foreign;
mod fused;
mod layers;
mod linear;
mod lookup;
mod moe;
mod moves;
mod recurrent;
mod refusals;
mod replay;
mod restored;
mod sequences;

use super::{Case, Options};
use ogive_backend::tensor::{Result, Shape, Tensor};
use ogive_backend::{Axis, Backend, Batch};

/// Every case, family by family.
pub(super) fn all(options: &Options) -> Vec<Case> {
    let mut cases = Vec::new();
    moves::add(&mut cases);
    elementwise::add(&mut cases);
    linear::add(&mut cases, options);
    lookup::add(&mut cases, options);
    cache::add(&mut cases, options);
    restored::add(&mut cases, options);
    attend::add(&mut cases);
    attend_cache::add(&mut cases, options);
    fused::add(&mut cases, options);
    layers::add(&mut cases, options);
    recurrent::add(&mut cases);
    moe::add(&mut cases, options);
    best::add(&mut cases);
    replay::add(&mut cases);
    refusals::add(&mut cases);
    foreign::add(&mut cases);
    extremes::add(&mut cases, options);
    bits::add(&mut cases, options);
    cases
}

/// A shape of one to four extents.
fn shape(dims: &[usize]) -> Shape {
    match *dims {
        [a, b, c, d] => [a, b, c, d].into(),
        [a, b, c] => [a, b, c].into(),
        [a, b] => [a, b].into(),
        _ => [dims.iter().product()].into(),
    }
}

/// Uploads values under a shape.
fn up(b: &dyn Backend, values: &[f32], dims: &[usize]) -> Result<Tensor> {
    b.upload(values, shape(dims))
}

/// The rows of `x` that belong to sequences: what the others hold is nobody's business.
fn owned(b: &dyn Backend, x: &Tensor, batch: &Batch) -> Result<Tensor> {
    let counts = batch.row_counts();
    let nobody = counts.last().copied().unwrap_or(0);
    if nobody == 0 {
        return Ok(x.clone());
    }
    Ok(b.split(x, Axis::Rows, &[batch.tokens.len() - nobody, nobody])?.swap_remove(0))
}
