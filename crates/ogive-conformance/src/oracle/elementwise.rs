//! Sums, products and functions of single elements.
//!
//! The result of broadcasting has the shape of the operand that has all its elements already, the left one first; where
//! neither has (`[n, 1] · [1, d]`) it is `[n, d]`.

use super::erf::erfc;
use super::values::{make, read, take};
use ogive_backend::tensor::{Error, Result, Shape, Tensor};
use ogive_backend::{Activation, Xielu};
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_PI};

/// `f(x, y)` with rows and columns of either side repeated to fit the other.
pub(super) fn broadcast(at: &str, x: Tensor, y: &Tensor, f: impl Fn(f32, f32) -> f32) -> Result<Tensor> {
    let (xs, ys) = (x.shape(), y.shape());
    let wide = |a: usize, b: usize| match (a, b) {
        (1, b) => Some(b),
        (a, 1) => Some(a),
        (a, b) => (a == b).then_some(a),
    };
    let (Some(rows), Some(cols)) = (wide(xs.rows(), ys.rows()), wide(xs.cols(), ys.cols())) else {
        return Err(Error::shape(at, xs, ys));
    };
    let full = |s: Shape| s.rows() == rows && s.cols() == cols;
    let place = |s: Shape, i: usize| {
        let (row, col) = (if s.rows() == 1 { 0 } else { i / cols }, if s.cols() == 1 { 0 } else { i % cols });
        row * s.cols() + col
    };
    let y = read(at, y)?;
    if full(xs) {
        let mut values = take(at, x)?;
        values.iter_mut().enumerate().for_each(|(i, v)| *v = f(*v, y[place(ys, i)]));
        return Ok(make(xs, values));
    }
    let x = read(at, &x)?;
    let shape = if full(ys) { ys } else { [rows, cols].into() };
    Ok(make(shape, (0..rows * cols).map(|i| f(x[place(xs, i)], y[place(ys, i)])).collect()))
}

/// `f` on each element.
pub(super) fn activate(x: Tensor, f: Activation) -> Result<Tensor> {
    let (shape, f) = (x.shape(), function(f)?);
    let mut values = take("activate", x)?;
    values.iter_mut().for_each(|v| *v = f(f64::from(*v)) as f32);
    Ok(make(shape, values))
}

/// An activation as a function of one number.
pub(super) fn function(f: Activation) -> Result<Box<dyn Fn(f64) -> f64>> {
    if let Activation::Xielu(numbers) = f {
        let Xielu { positive, negative, linear, bound } = numbers;
        let [positive, negative, linear, bound] = [positive, negative, linear, bound].map(f64::from);
        return Ok(Box::new(move |x| {
            let curved = match x > 0.0 {
                true => positive * x * x,
                false => negative * (x.min(bound).exp_m1() - x),
            };
            curved + linear * x
        }));
    }
    let f: fn(f64) -> f64 = match f {
        Activation::Silu => |x| x / (1.0 + (-x).exp()),
        // Φ(x) is erfc(-x / √2) / 2, which keeps its precision where 1 + erf would cancel.
        Activation::Gelu => |x| 0.5 * x * erfc(-x * FRAC_1_SQRT_2),
        // Hendrycks and Gimpel 2016, <https://arxiv.org/abs/1606.08415>, section 2.
        Activation::GeluTanh => |x| 0.5 * x * (1.0 + (FRAC_2_PI.sqrt() * (x + 0.044_715 * x * x * x)).tanh()),
        Activation::QuickGelu => |x| x / (1.0 + (-1.702 * x).exp()),
        Activation::Tanh => f64::tanh,
        Activation::Exp => f64::exp,
        // ln(1 + e^x) written so that neither side overflows.
        Activation::Softplus => |x| x.max(0.0) + (-x.abs()).exp().ln_1p(),
        Activation::Sigmoid => |x| 1.0 / (1.0 + (-x).exp()),
        // Comparisons, as `max` would make 0 of what is no number.
        Activation::Relu => |x| if x < 0.0 { 0.0 } else { x },
        Activation::ReluSquared => |x| if x < 0.0 { 0.0 } else { x * x },
        other => {
            return Err(Error::unsupported("activate", format!("the oracle does not know {other:?}")));
        }
    };
    Ok(Box::new(f))
}
