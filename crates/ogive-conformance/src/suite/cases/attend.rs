//! Attention over keys and values that are given: the required operator, option by option.

use super::cache::one;
use super::sequences::together;
use super::{Case, owned, up};
use crate::suite::lab::Lab;
use ogive_backend::tensor::{Result, Tensor};
use ogive_backend::{AttnOption, AttnSpec, Backend, Batch, Plan};
use std::sync::Arc;

use AttnOption::{Ahead, Alibi, Causal, Chunk, Mask, Mutual, Other, Sinks, SoftCap, Window};

/// Past and rows of each sequence, and rows of nobody.
type Spans = (&'static [(usize, usize)], usize);

const SPANS: [Spans; 5] = [
    (&[(0, 1)], 0),
    (&[(0, 7)], 0),
    (&[(9, 1), (0, 3), (40, 1)], 0),
    (&[(3, 5), (70, 2)], 3),
    (&[(1, 1), (2, 1)], 6),
];

/// Heads, key heads, and the dimensions of keys and values.
const HEADS: [[usize; 4]; 6] =
    [[1, 1, 4, 4], [4, 4, 16, 16], [6, 2, 8, 12], [8, 1, 32, 16], [14, 2, 5, 3], [2, 2, 128, 128]];

type Options = fn(&dyn Backend, &mut Numbers<'_>) -> Result<Vec<AttnOption>>;

/// What options are made of.
struct Numbers<'a> {
    heads: usize,
    rows: usize,
    longest: usize,
    values: &'a [f32],
}

impl Numbers<'_> {
    fn mask(&self, b: &dyn Backend) -> Result<AttnOption> {
        Ok(Mask(up(b, &self.values[..self.rows * self.longest], &[self.rows, self.longest])?))
    }
    fn sinks(&self, b: &dyn Backend) -> Result<AttnOption> {
        Ok(Sinks(up(b, &self.values[..self.heads], &[self.heads])?))
    }
    fn alibi(&self) -> AttnOption {
        Alibi(self.values[..self.heads].iter().map(|v| v.abs()).collect::<Vec<_>>().into())
    }
}

