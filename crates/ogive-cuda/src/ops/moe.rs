//! Mixtures of experts: choosing, and applying what was chosen. The host never learns which experts those were.
//!
//! Rows that are few for the experts there are go choice by choice, bound by the bytes of what was chosen, in single precision or in
//! integers as `linear` does; more are grouped by expert (`grouped`). Which it is hangs on sizes alone: the same step gives the same bits.
//! A single expert whose columns are in an order of their own is an MLP of `linear`'s products; stacks have no such order (`weight.rs`).

use crate::builder::{Activations, Compute};
use crate::cuda::Products;
use crate::device::Device;
use crate::driver::DeviceInfo;
use crate::launch::Call;
use crate::memory::Pool;
use crate::ops::elementwise::{self, Two, function};
use crate::ops::linear::FEW;
use crate::ops::{codes, grouped, int8, linear};
use crate::values::count;
use crate::weight::{self, CudaWeight, Kept};
use ogive_backend::{Experts, Gating, Mixed, RouterSpec, Routing, Scoring};
use ogive_kernels::{EXPERTS, EXPERTS_INT8, ROUTE, Source};
use ogive_tensor::{Error, Result, Tensor};

/// Warps of a block, an output each.
const WARPS: u32 = 4;
/// Choices that one launch takes: blocks along y.
const CHOICES: usize = 65_535;

/// Chooses experts for each row. `[n, experts] -> [n, k]`
pub(crate) fn route(device: &Device, logits: &Tensor, spec: &RouterSpec) -> Result<Routing> {
    let at = "route";
    let (from, n, experts) = (device.read(at, logits)?, logits.shape().rows(), logits.shape().cols());
    let [groups, top] = spec.groups;
    spec.check(experts)?;
    // Below 0 where experts are not chosen one after the other.
    let (sigmoid, within) = match spec.scoring {
        Scoring::Softmax => (false, -1.0),
        Scoring::Sigmoid => (true, -1.0),
        Scoring::SparseMixer { within } => (false, within),
        other => return Err(Error::unsupported(at, format!("CUDA does not know {other:?}"))),
    };
    let bias = spec.bias.as_ref().map_or(Ok(0), |b| device.read(at, b))?;
    count(at, "experts", experts)?;
    let (ids, weights) = (device.indices(at, [n, spec.k], experts)?, device.tensor(at, [n, spec.k])?);
    Call::new(device, at, &ROUTE, "route")
        .at(from)
        .at(bias)
        .at(device.read_indices(at, &ids)?.0)
        .at(device.read(at, &weights)?)
        .count("experts", experts)
        .count("experts of a row", spec.k)
        .yes(sigmoid)
        .float(within)
        .yes(spec.normalise)
        .float(spec.scale)
        .count("groups", groups)
        .count("groups of a row", top)
        .count("best of a group", spec.group_best.min(experts))
        .run_shared([n, 1, 1], [32, 1, 1], 9 * experts + 5 * groups)?;
    Ok(Routing { ids, weights })
}

/// A mixture whose sizes were checked.
pub(super) struct Mixture<'a> {
    pub(super) device: &'a Device,
    pub(super) at: &'static str,
    /// Rows, and experts of each.
    pub(super) n: usize,
    pub(super) k: usize,
    /// Where the chosen experts and their weights lie: `[n, k]`
    pub(super) ids: u64,
    pub(super) shares: u64,
    /// What is activated, the gate or, where nothing is gated, up: `[experts, hidden, dim]`
    pub(super) gate: &'a CudaWeight,
    /// What is gated; `None` where nothing is. The same sizes.
    pub(super) up: Option<&'a CudaWeight>,
    /// `[experts, dim, hidden]`
    pub(super) down: &'a CudaWeight,
    /// The activation's number.
    pub(super) function: u32,
    /// Where biases of gate, up and down lie; zeros for none.
    pub(super) bias: [u64; 3],
    /// Bounds of [`Gating::Clamped`]; 0 for none.
    pub(super) limit: f32,
}

/// Rows that are computed at a time.
pub(super) struct Part {
    pub(super) first: usize,
    pub(super) rows: usize,
}

/// How a mixture is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Choice by choice, in single precision.
    Each,
    /// The same in integers.
    Integers,
    Grouped(grouped::Way),
}

/// How `n` rows of so many choices are computed, with weights of which the last is down; grouped where an expert has `from` choices on average.
fn way(
    info: &DeviceInfo,
    (compute, activations): (Compute, Activations),
    from: usize,
    n: [usize; 2],
    w: &[Kept],
) -> Way {
    let few = n[0] <= FEW && n[0].saturating_mul(n[1]) <= CHOICES;
    if few && w.iter().all(|w| int8::is_for(info, activations, n[0], w)) {
        return Way::Integers;
    }
    grouped::way(info, compute, from, n, w).map_or(Way::Each, Way::Grouped)
}

