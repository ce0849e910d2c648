//! Sums, products and nonlinearities, element by element.

use super::{by_parts, by_rows, make_in, math::Function, read, take};
use crate::{
    CpuBackend, Path,
    simd::ops::{Isa, Kernel, run},
};
use ogive_backend::Activation;
use ogive_tensor::{Error, Result, Tensor};

/// `f(x, y)` with rows and columns of either side repeated to fit the other.
pub(crate) fn zip(
    b: &CpuBackend,
    at: &'static str,
    x: Tensor,
    y: &Tensor,
    f: impl Fn(f32, f32) -> f32 + Sync + Copy,
) -> Result<Tensor> {
    let (xs, ys) = (x.shape(), y.shape());
    let fit = |a: usize, b: usize| if a == b || b == 1 { Some(a) } else { (a == 1).then_some(b) };
    let (Some(rows), Some(cols)) = (fit(xs.rows(), ys.rows()), fit(xs.cols(), ys.cols())) else {
        return Err(Error::shape(at, xs, ys));
    };
    let other = read(at, y)?;
    if (rows, cols) != (xs.rows(), xs.cols()) {
        // The left side has to grow, so there is nothing to overwrite.
        let left = read(at, &x)?;
        let shape = if (rows, cols) == (ys.rows(), ys.cols()) { ys } else { [rows, cols].into() };
        let mut out = b.spare.take(shape.len());
        by_rows(b, &mut out, cols, |first, part| {
            for (i, out) in part.chunks_exact_mut(cols).enumerate() {
                let (x, y) = (row(left, xs.cols(), first + i), row(other, ys.cols(), first + i));
                out.iter_mut().enumerate().for_each(|(c, o)| *o = f(repeat(x, c), repeat(y, c)));
            }
        });
        return Ok(make_in(b, shape, out));
    }
    let (_, mut x) = take(b, at, x)?;
    let values = x.values();
    if ys.rows() == rows && ys.cols() == cols {
        by_parts(b, values, |first, part| {
            part.iter_mut().zip(&other[first..]).for_each(|(x, y)| *x = f(*x, *y));
        });
    } else {
        by_rows(b, values, cols, |first, part| {
            for (i, x) in part.chunks_exact_mut(cols).enumerate() {
                match row(other, ys.cols(), first + i) {
                    &[y] => x.iter_mut().for_each(|x| *x = f(*x, y)),
                    y => x.iter_mut().zip(y).for_each(|(x, y)| *x = f(*x, *y)),
                }
            }
        });
    }
    Ok(x.done())
}

/// Row `i` of `x`, or its only row.
fn row(x: &[f32], cols: usize, i: usize) -> &[f32] {
    if x.len() == cols { x } else { &x[i * cols..][..cols] }
}

/// Element `c` of `row`, or its only element.
fn repeat(row: &[f32], c: usize) -> f32 {
    if let &[only] = row { only } else { row[c] }
}

/// Applies a function to a slice.
struct Activate<'a>(Function, &'a mut [f32]);

impl Kernel for Activate<'_> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, _: S) {
        self.0.apply(self.1);
    }
}

pub(crate) fn activate(b: &CpuBackend, x: Tensor, f: Activation) -> Result<Tensor> {
    let f = Function::of(f)?;
    let (_, mut x) = take(b, "activate", x)?;
    by_parts(b, x.values(), |_, part| apply(b.path, f, part));
    Ok(x.done())
}

/// `f(gate) * up` in one pass.
pub(crate) fn gated(b: &CpuBackend, gate: Tensor, up: &Tensor, f: Activation) -> Result<Tensor> {
    if gate.shape() != up.shape() {
        return zip(b, "gated", activate(b, gate, f)?, up, |x, y| x * y);
    }
    let (f, up) = (Function::of(f)?, read("gated", up)?);
    let (_, mut gate) = take(b, "gated", gate)?;
    by_parts(b, gate.values(), |first, part| gate_slice(b, f, part, &up[first..]));
    Ok(gate.done())
}

/// `gate = f(gate) * up`, where `up` has at least as many elements.
fn gate_slice(b: &CpuBackend, f: Function, gate: &mut [f32], up: &[f32]) {
    // Short pieces, so that what the function wrote is still in the nearest cache.
    for (gate, up) in gate.chunks_mut(1024).zip(up.chunks(1024)) {
        apply(b.path, f, gate);
        gate.iter_mut().zip(up).for_each(|(g, u)| *g *= u);
    }
}

/// Applies `f` on this thread.
pub(crate) fn apply(path: Path, f: Function, x: &mut [f32]) {
    run(path, Activate(f, x));
}
