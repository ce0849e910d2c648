//! Operators that carry a state along each sequence: one launch, which reads and writes the states where they lie.
//!
//! Whose rows and slots they are is read on the device, so a recorded step stays right; the grid hangs on how many rows and sequences there are,
//! which is the same for all steps of a record. A sequence's results are the same bits in any company and however its rows are cut.
//! Nobody reads a slot that the step writes (`Span::slots`): of a prompt, one block of a convolution reads the state and another one writes it.
//! `None` is what no kernel is made for: the definition takes it.

use crate::device::Device;
use crate::launch::Call;
use crate::{cache, plan};
use ogive_backend::{Batch, Cache, Plan};
use ogive_kernels::{CAUSAL_CONV, LINEAR_ATTENTION, SELECTIVE_SCAN};
use ogive_tensor::{Error, Result, Shape, Tensor};

/// Threads of a block, in all three kernels.
const THREADS: usize = 128;
/// Rows of a thread's where sequences have several, in `causal_conv`.
const ROWS: usize = 8;
/// Columns of a block's, in `linear_attention`.
const COLUMNS: usize = 32;

/// The most that kernels hold in registers: rows that a convolution sees, elements of a channel's state, of a key.
const WIDEST: usize = 32;
const MOST_ELEMENTS: usize = 512;
const LONGEST_KEY: usize = 256;

/// Rows that are nobody's.
fn rest(batch: &Batch) -> usize {
    batch.row_counts().last().copied().unwrap_or(0)
}

/// An error unless each of these has the shape it should have and is of this device.
fn expect(device: &Device, at: &str, wanted: &[(&Tensor, Shape)]) -> Result<()> {
    for (x, want) in wanted {
        device.read(at, x)?;
        if x.shape() != *want {
            return Err(Error::shape(at, x.shape(), *want));
        }
    }
    Ok(())
}

/// `x` is `[rows, dim]`, `w` is `[width, dim]`, the state `[width - 1, dim]`.
pub(crate) fn causal_conv(
    device: &Device,
    layer: usize,
    x: &Tensor,
    w: &Tensor,
    cache: &Cache,
    plan: &Plan,
) -> Result<Option<Tensor>> {
    let at = "causal_conv";
    let (from, factors, step) = (device.read(at, x)?, device.read(at, w)?, plan::device(at, device, plan)?);
    let (&[width, dim], &[_, cols]) = (w.shape().dims(), x.shape().dims()) else {
        return Err(Error::shape(at, x.shape(), w.shape()));
    };
    if cols != dim || width == 0 {
        return Err(Error::shape(at, x.shape(), w.shape()));
    }
    plan::rows_fit(at, x, plan)?;
    if width > WIDEST {
        return Ok(None);
    }
    let states = cache::states_in_place(device, at, cache, layer, plan, (width - 1).checked_mul(dim))?;
    let (batch, y) = (plan.batch(), device.tensor(at, x.shape())?);
    // A record is of sequences of one row each.
    let rows = if batch.spans.iter().all(|s| s.len <= 1) { 1 } else { ROWS };
    let empty = if batch.spans.iter().any(|s| s.len == 0) { batch.spans.len() } else { 0 };
    Call::new(device, at, &CAUSAL_CONV, at)
        .after(w)
        .define("WIDTH", width)
        .define("ROWS", rows)
        .at(from)
        .at(factors)
        .at(states)
        .at(device.read(at, &y)?)
        .count("channels", dim)
        .at(step.address())
        .run([batch.tokens.len().div_ceil(rows) + empty, dim.div_ceil(THREADS), 1], [THREADS as u32, 1, 1])?;
    Ok(Some(y))
}

/// Lanes that share a channel whose state has `m` elements: a quad for each, as far as a warp goes.
fn lanes(m: usize) -> usize {
    m.div_ceil(4).next_power_of_two().min(32)
}

