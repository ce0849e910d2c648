//! Products with weights: one kernel for few rows, which are bound by the weight's bytes, and one for many, which are bound by
//! arithmetic and done in tiles, unless those were too few (`in_slices`); where the backend was told to compute in a half, tensor cores
//! for more than one row (`matrix`); and where it was told to round few rows for packed weights, integers (`int8`), which go first. What
//! weights in an order of their own meet is put in it before: by what rounds it, or moved (`order`).

use crate::bucket;
use crate::builder::Compute;
use crate::cuda::Products;
use crate::device::Device;
use crate::driver::{Address, DeviceInfo};
use crate::launch::Call;
use crate::ops::codes::{self, Codes};
use crate::ops::elementwise::{self, function};
use crate::ops::int8;
use crate::ops::matrix::{self, Halves};
use crate::ops::one::{self, Row};
use crate::ops::order;
use crate::weight::{self, CudaWeight, Kept};
use ogive_backend::{Activation, Multiplied, Weight};
use ogive_kernels::{LINEAR_FEW, LINEAR_MANY};
use ogive_tensor::{Error, Result, Tensor};
use std::sync::Arc;

/// More rows than this are done in tiles, if those fill a device.
pub(super) const FEW: usize = 8;
/// Warps of a block where rows are few, an output each.
pub(super) const WARPS: u32 = 4;
/// Weights that one launch of a kernel for few rows multiplies, at most.
pub(super) const TOGETHER: usize = 3;
/// Rows and outputs of a tile.
const TILE: usize = 64;

/// What earlier products left of the input they share, with its columns in one order.
#[derive(Default)]
struct Shared {
    order: Option<Arc<[u32]>>,
    moved: Option<Tensor>,
    halves: Option<Halves>,
    codes: Option<Codes>,
}

impl Shared {
    /// Forgets what a weight in another order left. One order at a time is kept, as the weights of a layer were ordered by the same
    /// activations and nearly always agree.
    fn turn_to(&mut self, w: &CudaWeight) {
        if !w.is_ordered_as(self.order.as_ref()) {
            *self = Self { order: w.columns().cloned(), ..Self::default() };
        }
    }

    /// `x` as codes, in the order of this weight.
    fn codes(&mut self, device: &Device, at: &str, x: &Tensor, w: &CudaWeight) -> Result<&Codes> {
        Ok(match self.codes.take() {
            Some(x) => self.codes.insert(x),
            None => self.codes.insert(codes::given(device, at, x, w.order())?),
        })
    }

    /// `x`, one row, as there is of it, in the order of this weight.
    fn row(&mut self, device: &Device, at: &str, x: &Tensor, w: &CudaWeight) -> Result<Row> {
        match w.columns() {
            Some(_) => Ok(Row::Codes(self.codes(device, at, x, w)?.clone())),
            None => Row::of(device, at, x, w),
        }
    }

    /// `x` as halves, in the order of this weight.
    fn halves(
        &mut self,
        device: &Device,
        at: &str,
        compute: Compute,
        x: &Tensor,
        w: &CudaWeight,
    ) -> Result<&Halves> {
        Ok(match self.halves.take().filter(|x| x.compute == compute) {
            Some(x) => self.halves.insert(x),
            None => self.halves.insert(matrix::halves(device, at, compute, x, w.order())?),
        })
    }

    /// Where `x` lies in the order of this weight.
    fn moved(&mut self, device: &Device, at: &str, x: &Tensor, w: &CudaWeight) -> Result<Address> {
        match (w.columns(), self.moved.take()) {
            (None, _) => device.read(at, x),
            (Some(_), Some(x)) => device.read(at, self.moved.insert(x)),
            (Some(_), None) => device.read(at, self.moved.insert(order::moved(device, at, x, w)?)),
        }
    }
}

/// Bytes that a product takes beside its result, as the pool has them, with a weight that is kept so.
pub(crate) fn scratch(products: &Products, p: &Multiplied, w: &Kept) -> u64 {
    let (Products { info, compute, activations, cublas_from, .. }, n) = (products, p.rows);
    match int8::is_for(info, *activations, n, w) {
        true => {
            codes::scratch(products, n, w, p.normed && !w.ordered, p.gated == Some(codes::NAME) && !w.ordered)
        }
        false => {
            let compute = compute.with(info, &[w.format]);
            // Gating left them.
            let is_left = p.gated == Some(compute.name()) && !w.ordered;
            let halves = matrix::scratch(info, compute, *cublas_from, n, w, is_left);
            halves.unwrap_or_else(|| order::scratch(n, w))
        }
    }
}

