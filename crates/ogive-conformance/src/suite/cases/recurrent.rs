//! States and the operators that run along a sequence.

use super::sequences::Sequences;
use super::{Case, owned, up};
use crate::suite::lab::Lab;
use ogive_backend::tensor::{Result, Tensor};
use ogive_backend::{Activation, Backend, Batch, Cache, CacheSpec, LayerCache, Plan};

type Work = &'static [(&'static [(usize, usize)], usize)];

/// Prompts, single tokens, several sequences, rows of nobody.
const STEPS: Work = &[
    (&[(0, 4), (1, 1)], 0),
    (&[(1, 2), (0, 1), (2, 9)], 2),
    (&[(0, 1), (1, 1), (2, 1)], 1),
    (&[(2, 1)], 0),
    (&[(0, 7), (2, 2)], 0),
];

/// Sequences that get no token, between others and alone, and steps of no sequence.
const EMPTY: Work = &[
    (&[(0, 4), (1, 0), (2, 1)], 0),
    (&[(1, 0), (0, 0)], 2),
    (&[(0, 0)], 0),
    (&[], 3),
    (&[], 0),
    (&[(0, 1), (1, 2), (2, 0)], 1),
];

/// Prompts that a kernel may take in parts, and what goes on after them.
const LONG: Work = &[(&[(0, 150), (1, 3)], 0), (&[(1, 70), (0, 1)], 1)];

