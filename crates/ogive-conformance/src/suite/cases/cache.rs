//! Pages and slots: what is stored, where, rounded how, shared, copied, given back.

use super::attend_cache::{BASE, Setting, Step};
use super::sequences::Sequences;
use super::{Case, owned, up};
use crate::suite::Options;
use crate::suite::lab::{Host, Lab, Work};
use crate::suite::limit::Limit;
use ogive_backend::tensor::{Format, Result, Tensor};
use ogive_backend::{Backend, Batch, BlockCopy, BlockTable, CacheSpec, LayerCache, Rope};

pub(super) fn add(cases: &mut Vec<Case>, options: &Options) {
    for &element in &options.elements {
        cases.push(Case::new(format!("gather_kv/{}-cache", element.name), move |lab| {
            for (block_len, window) in
                [(1, None), (3, None), (16, None), (3, Some(4)), (1, Some(2)), (16, Some(5))]
            {
                gather(lab, element, block_len, window)?;
            }
            Ok(())
        }));
        cases.push(Case::new(format!("attend_latent/{}-cache", element.name), move |lab| {
            latent(lab, element)
        }));
        cases.push(Case::new(format!("rope_attend/{}-cache", element.name), move |lab| {
            rotated(lab, &Setting { element, ..BASE })
        }));
        cases.push(Case::new(format!("copy_blocks/{}-cache", element.name), move |lab| copies(lab, element)));
    }

    cases.push(Case::new("gather_kv/layers-and-groups", |lab| {
        // Full and windowed layers side by side, one that keeps no values, states between them, shared ones after.
        let layers = vec![
            LayerCache::full(4, 6),
            LayerCache::State { len: 5 },
            LayerCache::windowed(6, 2, 4, 1),
            LayerCache::full(8, 0),
            LayerCache::Shares(2),
            LayerCache::Shares(4),
            LayerCache::windowed(2, 2, 6, 1),
        ];
        let spec = CacheSpec::new(layers, 2, 40, 8).blocks(vec![40, 30]);
        let mut sequences = Sequences::new(&mut lab.random, &spec, 2);
        let batches: Vec<Batch> =
            [(7, 1), (1, 4), (3, 1), (1, 1)].map(|(a, c)| sequences.step(&[(0, a), (1, c)], 1)).into();
        let numbers: Vec<Vec<f32>> = batches.iter().map(|b| lab.random.normal(b.tokens.len() * 8)).collect();
        lab.same("each step", lab.moved(), &|b| {
            let (cache, mut seen) = (b.new_cache(&spec)?, Vec::new());
            for (batch, numbers) in batches.iter().zip(&numbers) {
                let (plan, n) = (b.plan(batch.clone())?, batch.tokens.len());
                for (layer, k, v) in [(0, 4, 6), (2, 6, 2), (3, 8, 0), (6, 2, 2)] {
                    // Each layer's own numbers, or a layer that reads another's pages would go unseen.
                    let own: Vec<f32> = numbers.iter().map(|x| x * (layer + 1) as f32).collect();
                    let value = (v > 0).then(|| up(b, &own[..n * v], &[n, v])).transpose()?;
                    b.store_kv(layer, &up(b, &own[..n * k], &[n, k])?, value.as_ref(), &cache, &plan)?;
                }
                for layer in [0, 2, 3, 4, 5, 6] {
                    let (k, v) = b.gather_kv(layer, &cache, &plan)?;
                    seen.push(k);
                    seen.extend(v);
                }
            }
            Ok(seen)
        });
        Ok(())
    }));
    cases.push(Case::new("gather_kv/no-values", |lab| {
        let b = lab.subject();
        let found = lab.guarded("a layer without values", || {
            let (cache, plan) =
                (b.new_cache(&CacheSpec::new(vec![LayerCache::full(2, 0)], 2, 2, 0))?, b.plan(one(3))?);
            Ok(b.gather_kv(0, &cache, &plan)?.1.is_some())
        });
        lab.check(found == Some(false), || "values of a layer that keeps none".into());
        Ok(())
    }));

    cases.push(Case::new("gather_kv/stored-twice", |lab| {
        // A step that is run again stores the same rows again, over the first.
        let numbers = lab.random.normal(20);
        lab.same("again", lab.moved(), &|b| {
            let cache = b.new_cache(&CacheSpec::new(vec![LayerCache::full(4, 4)], 2, 4, 0))?;
            let plan = b.plan(one(5))?;
            let (x, zeros) = (up(b, &numbers, &[5, 4])?, up(b, &[0.0; 20], &[5, 4])?);
            b.store_kv(0, &zeros, Some(&zeros), &cache, &plan)?;
            b.store_kv(0, &x, Some(&x), &cache, &plan)?;
            let (k, v) = b.gather_kv(0, &cache, &plan)?;
            Ok([k].into_iter().chain(v).collect())
        });
        Ok(())
    }));
}