/// `x · wᵀ`. `[.., in] -> [.., out]`
pub(crate) fn linear(device: &Device, compute: Compute, x: &Tensor, w: &Weight) -> Result<Tensor> {
    one(device, "linear", compute, x, w, &mut Shared::default())
}

/// Several products of one input, which is rounded or moved once; in one launch where the kernel for few rows takes them.
pub(crate) fn linear_many(
    device: &Device,
    compute: Compute,
    x: &Tensor,
    ws: &[&Weight],
) -> Result<Vec<Tensor>> {
    let (at, mut shared, mut all) = ("linear_many", Shared::default(), Vec::with_capacity(ws.len()));
    let mut rest = ws;
    while let Some(first) = rest.first() {
        let (some, others) = rest.split_at(together(device, at, compute, x, rest)?);
        match some {
            [_, _, ..] => all.extend(few(device, at, x, some, &mut shared)?),
            _ => all.push(one(device, at, compute, x, first, &mut shared)?),
        }
        rest = others;
    }
    Ok(all)
}

/// How many of the first weights one launch multiplies.
fn together(device: &Device, at: &str, compute: Compute, x: &Tensor, ws: &[&Weight]) -> Result<usize> {
    let n = x.shape().rows();
    let (mut count, mut first): (usize, Option<&CudaWeight>) = (0, None);
    for w in ws.iter().take(TOGETHER) {
        let w = weight::read(device, at, w)?;
        let integers = int8::takes(device, n, w);
        let tiles = !integers && matrix::takes(device, compute.with(&device.info, &[w.format]), n, w);
        let alike = first.is_none_or(|first| {
            let format = integers || first.format == w.format && first.is_wide() == w.is_wide();
            format && int8::takes(device, n, first) == integers && w.is_ordered_as(first.columns())
        });
        if (n > FEW && !integers) || tiles || !alike {
            break;
        }
        first = first.or(Some(w));
        count += 1;
    }
    Ok(count.max(1))
}

/// `f(x · gateᵀ) * (x · upᵀ)`
pub(crate) fn linear_gated(
    device: &Device,
    compute: Compute,
    x: &Tensor,
    [gate, up]: [&Weight; 2],
    f: Activation,
) -> Result<Tensor> {
    if elementwise::is_alone(f) {
        let (at, mut shared) = ("linear_gated", Shared::default());
        let [gate, up] = [gate, up].map(|w| one(device, at, compute, x, w, &mut shared));
        return elementwise::gated(device, gate?, &up?, f);
    }
    if let Some(y) = fused(device, compute, x, [gate, up], f)? {
        return Ok(y);
    }
    let (at, mut shared) = ("linear_gated", Shared::default());
    let (n, both) = (x.shape().rows(), [weight::read(device, at, gate)?, weight::read(device, at, up)?]);
    let integers = both.iter().all(|w| int8::takes(device, n, w));
    if integers && together(device, at, compute, x, &[gate, up])? == both.len() {
        let ys = <[Tensor; 2]>::try_from(few(device, at, x, &[gate, up], &mut shared)?);
        let [gate, up] = ys.map_err(|_| Error::invalid(at, "two products gave another number of results"))?;
        drop(shared);
        return match codes::leaves_tiles(&device.info, n, both.map(|w| w.shape)) {
            true => codes::gated_in_tiles(device, at, &gate, &up, function(f)?),
            false => elementwise::gated(device, gate, &up, f),
        };
    }
    let gate = one(device, at, compute, x, gate, &mut shared)?;
    let up = one(device, at, compute, x, up, &mut shared)?;
    drop(shared);
    match integers {
        // Weights in orders of their own: nothing is left for the next product, which has another.
        true => elementwise::gated(device, gate, &up, f),
        false => matrix::gated(device, compute.with(&device.info, &both.map(|w| w.format)), gate, &up, f),
    }
}

