//! Steps and caches that contradict themselves: each must be an error, neither accepted nor a panic.

use super::cache::one;
use super::linear::STRANGER;
use super::{Case, up};
use ogive_backend::tensor::{F32, IQ2_XS, Q8_0, Result, Tensor};
use ogive_backend::{AttnSpec, Backend, Batch, BlockTable, Cache, CacheSpec, LayerCache, Rope};

type Edit = (&'static str, fn(&mut Batch));

const PLANS: [Edit; 13] = [
    ("an output past the rows", |b| b.outputs.push(5)),
    ("the largest output", |b| b.outputs.push(u32::MAX)),
    ("a span past the rows", |b| b.spans[1].len = 3),
    ("a span past counting", |b| b.spans[1].len = usize::MAX),
    ("spans that overlap", |b| b.spans[1].start = 2),
    ("spans with a gap", |b| b.spans[0].len = 2),
    ("a gap at the start", |b| drop(b.spans.remove(0))),
    ("spans in another order", |b| b.spans.swap(0, 1)),
    ("a past beyond counting", |b| b.spans[1].past = usize::MAX),
    ("pasts that add up beyond counting", |b| b.spans.iter_mut().for_each(|s| s.past = usize::MAX / 2)),
    ("too few positions", |b| b.positions.truncate(4)),
    ("too few types", |b| b.types.clear()),
    ("too few places", |b| b.places.push([0; 3])),
];

/// What `store_kv` and `gather_kv` must both find.
const TABLES: [Edit; 5] = [
    ("a block past the cache", |b| b.spans[0].tables[0].blocks[1] = 4),
    ("the last block there could be", |b| b.spans[0].tables[0].blocks[0] = u32::MAX),
    ("no table", |b| b.spans[0].tables.clear()),
    ("a table too short", |b| b.spans[0].tables[0].blocks.truncate(1)),
    // Nothing may be made as large as this says before the table is looked at.
    ("a past of billions in two blocks", |b| b.spans[0].past = 4_000_000_000),
];

pub(super) fn add(cases: &mut Vec<Case>) {
    cases.push(Case::new("plan/refused", |lab| {
        for (what, edit) in PLANS {
            let setup = |_: &dyn Backend| {
                let mut batch = one(3);
                batch.push(&[1, 2], 4, vec![BlockTable { first: 0, blocks: vec![7, 8] }], [2, 3]);
                edit(&mut batch);
                Ok(batch)
            };
            lab.refuses(what, setup, |b, batch| b.plan(batch));
        }
        Ok(())
    }));

    cases.push(Case::new("new_cache/refused", |lab| {
        let full = || CacheSpec::new(vec![LayerCache::full(8, 8)], 2, 4, 0);
        let shared = |of| CacheSpec::new(vec![LayerCache::full(8, 8), LayerCache::Shares(of)], 2, 4, 0);
        for (what, spec) in [
            ("blocks of no tokens", CacheSpec::new(vec![LayerCache::full(8, 8)], 0, 4, 0)),
            ("no count of blocks for a group", full().blocks(vec![])),
            ("a layer that shares itself", shared(1)),
            ("a layer that shares one that is not there", shared(9)),
            ("rows that are not whole blocks", full().element(&Q8_0)),
            (
                "an element that cannot be written",
                CacheSpec::new(vec![LayerCache::full(7, 7)], 2, 4, 0).element(&STRANGER),
            ),
            (
                "an element that is for weights alone",
                CacheSpec::new(vec![LayerCache::full(256, 256)], 2, 4, 0).element(&IQ2_XS),
            ),
            ("more than can be counted", full().blocks(vec![usize::MAX])),
        ] {
            lab.refuses(what, |_| Ok(()), |b, ()| b.new_cache(&spec));
        }
        Ok(())
    }));

    cases.push(Case::new("store_kv/refused", |lab| {
        let refuse = |what: &str, layer, edit: fn(&mut Batch), [k, v]: [&'static [usize]; 2]| {
            let setup = move |b: &dyn Backend| room(b, edit);
            let store = move |b: &dyn Backend, (cache, batch): (Cache, Batch)| {
                let [k, v] = [k, v].map(|dims| up(b, &vec![1.0; dims.iter().product()], dims));
                let (k, v) = (k?, v?);
                let plan = b.plan(batch)?;
                b.store_kv(layer, &k, (v.shape().len() > 0).then_some(&v), &cache, &plan)
            };
            (what.to_owned(), setup, store)
        };
        const FITS: [&[usize]; 2] = [&[3, 4], &[3, 6]];
        let mut wrong = Vec::new();
        for (what, edit) in TABLES {
            wrong.push(refuse(what, 0, edit, FITS));
        }
        wrong.extend([
            refuse("a block that was given back", 0, |b| b.spans[0].tables[0].first = 1, FITS),
            refuse("no such layer", 9, |_| {}, FITS),
            refuse("a layer that shares", 1, |_| {}, FITS),
            refuse("a layer of states", 2, |_| {}, FITS),
            refuse("values missing", 0, |_| {}, [&[3, 4], &[0]]),
            refuse("values for a layer that keeps none", 3, |_| {}, FITS),
            refuse("keys too wide", 0, |_| {}, [&[3, 5], &[3, 6]]),
            refuse("values too narrow", 0, |_| {}, [&[3, 4], &[3, 5]]),
            refuse("keys of too few rows", 0, |_| {}, [&[2, 4], &[3, 6]]),
            refuse("values of too many rows", 0, |_| {}, [&[3, 4], &[4, 6]]),
        ]);
        for (what, setup, store) in wrong {
            lab.refuses(&what, setup, store);
        }
        Ok(())
    }));

    cases.push(Case::new("gather_kv/refused", |lab| {
        for (layer, what, edit) in TABLES
            .map(|(what, edit)| (0, what, edit))
            .into_iter()
            .chain([(2, "a layer of states", (|_| {}) as fn(&mut Batch)), (9, "no such layer", |_| {})])
        {
            let planned = |b: &dyn Backend, (cache, batch): (Cache, Batch)| {
                Ok::<_, ogive_backend::tensor::Error>((cache, b.plan(batch)?))
            };
            lab.refuses(
                &format!("gather_kv, {what}"),
                |b| room(b, edit),
                |b, given| {
                    let (cache, plan) = planned(b, given)?;
                    b.gather_kv(layer, &cache, &plan)
                },
            );
            lab.refuses(
                &format!("attend_cache, {what}"),
                |b| room(b, edit),
                |b, given| {
                    let (cache, plan) = planned(b, given)?;
                    let q = up(b, &[1.0; 12], &[3, 4])?;
                    b.attend_cache(layer, &q, &cache, &AttnSpec::new(1, 1, 4, 6), &plan)
                },
            );
            lab.refuses(
                &format!("rope_attend, {what}"),
                |b| room(b, edit),
                |b, given| {
                    let (cache, plan) = planned(b, given)?;
                    let (q, v) = (up(b, &[1.0; 12], &[3, 1, 4])?, up(b, &[1.0; 18], &[3, 6])?);
                    b.rope_attend(
                        layer,
                        q.clone(),
                        q,
                        &v,
                        &Rope::new([1.0]),
                        &cache,
                        &AttnSpec::new(1, 1, 4, 6),
                        &plan,
                    )
                },
            );
        }
        Ok(())
    }));

    cases.push(Case::new("attend_cache/refused", |lab| {
        let stored = |b: &dyn Backend| {
            let (cache, batch) = room(b, |_| {})?;
            let plan = b.plan(batch)?;
            b.store_kv(0, &up(b, &[1.0; 12], &[3, 4])?, Some(&up(b, &[1.0; 18], &[3, 6])?), &cache, &plan)?;
            b.store_kv(3, &up(b, &[1.0; 12], &[3, 4])?, None, &cache, &plan)?;
            Ok((cache, plan, up(b, &[1.0; 24], &[3, 8])?))
        };
        type Given = (Cache, ogive_backend::Plan, Tensor);
        let ask = |layer: usize, spec: AttnSpec| {
            move |b: &dyn Backend, (cache, plan, q): Given| b.attend_cache(layer, &q, &cache, &spec, &plan)
        };
        lab.refuses("keys of another width", stored, ask(0, AttnSpec::new(1, 1, 8, 6)));
        lab.refuses("values of another width", stored, ask(0, AttnSpec::new(2, 1, 4, 5)));
        lab.refuses("queries of another width", stored, ask(0, AttnSpec::new(1, 1, 4, 6)));
        lab.refuses("a layer without values", stored, ask(3, AttnSpec::new(2, 1, 4, 4)));
        lab.refuses("latent values wider than keys", stored, |b, (cache, plan, q)| {
            b.attend_latent(3, &q, &cache, &AttnSpec::new(2, 1, 4, 5), &plan)
        });
        Ok(())
    }));
}

/// A cache of pages, of pages that are shared, of states, and of keys alone; and a step of three tokens in two blocks.
fn room(b: &dyn Backend, edit: fn(&mut Batch)) -> Result<(Cache, Batch)> {
    let layers = vec![
        LayerCache::full(4, 6),
        LayerCache::Shares(0),
        LayerCache::State { len: 4 },
        LayerCache::full(4, 0),
    ];
    let mut batch = Batch::default();
    batch.push(&[1, 2, 3], 0, vec![BlockTable { first: 0, blocks: vec![0, 1] }], [0, 1]);
    edit(&mut batch);
    Ok((b.new_cache(&CacheSpec::new(layers, 2, 4, 2).element(&F32))?, batch))
}
