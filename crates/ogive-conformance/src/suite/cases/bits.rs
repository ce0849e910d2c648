//! The promise that a row's result is bit for bit the same, whatever else is in the step and however a prompt is cut.
//! The backend is compared with itself: it may compute what it likes, as long as it is always the same.

use super::attend_cache::{BASE, Choice, MIXED, Setting};
use super::linear::STRANGER;
use super::sequences::Sequences;
use super::{Case, up};
use crate::suite::lab::Lab;
use crate::suite::{Body, Options};
use ogive_backend::tensor::{Format, Result, Tensor};
use ogive_backend::{
    Activation, Axis, Backend, Batch, CacheSpec, Experts, LayerCache, Rope, RouterSpec, Scoring,
};
use std::ops::Range;

/// A case that is skipped, visibly, where the promise is not made.
fn promised(name: String, body: impl Fn(&mut Lab<'_>) -> Result<()> + Send + Sync + 'static) -> Case {
    let body: Body = Box::new(body);
    Case::new(name, move |lab| {
        if lab.options.bit_exact_batching {
            body(lab)
        } else {
            lab.skip("equal bits in every batch are not promised");
            Ok(())
        }
    })
}

/// Some of the rows at a time.
type Part<'a> = &'a dyn Fn(&dyn Backend, Range<usize>) -> Result<Tensor>;

/// Rows, and how many at a time.
const ROWS: usize = 67;
const CUTS: [usize; 7] = [1, 2, 7, 8, 16, 33, 66];

/// Computes all rows at once and in parts of several sizes.
fn cut(lab: &mut Lab<'_>, what: &str, part: Part<'_>) {
    let all = lab.on_subject(what, &|b| Ok(vec![part(b, 0..ROWS)?]));
    let Some(all) = all.and_then(|mut all| all.pop()) else { return };
    for size in CUTS {
        let parts = lab.on_subject(what, &|b| {
            (0..ROWS).step_by(size).map(|at| part(b, at..ROWS.min(at + size))).collect()
        });
        if let Some(parts) = parts {
            let values: Vec<f32> = parts.into_iter().flat_map(|p| p.values).collect();
            lab.same_bits(&format!("{what}, {size} rows at a time"), &values, &all.values);
        }
    }
}

/// Those rows of `x`.
fn some(b: &dyn Backend, x: &[f32], cols: usize, rows: Range<usize>) -> Result<Tensor> {
    up(b, &x[rows.start * cols..rows.end * cols], &[rows.len(), cols])
}

pub(super) fn add(cases: &mut Vec<Case>, options: &Options) {
    for format in options.formats.iter().copied().chain([&STRANGER]) {
        cases.push(promised(format!("bits/linear/{}", format.name), move |lab| products(lab, format)));
    }
    for &format in &options.formats {
        cases.push(promised(format!("bits/moe/{}", format.name), move |lab| mixture(lab, format)));
    }

    cases.push(promised("bits/norms-and-functions".into(), |lab| {
        for cols in [40, 67] {
            let (x, y, w) =
                (lab.random.normal(ROWS * cols), lab.random.normal(ROWS * cols), lab.random.normal(cols));
            let factors = |b: &dyn Backend| up(b, &w, &[cols]);
            cut(lab, "rms_norm", &|b, r| b.rms_norm(&some(b, &x, cols, r)?, &factors(b)?, 1e-5));
            cut(lab, "layer_norm", &|b, r| {
                b.layer_norm(&some(b, &x, cols, r)?, &factors(b)?, Some(&factors(b)?), 1e-5)
            });
            cut(lab, "add_rms_norm", &|b, r| {
                let (x, y) = (some(b, &x, cols, r.clone())?, some(b, &y, cols, r)?);
                Ok(b.add_rms_norm(x, &y, &factors(b)?, 1e-5)?.1)
            });
            cut(lab, "sum", &|b, r| b.sum(&some(b, &x, cols, r)?));
            for f in [
                Activation::Silu,
                Activation::Gelu,
                Activation::GeluTanh,
                Activation::QuickGelu,
                Activation::Softplus,
                Activation::Sigmoid,
                Activation::Relu,
                Activation::ReluSquared,
            ] {
                cut(lab, &format!("gated, {f:?}"), &|b, r| {
                    b.gated(some(b, &x, cols, r.clone())?, &some(b, &y, cols, r)?, f)
                });
            }
            cut(lab, "rope", &|b, r| {
                let at: Vec<u32> = r.clone().map(|p| 3 * p as u32).collect();
                let plan = b.plan(super::lookup::positions(&at))?;
                b.rope(
                    some(b, &x, cols, r.clone())?.reshape([r.len(), 1, cols])?,
                    &Rope::new([1.0, 0.3, 0.01]),
                    &plan,
                )
            });
        }
        Ok(())
    }));

    for &element in &options.elements {
        let choices: [(&str, &[Choice]); 4] = [
            ("causal", &[Choice::Causal]),
            ("window", &[Choice::Causal, Choice::Window(37)]),
            ("chunks", &[Choice::Causal, Choice::Chunk(37)]),
            ("sinks-and-cap", &[Choice::Causal, Choice::SoftCap, Choice::Sinks, Choice::Alibi]),
        ];
        for (name, options) in choices {
            let setting = Setting { element, options, block_len: 16, steps: MIXED, ..BASE };
            cases.push(promised(format!("bits/attend_cache/{name}/{}-cache", element.name), move |lab| {
                attention(lab, &setting)
            }));
        }
    }

    cases.push(promised("bits/recurrent".into(), |lab| {
        let (dim, m) = (9, 4);
        let x = lab.random.normal(TOKENS * dim);
        let dt: Vec<f32> = (0..TOKENS * dim).map(|_| lab.random.between(0.01, 1.0)).collect();
        let (bs, cs) = (lab.random.normal(TOKENS * m), lab.random.normal(TOKENS * m));
        let (taps, a) = (lab.random.normal(4 * dim), vec![-0.7; dim * m]);
        // A head of keys for three of values.
        let (k_dim, v_dim) = (5, 3);
        let keys = [(); 2].map(|()| lab.random.normal(TOKENS * k_dim));
        let betas: Vec<f32> = (0..TOKENS * 3).map(|_| lab.random.between(0.0, 1.0)).collect();
        let states = [3 * dim, dim * m, dim * k_dim].map(|len| LayerCache::State { len });
        let spec = CacheSpec::new(states.into(), 1, 0, 16);
        sequences(lab, "causal_conv", &spec, dim, &|b, cache, step| {
            let x = step.of(b, &x, dim)?;
            b.causal_conv(0, &x, &up(b, &taps, &[4, dim])?, cache, &step.plan)
        });
        sequences(lab, "selective_scan", &spec, dim, &|b, cache, step| {
            let (x, dt) = (step.of(b, &x, dim)?, step.of(b, &dt, dim)?);
            let (bs, cs) = (step.of(b, &bs, m)?, step.of(b, &cs, m)?);
            b.selective_scan(1, &x, &dt, &up(b, &a, &[dim, m])?, &bs, &cs, cache, &step.plan)
        });
        sequences(lab, "linear_attention", &spec, dim, &|b, cache, step| {
            let n = step.plan.batch().tokens.len();
            let of_length_one = up(b, &[(k_dim as f32).powf(-0.5); 5], &[k_dim])?;
            let key =
                |x: &[f32]| b.rms_norm(&step.of(b, x, k_dim)?.reshape([n, 1, k_dim])?, &of_length_one, 1e-6);
            let (q, k) = (key(&keys[0])?, key(&keys[1])?);
            let (v, beta) = (step.of(b, &x, dim)?.reshape([n, 3, v_dim])?, step.of(b, &betas, 3)?);
            let g = b.mul(step.of(b, &betas, 3)?, &up(b, &[-1.0], &[1])?)?;
            b.linear_attention(2, &q, &k, &v, &g, Some(&beta), cache, &step.plan)?.reshape([n, dim])
        });
        sequences(lab, "linear_attention without beta", &spec, dim, &|b, cache, step| {
            let n = step.plan.batch().tokens.len();
            let key = |x: &[f32]| step.of(b, x, k_dim)?.reshape([n, 1, k_dim]);
            let (q, k, v) = (key(&keys[0])?, key(&keys[1])?, step.of(b, &x, dim)?.reshape([n, 3, v_dim])?);
            let g = b.mul(step.of(b, &betas, 3)?, &up(b, &[-1.0], &[1])?)?;
            b.linear_attention(2, &q, &k, &v, &g, None, cache, &step.plan)?.reshape([n, dim])
        });
        Ok(())
    }));
}

fn products(lab: &mut Lab<'_>, format: &'static Format) -> Result<()> {
    for (rows, blocks) in [(1, 1), (50, 3), (131, 2)] {
        let cols = if format.block_len == 1 { 1 + 77 * (blocks - 1) } else { blocks * format.block_len };
        let w = lab.subject().upload_weight(&lab.random.weight([1, rows, cols], format)?)?;
        let x = lab.random.normal(ROWS * cols);
        let what = |name: &str| format!("{name} of {cols} to {rows}");
        cut(lab, &what("linear"), &|b, r| b.linear(&some(b, &x, cols, r)?, &w));
        cut(lab, &what("linear_many"), &|b, r| {
            let ys = b.linear_many(&some(b, &x, cols, r)?, &[&w, &w])?;
            b.concat(&ys.iter().collect::<Vec<_>>(), Axis::Cols)
        });
        cut(lab, &what("linear_gated"), &|b, r| {
            b.linear_gated(&some(b, &x, cols, r)?, &w, &w, Activation::Silu)
        });
    }
    Ok(())
}

fn mixture(lab: &mut Lab<'_>, format: &'static Format) -> Result<()> {
    let dim = if format.block_len == 1 { 24 } else { format.block_len };
    let mut stack = || lab.subject().upload_weight(&lab.random.weight([5, dim, dim], format)?);
    let mut experts = Experts::new([stack()?, stack()?, stack()?], Activation::Silu);
    let (x, logits) = (lab.random.normal(ROWS * dim), lab.random.normal(ROWS * 5));
    for (name, activation) in super::moe::ACTIVATIONS {
        experts.activation = activation;
        cut(lab, &format!("moe with {name}"), &|b, r| {
            let (x, logits) = (some(b, &x, dim, r.clone())?, some(b, &logits, 5, r)?);
            b.moe(&x, &logits, &RouterSpec::new(2, Scoring::Softmax), &experts)
        });
    }
    let ungated = Experts::ungated([experts.up, experts.down], Activation::ReluSquared);
    cut(lab, "moe without gates", &|b, r| {
        let (x, logits) = (some(b, &x, dim, r.clone())?, some(b, &logits, 5, r)?);
        b.moe(&x, &logits, &RouterSpec::new(2, Scoring::Softmax), &ungated)
    });
    Ok(())
}

/// Tokens of the sequence that is watched.
const TOKENS: usize = 300;

/// A step of which the first span is part of the sequence that is watched.
struct Step {
    plan: ogive_backend::Plan,
    rows: Range<usize>,
}

impl Step {
    /// The step's rows of `x`, which has rows for the watched sequence; the others get numbers of their own.
    fn of(&self, b: &dyn Backend, x: &[f32], cols: usize) -> Result<Tensor> {
        let mut rows = x[self.rows.start * cols..self.rows.end * cols].to_vec();
        let others = self.plan.batch().tokens.len() - self.rows.len();
        rows.extend((0..others * cols).map(|i| ((i * 37 % 101) as f32 - 50.0) / 20.0));
        up(b, &rows, &[self.rows.len() + others, cols])
    }
}

type Operator<'a> = &'a dyn Fn(&dyn Backend, &ogive_backend::Cache, &Step) -> Result<Tensor>;

/// Runs the watched sequence whole, cut several ways, alone and beside others, and compares its rows.
fn sequences(lab: &mut Lab<'_>, what: &str, spec: &CacheSpec, cols: usize, operator: Operator<'_>) {
    let mut whole: Option<Vec<f32>> = None;
    for (chunk, others, nobody) in
        [(TOKENS, 0, 0), (1, 0, 0), (7, 0, 0), (7, 7, 3), (1, 7, 0), (64, 2, 0), (256, 1, 5)]
    {
        let mut all = Sequences::new(&mut lab.random, spec, 8);
        let steps: Vec<(Batch, Range<usize>)> = (0..TOKENS)
            .step_by(chunk)
            .map(|at| {
                let rows = at..TOKENS.min(at + chunk);
                // The others have pasts of their own.
                let work: Vec<_> =
                    [(0, rows.len())].into_iter().chain((1..=others).map(|s| (s, 1))).collect();
                (all.step(&work, nobody), rows)
            })
            .collect();
        let what = format!("{what}, {chunk} tokens at a time beside {others} others");
        let got = lab.on_subject(&what, &|b| {
            let cache = b.new_cache(spec)?;
            let step = |(batch, rows): &(Batch, Range<usize>)| {
                let rest = batch.tokens.len() - rows.len();
                let y = operator(b, &cache, &Step { plan: b.plan(batch.clone())?, rows: rows.clone() })?;
                Ok(b.split(&y, Axis::Rows, &[rows.len(), rest])?.swap_remove(0))
            };
            steps.iter().map(step).collect()
        });
        let Some(got) = got else { return };
        let got: Vec<f32> = got.into_iter().flat_map(|h| h.values).collect();
        lab.check(got.len() == TOKENS * cols, || format!("{what}: {} values", got.len()));
        match &whole {
            Some(whole) => lab.same_bits(&what, &got, whole),
            None => whole = Some(got),
        }
    }
}

fn attention(lab: &mut Lab<'_>, setting: &Setting) -> Result<()> {
    let (qs, kvs) = (setting.heads * setting.k_dim, setting.kv_heads * setting.k_dim);
    let spec = setting.cache().blocks(vec![200]);
    let [q, k, v] = [qs, kvs, kvs].map(|cols| lab.random.normal(TOKENS * cols));
    sequences(lab, "attend_cache", &spec, setting.heads * setting.v_dim, &|b, cache, step| {
        b.store_kv(0, &step.of(b, &k, kvs)?, Some(&step.of(b, &v, kvs)?), cache, &step.plan)?;
        b.attend_cache(0, &step.of(b, &q, qs)?, cache, &setting.spec_without_mask(b)?, &step.plan)
    });
    Ok(())
}