pub(super) fn add(cases: &mut Vec<Case>) {
    let all: [(&str, Options); 20] = [
        ("no-options", |_, _| Ok(vec![])),
        ("causal", |_, _| Ok(vec![Causal])),
        ("mutual", |_, _| Ok(vec![Causal, Mutual])),
        ("mutual-window", |_, _| Ok(vec![Window(3), Mutual, Causal])),
        ("mutual-without-causal", |_, _| Ok(vec![Mutual])),
        ("window", |_, _| Ok(vec![Causal, Window(3)])),
        ("window-without-causal", |_, _| Ok(vec![Window(3)])),
        ("around", |_, _| Ok(vec![Window(3), Ahead(2)])),
        ("ahead", |_, _| Ok(vec![Ahead(1)])),
        ("ahead-of-mutual", |_, _| Ok(vec![Causal, Mutual, Ahead(1), Ahead(0)])),
        ("chunks", |_, _| Ok(vec![Causal, Chunk(3)])),
        ("chunks-without-causal", |_, _| Ok(vec![Chunk(2)])),
        ("soft-cap", |_, _| Ok(vec![Causal, SoftCap(2.0)])),
        ("sinks", |b, n| Ok(vec![Causal, n.sinks(b)?])),
        ("alibi", |_, n| Ok(vec![Causal, n.alibi()])),
        ("alibi-without-causal", |_, n| Ok(vec![n.alibi()])),
        ("mask", |b, n| Ok(vec![n.mask(b)?])),
        ("mask-then-cap", |b, n| Ok(vec![Causal, n.mask(b)?, SoftCap(1.0)])),
        ("cap-then-mask", |b, n| Ok(vec![Causal, SoftCap(1.0), n.mask(b)?])),
        ("everything", |b, n| Ok(vec![n.alibi(), Causal, SoftCap(5.0), Window(5), n.mask(b)?, n.sinks(b)?])),
    ];
    for (name, options) in all {
        cases.push(Case::new(format!("attend/{name}"), move |lab| {
            for spans in SPANS {
                for heads in HEADS {
                    attend(lab, spans, heads, options);
                }
            }
            Ok(())
        }));
    }

    cases.push(Case::new("attend/dims", |lab| {
        for heads in [[2, 1, 256, 256], [2, 1, 576, 512]] {
            SPANS[1..3].iter().for_each(|spans| attend(lab, *spans, heads, |_, _| Ok(vec![Causal])));
        }
        Ok(())
    }));

    // So many queries that keys are laid for all of them.
    let many: [(&str, &[Options]); 2] = [
        ("mutual", &[|_, _| Ok(vec![Causal, Mutual]), |_, _| Ok(vec![Causal, Mutual, Window(40)])]),
        // Ends of two rows in one tile of keys and in different ones.
        ("around", &[|_, _| Ok(vec![Window(41), Ahead(40)]), |_, _| Ok(vec![Ahead(3), SoftCap(2.0)])]),
    ];
    for (name, all) in many {
        cases.push(Case::new(format!("attend/{name}-many"), move |lab| {
            all.iter().for_each(|of| attend(lab, (&[(3, 130), (250, 70)], 0), [4, 2, 16, 16], *of));
            Ok(())
        }));
    }

    // Vision towers' heads, which are no multiples of 32, of patches that see each other, in windows and all of them.
    cases.push(Case::new("attend/towers", |lab| {
        for heads in [[2, 2, 72, 72], [2, 2, 80, 80], [1, 1, 88, 88]] {
            for spans in [(&[(0, 70)][..], 0), (&[(0, 16), (0, 16), (0, 8)], 3)] {
                attend(lab, spans, heads, |_, _| Ok(vec![]));
            }
        }
        Ok(())
    }));

    cases.push(Case::new("attend/scale", |lab| {
        let (q, kv) = (lab.random.normal(3 * 8), lab.random.normal(3 * 4));
        for scale in [0.0, 0.5, -1.0, 8.0] {
            lab.same(&format!("{scale}"), lab.exact(), &|b| {
                let (q, kv) = (up(b, &q, &[3, 8])?, up(b, &kv, &[3, 4])?);
                Ok(vec![b.attend(&q, &kv, &kv, &AttnSpec::causal(2, 1, 4).scale(scale), &b.plan(one(3))?)?])
            });
        }
        Ok(())
    }));

    cases.push(Case::new("attend/hidden-and-sharp", |lab| {
        // Scores far apart, equal scores, and columns that a mask hides: softmax must subtract its largest first.
        let never = f32::NEG_INFINITY;
        let v = lab.random.normal(4 * 2);
        for keys in [[0.0; 4], [300.0, -300.0, 299.0, 0.0], [-5e4, -5e4, -5.1e4, -4.9e4]] {
            lab.same(&format!("{keys:?}"), lab.exact(), &|b| {
                let (q, k, v) = (up(b, &[1.0; 4], &[4, 1])?, up(b, &keys, &[4, 1])?, up(b, &v, &[4, 2])?);
                let spec = AttnSpec::new(1, 1, 1, 2).scale(1.0);
                let mut hidden = [0.0; 16];
                [1, 4, 5, 6, 8, 15].into_iter().for_each(|i| hidden[i] = never);
                let masked = spec.clone().with(Mask(up(b, &hidden, &[4, 4])?));
                // One row that sees nothing, and sinks that take nothing and all but nothing.
                hidden[7] = never;
                let blind = spec.clone().with(Mask(up(b, &hidden, &[4, 4])?));
                let sunk = |sink: f32| Ok(blind.clone().with(Sinks(up(b, &[sink], &[1])?)));
                let plan = b.plan(one(4))?;
                let specs = [spec, masked, sunk(never)?, sunk(-3.0)?, blind.clone()];
                specs.iter().map(|spec| b.attend(&q, &k, &v, spec, &plan)).collect()
            });
        }
        Ok(())
    }));

    cases.push(Case::new("attend/unknown-option", |lab| {
        let setup = |b: &dyn Backend| {
            let x = up(b, &[1.0; 3], &[3, 1])?;
            let cache = b.new_cache(&ogive_backend::CacheSpec::new(
                vec![ogive_backend::LayerCache::full(1, 1)],
                2,
                4,
                0,
            ))?;
            let plan = b.plan(one(3))?;
            b.store_kv(0, &x, Some(&x), &cache, &plan)?;
            Ok((x, cache, plan))
        };
        let odd = || AttnSpec::causal(1, 1, 1).with(Other("no backend knows this"));
        lab.refuses("attend", setup, |b, (x, _, plan)| b.attend(&x, &x, &x, &odd(), &plan));
        lab.refuses("attend_cache", setup, |b, (x, cache, plan)| {
            b.attend_cache(0, &x, &cache, &odd(), &plan)
        });
        lab.refuses("attend_latent", setup, |b, (x, cache, plan)| {
            b.attend_latent(0, &x, &cache, &odd(), &plan)
        });
        Ok(())
    }));

    cases.push(Case::new("attend/refused", |lab| {
        let setup =
            |b: &dyn Backend| Ok((up(b, &[1.0; 24], &[3, 8])?, up(b, &[1.0; 16], &[2, 8])?, b.plan(one(3))?));
        let fits = || AttnSpec::causal(4, 2, 2);
        lab.refuses("a query too wide", setup, |b, (x, _, plan)| {
            b.attend(&x, &x, &x, &AttnSpec::causal(2, 2, 2), &plan)
        });
        lab.refuses("a row of queries too few", setup, |b, (x, y, plan)| {
            b.attend(&y, &x, &x, &AttnSpec::causal(4, 4, 2), &plan)
        });
        lab.refuses("a row of keys too few", setup, |b, (x, y, plan)| {
            b.attend(&x, &y, &x, &AttnSpec::causal(4, 4, 2), &plan)
        });
        lab.refuses("a row of values too few", setup, |b, (x, y, plan)| {
            b.attend(&x, &x, &y, &AttnSpec::causal(4, 4, 2), &plan)
        });
        lab.refuses("heads that do not share evenly", setup, |b, (x, _, plan)| {
            b.attend(&x, &x, &x, &AttnSpec::causal(4, 3, 2), &plan)
        });
        lab.refuses("no heads for keys", setup, |b, (x, _, plan)| {
            b.attend(&x, &x, &x, &AttnSpec::causal(4, 0, 2), &plan)
        });
        type Given = (Tensor, Tensor, Tensor, Plan, AttnOption);
        let with = |option: &'static dyn Fn(&dyn Backend) -> Result<AttnOption>| {
            move |b: &dyn Backend| -> Result<Given> {
                let (q, kv) = (up(b, &[1.0; 24], &[3, 8])?, up(b, &[1.0; 12], &[3, 4])?);
                Ok((q, kv.clone(), kv, b.plan(one(3))?, option(b)?))
            }
        };
        let call = |b: &dyn Backend, (q, k, v, plan, option): Given| {
            b.attend(&q, &k, &v, &fits().with(option), &plan)
        };
        lab.refuses("too few sinks", with(&|b| Ok(Sinks(up(b, &[0.0; 3], &[3])?))), call);
        lab.refuses("too few slopes", with(&|_| Ok(Alibi(Arc::from([0.5; 3])))), call);
        lab.refuses("a mask too narrow", with(&|b| Ok(Mask(up(b, &[0.0; 6], &[3, 2])?))), call);
        lab.refuses("a mask too short", with(&|b| Ok(Mask(up(b, &[0.0; 6], &[2, 3])?))), call);
        Ok(())
    }));
}

