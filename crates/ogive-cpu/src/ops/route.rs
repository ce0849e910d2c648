//! Choosing experts. Rows are few and experts hundreds at most, so this is written to be read.

use super::best::key;
use super::{make, math, read};
use ogive_backend::{RouterSpec, Routing, Scoring, is_near};
use ogive_tensor::{Error, Result, Tensor};

/// The `k` of `among` with the largest score, best first, ties to the one that comes first; NaN counts as the least. A stable sort.
fn best(among: impl Iterator<Item = usize>, k: usize, score: impl Fn(usize) -> f32) -> Vec<usize> {
    let mut order: Vec<usize> = among.collect();
    // Both zeros are equal.
    order.sort_by(|&a, &b| (key(score(b)) + 0.0).total_cmp(&(key(score(a)) + 0.0)));
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
        // By themselves; what is chosen has another score in the end.
        Scoring::SparseMixer { .. } => Ok(row.to_vec()),
        other => Err(Error::unsupported("route", format!("the CPU backend has no scoring {other:?}"))),
    }
}

/// The scores of these experts, where each is the best of those that come behind it.
fn mixed(row: &[f32], mut scores: Vec<f32>, chosen: &[usize], within: f32) -> Vec<f32> {
    for (i, &e) in chosen.iter().enumerate() {
        let open = row.iter().enumerate().filter(|(other, _)| !chosen[..i].contains(other));
        let near = open.filter(|(_, logit)| is_near(row[e], **logit, within));
        scores[e] = near.map(|(_, logit)| math::exp(logit - row[e])).sum::<f32>().recip();
    }
    scores
}

pub(crate) fn route(logits: &Tensor, spec: &RouterSpec) -> Result<Routing> {
    let (n, experts, [groups, top]) = (logits.shape().rows(), logits.shape().cols(), spec.groups);
    spec.check(experts)?;
    let bias = spec.bias.as_ref().map(|b| read("route", b)).transpose()?;
    let size = experts / groups;
    let (mut ids, mut weights) = (Vec::new(), Vec::new());
    for row in read("route", logits)?.chunks_exact(experts.max(1)) {
        let scores = scores(row, spec.scoring)?;
        let choice = |e: usize| scores[e] + bias.map_or(0.0, |bias| bias[e]);
        let open = (top < groups).then(|| {
            let worth = |g: usize| {
                let members = best(g * size..(g + 1) * size, spec.group_best, choice);
                members.into_iter().map(choice).sum::<f32>()
            };
            best(0..groups, top, worth)
        });
        let is_open = |e: &usize| open.as_ref().is_none_or(|open| open.contains(&(e / size)));
        let chosen = best((0..experts).filter(is_open), spec.k, choice);
        let scores = match spec.scoring {
            Scoring::SparseMixer { within } => mixed(row, scores, &chosen, within),
            _ => scores,
        };
        // In double precision: a sum of scores below the least normal number would not divide them to one.
        let sum: f64 = chosen.iter().map(|&e| f64::from(scores[e])).sum();
        // Scores that all underflow weigh nothing; they are no reason for NaN.
        let sum = if spec.normalise { sum.max(f64::MIN_POSITIVE) } else { 1.0 };
        let weight = |&e: &usize| (f64::from(scores[e]) / sum * f64::from(spec.scale)) as f32;
        weights.extend(chosen.iter().map(weight));
        ids.extend(chosen.iter().map(|&e| e as u32));
    }
    let shape = logits.shape().with_cols(spec.k);
    if ids.len() != n * spec.k {
        return Err(Error::invalid("route", "there are no experts to choose from"));
    }
    Ok(Routing { ids: Tensor::new(shape, ids), weights: make(shape, weights) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CpuBackend;
    use ogive_backend::Backend;

    #[test]
    fn shares_of_the_smallest_scores_add_up_to_one() {
        let b = CpuBackend::builder().threads(1).build().unwrap();
        let logits = b.upload(&[-88.5, -95.0, -88.0, -90.0], [1, 4].into()).unwrap();
        let routing = b.route(&logits, &RouterSpec::new(2, Scoring::Sigmoid)).unwrap();
        let shares = b.download(&routing.weights).unwrap();
        // e^-88 and e^-88.5, neither of which is a normal number.
        let want = 1.0 / (1.0 + (-0.5f32).exp());
        assert!((shares[0] - want).abs() < 1e-4 && (shares[0] + shares[1] - 1.0).abs() < 1e-6, "{shares:?}");
    }
}