/// The weight as this device has it, if it multiplies `x`.
fn checked<'a>(device: &Device, at: &str, x: &Tensor, w: &'a Weight) -> Result<&'a CudaWeight> {
    let w = weight::read(device, at, w)?;
    if w.shape[0] != 1 || x.shape().cols() != w.shape[2] {
        return Err(Error::shape(at, x.shape(), w.shape.into()));
    }
    Ok(w)
}

/// Products of few rows with weights that are [`together`].
fn few(device: &Device, at: &str, x: &Tensor, ws: &[&Weight], shared: &mut Shared) -> Result<Vec<Tensor>> {
    device.check(at, x)?;
    let ws = ws.iter().map(|w| checked(device, at, x, w)).collect::<Result<Vec<_>>>()?;
    let Some(first) = ws.first() else { return Ok(Vec::new()) };
    shared.turn_to(first);
    let n = x.shape().rows();
    let ys = ws.iter().map(|w| device.tensor(at, x.shape().with_cols(w.shape[1])));
    let ys = ys.collect::<Result<Vec<_>>>()?;
    let pairs: Vec<_> = ws.iter().copied().zip(&ys).collect();
    if one::takes(device, n, first) {
        one::products(device, at, &shared.row(device, at, x, first)?, &pairs)?;
        return Ok(ys);
    }
    match int8::takes(device, n, first) {
        true => int8::products(device, at, shared.codes(device, at, x, first)?, &pairs, n)?,
        false => slices(device, at, shared.moved(device, at, x, first)?, &pairs, n)?,
    }
    Ok(ys)
}

/// One product; `shared` is what earlier ones left of the input.
fn one(
    device: &Device,
    at: &str,
    compute: Compute,
    x: &Tensor,
    w: &Weight,
    shared: &mut Shared,
) -> Result<Tensor> {
    device.check(at, x)?;
    let w = checked(device, at, x, w)?;
    let (n, compute) = (x.shape().rows(), compute.with(&device.info, &[w.format]));
    shared.turn_to(w);
    let y = device.tensor(at, x.shape().with_cols(w.shape[1]))?;
    if one::takes(device, n, w) {
        one::products(device, at, &shared.row(device, at, x, w)?, &[(w, &y)])?;
        return Ok(y);
    }
    if int8::takes(device, n, w) {
        int8::products(device, at, shared.codes(device, at, x, w)?, &[(w, &y)], n)?;
        return Ok(y);
    }
    if matrix::takes(device, compute, n, w) {
        matrix::product(device, at, shared.halves(device, at, compute, x, w)?, w, &y, n)?;
        return Ok(y);
    }
    let from = shared.moved(device, at, x, w)?;
    if in_slices(&device.info, n, &w.kept()) {
        slices(device, at, from, &[(w, &y)], n)?;
    } else {
        let [_, out, cols] = w.shape;
        Call::new(device, at, &LINEAR_MANY, "linear_many")
            .word("FORMAT", w.format)
            .define("VECTOR", w.is_wide().into())
            .at(from)
            .at(w.address())
            .at(device.read(at, &y)?)
            .count("rows", n)
            .count("outputs", out)
            .count("inputs", cols)
            .long(w.row_bytes)
            .run([out.div_ceil(TILE), n.div_ceil(TILE), 1], [256, 1, 1])?;
    }
    Ok(y)
}

/// Products by the kernel for few rows, in slices of those, of one to three weights of one format.
fn slices(
    device: &Device,
    at: &str,
    from: Address,
    products: &[(&CudaWeight, &Tensor)],
    n: usize,
) -> Result<()> {
    let Some((first, _)) = products.first() else { return Ok(()) };
    let rows = rows(n);
    let mut call = Call::new(device, at, &LINEAR_FEW, "linear_few")
        .word("FORMAT", first.format)
        .define("VECTOR", first.is_wide().into())
        .define("ROWS", rows)
        .at(from)
        .count("rows", n)
        .count("inputs", first.shape[2]);
    for i in 0..TOGETHER {
        call = weight_and_result(device, at, call, products.get(i))?;
    }
    let blocks = products.iter().map(|(w, _)| w.shape[1].div_ceil(WARPS as usize)).sum();
    call.run([blocks, n.div_ceil(rows), 1], [32 * WARPS, 1, 1])?;
    Ok(())
}