fn attend(
    lab: &mut Lab<'_>,
    (spans, nobody): Spans,
    [heads, kv_heads, k_dim, v_dim]: [usize; 4],
    options: Options,
) {
    let mut batch = Batch::default();
    for &(past, len) in spans {
        batch.push(&vec![1; len], past, Vec::new(), [0, 1]);
    }
    batch.pad(batch.tokens.len() + nobody);
    // Heard of by who asks.
    together(&mut batch);
    let (n, contexts) = (batch.tokens.len(), batch.contexts());
    let longest = batch.spans.iter().map(|s| s.context()).max().unwrap_or(0);
    let q: Vec<f32> = lab.random.normal(n * heads * k_dim).iter().map(|v| 2.0 * v).collect();
    let (k, v) =
        (lab.random.normal(contexts * kv_heads * k_dim), lab.random.normal(contexts * kv_heads * v_dim));
    let values = lab.random.normal(n * longest + heads);
    let what = format!("{spans:?} and {nobody}, {heads}/{kv_heads} heads of {k_dim} and {v_dim}");
    lab.same(&what, lab.exact(), &|b| {
        let options = options(b, &mut Numbers { heads, rows: n, longest, values: &values })?;
        let spec = options.into_iter().fold(AttnSpec::new(heads, kv_heads, k_dim, v_dim), AttnSpec::with);
        let q = up(b, &q, &[n, heads, k_dim])?;
        let (k, v) = (up(b, &k, &[contexts, kv_heads * k_dim])?, up(b, &v, &[contexts, kv_heads * v_dim])?);
        let y = b.attend(&q, &k, &v, &spec, &b.plan(batch.clone())?)?;
        Ok(vec![owned(b, &y, &batch)?])
    });
}