pub(super) fn add(cases: &mut Vec<Case>) {
    cases.push(Case::new("state/read-one-slot-write-the-other", |lab| {
        let spec = CacheSpec::new(vec![LayerCache::State { len: 5 }, LayerCache::State { len: 3 }], 1, 0, 8);
        let batches = batches(lab, &spec, STEPS);
        let numbers: Vec<_> = batches.iter().map(|b| lab.random.normal(b.spans.len() * 5)).collect();
        for again in [false, true] {
            lab.same(if again { "each step twice" } else { "each step" }, lab.moved(), &|b| {
                let (cache, mut seen) = (b.new_cache(&spec)?, Vec::new());
                for (batch, numbers) in batches.iter().zip(&numbers) {
                    let (plan, n) = (b.plan(batch.clone())?, batch.spans.len());
                    for _ in 0..=usize::from(again) {
                        seen.extend([b.read_state(0, &cache, &plan)?, b.read_state(1, &cache, &plan)?]);
                        b.write_state(0, &up(b, numbers, &[n, 5])?, &cache, &plan)?;
                        b.write_state(1, &up(b, &numbers[..n * 3], &[n, 3])?, &cache, &plan)?;
                        // Reading after writing still gives what the step began with.
                        seen.push(b.read_state(0, &cache, &plan)?);
                    }
                }
                Ok(seen)
            });
        }
        Ok(())
    }));

    cases.push(Case::new("state/refused", |lab| {
        let setup = |b: &dyn Backend| {
            let spec = CacheSpec::new(vec![LayerCache::State { len: 4 }, LayerCache::full(4, 4)], 2, 4, 2);
            let mut batch = super::cache::one(2);
            batch.spans[0].past = 1;
            Ok((b.new_cache(&spec)?, batch, up(b, &[1.0; 8], &[2, 4])?))
        };
        let planned = |f: fn(&dyn Backend, &Cache, &Plan, &Tensor) -> Result<()>, edit: fn(&mut Batch)| {
            move |b: &dyn Backend, (cache, mut batch, x): (Cache, Batch, Tensor)| {
                edit(&mut batch);
                f(b, &cache, &b.plan(batch)?, &x)
            }
        };
        let first =
            |b: &dyn Backend, x: &Tensor| Ok(b.split(x, ogive_backend::Axis::Rows, &[1, 1])?.swap_remove(0));
        lab.refuses("a layer of pages", setup, planned(|b, c, p, _| b.read_state(1, c, p).map(drop), |_| {}));
        lab.refuses("no such layer", setup, planned(|b, c, p, _| b.read_state(2, c, p).map(drop), |_| {}));
        lab.refuses(
            "states for more sequences",
            setup,
            planned(|b, c, p, x| b.write_state(0, x, c, p), |_| {}),
        );
        let too_short = |b: &dyn Backend, (cache, batch, x): (Cache, Batch, Tensor)| {
            let part = b.split(&first(b, &x)?, ogive_backend::Axis::Cols, &[3, 1])?.swap_remove(0);
            b.write_state(0, &part, &cache, &b.plan(batch)?)
        };
        lab.refuses("a state too short", setup, too_short);
        lab.refuses(
            "reading past the slots",
            setup,
            planned(|b, c, p, _| b.read_state(0, c, p).map(drop), |batch| batch.spans[0].slots[0] = 2),
        );
        let past = move |b: &dyn Backend, (cache, mut batch, x): (Cache, Batch, Tensor)| {
            batch.spans[0].slots[1] = 2;
            b.write_state(0, &first(b, &x)?, &cache, &b.plan(batch)?)
        };
        lab.refuses("writing past the slots", setup, past);
        Ok(())
    }));

    cases.push(Case::new("causal_conv", |lab| {
        for (dim, width) in [(1, 2), (6, 4), (67, 4), (5, 1), (8, 7)] {
            let w = lab.random.normal(width * dim);
            run(
                lab,
                &format!("{dim} channels, {width} wide"),
                STEPS,
                [dim; 1],
                (width - 1) * dim,
                &|b, cache, plan, xs| b.causal_conv(0, &xs[0], &up(b, &w, &[width, dim])?, cache, plan),
            );
        }
        Ok(())
    }));

    cases.push(Case::new("selective_scan", |lab| {
        for (dim, m) in [(1, 1), (6, 4), (33, 16), (5, 1)] {
            let a: Vec<f32> = (0..dim * m).map(|_| -lab.random.between(0.1, 4.0)).collect();
            let what = format!("{dim} channels of {m}");
            run(lab, &what, STEPS, [dim, dim, m, m], dim * m, &|b, cache, plan, xs| {
                // Steps in time are positive, as softplus makes them.
                let dt = b.activate(xs[1].clone(), Activation::Softplus)?;
                b.selective_scan(0, &xs[0], &dt, &up(b, &a, &[dim, m])?, &xs[2], &xs[3], cache, plan)
            });
        }
        Ok(())
    }));

    cases.push(Case::new("linear_attention", |lab| {
        // Odd sizes, values wider than any register, and heads as models have them.
        let odd = [[1, 1, 1, 1], [2, 4, 8, 16], [1, 3, 5, 7], [2, 2, 16, 83], [2, 6, 33, 20]];
        for shape in odd.into_iter().chain([[1, 2, 128, 128]]) {
            let [key_heads, heads, k_dim, v_dim] = shape;
            let what = format!("{heads} heads of {k_dim} by {v_dim}, {key_heads} of keys");
            let (widths, state) = (widths(shape), heads * k_dim * v_dim);
            run(lab, &what, STEPS, widths, state, &|b, cache, plan, xs| space(b, shape, cache, plan, xs));
            run(lab, &format!("{what}, by the delta rule"), STEPS, widths, state, &|b, cache, plan, xs| {
                delta(b, shape, cache, plan, xs)
            });
        }
        Ok(())
    }));

    for (name, steps) in [("recurrent/no-tokens", EMPTY), ("recurrent/long-prompts", LONG)] {
        cases.push(Case::new(name, move |lab| {
            let (w, a) = (lab.random.normal(4 * 6), vec![-0.7; 6 * 2]);
            run(lab, "causal_conv", steps, [6; 1], 3 * 6, &|b, cache, plan, xs| {
                b.causal_conv(0, &xs[0], &up(b, &w, &[4, 6])?, cache, plan)
            });
            run(lab, "selective_scan", steps, [6, 6, 2, 2], 6 * 2, &|b, cache, plan, xs| {
                let dt = b.activate(xs[1].clone(), Activation::Softplus)?;
                b.selective_scan(0, &xs[0], &dt, &up(b, &a, &[6, 2])?, &xs[2], &xs[3], cache, plan)
            });
            let shape = [1, 2, 4, 3];
            run(lab, "linear_attention", steps, widths(shape), 2 * 4 * 3, &|b, cache, plan, xs| {
                space(b, shape, cache, plan, xs)
            });
            run(lab, "the delta rule", steps, widths(shape), 2 * 4 * 3, &|b, cache, plan, xs| {
                delta(b, shape, cache, plan, xs)
            });
            Ok(())
        }));
    }

    cases.push(Case::new("recurrent/refused", |lab| {
        let setup = |b: &dyn Backend| {
            let spec = CacheSpec::new(vec![LayerCache::State { len: 6 }], 1, 0, 2);
            Ok((b.new_cache(&spec)?, b.plan(super::cache::one(2))?, up(b, &[1.0; 6], &[2, 3])?))
        };
        lab.refuses("causal_conv with too few channels", setup, |b, (cache, plan, x)| {
            b.causal_conv(0, &x, &up(b, &[1.0; 6], &[3, 2])?, &cache, &plan)
        });
        lab.refuses("causal_conv with another state", setup, |b, (cache, plan, x)| {
            b.causal_conv(0, &x, &up(b, &[1.0; 12], &[4, 3])?, &cache, &plan)
        });
        lab.refuses("selective_scan with another state", setup, |b, (cache, plan, x)| {
            let (a, bc) = (up(b, &[1.0; 3], &[3, 1])?, up(b, &[1.0; 2], &[2, 1])?);
            b.selective_scan(0, &x, &x, &a, &bc, &bc, &cache, &plan)
        });
        // Two rows of keys, of values and of what is one for each head, over the same state of six elements.
        let delta = |[keys, k_dim, heads, v_dim, gates]: [usize; 5]| {
            move |b: &dyn Backend, (cache, plan, _): (Cache, Plan, Tensor)| {
                let tensor = |dims: &[usize]| up(b, &vec![0.5; dims.iter().product()], dims);
                let (k, v) = (tensor(&[2, keys, k_dim])?, tensor(&[2, heads, v_dim])?);
                let (g, beta) = (tensor(&[2, heads])?, tensor(&[2, gates])?);
                b.linear_attention(0, &k, &k, &v, &g, (gates > 0).then_some(&beta), &cache, &plan)
            }
        };
        lab.refuses("linear_attention without beta and with another state", setup, delta([1, 2, 2, 2, 0]));
        lab.refuses("linear_attention with another state", setup, delta([1, 2, 2, 2, 2]));
        lab.refuses("linear_attention with heads that keys do not share", setup, delta([2, 1, 3, 2, 3]));
        lab.refuses("linear_attention without heads of keys", setup, delta([0, 1, 3, 2, 3]));
        lab.refuses("linear_attention with too few betas", setup, delta([1, 1, 3, 2, 2]));
        Ok(())
    }));
}