/// A sequence of its own with so many tokens, in blocks 0, 1, …
pub(super) fn one(n: usize) -> Batch {
    let mut batch = Batch::default();
    batch.push(&vec![1; n], 0, vec![BlockTable { first: 0, blocks: (0..n as u32).collect() }], [0, 1]);
    batch
}

fn gather(
    lab: &mut Lab<'_>,
    element: &'static Format,
    block_len: usize,
    window: Option<usize>,
) -> Result<()> {
    let layer = window.map_or(LayerCache::full(64, 32), |w| LayerCache::windowed(64, 32, w, 0));
    let spec = CacheSpec::new(vec![layer], block_len, 90, 16).element(element);
    let mut sequences = Sequences::new(&mut lab.random, &spec, 3);
    let works: [&[(usize, usize)]; 4] =
        [&[(0, 6), (1, 1)], &[(1, 3), (2, 17), (0, 1)], &[(0, 1), (2, 1)], &[(1, 9)]];
    let steps: Vec<_> = works
        .iter()
        .map(|work| {
            let batch = sequences.step(work, 2);
            let n = batch.tokens.len();
            (batch, lab.random.normal(n * 64), lab.random.normal(n * 32))
        })
        .collect();
    let what = format!("blocks of {block_len}, window {window:?}");
    let work: Work<'_> = &|b| {
        let (cache, mut seen) = (b.new_cache(&spec)?, Vec::new());
        for (batch, k, v) in &steps {
            let (plan, n) = (b.plan(batch.clone())?, batch.tokens.len());
            b.store_kv(0, &up(b, k, &[n, 2, 32])?, Some(&up(b, v, &[n, 32])?), &cache, &plan)?;
            let (k, v) = b.gather_kv(0, &cache, &plan)?;
            seen.push(k);
            seen.extend(v);
        }
        Ok(seen)
    };
    lab.same(&what, lab.stored(element), work);
    if element.block_len > 1 {
        // Unrounded values would be within the limit. What was rounded once stays what it is when rounded again.
        let Some(seen) = lab.on_subject(&what, work) else { return Ok(()) };
        let again = seen.iter().map(|host| rounded(element, host)).collect::<Result<Vec<_>>>()?;
        lab.compare(&format!("{what}, rounded again"), Limit::mean_square(1e-6), &seen, &again);
    }
    Ok(())
}

/// What `element` would make of these rows.
fn rounded(element: &Format, host: &Host) -> Result<Host> {
    let mut again = host.clone();
    let mut bytes = vec![0; element.row_bytes(host.values.len())];
    element.encode_row(&host.values, &mut bytes)?;
    element.decode_row(&bytes, &mut again.values);
    Ok(again)
}

/// Keys that hold their values: one head of keys for all queries, values the first part of it.
fn latent(lab: &mut Lab<'_>, element: &'static Format) -> Result<()> {
    for (heads, rank, rotated) in [(4, 32, 32), (1, 64, 32), (16, 96, 32)] {
        let setting = Setting { heads, kv_heads: 1, k_dim: rank + rotated, v_dim: rank, element, ..BASE };
        let layers = vec![LayerCache::full(rank + rotated, 0)];
        let spec = CacheSpec::new(layers, setting.block_len, setting.cache().blocks[0], 16).element(element);
        let steps = setting.numbers(lab);
        lab.defined(&format!("{heads} heads of {rank} and {rotated}"), lab.attended(element), &|b| {
            let cache = b.new_cache(&spec)?;
            let attend = |step: &Step| {
                let (plan, n) = (b.plan(step.batch.clone())?, step.batch.tokens.len());
                b.store_kv(0, &up(b, &step.k, &[n, rank + rotated])?, None, &cache, &plan)?;
                let q = up(b, &step.q, &[n, heads * (rank + rotated)])?;
                let y = b.attend_latent(0, &q, &cache, &setting.spec(b, step)?.scale(0.07), &plan)?;
                owned(b, &y, &step.batch)
            };
            steps.iter().map(attend).collect()
        });
    }
    Ok(())
}