/// Rows that are computed at a time, so that neither a launch nor what lies between the two halves grows with the step.
fn part([n, k]: [usize; 2]) -> usize {
    (CHOICES / k.max(1)).max(1).min(n)
}

/// Bytes that a mixture takes beside its result, as the pool has them.
pub(crate) fn scratch(products: &Products, mixed: &Mixed) -> u64 {
    let Products { info, compute, activations, grouped_from, .. } = products;
    let (n, k, normed) = (mixed.up.rows, mixed.k, mixed.up.normed);
    let weights = mixed.weights();
    let w: Vec<_> = weights.iter().map(Kept::of_product).collect();
    let (part, [_, hidden, dim]) = (part([n, k]), Kept::of_product(&mixed.up).shape);
    let between = || {
        let bytes = part.checked_mul(k).and_then(|n| n.checked_mul(hidden)?.checked_mul(4));
        bytes.and_then(Pool::size).map_or(u64::MAX, |n| n as u64)
    };
    if w.iter().any(|w| w.ordered) {
        // What comes of all products but the last, and the largest of what they take.
        let each = weights.into_iter().zip(&w).map(|(mut p, w)| {
            // What lies between is no norm's, nor gated by a kernel that leaves halves.
            p.normed = false;
            p.gated = None;
            linear::scratch(products, &p, w)
        });
        let beside = each.fold(0, u64::max);
        return between().saturating_mul(w.len() as u64 - 1).saturating_add(beside);
    }
    match way(info, (*compute, *activations), *grouped_from, [n, k], &w) {
        Way::Each => between(),
        Way::Integers => {
            // A norm left those of the input.
            let left = normed && !codes::goes_to_tiles(&products.info, n);
            let given = if left { 0 } else { codes::size([n, dim]) };
            let codes = [given, codes::size([n.saturating_mul(k), hidden])];
            codes.into_iter().fold(between(), u64::saturating_add)
        }
        Way::Grouped(way) => grouped::scratch(way, [n, part, k], Kept::of_product(&mixed.up).shape),
    }
}

/// Each row through its experts, weighted. `[n, dim] -> [n, dim]`
pub(crate) fn experts(
    device: &Device,
    compute: Compute,
    x: &Tensor,
    routing: &Routing,
    experts: &Experts,
) -> Result<Tensor> {
    let at = "experts";
    let (from, n, dim) = (device.read(at, x)?, x.shape().rows(), x.shape().cols());
    let ((ids, below), shares) = (device.read_indices(at, &routing.ids)?, device.read(at, &routing.weights)?);
    let k = routing.ids.shape().cols();
    let (up, down) = (weight::read(device, at, &experts.up)?, weight::read(device, at, &experts.down)?);
    let (gate, up) = match &experts.gate {
        Some(gate) => (weight::read(device, at, gate)?, Some(up)),
        None => (up, None),
    };
    let [experts_of, ..] = gate.shape;
    if routing.ids.shape().rows() != n || routing.weights.shape() != routing.ids.shape() {
        return Err(Error::shape(at, x.shape(), routing.ids.shape()));
    }
    experts.check(dim)?;
    if below > experts_of {
        return Err(Error::invalid(
            at,
            format!("{below} experts were chosen from, but there are {experts_of}"),
        ));
    }
    let bias = match &experts.bias {
        Some([gate, up, down]) => [device.read(at, gate)?, device.read(at, up)?, device.read(at, down)?],
        None => [0; 3],
    };
    let limit = match experts.gating {
        Gating::Product => 0.0,
        Gating::Clamped { limit } => limit,
        other => return Err(Error::unsupported(at, format!("CUDA does not know {other:?}"))),
    };
    let function = function(experts.activation)?;
    let m = Mixture { device, at, n, k, ids, shares, gate, up, down, function, bias, limit };
    let weights = m.weights();
    if weights.iter().any(|w| w.columns().is_some()) {
        if experts.bias.is_some() || limit > 0.0 {
            let why = "a single expert whose columns are in an order of their own has neither biases nor a limit here";
            return Err(Error::unsupported(at, why));
        }
        let Experts { up, down, activation, .. } = experts;
        let h = match &experts.gate {
            Some(gate) => linear::linear_gated(device, compute, x, [gate, up], *activation)?,
            None => elementwise::activate(device, linear::linear(device, compute, x, up)?, *activation)?,
        };
        let y = linear::linear(device, compute, &h, down)?;
        return elementwise::broadcast(device, Two::Mul, y, &routing.weights);
    }
    let y = device.tensor(at, x.shape())?;
    let kept: Vec<_> = weights.into_iter().map(CudaWeight::kept).collect();
    match way(&device.info, (compute, device.activations), device.grouped_from, [n, k], &kept) {
        Way::Each => m.each(from, device.read(at, &y)?)?,
        Way::Integers => m.integers(x, device.read(at, &y)?)?,
        Way::Grouped(way) => grouped::experts(&m, way, x, &y)?,
    }
    Ok(y)
}

