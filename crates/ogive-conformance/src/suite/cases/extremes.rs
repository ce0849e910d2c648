//! Numbers at the edge of single precision. What comes of them may be infinite or NaN, but nothing panics, and rows are
//! independent: a row that is poisoned leaves the others as they were.

use super::sequences::Sequences;
use super::{Case, up};
use crate::suite::Options;
use crate::suite::lab::{Lab, Work};
use crate::suite::limit::Limit;
use crate::suite::random::gain;
use ogive_backend::tensor::{F32, Format, Result, Tensor};
use ogive_backend::{
    Activation, AttnSpec, Axis, Backend, CacheSpec, Experts, LayerCache, Rope, RouterSpec, Scoring,
};

const EXTREMES: [f32; 12] = [
    f32::NAN,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::MAX,
    f32::MIN,
    1e30,
    -1e30,
    1e-40,
    -1e-45,
    f32::MIN_POSITIVE,
    0.0,
    -0.0,
];

/// The rows that are left alone.
const SOUND: [usize; 2] = [0, 2];

/// Three rows, of which the second is `poison` and the others normal.
fn rows(lab: &mut Lab<'_>, cols: usize, poison: f32) -> Vec<f32> {
    let mut x = lab.random.normal(3 * cols);
    x[cols..2 * cols].iter_mut().step_by(3).for_each(|v| *v = poison);
    x
}

/// Computes on rows of which the second is poisoned by each extreme in turn, and compares the others.
fn isolated(
    lab: &mut Lab<'_>,
    limit: Limit,
    cols: usize,
    work: &dyn Fn(&dyn Backend, Tensor) -> Result<Tensor>,
) {
    for poison in EXTREMES {
        let x = rows(lab, cols, poison);
        lab.defined(&format!("{poison:e} beside it"), limit, &|b| {
            sound(b, &work(b, up(b, &x, &[3, cols])?)?)
        });
    }
}

fn sound(b: &dyn Backend, y: &Tensor) -> Result<Vec<Tensor>> {
    let mut parts = b.split(y, Axis::Rows, &[1; 3])?;
    Ok(SOUND.into_iter().rev().map(|r| parts.swap_remove(r)).collect())
}