fn rotated(lab: &mut Lab<'_>, setting: &Setting) -> Result<()> {
    let steps = setting.numbers(lab);
    let freq: Vec<f32> = (0..setting.k_dim / 2).map(|i| 100f32.powf(-(i as f32) / 16.0)).collect();
    let rope = Rope::new(freq);
    // Rotated keys that differ in their last bit may be rounded to neighbours in a narrow element: rare, and seen in the
    // mean only.
    let limit = match setting.element.name {
        "f32" => lab.exact().times(2.0),
        "f16" | "bf16" => Limit::mean_square(lab.options.bf16),
        _ => lab.attended(setting.element).times(2.0),
    };
    lab.defined("all steps", limit, &|b| {
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
    let (first, again) =
        (lab.on_subject("all steps", &both(false)), lab.on_subject("all steps", &both(true)));
    if let (Some(first), Some(again)) = (first, again) {
        lab.compare("against attend_cache", lab.exact(), &first, &again);
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

fn copies(lab: &mut Lab<'_>, element: &'static Format) -> Result<()> {
    let layers =
        vec![LayerCache::full(32, 32), LayerCache::windowed(32, 64, 100, 1), LayerCache::full(64, 0)];
    let spec = CacheSpec::new(layers, 4, 8, 0).element(element);
    let numbers = lab.random.normal(32 * 64);
    let table = |blocks: [u32; 4]| BlockTable { first: 0, blocks: blocks.into() };
    let copy = |group, from, to| BlockCopy { group, from, to };
    let chains: [(&str, Vec<BlockCopy>); 4] = [
        ("one block", vec![copy(0, 1, 6)]),
        ("a copy of a copy", vec![copy(0, 1, 6), copy(0, 6, 7), copy(0, 2, 6)]),
        ("another group", vec![copy(1, 0, 5), copy(1, 3, 0)]),
        ("both groups, and onto itself", vec![copy(0, 0, 4), copy(1, 2, 2), copy(0, 7, 1)]),
    ];
    for (what, copies) in chains {
        lab.same(what, lab.stored(element), &|b| {
            let cache = b.new_cache(&spec)?;
            let halves = [[0, 1, 2, 3], [4, 5, 6, 7]];
            let mut batch = Batch::default();
            for blocks in halves {
                batch.push(&[1; 16], 0, vec![table(blocks), table(blocks)], [0, 1]);
            }
            let plan = b.plan(batch)?;
            for (layer, [k, v]) in [[32, 32], [32, 64], [64, 0]].into_iter().enumerate() {
                let own: Vec<f32> = numbers.iter().map(|x| x * (layer + 1) as f32).collect();
                let v = (v > 0).then(|| up(b, &own[..32 * v], &[32, v])).transpose()?;
                b.store_kv(layer, &up(b, &own[..32 * k], &[32, k])?, v.as_ref(), &cache, &plan)?;
            }
            // Seen through tables that name every block, before anything else is stored.
            let mut batch = Batch::default();
            for blocks in halves {
                batch.push(&[1], 15, vec![table(blocks), table(blocks)], [0, 1]);
            }
            batch.copies = copies.clone();
            let plan = b.plan(batch)?;
            b.copy_blocks(&cache, &plan)?;
            let mut seen = Vec::new();
            for layer in 0..3 {
                let (k, v) = b.gather_kv(layer, &cache, &plan)?;
                seen.push(k);
                seen.extend(v);
            }
            Ok(seen)
        });
    }
    for (what, wrong) in
        [("from outside", copy(0, 8, 1)), ("to outside", copy(0, 1, 8)), ("no such group", copy(2, 0, 1))]
    {
        let setup = |b: &dyn Backend| {
            let mut batch = one(1);
            batch.copies.push(wrong);
            // A plan may already refuse it.
            Ok((b.new_cache(&spec)?, batch))
        };
        lab.refuses(what, setup, |b, (cache, batch)| b.copy_blocks(&cache, &b.plan(batch)?));
    }
    Ok(())
}