/// What kernels for few rows take of a product, or of none.
pub(super) fn weight_and_result<'a>(
    device: &Device,
    at: &str,
    call: Call<'a>,
    product: Option<&(&CudaWeight, &Tensor)>,
) -> Result<Call<'a>> {
    let Some((w, y)) = product else { return Ok(call.at(0).long(0).at(0).count("outputs", 0)) };
    Ok(call.at(w.address()).long(w.row_bytes).at(device.read(at, y)?).count("outputs", w.shape[1]))
}

/// The same in one kernel, for few rows and weights in one order; `None` where that is not for this step.
fn fused(
    device: &Device,
    compute: Compute,
    x: &Tensor,
    [gate, up]: [&Weight; 2],
    f: Activation,
) -> Result<Option<Tensor>> {
    let at = "linear_gated";
    device.check(at, x)?;
    let f = function(f)?;
    let (gate, up) = (weight::read(device, at, gate)?, weight::read(device, at, up)?);
    let ([experts, out, cols], n) = (gate.shape, x.shape().rows());
    let integers = [gate, up].map(|w| int8::takes(device, n, w));
    let tiles = |w: &&CudaWeight| matrix::takes(device, compute.with(&device.info, &[w.format]), n, w);
    let tiles = [gate, up].iter().any(tiles);
    let alike = gate.shape == up.shape && integers[0] == integers[1] && gate.is_ordered_as(up.columns());
    if n > FEW || !alike || (tiles && !integers[0]) || integers[0] && codes::goes_to_tiles(&device.info, n) {
        return Ok(None);
    }
    if experts != 1 || x.shape().cols() != cols {
        return Err(Error::shape(at, x.shape(), gate.shape.into()));
    }
    let (y, rows) = (device.tensor(at, x.shape().with_cols(out))?, rows(n));
    if gate.format == up.format && one::takes(device, n, gate) {
        let row = Shared::default().row(device, at, x, gate)?;
        one::gated(device, at, &row, [gate, up], f, &y)?;
        return Ok(Some(y));
    }
    if integers[0] {
        int8::gated(device, at, &codes::codes(device, at, x, gate.order())?, [gate, up], f, &y, n)?;
        return Ok(Some(y));
    }
    let moved = gate.columns().map(|_| order::moved(device, at, x, gate)).transpose()?;
    let from = device.read(at, moved.as_ref().unwrap_or(x))?;
    Call::new(device, at, &LINEAR_FEW, "linear_gated_few")
        .word("FORMAT", gate.format)
        .word("UP", up.format)
        .define("VECTOR", gate.is_wide().into())
        .define("ROWS", rows)
        .at(from)
        .at(gate.address())
        .long(gate.row_bytes)
        .at(up.address())
        .long(up.row_bytes)
        .at(device.read(at, &y)?)
        .count("rows", n)
        .count("outputs", out)
        .count("inputs", cols)
        .number(f)
        .run([out.div_ceil(WARPS as usize), n.div_ceil(rows), 1], [32 * WARPS, 1, 1])?;
    Ok(Some(y))
}

/// Rows that a kernel for few does at a time: as few versions of it as make a difference.
pub(super) fn rows(n: usize) -> usize {
    [1, 4].into_iter().find(|&r| n <= r).unwrap_or(FEW)
}

/// Whether the kernel for few rows takes `n` of them, in slices of some: where they are few, and of plain weights where tiles of 64 rows by 64
/// outputs would be so few, or so empty, that a device does sooner with more work that all of it shares. A router of a mixture is such a weight,
/// with 8 to 256 outputs.
///
/// By arithmetic of an H100: a tile's block takes some 45 clocks a column, however full it is, of which 32 are multiplications. In slices
/// a multiprocessor does some 30 products a clock, as it reads a row's number for each from its L1. So some 1350 products a column and
/// multiprocessor take as long; 1024 are a quarter of a full tile. Steps that are filled up count as what they are filled up to, so that
/// they have the bits of those that are not.
pub(super) fn in_slices(info: &DeviceInfo, n: usize, w: &Kept) -> bool {
    let products = bucket::rows(n).saturating_mul(w.shape[1]).saturating_mul(4);
    let share = (info.multiprocessors.max(1) as usize).saturating_mul(TILE * TILE);
    n <= FEW || w.block().0 == 1 && products < share
}
