//! Norms and sums over the last dimension: a block a row, a few quads of it a thread. RMS norms leave their results rounded too, where products
//! in integers may want them (`int8`). Factors and summands are read before the kernel before is done, where kernels overlap; those that kernels
//! made are waited for. RMS norms of one row may be left to the products that read them (`deferred`).

use crate::device::Device;
use crate::driver::Address;
use crate::launch::Call;
use crate::ops::deferred::{Deferred, Norm};
use crate::ops::{codes, one};
use ogive_kernels::NORM;
use ogive_tensor::{Error, Result, Tensor};

/// Where one factor for each column of `x` lies.
fn factors(device: &Device, at: &str, x: &Tensor, w: &Tensor) -> Result<Address> {
    if w.shape().rows() != 1 || w.shape().cols() != x.shape().cols() {
        return Err(Error::shape(at, x.shape(), w.shape()));
    }
    device.read(at, w)
}

pub(crate) fn rms_norm(device: &Device, x: &Tensor, w: &Tensor, eps: f32) -> Result<Tensor> {
    let at = "rms_norm";
    device.read(at, x)?;
    factors(device, at, x, w)?;
    let out = codes::normed(device, at, x.shape())?;
    let norm = Norm { x: x.clone(), added: None, factors: w.clone(), eps, out };
    if one::norms(device, x.shape()) {
        return Ok(Deferred::leave(device, at, norm)?.1);
    }
    compute(device, &norm)?;
    Ok(norm.out)
}

pub(crate) fn add_rms_norm(
    device: &Device,
    residual: Tensor,
    x: &Tensor,
    w: &Tensor,
    eps: f32,
) -> Result<(Tensor, Tensor)> {
    let at = "add_rms_norm";
    if residual.shape() != x.shape() {
        let sum = super::elementwise::broadcast(device, super::elementwise::Two::Add, residual, x)?;
        let normed = rms_norm(device, &sum, w, eps)?;
        return Ok((sum, normed));
    }
    let mut residual = residual;
    device.read(at, &residual)?;
    device.read(at, x)?;
    factors(device, at, x, w)?;
    // Blocks that compute the norm each for itself read what is added when one may have written the sum.
    let later = one::norms(device, x.shape());
    let free = !later && Device::is_free(&mut residual);
    let sum = if free { residual.clone() } else { device.tensor(at, x.shape())? };
    let out = codes::normed(device, at, x.shape())?;
    let norm = Norm { x: residual, added: Some([x.clone(), sum]), factors: w.clone(), eps, out };
    let (sum, out) = if later {
        Deferred::leave(device, at, norm)?
    } else {
        compute(device, &norm)?;
        (norm.added.map(|[_, sum]| sum), norm.out)
    };
    let sum = sum.ok_or_else(|| Error::invalid(at, "two rows were added and the sum kept nowhere"))?;
    Ok((sum, out))
}

/// Computes an RMS norm, with the sum that it is of if that is to be.
pub(super) fn compute(device: &Device, norm: &Norm) -> Result<()> {
    let Norm { x, added, factors: w, eps, out } = norm;
    let at = if added.is_some() { "add_rms_norm" } else { "rms_norm" };
    let mut call = Call::new(device, at, &NORM, at).after(w).at(device.read(at, x)?);
    if let Some([other, _]) = added {
        call = call.at(device.read(at, other)?);
    }
    call = call.at(factors(device, at, x, w)?);
    if let Some([_, sum]) = added {
        call = call.at(device.read(at, sum)?);
    }
    let (call, cols) = (call.at(device.read(at, out)?), x.shape().cols());
    by_rows(codes::rounding_to(out, call).count("columns", cols).float(*eps), rows(x), cols)
}

pub(crate) fn layer_norm(
    device: &Device,
    x: &Tensor,
    w: &Tensor,
    b: Option<&Tensor>,
    eps: f32,
) -> Result<Tensor> {
    let at = "layer_norm";
    let (from, scales) = (device.read(at, x)?, factors(device, at, x, w)?);
    let shifts = b.map_or(Ok(0), |b| factors(device, at, x, b))?;
    let (out, cols) = (device.tensor(at, x.shape())?, x.shape().cols());
    let call = Call::new(device, at, &NORM, "layer_norm")
        .after(w)
        .after(b.unwrap_or(w))
        .at(from)
        .at(scales)
        .at(shifts);
    by_rows(call.at(device.read(at, &out)?).count("columns", cols).float(eps), rows(x), cols)?;
    Ok(out)
}

/// `[n, d] -> [n, 1]`
pub(crate) fn sum(device: &Device, x: &Tensor) -> Result<Tensor> {
    let at = "sum";
    let (from, cols) = (device.read(at, x)?, x.shape().cols());
    let out = device.tensor(at, x.shape().with_cols(1))?;
    let call = Call::new(device, at, &NORM, "sum").at(from).at(device.read(at, &out)?);
    by_rows(call.count("columns", cols), x.shape().rows(), cols)?;
    Ok(out)
}

/// A block for each row.
fn by_rows(call: Call<'_>, rows: usize, cols: usize) -> Result<()> {
    let call = call.define("VECTOR", cols.is_multiple_of(4).into());
    call.run([rows, 1, 1], [threads(cols), 1, 1])?;
    Ok(())
}

/// Threads for a row of `cols` elements: whole warps, of which a thread holds 16 elements, as many as it has on their way at a time. Set by the
/// length alone, as the order of sums is. So few of many elements, and not more of fewer, as a multiprocessor then has several rows at a time.
fn threads(cols: usize) -> u32 {
    let all = cols.div_ceil(ELEMENTS).next_multiple_of(32);
    u32::try_from(all).unwrap_or(MOST).clamp(32, MOST)
}

/// Elements of a thread in registers, and the most threads of a block.
const ELEMENTS: usize = 16;
const MOST: u32 = 512;

/// Rows that have something in them.
fn rows(x: &Tensor) -> usize {
    if x.shape().cols() == 0 { 0 } else { x.shape().rows() }
}

#[cfg(test)]
#[path = "norm_tests.rs"]
mod tests;
