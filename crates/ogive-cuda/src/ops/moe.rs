//! Mixtures of experts: choosing, and applying what was chosen. The host never learns which experts those were.

use crate::device::{Device, count};
use crate::launch::Call;
use crate::ops::elementwise::function;
use crate::weight;
use ogive_backend::{Experts, RouterSpec, Routing, Scoring};
use ogive_kernels::{EXPERTS, ROUTE};
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
    let wrong = |why: String| Err(Error::invalid(at, why));
    if groups == 0 || experts % groups != 0 || top == 0 || top > groups || spec.group_best == 0 {
        let best = spec.group_best;
        return wrong(format!(
            "{experts} experts in {groups} groups, of which {top} are chosen by their {best} best"
        ));
    }
    let open = experts / groups * top;
    if spec.k == 0 || spec.k > open {
        return wrong(format!("{} experts of {open} to choose from", spec.k));
    }
    let sigmoid = match spec.scoring {
        Scoring::Softmax => false,
        Scoring::Sigmoid => true,
        other => return Err(Error::unsupported(at, format!("CUDA does not know {other:?}"))),
    };
    let bias = spec.bias.as_ref().map_or(Ok(0), |b| device.read(at, b))?;
    if let Some(len) = spec.bias.as_ref().map(|b| b.shape().len()).filter(|&len| len != experts) {
        return wrong(format!("{len} biases for {experts} experts"));
    }
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
        .yes(spec.normalise)
        .float(spec.scale)
        .count("groups", groups)
        .count("groups of a row", top)
        .count("best of a group", spec.group_best.min(experts))
        .run_shared([n, 1, 1], [32, 1, 1], 9 * experts + 5 * groups)?;
    Ok(Routing { ids, weights })
}

/// Each row through its experts, weighted. `[n, dim] -> [n, dim]`
pub(crate) fn experts(device: &Device, x: &Tensor, routing: &Routing, experts: &Experts) -> Result<Tensor> {
    let at = "experts";
    let (from, n, dim) = (device.read(at, x)?, x.shape().rows(), x.shape().cols());
    let ((ids, below), shares) = (device.read_indices(at, &routing.ids)?, device.read(at, &routing.weights)?);
    let k = routing.ids.shape().cols();
    let [gate, up, down] = [&experts.gate, &experts.up, &experts.down].map(|w| weight::read(device, at, w));
    let (gate, up, down) = (gate?, up?, down?);
    let [experts_of, hidden, _] = gate.shape;
    if routing.ids.shape().rows() != n || routing.weights.shape() != routing.ids.shape() {
        return Err(Error::shape(at, x.shape(), routing.ids.shape()));
    }
    let wide = [experts_of, hidden, dim];
    for (w, want) in [(gate, wide), (up, wide), (down, [experts_of, dim, hidden])] {
        if w.shape != want {
            return Err(Error::shape(at, w.shape.into(), want.into()));
        }
    }
    if below > experts_of {
        return Err(Error::invalid(
            at,
            format!("{below} experts were chosen from, but there are {experts_of}"),
        ));
    }
    let f = function(experts.activation)?;
    let out = device.tensor(at, x.shape())?;
    let to = device.read(at, &out)?;
    // In parts, so that neither a launch nor what lies between the two halves grows with the step.
    let part = (CHOICES / k.max(1)).max(1);
    for first in (0..n).step_by(part) {
        let rows = part.min(n - first);
        let h = device.tensor(at, [rows * k, hidden])?;
        let skip = |address: u64, width: usize| address + 4 * (first * width) as u64;
        let call = |kernel| {
            Call::new(device, at, &EXPERTS, kernel)
                .word("FORMAT", gate.format)
                .word("UP", up.format)
                .word("DOWN", down.format)
                .define("VECTOR", (gate.is_wide() && down.is_wide()).into())
        };
        call("experts_up")
            .at(skip(from, dim))
            .at(skip(ids, k))
            .count("experts of a row", k)
            .at(gate.address())
            .long(gate.row_bytes)
            .at(up.address())
            .long(up.row_bytes)
            .at(device.read(at, &h)?)
            .count("inputs", dim)
            .count("hidden elements", hidden)
            .number(f)
            .run([hidden.div_ceil(WARPS as usize), rows * k, 1], [32 * WARPS, 1, 1])?;
        call("experts_down")
            .at(device.read(at, &h)?)
            .at(skip(ids, k))
            .at(skip(shares, k))
            .count("experts of a row", k)
            .at(down.address())
            .long(down.row_bytes)
            .at(skip(to, dim))
            .count("outputs", dim)
            .count("hidden elements", hidden)
            .run([dim.div_ceil(WARPS as usize), rows, 1], [32 * WARPS, 1, 1])?;
    }
    Ok(out)
}
