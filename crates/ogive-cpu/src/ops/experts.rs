//! Rows are grouped by expert, so that a step reads each expert's weights once, and several experts are multiplied in one fork and join:
//! all of them where tokens come one by one, and of a prompt as many as have enough rows together for every thread. The grouping cannot
//! be seen in the result: a product's bits do not depend on the rows beside it, and each row adds its experts in their own order.

use super::{elementwise, make_in, math::Function, read};
use crate::{
    CpuBackend, held,
    linear::{self, Part},
    simd::Path,
    spare::Values,
};
use ogive_backend::{Experts, Gating, Routing};
use ogive_tensor::{Error, Result, Tensor};
use std::ops::Range;

/// Rows that are multiplied in one fork and join, for each thread: what lies between the products should stay in the caches.
const ROWS: usize = 256;

/// What happens between an expert's products, beside the activation: biases, and another gating.
struct Between {
    f: Function,
    path: Path,
    /// Of gate and up.
    bias: Option<[Tensor; 2]>,
    limit: Option<f32>,
    /// How long a row of an expert is.
    hidden: usize,
}

impl Between {
    fn of(b: &CpuBackend, w: &Experts) -> Result<Self> {
        let limit = match w.gating {
            Gating::Product => None,
            Gating::Clamped { limit } => Some(limit),
            other => {
                return Err(Error::unsupported("experts", format!("the CPU backend has no {other:?}")));
            }
        };
        let (f, path, [_, hidden, _]) = (Function::of(w.activation)?, b.path, w.up.shape());
        let bias = w.bias.as_ref().map(|[gate, up, _]| [gate.clone(), up.clone()]);
        for bias in bias.iter().flatten() {
            read("experts", bias)?;
        }
        Ok(Self { f, path, bias, limit, hidden })
    }

    /// Columns of expert `e`: what came of the gate becomes what goes to `down`.
    fn columns(&self, e: usize, cols: Range<usize>, [gates, ups]: [&mut [f32]; 2]) {
        for (values, bias) in [&mut *gates, &mut *ups].into_iter().zip(self.bias.iter().flatten()) {
            // `of` has read both.
            let Ok(bias) = read("experts", bias) else { continue };
            let bias = &bias[e * self.hidden..][cols.clone()];
            values.chunks_exact_mut(cols.len()).for_each(|row| add(row, bias));
        }
        // Comparisons, as bounds of what is no number are none.
        if let Some(limit) = self.limit {
            gates.iter_mut().for_each(|g| *g = if *g > limit { limit } else { *g });
            ups.iter_mut().for_each(|u| *u = u.clamp(-limit, limit) + 1.0);
        }
        elementwise::apply(self.path, self.f, gates);
        gates.iter_mut().zip(ups).for_each(|(g, u)| *g *= *u);
    }
}

/// Adds the first of `bias` to a row.
fn add(row: &mut [f32], bias: &[f32]) {
    row.iter_mut().zip(bias).for_each(|(v, b)| *v += b);
}

/// Experts that are multiplied together: which they are, and the places of `[n, k]` that each has.
type Round<'a> = &'a [(usize, Vec<usize>)];

