//! Attention with what is fused to it: rotating and storing on the way in, and values that are the beginning of keys.
//!
//! A fused operator often has a kernel of its own, so rotations and options are tried here again, in every combination, on few tokens.

use super::attend_cache::Choice::{Alibi, Causal, Sinks, SoftCap, Window};
use super::attend_cache::{BASE, Choice, FEW, Setting, Step};
use super::{Case, owned, up};
use crate::suite::Options;
use crate::suite::lab::Lab;
use crate::suite::limit::Limit;
use ogive_backend::tensor::{Result, Tensor};
use ogive_backend::{Backend, CacheSpec, LayerCache, Rope, RopeLayout};

/// What models fuse with rotation, and latent attention with values.
const LISTS: [(&str, &[Choice]); 6] = [
    ("causal", &[Causal]),
    ("bidirectional", &[]),
    ("window", &[Causal, Window(3)]),
    ("soft-cap", &[Causal, SoftCap]),
    ("sinks", &[Causal, Sinks]),
    ("alibi", &[Causal, Alibi]),
];

pub(super) fn add(cases: &mut Vec<Case>, options: &Options) {
    for &element in &options.elements {
        cases.push(Case::new(format!("attend_latent/{}-cache", element.name), move |lab| {
            for dims in [[4, 32, 32], [1, 64, 32], [16, 96, 32]] {
                latent(lab, dims, &Setting { element, ..BASE })?;
            }
            Ok(())
        }));
        // As DeepSeek has them.
        cases.push(Case::new(format!("attend_latent/dims/576/{}-cache", element.name), move |lab| {
            latent(lab, [2, 512, 64], &Setting { element, block_len: 16, steps: FEW, ..BASE })
        }));
        cases.push(Case::new(format!("rope_attend/{}-cache", element.name), move |lab| {
            rotated(lab, &Setting { element, ..BASE }, RopeLayout::Halves, 16, 1.0)
        }));
    }
    for (name, options) in LISTS {
        cases.push(Case::new(format!("attend_latent/{name}"), move |lab| {
            latent(lab, [4, 32, 32], &Setting { options, steps: FEW, ..BASE })
        }));
    }
    for (layout_name, layout) in [("halves", RopeLayout::Halves), ("pairs", RopeLayout::Pairs)] {
        for (name, options) in LISTS {
            cases.push(Case::new(format!("rope_attend/{layout_name}/{name}"), move |lab| {
                for (pairs, factor) in [(16, 1.0), (6, 1.0), (16, 1.386), (6, 1.386)] {
                    rotated(lab, &Setting { options, steps: FEW, ..BASE }, layout, pairs, factor)?;
                }
                Ok(())
            }));
        }
    }
    cases.push(Case::new("rope_attend/dims/256", |lab| {
        let setting = Setting { heads: 2, kv_heads: 1, k_dim: 256, v_dim: 256, steps: FEW, ..BASE };
        rotated(lab, &setting, RopeLayout::Halves, 128, 1.0)
    }));
}

/// Keys that hold their values: one head of keys for all queries, values the first part of it.
fn latent(lab: &mut Lab<'_>, [heads, rank, rotated]: [usize; 3], setting: &Setting) -> Result<()> {
    let setting = Setting { heads, kv_heads: 1, k_dim: rank + rotated, v_dim: rank, ..setting.clone() };
    let row = rank + rotated;
    let layer = setting.window().map_or(LayerCache::full(row, 0), |w| LayerCache::windowed(row, 0, w, 0));
    let (element, blocks) = (setting.element, setting.cache().blocks);
    let spec = CacheSpec::new(vec![layer], setting.block_len, blocks[0], 16).element(element);
    let steps = setting.numbers(lab);
    lab.defined(&format!("{heads} heads of {rank} and {rotated}"), lab.attended(element), &|b| {
        let cache = b.new_cache(&spec)?;
        let attend = |step: &Step| {
            let (plan, n) = (b.plan(step.batch.clone())?, step.batch.tokens.len());
            b.store_kv(0, &up(b, &step.k, &[n, row])?, None, &cache, &plan)?;
            let q = up(b, &step.q, &[n, heads * row])?;
            let y = b.attend_latent(0, &q, &cache, &setting.spec(b, step)?.scale(0.07), &plan)?;
            owned(b, &y, &step.batch)
        };
        steps.iter().map(attend).collect()
    });
    Ok(())
}

/// The first `pairs` pairs of each head rotated.
fn rotated(
    lab: &mut Lab<'_>,
    setting: &Setting,
    layout: RopeLayout,
    pairs: usize,
    factor: f32,
) -> Result<()> {
    let steps = setting.numbers(lab);
    let freq: Vec<f32> = (0..pairs).map(|i| 100f32.powf(-(i as f32) / pairs as f32)).collect();
    let rope = Rope::new(freq).layout(layout).factor(factor);
    let what = format!("{pairs} pairs, factor {factor}");
    // Rotated keys that differ in their last bit may be rounded to neighbours in a narrow element: rare, and seen in the
    // mean only.
    let limit = match setting.element.name {
        "f32" => lab.exact().times(2.0),
        "f16" | "bf16" => Limit::mean_square(lab.options.bf16),
        _ => lab.attended(setting.element).times(2.0),
    };
    lab.defined(&what, limit, &|b| {
        let (cache, mut seen) = (b.new_cache(&setting.cache())?, Vec::new());
        for step in &steps {
            let ([q, k, v], plan) = (inputs(b, setting, step)?, b.plan(step.batch.clone())?);
            let spec = setting.spec(b, step)?;
            let y = b.rope_attend(0, q.clone(), k.clone(), &v, &rope, &cache, &spec, &plan)?;
            seen.push(owned(b, &y, &step.batch)?);
            // What it took by value is held here too, and must be as it was.
            seen.extend([q, k, v]);
        }
        Ok(seen)
    });
    // So closely: it must attend to what the cache gives back, not to keys that were never rounded.
    let both = |again: bool| {
        let (steps, rope) = (&steps, &rope);
        move |b: &dyn Backend| {
            let cache = b.new_cache(&setting.cache())?;
            let run = |step: &Step| {
                let ([q, k, v], plan) = (inputs(b, setting, step)?, b.plan(step.batch.clone())?);
                let spec = setting.spec(b, step)?;
                let y = b.rope_attend(0, q.clone(), k, &v, rope, &cache, &spec, &plan)?;
                let y = if again {
                    b.attend_cache(0, &b.rope(q, rope, &plan)?, &cache, &spec, &plan)?
                } else {
                    y
                };
                owned(b, &y, &step.batch)
            };
            steps.iter().map(run).collect()
        }
    };
    let (first, again) = (lab.on_subject(&what, &both(false)), lab.on_subject(&what, &both(true)));
    if let (Some(first), Some(again)) = (first, again) {
        lab.compare(&format!("{what}, against attend_cache"), lab.exact(), &first, &again);
    }
    Ok(())
}

fn inputs(b: &dyn Backend, setting: &Setting, step: &Step) -> Result<[Tensor; 3]> {
    let n = step.batch.tokens.len();
    Ok([
        up(b, &step.q, &[n, setting.heads, setting.k_dim])?,
        up(b, &step.k, &[n, setting.kv_heads, setting.k_dim])?,
        up(b, &step.v, &[n, setting.kv_heads, setting.v_dim])?,
    ])
}