/// What a row of each input of linear attention has, for heads of keys, heads, and elements of a key and of a value.
fn widths([key_heads, heads, k_dim, v_dim]: [usize; 4]) -> [usize; 5] {
    [key_heads * k_dim, key_heads * k_dim, heads * v_dim, heads, heads]
}

/// The duality of Mamba-2 as models have it: values that steps in time scale, by which states decay too.
fn space(
    b: &dyn Backend,
    [key_heads, heads, k_dim, v_dim]: [usize; 4],
    cache: &Cache,
    plan: &Plan,
    xs: &[Tensor],
) -> Result<Tensor> {
    let n = xs[0].shape().first();
    let [q, k] = [0, 1].map(|i| xs[i].clone().reshape([n, key_heads, k_dim]));
    let dt = b.activate(xs[3].clone(), Activation::Softplus)?;
    let v = b.mul(xs[2].clone().reshape([n * heads, v_dim])?, &dt.clone().reshape([n * heads, 1])?)?;
    let g = b.mul(dt, &up(b, &[-0.7], &[1])?)?;
    b.linear_attention(0, &q?, &k?, &v.reshape([n, heads, v_dim])?, &g, None, cache, plan)
}

/// The delta rule as models have it: keys and queries of length one, states that decay, shares between nothing and all.
fn delta(
    b: &dyn Backend,
    [key_heads, heads, k_dim, v_dim]: [usize; 4],
    cache: &Cache,
    plan: &Plan,
    xs: &[Tensor],
) -> Result<Tensor> {
    let (n, length) = (xs[0].shape().first(), vec![(k_dim as f32).powf(-0.5); k_dim]);
    let length = up(b, &length, &[k_dim])?;
    let key = |x: &Tensor| b.rms_norm(&x.clone().reshape([n, key_heads, k_dim])?, &length, 1e-6);
    let (q, k, v) = (key(&xs[0])?, key(&xs[1])?, xs[2].clone().reshape([n, heads, v_dim])?);
    let g = b.mul(b.activate(xs[3].clone(), Activation::Softplus)?, &up(b, &[-1.0], &[1])?)?;
    let beta = b.activate(xs[4].clone(), Activation::Sigmoid)?;
    b.linear_attention(0, &q, &k, &v, &g, Some(&beta), cache, plan)
}