pub(crate) fn experts(b: &CpuBackend, x: &Tensor, routing: &Routing, w: &Experts) -> Result<Tensor> {
    let (n, dim, k) = (x.shape().rows(), x.shape().cols(), routing.ids.shape().cols());
    let gate = w.gate.as_ref().map(held::now).transpose()?;
    let (up, down) = (held::now(&w.up)?, held::now(&w.down)?);
    w.check(dim)?;
    let [count, hidden, _] = w.up.shape();
    let (ids, shares) = (routing.ids.data::<Vec<u32>>()?, read("experts", &routing.weights)?);
    if ids.len() != n * k || shares.len() != n * k {
        return Err(Error::shape("experts", x.shape(), routing.ids.shape()));
    }
    let bias = w.bias.as_ref().map(|[.., down]| read("experts", down)).transpose()?;
    let mut places = vec![Vec::new(); count];
    for (place, &e) in ids.iter().enumerate() {
        let of = places
            .get_mut(e as usize)
            .ok_or_else(|| Error::invalid("experts", format!("a row was sent to expert {e} of {count}")))?;
        of.push(place);
    }
    let chosen: Vec<_> = places.into_iter().enumerate().filter(|(_, places)| !places.is_empty()).collect();
    let xs = read("experts", x)?;
    let mut out = b.spare.take(n * dim);
    out.fill(0.0);
    for round in rounds(&chosen, ROWS * b.pool.threads()) {
        let rows: Vec<usize> = round.iter().flat_map(|(_, places)| places).map(|place| place / k).collect();
        // One row is every expert's.
        let of_experts = if n == 1 { Vec::new() } else { gathered(b, xs, dim, &rows) };
        let parts = parts(round, |at, len| if n == 1 { xs } else { &of_experts[at * dim..][..len * dim] });
        let (between, ids) = (Between::of(b, w)?, round.iter().map(|(e, _)| *e).collect::<Vec<_>>());
        let mut h = b.spare.take(rows.len() * hidden);
        match &gate {
            Some(gate) => {
                let both = move |i: usize, cols, both: [&mut [f32]; 2]| between.columns(ids[i], cols, both);
                linear::gated_apart(&b.pool, [gate, &up], &parts, both, &mut h)?;
            }
            None => {
                let products: Vec<_> = parts.into_iter().map(|part| (&up, part)).collect();
                let f = move |values: &mut [f32]| elementwise::apply(between.path, between.f, values);
                linear::linear_apart(&b.pool, &products, f, &mut h)?;
            }
        }
        let products = self::parts(round, |at, len| &h[at * hidden..][..len * hidden]);
        let products: Vec<_> = products.into_iter().map(|part| (&down, part)).collect();
        let mut ys = b.spare.take(rows.len() * dim);
        linear::linear_apart(&b.pool, &products, |_| (), &mut ys)?;
        // Of each result the row that it goes to, its expert, its share and where it is, row by row.
        let experts =
            round.iter().flat_map(|(e, places)| places.iter().map(move |place| (*e, shares[*place])));
        let mut sums: Vec<_> =
            rows.iter().zip(experts).enumerate().map(|(i, (row, (e, share)))| (*row, i, e, share)).collect();
        sums.sort_unstable_by_key(|(row, i, ..)| (*row, *i));
        super::by_rows(b, &mut out, dim, |first, part| {
            let begin = sums.partition_point(|(row, ..)| *row < first);
            for (row, i, e, share) in &sums[begin..] {
                let Some(to) = part.chunks_exact_mut(dim).nth(row - first) else { break };
                let y = &ys[i * dim..][..dim];
                match bias {
                    Some(bias) => {
                        let with = y.iter().zip(&bias[e * dim..]);
                        to.iter_mut().zip(with).for_each(|(o, (y, bias))| *o += share * (y + bias));
                    }
                    None => to.iter_mut().zip(y).for_each(|(o, y)| *o += share * y),
                }
            }
        });
        [of_experts, h, ys].into_iter().for_each(|values| drop(Values::of(&b.spare, values)));
    }
    Ok(make_in(b, x.shape(), out))
}

/// Experts in their order, together as long as they have no more than `most` rows.
fn rounds(chosen: &[(usize, Vec<usize>)], most: usize) -> impl Iterator<Item = Round<'_>> {
    let mut rows = 0;
    chosen.chunk_by(move |before, next| {
        rows += before.1.len();
        let fits = rows + next.1.len() <= most;
        rows = if fits { rows } else { 0 };
        fits
    })
}

/// A part for each expert of a round, whose rows `x` gives from where they begin and how many they are.
fn parts<'a>(round: Round<'_>, x: impl Fn(usize, usize) -> &'a [f32]) -> Vec<Part<'a>> {
    let mut at = 0;
    let part = |(expert, places): &(usize, Vec<usize>)| {
        let n = places.len();
        at += n;
        Part { expert: *expert, x: x(at - n, n), n }
    };
    round.iter().map(part).collect()
}

/// The rows of `xs` that `rows` names.
fn gathered(b: &CpuBackend, xs: &[f32], dim: usize, rows: &[usize]) -> Vec<f32> {
    let mut all = b.spare.take(rows.len() * dim);
    super::by_rows(b, &mut all, dim, |first, part| {
        for (row, to) in rows[first..].iter().zip(part.chunks_exact_mut(dim)) {
            to.copy_from_slice(&xs[row * dim..][..dim]);
        }
    });
    all
}

#[cfg(test)]
mod tests {
    use super::rounds;

    #[test]
    fn rounds_have_as_many_rows_as_may_be_and_each_expert_once() {
        let chosen: Vec<_> = [3, 1, 4, 9, 2, 2].iter().enumerate().map(|(e, n)| (e, vec![0; *n])).collect();
        let of = |most| {
            rounds(&chosen, most)
                .map(|round| round.iter().map(|(e, _)| *e).collect())
                .collect::<Vec<Vec<_>>>()
        };
        assert_eq!(of(8), [vec![0, 1, 2], vec![3], vec![4, 5]]);
        assert_eq!(of(100), [vec![0, 1, 2, 3, 4, 5]]);
        assert_eq!(of(0), [[0], [1], [2], [3], [4], [5]]);
        assert_eq!(rounds(&[], 8).count(), 0);
    }
}
