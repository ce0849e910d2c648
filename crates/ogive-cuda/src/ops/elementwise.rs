//! Sums, products and functions of single elements; in place where the operand is no one else's.

use crate::device::Device;
use crate::launch::{Call, THREADS};
use crate::values::bytes;
use ogive_backend::Activation;
use ogive_kernels::ELEMENTWISE;
use ogive_tensor::{Error, Result, Shape, Tensor};

/// The kernels' number of a function.
pub(crate) fn function(f: Activation) -> Result<u32> {
    Ok(match f {
        Activation::Silu => 0,
        Activation::Gelu => 1,
        Activation::GeluTanh => 2,
        Activation::Tanh => 3,
        Activation::Exp => 4,
        Activation::Softplus => 5,
        Activation::QuickGelu => 6,
        Activation::Sigmoid => 7,
        Activation::ReluSquared => 8,
        Activation::Relu => 9,
        other => return Err(Error::unsupported("activate", format!("CUDA does not know {other:?}"))),
    })
}

/// Whether a function has numbers of its own, which no kernel that computes more than the function takes.
pub(crate) fn is_alone(f: Activation) -> bool {
    matches!(f, Activation::Xielu(_))
}

/// A function of two numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Two {
    Add,
    Mul,
}

impl Two {
    /// The operator, its kernel for equal shapes, and that for broadcasts.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Add => ("add", "add_broadcast"),
            Self::Mul => ("mul", "mul_broadcast"),
        }
    }
}

/// Elements of a thread where operands are of one shape.
const EIGHT: usize = 8;

/// Blocks for `n` elements in a row, all of which are there at once.
fn over(call: Call<'_>, n: usize) -> Result<()> {
    call.run([n.div_ceil(EIGHT * THREADS as usize), 1, 1], [THREADS, 1, 1])?;
    Ok(())
}

/// `f(x, y)` with rows and columns of either side repeated to fit the other.
pub(crate) fn broadcast(device: &Device, f: Two, mut x: Tensor, y: &Tensor) -> Result<Tensor> {
    let ((at, repeated), xs, ys) = (f.names(), x.shape(), y.shape());
    let (from, other) = (device.read(at, &x)?, device.read(at, y)?);
    let wide = |a: usize, b: usize| match (a, b) {
        (1, b) => Some(b),
        (a, 1) => Some(a),
        (a, b) => (a == b).then_some(a),
    };
    let (Some(rows), Some(cols)) = (wide(xs.rows(), ys.rows()), wide(xs.cols(), ys.cols())) else {
        return Err(Error::shape(at, xs, ys));
    };
    let full = |s: Shape| s.rows() == rows && s.cols() == cols;
    let shape = match (full(xs), full(ys)) {
        (true, _) => xs,
        (_, true) => ys,
        _ => [rows, cols].into(),
    };
    bytes(at, shape)?;
    let fresh = match full(xs) && Device::is_free(&mut x) {
        true => None,
        false => Some(device.tensor(at, shape)?),
    };
    let to = fresh.as_ref().map_or(Ok(from), |t| device.read(at, t))?;
    let n = shape.len();
    if full(xs) && full(ys) {
        let call = Call::new(device, at, &ELEMENTWISE, at).at(from).at(other).at(to);
        over(call.count("elements", n), n)?;
    } else {
        Call::new(device, at, &ELEMENTWISE, repeated)
            .at(from)
            .count("rows", xs.rows())
            .count("columns", xs.cols())
            .at(other)
            .count("rows", ys.rows())
            .count("columns", ys.cols())
            .at(to)
            .count("elements", n)
            .count("columns", cols)
            .over(n)?;
    }
    Ok(fresh.unwrap_or(x))
}

/// `f` on each element.
pub(crate) fn activate(device: &Device, mut x: Tensor, f: Activation) -> Result<Tensor> {
    let at = "activate";
    let (from, n) = (device.read(at, &x)?, x.shape().len());
    let kernel = if is_alone(f) { "xielu" } else { "activate" };
    let fresh = if Device::is_free(&mut x) { None } else { Some(device.tensor(at, x.shape())?) };
    let to = fresh.as_ref().map_or(Ok(from), |t| device.read(at, t))?;
    let call = Call::new(device, at, &ELEMENTWISE, kernel).at(from).at(to).count("elements", n);
    let call = match f {
        Activation::Xielu(f) => call.float(f.positive).float(f.negative).float(f.linear).float(f.bound),
        _ => call.number(function(f)?),
    };
    over(call, n)?;
    Ok(fresh.unwrap_or(x))
}

/// `f(gate) * up`
pub(crate) fn gated(device: &Device, mut gate: Tensor, up: &Tensor, f: Activation) -> Result<Tensor> {
    let at = "gated";
    if gate.shape() != up.shape() || is_alone(f) {
        return broadcast(device, Two::Mul, activate(device, gate, f)?, up);
    }
    let (number, from, other) = (function(f)?, device.read(at, &gate)?, device.read(at, up)?);
    let n = gate.shape().len();
    let fresh = if Device::is_free(&mut gate) { None } else { Some(device.tensor(at, gate.shape())?) };
    let to = fresh.as_ref().map_or(Ok(from), |t| device.read(at, t))?;
    let call = Call::new(device, at, &ELEMENTWISE, "gated").at(from).at(other).at(to);
    over(call.count("elements", n).number(number), n)?;
    Ok(fresh.unwrap_or(gate))
}
