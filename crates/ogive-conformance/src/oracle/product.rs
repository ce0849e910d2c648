//! Weights and what multiplies them. A weight stays as the file has it; rows are decoded when they are used, so every
//! format, scale and permutation has one path: `HostWeight::decode_row`.

use super::step::batch;
use super::values::{dot, make, product as count, read, row, zeros};
use ogive_backend::tensor::{Error, HostWeight, Result, Tensor};
use ogive_backend::{Ids, Plan, Weight};

/// Keeps the host's weight. Its fields are public, so what its constructors checked is checked again.
pub(super) fn upload(w: &HostWeight) -> Result<Weight> {
    let mut own = HostWeight::new(w.name.clone(), w.shape, w.format, w.bytes.clone())?;
    if let Some(scale) = &w.scale {
        own = own.with_scale(scale.clone())?;
    }
    if let Some(perm) = &w.input_perm {
        own = own.with_input_perm(perm.clone())?;
    }
    Ok(Weight::new(w, own))
}

/// The weight as it was uploaded here.
pub(super) fn host<'a>(at: &str, w: &'a Weight) -> Result<&'a HostWeight> {
    w.data::<HostWeight>().map_err(|e| e.within(at))
}

/// One matrix of a weight times each of `xs`, an `[xs.len(), out]` matrix. Every `x` must be as long as a row.
pub(super) fn product(xs: &[&[f32]], w: &HostWeight, expert: usize) -> Vec<f32> {
    let [_, rows, cols] = w.shape;
    let (mut out, mut decoded) = (vec![0.0; xs.len() * rows], vec![0.0; cols]);
    for r in 0..rows {
        w.decode_row(expert * rows + r, &mut decoded);
        for (i, x) in xs.iter().enumerate() {
            out[i * rows + r] = dot(x, &decoded) as f32;
        }
    }
    out
}

/// `x · wᵀ`. `[.., in] -> [.., out]`
pub(super) fn linear(x: &Tensor, w: &Weight) -> Result<Tensor> {
    let (values, w, shape) = (read("linear", x)?, host("linear", w)?, x.shape());
    let [experts, out, cols] = w.shape;
    if experts != 1 || shape.cols() != cols {
        return Err(Error::shape("linear", shape, w.shape.into()).within(&w.name));
    }
    count("linear", &[shape.rows(), out])?;
    let xs: Vec<&[f32]> = (0..shape.rows()).map(|r| row(values, r, cols)).collect();
    Ok(make(shape.with_cols(out), product(&xs, w, 0)))
}

/// Rows of `table`, one for each row of the step. `[n, dim]`
pub(super) fn embed(table: &Weight, ids: Ids, plan: &Plan) -> Result<Tensor> {
    let (w, batch) = (host("embed", table)?, batch("embed", plan)?);
    let ids = match ids {
        Ids::Tokens => &batch.tokens,
        Ids::Positions => &batch.positions,
        Ids::Types => &batch.types,
        other => return Err(Error::unsupported("embed", format!("the oracle does not know {other:?}"))),
    };
    let [experts, len, dim] = w.shape;
    if experts != 1 {
        return Err(Error::invalid("embed", format!("`{}` is {:?} and not one table", w.name, w.shape)));
    }
    let mut out = zeros("embed", &[ids.len(), dim])?;
    for (i, &id) in ids.iter().enumerate() {
        let r = usize::try_from(id).ok().filter(|&r| r < len);
        let r = r.ok_or_else(|| {
            Error::invalid("embed", format!("id {id} is outside `{}` of {len} rows", w.name))
        })?;
        w.decode_row(r, &mut out[i * dim..][..dim]);
    }
    Ok(make([ids.len(), dim], out))
}
