//! Sums over a row and the norms made of them.
//!
//! Every sum has sixteen partial sums, element `i` in number `i % 16`, which are then added in pairs: the order depends
//! on the row's length alone, and it is one that vectors of 4, 8 and 16 lanes all follow.

use super::{by_rows, by_rows_of_two, make, make_in, read, take, zeros};
use crate::{
    CpuBackend,
    simd::ops::{Isa, Kernel, LANES, run},
};
use ogive_tensor::{Error, Result, Tensor};

/// The sum of `f` over `x`, in the order this file is about.
#[inline(always)]
pub(crate) fn lane_sum(x: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    let mut lanes = [0.0; LANES];
    let chunks = x.chunks_exact(LANES);
    let rest = chunks.remainder();
    for c in chunks {
        for i in 0..LANES {
            lanes[i] += f(c[i]);
        }
    }
    for (lane, &v) in lanes.iter_mut().zip(rest) {
        *lane += f(v);
    }
    fold(lanes)
}

/// The sum of products, in the same order.
#[inline(always)]
pub(crate) fn lane_dot(x: &[f32], y: &[f32]) -> f32 {
    let mut lanes = [0.0; LANES];
    let n = x.len().min(y.len());
    let (xs, ys) = (x[..n].chunks_exact(LANES), y[..n].chunks_exact(LANES));
    let rest = xs.remainder().iter().zip(ys.remainder());
    for (x, y) in xs.zip(ys) {
        for i in 0..LANES {
            lanes[i] += x[i] * y[i];
        }
    }
    for (lane, (x, y)) in lanes.iter_mut().zip(rest) {
        *lane += x * y;
    }
    fold(lanes)
}

/// Adds the partial sums in pairs, the upper half to the lower, until one is left.
#[inline(always)]
pub(crate) fn fold(mut lanes: [f32; LANES]) -> f32 {
    let mut half = LANES / 2;
    while half > 0 {
        for i in 0..half {
            lanes[i] += lanes[i + half];
        }
        half /= 2;
    }
    lanes[0]
}

struct Rms<'a> {
    x: &'a mut [f32],
    w: &'a [f32],
    eps: f32,
}

impl Kernel for Rms<'_> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, _: S) {
        for x in self.x.chunks_exact_mut(self.w.len()) {
            let scale = 1.0 / (lane_sum(x, |v| v * v) / x.len() as f32 + self.eps).sqrt();
            x.iter_mut().zip(self.w).for_each(|(v, w)| *v = *v * scale * w);
        }
    }
}

/// The same of a sum, row by row: what was added is still in the nearest cache when its norm is taken.
struct AddRms<'a> {
    sum: &'a mut [f32],
    x: &'a [f32],
    w: &'a [f32],
    eps: f32,
    out: &'a mut [f32],
}

impl Kernel for AddRms<'_> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, isa: S) {
        let (cols, w, eps) = (self.w.len(), self.w, self.eps);
        let rows = self.sum.chunks_exact_mut(cols).zip(self.x.chunks_exact(cols));
        for ((sum, x), out) in rows.zip(self.out.chunks_exact_mut(cols)) {
            for ((sum, x), out) in sum.iter_mut().zip(x).zip(&mut *out) {
                *sum += x;
                *out = *sum;
            }
            Rms { x: out, w, eps }.run(isa);
        }
    }
}

struct Layer<'a> {
    x: &'a mut [f32],
    w: &'a [f32],
    b: Option<&'a [f32]>,
    eps: f32,
}

impl Kernel for Layer<'_> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, _: S) {
        for x in self.x.chunks_exact_mut(self.w.len()) {
            let n = x.len() as f32;
            let mean = lane_sum(x, |v| v) / n;
            x.iter_mut().for_each(|v| *v -= mean);
            let scale = 1.0 / (lane_sum(x, |v| v * v) / n + self.eps).sqrt();
            x.iter_mut().zip(self.w).for_each(|(v, w)| *v = *v * scale * w);
            if let Some(b) = self.b {
                x.iter_mut().zip(b).for_each(|(v, b)| *v += b);
            }
        }
    }
}

/// The elements of a vector that goes over the columns of `x`.
fn over<'a>(at: &str, x: &Tensor, w: &'a Tensor) -> Result<&'a [f32]> {
    if w.shape().len() != x.shape().cols() {
        return Err(Error::shape(at, x.shape(), w.shape()));
    }
    read(at, w)
}

pub(crate) fn rms_norm(b: &CpuBackend, x: &Tensor, w: &Tensor, eps: f32) -> Result<Tensor> {
    let w = over("rms_norm", x, w)?;
    let from = read("rms_norm", x)?;
    let mut out = b.spare.take(from.len());
    by_rows(b, &mut out, w.len(), |first, part| {
        part.copy_from_slice(&from[first * w.len()..][..part.len()]);
        run(b.path, Rms { x: part, w, eps });
    });
    Ok(make_in(b, x.shape(), out))
}

pub(crate) fn add_rms_norm(
    b: &CpuBackend,
    residual: Tensor,
    x: &Tensor,
    w: &Tensor,
    eps: f32,
) -> Result<(Tensor, Tensor)> {
    const AT: &str = "add_rms_norm";
    if residual.shape() != x.shape() {
        let sum = super::elementwise::zip(b, AT, residual, x, |x, y| x + y)?;
        let normed = rms_norm(b, &sum, w, eps)?;
        return Ok((sum, normed));
    }
    let (w, x) = (over(AT, x, w)?, read(AT, x)?);
    let (shape, mut sum) = take(b, AT, residual)?;
    let mut out = b.spare.take(x.len());
    by_rows_of_two(b, [sum.values(), &mut out], w.len(), |first, [sum, out]| {
        run(b.path, AddRms { sum, x: &x[first * w.len()..], w, eps, out });
    });
    Ok((sum.done(), make_in(b, shape, out)))
}

pub(crate) fn layer_norm(
    b: &CpuBackend,
    x: &Tensor,
    w: &Tensor,
    bias: Option<&Tensor>,
    eps: f32,
) -> Result<Tensor> {
    let w = over("layer_norm", x, w)?;
    let bias = bias.map(|bias| over("layer_norm", x, bias)).transpose()?;
    let (_, mut out) = take(b, "layer_norm", x.clone())?;
    by_rows(b, out.values(), w.len(), |_, part| run(b.path, Layer { x: part, w, b: bias, eps }));
    Ok(out.done())
}

struct Sums<'a> {
    x: &'a [f32],
    cols: usize,
    out: &'a mut [f32],
}

impl Kernel for Sums<'_> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, _: S) {
        for (out, x) in self.out.iter_mut().zip(self.x.chunks_exact(self.cols)) {
            *out = lane_sum(x, |v| v);
        }
    }
}

pub(crate) fn sum(b: &CpuBackend, x: &Tensor) -> Result<Tensor> {
    let (from, cols) = (read("sum", x)?, x.shape().cols());
    let mut out = zeros("sum", x.shape().rows(), 1)?;
    if cols > 0 {
        by_rows(b, &mut out, 1, |first, part| {
            run(b.path, Sums { x: &from[first * cols..], cols, out: part });
        });
    }
    Ok(make(x.shape().with_cols(1), out))
}