/// `x` and `dt` are `[rows, dim]`, `a` is `[dim, m]`, `b` and `c` are `[rows, m]`, the state `[dim, m]`.
pub(crate) fn selective_scan(
    device: &Device,
    layer: usize,
    [x, dt, a, b, c]: [&Tensor; 5],
    cache: &Cache,
    plan: &Plan,
) -> Result<Option<Tensor>> {
    let at = "selective_scan";
    let (from, step) = (device.read(at, x)?, plan::device(at, device, plan)?);
    let &[n, dim] = x.shape().dims() else { return Err(Error::shape(at, x.shape(), a.shape())) };
    plan::rows_fit(at, x, plan)?;
    let m = a.shape().cols();
    let [of_row, of_state] = [[n, dim], [n, m]].map(Shape::from);
    expect(device, at, &[(dt, of_row), (a, [dim, m].into()), (b, of_state), (c, of_state)])?;
    if m == 0 || m > MOST_ELEMENTS {
        return Ok(None);
    }
    let states = cache::states_in_place(device, at, cache, layer, plan, dim.checked_mul(m))?;
    let (batch, y, lanes) = (plan.batch(), device.tensor(at, x.shape())?, lanes(m));
    Call::new(device, at, &SELECTIVE_SCAN, at)
        .define("M", m)
        .define("LANES", lanes)
        .at(from)
        .at(device.read(at, dt)?)
        .at(device.read(at, a)?)
        .at(device.read(at, b)?)
        .at(device.read(at, c)?)
        .at(states)
        .at(device.read(at, &y)?)
        .count("channels", dim)
        .at(step.address())
        .run([batch.spans.len() + rest(batch), dim.div_ceil(THREADS / lanes), 1], [THREADS as u32, 1, 1])?;
    Ok(Some(y))
}

/// `q` and `k` are `[rows, key_heads, k_dim]`, `v` is `[rows, heads, v_dim]`, `g` and `beta`, if there, are `[rows, heads]`, the state
/// `[heads, k_dim, v_dim]`.
pub(crate) fn linear_attention(
    device: &Device,
    layer: usize,
    [q, k, v, g]: [&Tensor; 4],
    beta: Option<&Tensor>,
    cache: &Cache,
    plan: &Plan,
) -> Result<Option<Tensor>> {
    let at = "linear_attention";
    let (from, step) = (device.read(at, v)?, plan::device(at, device, plan)?);
    let misfit = || Error::shape(at, k.shape(), v.shape());
    let (&[_, key_heads, k_dim], &[n, heads, v_dim]) = (k.shape().dims(), v.shape().dims()) else {
        return Err(misfit());
    };
    if [key_heads, k_dim, heads, v_dim].contains(&0) || heads % key_heads != 0 {
        return Err(misfit());
    }
    plan::rows_fit(at, v, plan)?;
    let [of_key, of_head] = [Shape::from([n, key_heads, k_dim]), Shape::from([n, heads])];
    // Where there is none, nothing is read of what stands in its place.
    let (delta, beta) = (beta.is_some(), beta.unwrap_or(g));
    expect(device, at, &[(q, of_key), (k, of_key), (g, of_head), (beta, of_head)])?;
    if k_dim > LONGEST_KEY {
        return Ok(None);
    }
    let len = heads.checked_mul(k_dim).and_then(|n| n.checked_mul(v_dim));
    let states = cache::states_in_place(device, at, cache, layer, plan, len)?;
    let (batch, y) = (plan.batch(), device.tensor(at, v.shape())?);
    let blocks = heads.saturating_mul(v_dim.div_ceil(COLUMNS));
    Call::new(device, at, &LINEAR_ATTENTION, at)
        .define("K_DIM", k_dim)
        .define("V_DIM", v_dim)
        .define("DELTA", usize::from(delta))
        .at(device.read(at, q)?)
        .at(device.read(at, k)?)
        .at(from)
        .at(device.read(at, g)?)
        .at(device.read(at, beta)?)
        .at(states)
        .at(device.read(at, &y)?)
        .count("heads", heads)
        .count("heads that read one key", heads / key_heads)
        .at(step.address())
        .run([batch.spans.len() + rest(batch), blocks, 1], [THREADS as u32, 1, 1])?;
    Ok(Some(y))
}