pub(super) fn add(cases: &mut Vec<Case>, options: &Options) {
    for &format in &options.formats {
        cases.push(Case::new(format!("extremes/linear/{}", format.name), move |lab| {
            let cols = 2 * format.block_len.max(9);
            let w = lab.random.weight([1, 9, cols], format)?;
            isolated(lab, lab.product(format, gain(&w)), cols, &|b, x| b.linear(&x, &b.upload_weight(&w)?));
            let gated = lab.product(format, 0.3 * gain(&w).powi(2)).times(4.0);
            isolated(lab, gated, cols, &|b, x| {
                let w = b.upload_weight(&w)?;
                b.linear_gated(&x, &w, &w, Activation::Silu)
            });
            Ok(())
        }));
    }

    cases.push(Case::new("extremes/norms", |lab| {
        let w = lab.random.normal(40);
        let factors = |b: &dyn Backend| up(b, &w, &[40]);
        isolated(lab, lab.exact(), 40, &|b, x| b.rms_norm(&x, &factors(b)?, 1e-5));
        isolated(lab, lab.exact(), 40, &|b, x| b.layer_norm(&x, &factors(b)?, Some(&factors(b)?), 1e-5));
        isolated(lab, lab.exact(), 40, &|b, x| Ok(b.add_rms_norm(x.clone(), &x, &factors(b)?, 1e-5)?.1));
        isolated(lab, lab.exact(), 40, &|b, x| b.sum(&x));
        Ok(())
    }));

    cases.push(Case::new("extremes/elementwise", |lab| {
        use Activation::*;
        let xielu = super::elementwise::XIELU;
        for f in [Silu, Gelu, GeluTanh, QuickGelu, Tanh, Exp, Softplus, Sigmoid, Relu, ReluSquared, xielu] {
            isolated(lab, lab.each(1.0), 21, &|b, x| b.activate(x, f));
        }
        // Sums and products of extremes are what IEEE 754 says; subnormals may be flushed.
        let all: Vec<f32> =
            EXTREMES.iter().copied().filter(|v| *v == 0.0 || v.abs() > 1e-30 || v.is_nan()).collect();
        let square: Vec<f32> = all.iter().flat_map(|_| &all).copied().collect();
        let n = all.len();
        let work: Work<'_> = &|b| {
            let (x, y) = (up(b, &square, &[n, n])?, up(b, &all, &[n, 1])?);
            Ok(vec![b.add(x.clone(), &y)?, b.mul(x, &y)?])
        };
        lab.same("every pair", lab.each(1e-3), work);
        Ok(())
    }));

    cases.push(Case::new("extremes/rope", |lab| {
        isolated(lab, lab.exact(), 16, &|b, x| {
            let plan = b.plan(super::lookup::positions(&[3, 70, 9]))?;
            b.rope(x.reshape([3, 2, 8])?, &Rope::new([1.0, 0.1, 0.01]), &plan)
        });
        Ok(())
    }));

    for &element in &options.elements {
        cases.push(Case::new(format!("extremes/attend_cache/{}-cache", element.name), move |lab| {
            attention(lab, element)
        }));
    }

    cases.push(Case::new("extremes/moe", |lab| {
        let shape = [6, 8, 8];
        let [gate, upward, down] = [(); 3].map(|()| lab.random.weight(shape, &F32));
        let ws = [gate?, upward?, down?];
        let logits = lab.random.normal(18);
        let gated = super::moe::ACTIVATIONS.map(|(_, activation)| (true, activation));
        let all = gated.into_iter().chain([(false, Activation::ReluSquared), (false, Activation::Silu)]);
        let mixer = Scoring::SparseMixer { within: 0.6 };
        for ((gated, activation), scoring) in
            all.zip([Scoring::Softmax, Scoring::Sigmoid, mixer].into_iter().cycle())
        {
            let spec = RouterSpec::new(2, scoring);
            let stack = |b: &dyn Backend| -> Result<Experts> {
                let [gate, up, down] = [0, 1, 2].map(|i| b.upload_weight(&ws[i]));
                Ok(match gated {
                    true => Experts::new([gate?, up?, down?], activation),
                    false => Experts::ungated([up?, down?], activation),
                })
            };
            isolated(lab, lab.exact().times(6.0), 8, &|b, x| {
                b.moe(&x, &up(b, &logits, &[3, 6])?, &spec, &stack(b)?)
            });
            // Whatever a poisoned router chooses must exist.
            isolated(lab, lab.exact().times(6.0), 6, &|b, logits| {
                b.moe(&up(b, &[1.0; 24], &[3, 8])?, &logits, &spec, &stack(b)?)
            });
        }
        Ok(())
    }));
}

/// Two sequences, one of which has extremes in queries, keys and values.
fn attention(lab: &mut Lab<'_>, element: &'static Format) -> Result<()> {
    let spec = CacheSpec::new(vec![LayerCache::full(32, 32)], 4, 16, 8).element(element);
    for poison in EXTREMES {
        let mut sequences = Sequences::new(&mut lab.random, &spec, 2);
        let batch = sequences.step(&[(0, 5), (1, 6)], 0);
        let mut numbers = lab.random.normal(11 * 96);
        for side in numbers.chunks_mut(11 * 32) {
            side[..5 * 32].iter_mut().step_by(7).for_each(|v| *v = poison);
        }
        lab.defined(&format!("{poison:e} in another sequence"), lab.attended(element), &|b| {
            let (cache, plan) = (b.new_cache(&spec)?, b.plan(batch.clone())?);
            let [q, k, v] = [0, 1, 2].map(|i| up(b, &numbers[i * 11 * 32..][..11 * 32], &[11, 32]));
            b.store_kv(0, &k?, Some(&v?), &cache, &plan)?;
            let y = b.attend_cache(0, &q?, &cache, &AttnSpec::causal(2, 2, 16), &plan)?;
            Ok(vec![b.split(&y, Axis::Rows, &[5, 6])?.swap_remove(1)])
        });
    }
    Ok(())
}
