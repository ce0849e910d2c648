//! Routing and experts.
//!
//! Scores are rounded to single precision before they are compared: two that a backend cannot tell apart are a tie, and
//! ties go to the lower index.

use super::elementwise::function;
use super::product::{host, product};
use super::values::{make, read, row};
use ogive_backend::tensor::{Error, Result, Tensor};
use ogive_backend::{Experts, Gating, RouterSpec, Routing, Scoring, is_near};
use std::cmp::Ordering;

/// The chosen experts of each row: `[n, k]`.
struct Ids(Vec<u32>);

/// Larger first, NaN last.
fn descending(a: f32, b: f32) -> Ordering {
    let key = |v: f32| if v.is_nan() { f32::NEG_INFINITY } else { v };
    key(b).partial_cmp(&key(a)).unwrap_or(Ordering::Equal)
}

/// The `k` of `among` with the largest `score`, best first, ties to the lower index. A stable sort of indices in order.
fn best(among: impl Iterator<Item = usize>, k: usize, score: impl Fn(usize) -> f32) -> Vec<usize> {
    let mut order: Vec<usize> = among.collect();
    order.sort_by(|&a, &b| descending(score(a), score(b)));
    order.truncate(k);
    order
}

/// A score for each expert from a row's logits.
fn scores(logits: &[f32], scoring: Scoring) -> Result<Vec<f32>> {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let exp = |v: &f32| (f64::from(*v) - f64::from(max)).exp();
    match scoring {
        Scoring::Softmax => {
            let total: f64 = logits.iter().map(exp).sum();
            Ok(logits.iter().map(|v| (exp(v) / total) as f32).collect())
        }
        Scoring::Sigmoid => {
            Ok(logits.iter().map(|&v| (1.0 / (1.0 + (-f64::from(v)).exp())) as f32).collect())
        }
        // By themselves; what is chosen has another score in the end.
        Scoring::SparseMixer { .. } => Ok(logits.to_vec()),
        other => Err(Error::unsupported("route", format!("the oracle does not know {other:?}"))),
    }
}

/// The share of each of these experts among those that are near it and were not chosen before.
fn mixed(logits: &[f32], chosen: &[usize], within: f32) -> Vec<f32> {
    let share = |(i, &e): (usize, &usize)| {
        let open = (0..logits.len()).filter(|other| !chosen[..i].contains(other));
        let near = open.filter(|&other| is_near(logits[e], logits[other], within));
        let exp = |other: usize| (f64::from(logits[other]) - f64::from(logits[e])).exp();
        near.map(exp).sum::<f64>().recip() as f32
    };
    chosen.iter().enumerate().map(share).collect()
}

/// Chooses experts for each row. `[n, experts] -> [n, k]`
pub(super) fn route(logits: &Tensor, spec: &RouterSpec) -> Result<Routing> {
    let (values, n, experts) = (read("route", logits)?, logits.shape().rows(), logits.shape().cols());
    let [groups, top] = spec.groups;
    spec.check(experts)?;
    let size = experts / groups;
    let bias = spec.bias.as_ref().map(|b| read("route", b)).transpose()?;
    let (mut ids, mut weights) = (Vec::new(), Vec::new());
    for r in 0..n {
        let scores = scores(row(values, r, experts), spec.scoring)?;
        let choice = |e: usize| scores[e] + bias.map_or(0.0, |b| b[e]);
        let worth = |g: usize| {
            let members = best(g * size..(g + 1) * size, spec.group_best, choice);
            members.into_iter().map(choice).sum::<f32>()
        };
        let open = best(0..groups, top, worth);
        let chosen = best((0..experts).filter(|e| open.contains(&(e / size))), spec.k, choice);
        let shares = match spec.scoring {
            Scoring::SparseMixer { within } => mixed(row(values, r, experts), &chosen, within),
            _ => chosen.iter().map(|&e| scores[e]).collect(),
        };
        let sum: f64 = shares.iter().copied().map(f64::from).sum();
        // Scores that all underflow weigh nothing; they are no reason for NaN.
        let total = if spec.normalise { sum.max(f64::MIN_POSITIVE) } else { 1.0 };
        weights.extend(shares.iter().map(|share| (f64::from(*share) / total * f64::from(spec.scale)) as f32));
        ids.extend(chosen.iter().filter_map(|&e| u32::try_from(e).ok()));
    }
    Ok(Routing { ids: Tensor::new([n, spec.k], Ids(ids)), weights: make([n, spec.k], weights) })
}

