//! Pages and slots: what is stored, where, rounded how, shared, copied, given back.

use super::sequences::Sequences;
use super::{Case, up};
use crate::suite::Options;
use crate::suite::lab::{Host, Lab, Work};
use crate::suite::limit::Limit;
use ogive_backend::tensor::{Format, Result};
use ogive_backend::{Backend, Batch, BlockCopy, BlockTable, CacheSpec, LayerCache};

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
