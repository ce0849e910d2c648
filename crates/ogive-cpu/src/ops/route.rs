//! Choosing experts. Rows are few and experts hundreds at most, so this is written to be read.

use super::{make, math, read};
use ogive_backend::{RouterSpec, Routing, Scoring};
use ogive_tensor::{Error, Result, Tensor};

/// The indices of the `k` largest, best first, ties to the lower index.
fn best(x: &[f32], k: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..x.len()).collect();
    order.sort_by(|&a, &b| (x[b] + 0.0).total_cmp(&(x[a] + 0.0)).then(a.cmp(&b)));
    order.truncate(k);
    order
}

fn scores(row: &[f32], scoring: Scoring) -> Result<Vec<f32>> {
    match scoring {
        Scoring::Softmax => {
            let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let mut p: Vec<f32> = row.iter().map(|v| math::exp(v - max)).collect();
            let total: f32 = p.iter().sum();
            p.iter_mut().for_each(|v| *v /= total);
            Ok(p)
        }
        Scoring::Sigmoid => Ok(row.iter().map(|v| math::sigmoid(*v)).collect()),
        other => Err(Error::unsupported("route", format!("the CPU backend has no scoring {other:?}"))),
    }
}

pub(crate) fn route(logits: &Tensor, spec: &RouterSpec) -> Result<Routing> {
    let (n, experts, [groups, top]) = (logits.shape().rows(), logits.shape().cols(), spec.groups);
    if spec.k == 0 || groups == 0 || experts % groups != 0 || top > groups || spec.k > experts / groups * top
    {
        let why = format!("{} of {experts} experts in {top} of {groups} groups cannot be chosen", spec.k);
        return Err(Error::invalid("route", why));
    }
    let bias = spec.bias.as_ref().map(|b| read("route", b)).transpose()?;
    if let Some(b) = bias.filter(|b| b.len() != experts) {
        return Err(Error::shape("route", logits.shape(), [b.len()].into()));
    }
    let size = experts / groups;
    let (mut ids, mut weights) = (Vec::new(), Vec::new());
    for row in read("route", logits)?.chunks_exact(experts.max(1)) {
        let scores = scores(row, spec.scoring)?;
        let mut choice = scores.clone();
        if let Some(bias) = bias {
            choice.iter_mut().zip(bias).for_each(|(c, b)| *c += b);
        }
        if top < groups {
            let worth = |g: &[f32]| best(g, spec.group_best).iter().map(|&e| g[e]).sum::<f32>();
            let open = best(&choice.chunks_exact(size.max(1)).map(worth).collect::<Vec<_>>(), top);
            for (g, group) in choice.chunks_exact_mut(size.max(1)).enumerate() {
                if !open.contains(&g) {
                    group.fill(f32::NEG_INFINITY);
                }
            }
        }
        let chosen = best(&choice, spec.k);
        let sum: f32 = if spec.normalise { chosen.iter().map(|&e| scores[e]).sum() } else { 1.0 };
        weights.extend(chosen.iter().map(|&e| scores[e] / sum * spec.scale));
        ids.extend(chosen.iter().map(|&e| e as u32));
    }
    let shape = logits.shape().with_cols(spec.k);
    if ids.len() != n * spec.k {
        return Err(Error::invalid("route", "there are no experts to choose from"));
    }
    Ok(Routing { ids: Tensor::new(shape, ids), weights: make(shape, weights) })
}