/// What an activated gate and what it gates are multiplied as.
fn gated(gating: Gating, f: &dyn Fn(f64) -> f64, g: f64, u: f64) -> Result<(f64, f64)> {
    match gating {
        Gating::Product => Ok((f(g), u)),
        Gating::Clamped { limit } => {
            let limit = f64::from(limit);
            // `clamp` leaves what is no number as it is; `min` would not.
            Ok((f(g.clamp(f64::NEG_INFINITY, limit)), u.clamp(-limit, limit) + 1.0))
        }
        other => Err(Error::unsupported("experts", format!("the oracle does not know {other:?}"))),
    }
}

/// Each row through its experts, weighted. `[n, dim] -> [n, dim]`
pub(super) fn experts(x: &Tensor, routing: &Routing, experts: &Experts) -> Result<Tensor> {
    let at = "experts";
    let (values, n, dim) = (read(at, x)?, x.shape().rows(), x.shape().cols());
    let Ids(ids) = routing.ids.data::<Ids>().map_err(|e| e.within(at))?;
    let (shares, k) = (read(at, &routing.weights)?, routing.ids.shape().cols());
    let gate = experts.gate.as_ref().map(|gate| host(at, gate)).transpose()?;
    let (up, down) = (host(at, &experts.up)?, host(at, &experts.down)?);
    let [count, hidden, _] = up.shape;
    if routing.ids.shape().rows() != n || routing.weights.shape() != routing.ids.shape() {
        return Err(Error::shape(at, x.shape(), routing.ids.shape()));
    }
    experts.check(dim)?;
    let bias = match &experts.bias {
        Some([gate, up, down]) => Some([read(at, gate)?, read(at, up)?, read(at, down)?]),
        None => None,
    };
    // What an expert's product and its bias come to.
    let biased = |which: usize, e: usize, mut values: Vec<f32>, width: usize| {
        if let Some(bias) = bias {
            let of = row(bias[which], e, width);
            values.iter_mut().enumerate().for_each(|(i, v)| *v += of[i % width]);
        }
        values
    };
    if let Some(id) = ids.iter().find(|&&id| id as usize >= count) {
        return Err(Error::invalid(at, format!("expert {id} was chosen of {count}")));
    }
    let f = function(experts.activation)?;
    let mut sums = vec![0f64; values.len()];
    for e in 0..count {
        let chosen: Vec<usize> = (0..ids.len()).filter(|&i| ids[i] as usize == e).collect();
        let xs: Vec<&[f32]> = chosen.iter().map(|i| row(values, i / k, dim)).collect();
        let mut h = biased(1, e, product(&xs, up, e), hidden); // [chosen, hidden]
        match gate {
            Some(gate) => {
                for (u, g) in h.iter_mut().zip(biased(0, e, product(&xs, gate, e), hidden)) {
                    let (f, by) = gated(experts.gating, &f, f64::from(g), f64::from(*u))?;
                    *u = f as f32 * by as f32;
                }
            }
            None => h.iter_mut().for_each(|u| *u = f(f64::from(*u)) as f32),
        }
        let hs: Vec<&[f32]> = (0..chosen.len()).map(|i| row(&h, i, hidden)).collect();
        let ys = biased(2, e, product(&hs, down, e), dim); // [chosen, dim]
        for (i, &place) in chosen.iter().enumerate() {
            let share = f64::from(shares[place]);
            let to = &mut sums[place / k * dim..][..dim];
            to.iter_mut().zip(row(&ys, i, dim)).for_each(|(to, &y)| *to += share * f64::from(y));
        }
    }
    Ok(make(x.shape(), sums.into_iter().map(|v| v as f32).collect()))
}
