//! Norms and sums over the last dimension.

use super::values::{dot, make, read, row, zeros};
use ogive_backend::tensor::{Error, Result, Tensor};

/// `x / sqrt(mean(x²) + eps) * w`
pub(super) fn rms(x: &Tensor, w: &Tensor, eps: f32) -> Result<Tensor> {
    let scales = factors("rms_norm", x, w)?;
    each_row("rms_norm", x, |from, to| {
        let mean = dot(from, from) / from.len() as f64;
        let scale = (mean + f64::from(eps)).sqrt().recip();
        for ((to, &v), &w) in to.iter_mut().zip(from).zip(scales) {
            *to = (f64::from(v) * scale * f64::from(w)) as f32;
        }
    })
}

/// `(x - mean(x)) / sqrt(mean((x - mean(x))²) + eps) * w + b`
pub(super) fn layer(x: &Tensor, w: &Tensor, b: Option<&Tensor>, eps: f32) -> Result<Tensor> {
    let scales = factors("layer_norm", x, w)?;
    let shifts = b.map(|b| factors("layer_norm", x, b)).transpose()?;
    each_row("layer_norm", x, |from, to| {
        let n = from.len() as f64;
        let mean = from.iter().map(|&v| f64::from(v)).sum::<f64>() / n;
        let variance = from.iter().map(|&v| (f64::from(v) - mean).powi(2)).sum::<f64>() / n;
        let scale = (variance + f64::from(eps)).sqrt().recip();
        for (i, (to, &v)) in to.iter_mut().zip(from).enumerate() {
            let shift = shifts.map_or(0.0, |b| f64::from(b[i]));
            *to = ((f64::from(v) - mean) * scale * f64::from(scales[i]) + shift) as f32;
        }
    })
}

/// `[n, d] -> [n, 1]`
pub(super) fn sum(x: &Tensor) -> Result<Tensor> {
    let (values, shape) = (read("sum", x)?, x.shape());
    let mut sums = zeros("sum", &[shape.rows()])?;
    for (r, sum) in sums.iter_mut().enumerate() {
        *sum = row(values, r, shape.cols()).iter().map(|&v| f64::from(v)).sum::<f64>() as f32;
    }
    Ok(make(shape.with_cols(1), sums))
}

/// One factor for each column of `x`.
fn factors<'a>(at: &str, x: &Tensor, w: &'a Tensor) -> Result<&'a [f32]> {
    if w.shape().rows() != 1 || w.shape().cols() != x.shape().cols() {
        return Err(Error::shape(at, x.shape(), w.shape()));
    }
    read(at, w)
}

fn each_row(at: &str, x: &Tensor, f: impl Fn(&[f32], &mut [f32])) -> Result<Tensor> {
    let (from, cols) = (read(at, x)?, x.shape().cols().max(1));
    let mut to = vec![0.0; from.len()];
    from.chunks(cols).zip(to.chunks_mut(cols)).for_each(|(from, to)| f(from, to));
    Ok(make(x.shape(), to))
}