fn batches(lab: &mut Lab<'_>, spec: &CacheSpec, steps: Work) -> Vec<Batch> {
    let mut sequences = Sequences::new(&mut lab.random, spec, spec.slots / 2);
    let mut batches: Vec<Batch> = steps.iter().map(|(work, nobody)| sequences.step(work, *nobody)).collect();
    // A new sequence in slots that an old one has used, and the old one's neighbour.
    sequences.restart(0);
    batches.extend([sequences.step(&[(0, 2), (2, 1)], 1), sequences.step(&[(2, 1), (0, 1)], 0)]);
    batches
}

type Operator<'a> = &'a dyn Fn(&dyn Backend, &Cache, &Plan, &[Tensor]) -> Result<Tensor>;

/// Runs an operator whose inputs have these widths, each step once and each step twice, and compares what comes out and
/// what is left in the states.
fn run<const N: usize>(
    lab: &mut Lab<'_>,
    what: &str,
    steps: Work,
    widths: [usize; N],
    state: usize,
    operator: Operator<'_>,
) {
    let spec = CacheSpec::new(vec![LayerCache::State { len: state }], 1, 0, 8);
    let batches = batches(lab, &spec, steps);
    let inputs: Vec<[Vec<f32>; N]> =
        batches.iter().map(|b| widths.map(|w| lab.random.normal(b.tokens.len() * w))).collect();
    for times in [1, 2] {
        lab.defined(&format!("{what}, {times} times"), lab.exact(), &|b| {
            let (cache, mut seen) = (b.new_cache(&spec)?, Vec::new());
            for (batch, inputs) in batches.iter().zip(&inputs) {
                let plan = b.plan(batch.clone())?;
                let rows = batch.tokens.len();
                let xs = inputs
                    .iter()
                    .zip(widths)
                    .map(|(x, w)| up(b, x, &[rows, w]))
                    .collect::<Result<Vec<_>>>()?;
                for _ in 0..times {
                    seen.push(owned(b, &operator(b, &cache, &plan, &xs)?, batch)?);
                }
            }
            // The states that the last step of each sequence left.
            let mut after = batches[batches.len() - 1].clone();
            after.spans.iter_mut().for_each(|s| s.slots.swap(0, 1));
            seen.push(b.read_state(0, &cache, &b.plan(after)?)?);
            Ok(seen)
        });
    }
}