impl Call<'_> {
    /// The formats of what is activated and of what is gated.
    pub(super) fn formats(self, m: &Mixture<'_>) -> Self {
        let call = self.word("FORMAT", m.gate.format);
        if let Some(up) = m.up { call.word("UP", up.format) } else { call }
    }

    /// What is activated and what is gated, or nothing in its place.
    pub(super) fn activated(self, m: &Mixture<'_>) -> Self {
        let (up, row_bytes) = m.up.map_or((0, 0), |up| (up.address(), up.row_bytes));
        self.at(m.gate.address()).long(m.gate.row_bytes).at(up).long(row_bytes)
    }

    /// What `gating.cu` takes.
    pub(super) fn gating(self, m: &Mixture<'_>) -> Self {
        self.at(m.bias[0]).at(m.bias[1]).float(m.limit)
    }
}

impl<'a> Mixture<'a> {
    /// What the rows meet: what is activated, what is gated, if anything is, and down.
    fn weights(&self) -> Vec<&'a CudaWeight> {
        [self.gate].into_iter().chain(self.up).chain([self.down]).collect()
    }

    pub(super) fn dim(&self) -> usize {
        self.gate.shape[2]
    }

    pub(super) fn hidden(&self) -> usize {
        self.gate.shape[1]
    }

    pub(super) fn parts(&self) -> impl Iterator<Item = Part> {
        let (n, part) = (self.n, part([self.n, self.k]));
        (0..n).step_by(part.max(1)).map(move |first| Part { first, rows: part.min(n - first) })
    }

    /// Choice by choice: what defines the others.
    pub(super) fn each(&self, from: u64, to: u64) -> Result<()> {
        let (k, dim, hidden) = (self.k, self.dim(), self.hidden());
        for Part { first, rows } in self.parts() {
            let h = self.device.tensor(self.at, [rows * k, hidden])?;
            let h = self.device.read(self.at, &h)?;
            let skip = |address: u64, width: usize| address + 4 * (first * width) as u64;
            let call = |kernel| {
                self.call(&EXPERTS, kernel)
                    .define("VECTOR", (self.gate.is_wide() && self.down.is_wide()).into())
            };
            call("experts_up")
                .at(skip(from, dim))
                .at(skip(self.ids, k))
                .count("experts of a row", k)
                .activated(self)
                .at(h)
                .count("inputs", dim)
                .count("hidden elements", hidden)
                .number(self.function)
                .gating(self)
                .run([hidden.div_ceil(WARPS as usize), rows * k, 1], [32 * WARPS, 1, 1])?;
            call("experts_down")
                .at(h)
                .at(skip(self.ids, k))
                .at(skip(self.shares, k))
                .count("experts of a row", k)
                .at(self.down.address())
                .long(self.down.row_bytes)
                .at(skip(to, dim))
                .count("outputs", dim)
                .count("hidden elements", hidden)
                .at(self.bias[2])
                .run([dim.div_ceil(WARPS as usize), rows, 1], [32 * WARPS, 1, 1])?;
        }
        Ok(())
    }

    /// The same in integers, for few rows.
    pub(super) fn integers(&self, x: &Tensor, to: u64) -> Result<()> {
        let (n, k, dim, hidden) = (self.n, self.k, self.dim(), self.hidden());
        let x = codes::codes(self.device, self.at, x, 0)?;
        let h = self.device.tensor(self.at, [n * k, hidden])?;
        let call = |kernel| self.call(&EXPERTS_INT8, kernel).define("ROWS", 1);
        x.given(call("experts_up_int8"))
            .at(self.ids)
            .count("rows", n)
            .count("experts of a row", k)
            .activated(self)
            .at(self.device.read(self.at, &h)?)
            .count("inputs", dim)
            .count("hidden elements", hidden)
            .number(self.function)
            .gating(self)
            .run([hidden.div_ceil(WARPS as usize), n * k, 1], [32 * WARPS, 1, 1])?;
        codes::codes(self.device, self.at, &h, 0)?
            .given(call("experts_down_int8"))
            .at(self.ids)
            .at(self.shares)
            .count("rows", n)
            .count("experts of a row", k)
            .at(self.down.address())
            .long(self.down.row_bytes)
            .at(to)
            .count("outputs", dim)
            .count("hidden elements", hidden)
            .at(self.bias[2])
            .run([dim.div_ceil(WARPS as usize), n, 1], [32 * WARPS, 1, 1])?;
        Ok(())
    }

    fn call(&self, source: &'static Source, kernel: &'static str) -> Call<'_> {
        Call::new(self.device, self.at, source, kernel).formats(self).word("DOWN", self.down.format)
    }
}
