//! What a tensor holds here, and the few helpers all operators use.
//!
//! The buffer has a type of its own: were it a bare `Vec<f32>`, another backend's tensor could pass for one of ours.

use ogive_backend::tensor::{Error, Result, Shape, Tensor};

/// The oracle's buffer: as many values as the tensor's shape says, which only this module's callers can make.
pub(super) struct Values(Vec<f32>);

/// A tensor of `values`, of which there must be as many as `shape` says.
pub(super) fn make(shape: impl Into<Shape>, values: Vec<f32>) -> Tensor {
    let shape = shape.into();
    debug_assert_eq!(shape.len(), values.len());
    Tensor::new(shape, Values(values))
}

/// Rows of nothing, at most: far more than a step has, and few enough to make something of each.
const MOST: usize = 1 << 24;

/// Copies host values in.
pub(super) fn upload(values: &[f32], shape: Shape) -> Result<Tensor> {
    if product("upload", shape.dims())? != values.len() {
        return Err(Error::invalid("upload", format!("{} values do not fill {shape:?}", values.len())));
    }
    // Where an extent is 0 the values bound no other, and some operators make something of each row.
    let extents: Vec<usize> = shape.dims().iter().map(|d| *d.max(&1)).collect();
    if values.is_empty() && product("upload", &extents)? > MOST {
        return Err(Error::invalid(
            "upload",
            format!("{shape:?} is nothing in more rows than can be counted"),
        ));
    }
    Ok(make(shape, values.to_vec()))
}

/// The values of `x`, for operator `at`.
pub(super) fn read<'a>(at: &str, x: &'a Tensor) -> Result<&'a [f32]> {
    Ok(&x.data::<Values>().map_err(|e| e.within(at))?.0)
}

/// The values of `x` to overwrite: its own buffer where no one else holds it, a copy otherwise.
pub(super) fn take(at: &str, mut x: Tensor) -> Result<Vec<f32>> {
    match x.data_mut::<Values>() {
        Some(own) => Ok(std::mem::take(&mut own.0)),
        None => Ok(read(at, &x)?.to_vec()),
    }
}

/// The product of extents that come from outside.
pub(super) fn product(at: &str, extents: &[usize]) -> Result<usize> {
    let fold = extents.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
    fold.ok_or_else(|| Error::invalid(at, format!("{extents:?} are more elements than can be counted")))
}

/// Zeros, or an error where there is no memory for so many.
pub(super) fn zeros(at: &str, extents: &[usize]) -> Result<Vec<f32>> {
    let n = product(at, extents)?;
    let mut values = Vec::new();
    values.try_reserve_exact(n).map_err(|e| Error::other(at, e))?;
    values.resize(n, 0.0);
    Ok(values)
}

/// Row `r` of rows of `cols`, which the caller knows to exist.
pub(super) fn row(values: &[f32], r: usize, cols: usize) -> &[f32] {
    &values[r * cols..][..cols]
}

/// The sum of products in double precision, in eight interleaved parts.
pub(super) fn dot(a: &[f32], b: &[f32]) -> f64 {
    let mut parts = [0f64; 8];
    let ((a8, a_rest), (b8, b_rest)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    for (a, b) in a8.iter().zip(b8) {
        for i in 0..8 {
            parts[i] += f64::from(a[i]) * f64::from(b[i]);
        }
    }
    let rest: f64 = a_rest.iter().zip(b_rest).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum();
    parts.iter().sum::<f64>() + rest
}
