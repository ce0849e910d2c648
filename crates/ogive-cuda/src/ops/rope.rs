//! Rotary position embedding, in place, and together with storing what was rotated.

use crate::device::Device;
use crate::launch::Call;
use crate::{cache, plan};
use ogive_backend::{Cache, Plan, Rope, RopeLayout};
use ogive_kernels::{ROPE, ROPE_STORE};
use ogive_tensor::{Error, Result, Tensor};

/// Rotates the first `2 * inv_freq.len()` elements of each head of `[n, heads, dim]`.
pub(crate) fn rope(device: &Device, x: Tensor, rope: &Rope, plan: &Plan) -> Result<Tensor> {
    let at = "rope";
    device.read(at, &x)?;
    let (shape, step) = (x.shape(), plan::device(at, device, plan)?);
    let &[n, heads, dim] = shape.dims() else {
        return Err(Error::invalid(at, format!("needs [rows, heads, dim] and was given {shape:?}")));
    };
    let (pairs, rows) = (rope.inv_freq.len(), plan.batch().positions.len());
    if n != rows || pairs > dim / 2 {
        let why = format!("{shape:?} with {rows} positions and {pairs} frequencies");
        return Err(Error::invalid(at, why));
    }
    let neighbours = neighbours(at, rope)?;
    let axes = rope.axes_in(plan.batch())?;
    let [of_position, down, across] = match axes {
        Some(axes) => axes.each_ref().map(|of| device.constant(at, of).map(Some)),
        None => [device.constant(at, &rope.inv_freq).map(Some), Ok(None), Ok(None)],
    };
    let frequencies = [of_position?, down?, across?];
    let [by_position, by_place @ ..] = frequencies.each_ref().map(|of| of.as_ref().map(|of| of.address()));
    let x = device.owned(at, x)?;
    if pairs == 0 || heads == 0 {
        return Ok(x);
    }
    let call = Call::new(device, at, &ROPE, "rope")
        .flag("PLACES", axes.is_some())
        .at(device.read(at, &x)?)
        .at(by_position.unwrap_or_default())
        .float(rope.factor)
        .count("heads", heads)
        .count("elements of a head", dim)
        .count("pairs", pairs)
        .yes(neighbours);
    by_place
        .into_iter()
        .flatten()
        .fold(call, Call::at)
        .at(step.address())
        .run([n, 1, 1], block(device, n, heads))?;
    Ok(x)
}

/// Threads of a row: of a few rows, that do not fill the device, a head for each 32, so that no thread waits for one head after the other;
/// of many, fewer, so that they share an angle's sine and cosine.
fn block(device: &Device, n: usize, heads: usize) -> [u32; 3] {
    let most = if n <= device.info.multiprocessors as usize { 32 } else { 8 };
    [32, heads.clamp(1, most) as u32, 1]
}

/// Blocks of a row and threads of each, with so many heads of queries and keys: of few rows, a thread for each pair of each head, so that none
/// waits for one after the other; of many, one block, whose threads share an angle's sine and cosine.
fn blocks(device: &Device, n: usize, heads: usize, pairs: usize) -> (usize, [u32; 3]) {
    if n > device.info.multiprocessors as usize {
        return (1, [32, 8, 1]);
    }
    let across = pairs.next_multiple_of(32).clamp(32, 128);
    let down = 256 / across;
    (heads.div_ceil(down).clamp(1, 65_535), [across as u32, down as u32, 1])
}

/// Whether the elements of a pair are neighbours.
fn neighbours(at: &str, rope: &Rope) -> Result<bool> {
    match rope.layout {
        RopeLayout::Halves => Ok(false),
        RopeLayout::Pairs => Ok(true),
        other => Err(Error::unsupported(at, format!("CUDA does not know {other:?}"))),
    }
}

/// Rotates queries, and keys on their way to the cache, and stores values: in one kernel where shapes and the cache allow it. Gives
/// the queries back, and whether it was done.
pub(crate) fn rope_store(
    device: &Device,
    layer: usize,
    q: Tensor,
    k: &Tensor,
    v: &Tensor,
    rope: &Rope,
    cache: &Cache,
    plan: &Plan,
) -> Result<(Tensor, bool)> {
    let at = "rope_attend";
    let (step, pages) = (plan::device(at, device, plan)?, cache::pages(device, at, cache, layer)?);
    let (n, pairs) = (plan.batch().tokens.len(), rope.inv_freq.len());
    let (&[q_rows, heads, dim], &[k_rows, kv_heads, k_dim]) = (q.shape().dims(), k.shape().dims()) else {
        return Ok((q, false));
    };
    let Some(values) = pages.v.filter(|_| pages.owner == layer && pages.element != "q8_0") else {
        return Ok((q, false));
    };
    // Rows of images: a few steps of many rows.
    if rope.axes_in(plan.batch())?.is_some() {
        return Ok((q, false));
    }
    let fits = [q_rows, k_rows, v.shape().first()] == [n; 3]
        && k_dim == dim
        && pairs <= dim / 2
        && kv_heads.checked_mul(dim) == Some(pages.k.dim)
        && n.checked_mul(values.dim) == Some(v.shape().len());
    if !fits {
        // The operators one by one say what is wrong.
        return Ok((q, false));
    }
    let (keys, stored) = (device.read(at, k)?, device.read(at, v)?);
    let (neighbours, frequencies) = (neighbours(at, rope)?, device.constant(at, &rope.inv_freq)?);
    pages.check(device, at, step, plan.batch(), false)?;
    let q = device.owned(at, q)?;
    let (slices, threads) = blocks(device, n, heads.saturating_add(kv_heads), pairs);
    Call::new(device, at, &ROPE_STORE, "rope_store")
        .word("ELEMENT", pages.element)
        .at(device.read(at, &q)?)
        .count("heads", heads)
        .at(keys)
        .count("key heads", kv_heads)
        .count("elements of a head", dim)
        .at(stored)
        .count("elements of a value row", values.dim)
        .at(frequencies.address())
        .float(rope.factor)
        .count("pairs", pairs)
        .yes(neighbours)
        .at(pages.k.address)
        .long(pages.k.row_bytes)
        .at(values.address)
        .long(values.row_bytes)
        .count("tokens in a block", pages.block_len)
        .count("groups", pages.group)
        .at(step.address())
        .run([n, slices, 1], threads)?;
    Ok((q, true))
}
