//! Steps that are recorded and replayed: the same numbers must come out as from running them, whatever a step of the
//! same key brought before.

use super::sequences::Sequences;
use super::{Case, up};
use crate::suite::lab::Lab;
use ogive_backend::tensor::{Error, F32, HostWeight, Result, Tensor};
use ogive_backend::{
    Activation, AttnSpec, Axis, Backend, Batch, Cache, CacheSpec, Ids, LayerCache, Plan, Rope, StepKey,
    Weight,
};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const DIM: usize = 8;

/// The numbers of a model of one layer that attends and one that convolves.
struct Numbers {
    embedding: HostWeight,
    projections: Vec<HostWeight>,
    head: HostWeight,
    taps: Vec<f32>,
}

/// The same, taken in.
struct Model<'a> {
    b: &'a dyn Backend,
    /// No two models of a process have the same: a record may outlive its model.
    number: u64,
    embedding: Weight,
    projections: Vec<Weight>,
    head: Weight,
    taps: Tensor,
    ones: Tensor,
    rope: Rope,
}

impl Numbers {
    fn new(lab: &mut Lab<'_>) -> Result<Self> {
        let mut w = |rows| lab.random.weight([1, rows, DIM], &F32);
        let embedding = w(50)?;
        let projections = [w(DIM)?, w(DIM)?, w(DIM)?].into();
        let head = w(50)?;
        Ok(Self { embedding, projections, head, taps: lab.random.normal(3 * DIM) })
    }

    fn on<'a>(&self, b: &'a dyn Backend) -> Result<Model<'a>> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        Ok(Model {
            b,
            number: NUMBER.fetch_add(1, Relaxed),
            embedding: b.upload_weight(&self.embedding)?,
            projections: self.projections.iter().map(|w| b.upload_weight(w)).collect::<Result<_>>()?,
            head: b.upload_weight(&self.head)?,
            taps: up(b, &self.taps, &[3, DIM])?,
            ones: up(b, &[1.0; DIM], &[DIM])?,
            rope: Rope::new([1.0, 0.1]),
        })
    }
}

fn cache() -> CacheSpec {
    let layers = vec![LayerCache::full(DIM, DIM), LayerCache::State { len: 2 * DIM }];
    CacheSpec::new(layers, 4, 40, 8)
}

impl Model<'_> {
    /// After attention, and that normed.
    fn attended(&self, cache: &Cache, plan: &Plan) -> Result<(Tensor, Tensor)> {
        let (b, n) = (self.b, plan.batch().tokens.len());
        let x = b.embed(&self.embedding, Ids::Tokens, plan)?;
        let normed = b.rms_norm(&x, &self.ones, 1e-5)?;
        let mut qkv = b.linear_many(&normed, &self.projections.iter().collect::<Vec<_>>())?.into_iter();
        let mut next = || qkv.next().ok_or_else(|| Error::invalid("linear_many", "too few products"));
        let heads = |x: Tensor| x.reshape([n, 2, DIM / 2]);
        let (q, k, v) = (heads(next()?)?, heads(next()?)?, next()?);
        let y = b.rope_attend(0, q, k, &v, &self.rope, cache, &AttnSpec::causal(2, 2, DIM / 2), plan)?;
        b.add_rms_norm(x, &y, &self.ones, 1e-5)
    }

    fn step(&self, cache: &Cache, plan: &Plan) -> Result<Tensor> {
        let (b, (x, normed)) = (self.b, self.attended(cache, plan)?);
        let y = b.activate(b.causal_conv(1, &normed, &self.taps, cache, plan)?, Activation::Silu)?;
        b.linear(&b.outputs(&b.add(x, &y)?, plan)?, &self.head)
    }

    /// Replays if the step has a key, and gives the logits that were wanted before the backend padded.
    fn replayed(&self, batch: &Batch, f: &mut dyn FnMut(&Plan) -> Result<Tensor>) -> Result<Tensor> {
        let (wanted, batch) = (batch.outputs.len(), self.b.bucket(batch.clone()));
        let (key, plan) = (StepKey::of(self.number, &batch), self.b.plan(batch)?);
        let y = match key {
            Some(key) => self.b.replay(&key, &plan, f)?,
            None => f(&plan)?,
        };
        let rest = y.shape().first() - wanted;
        Ok(if rest == 0 { y } else { self.b.split(&y, Axis::Rows, &[wanted, rest])?.swap_remove(0) })
    }

    /// The same of a step that ends with the best `k` logits: their values. `[wanted, k]`
    fn best(&self, batch: &Batch, cache: &Cache, k: usize) -> Result<Tensor> {
        let (wanted, batch) = (batch.outputs.len(), self.b.bucket(batch.clone()));
        let (key, plan) = (StepKey::of(self.number, &batch), self.b.plan(batch)?);
        let mut f = |plan: &Plan| self.b.top_k(self.step(cache, plan)?, k);
        let y = match key {
            Some(key) => self.b.replay(&key.top_k(k), &plan, &mut f)?,
            None => f(&plan)?,
        };
        let rows = self.b.best(&y, k)?;
        let values: Vec<f32> = rows.into_iter().take(wanted).flatten().map(|(_, v)| v).collect();
        self.b.upload(&values, [wanted, k].into())
    }
}

/// A prompt, then so many steps of one token each for two sequences.
fn decoding(lab: &mut Lab<'_>, steps: usize) -> Vec<Batch> {
    let mut sequences = Sequences::new(&mut lab.random, &cache(), 3);
    let prompt = sequences.step(&[(0, 5), (1, 3)], 0);
    [prompt].into_iter().chain((0..steps).map(|_| sequences.step(&[(0, 1), (1, 1)], 0))).collect()
}

pub(super) fn add(cases: &mut Vec<Case>) {
    cases.push(Case::new("replay/decoding", |lab| {
        let (numbers, batches) = (Numbers::new(lab)?, decoding(lab, 14));
        lab.same("a prompt and 14 steps", lab.exact().times(20.0), &|b| {
            let (model, cache) = (numbers.on(b)?, b.new_cache(&cache())?);
            batches.iter().map(|batch| model.replayed(batch, &mut |p| model.step(&cache, p))).collect()
        });
        Ok(())
    }));

    cases.push(Case::new("replay/top-k", |lab| {
        let (numbers, batches) = (Numbers::new(lab)?, decoding(lab, 10));
        lab.same("a prompt and 10 steps, each in three ways", lab.exact().times(20.0), &|b| {
            let (model, cache) = (numbers.on(b)?, b.new_cache(&cache())?);
            let mut seen = Vec::new();
            for batch in &batches {
                seen.push(model.best(batch, &cache, 1)?);
                seen.push(model.replayed(batch, &mut |p| model.step(&cache, p))?);
                seen.push(model.best(batch, &cache, 3)?);
            }
            Ok(seen)
        });
        Ok(())
    }));

    cases.push(Case::new("replay/two-models", |lab| {
        let (one, two, batches) = (Numbers::new(lab)?, Numbers::new(lab)?, decoding(lab, 6));
        lab.same("in turn", lab.exact().times(20.0), &|b| {
            let (models, caches) =
                ([one.on(b)?, two.on(b)?], [b.new_cache(&cache())?, b.new_cache(&cache())?]);
            let mut seen = Vec::new();
            for batch in &batches {
                for (model, cache) in models.iter().zip(&caches) {
                    seen.push(model.replayed(batch, &mut |p| model.step(cache, p))?);
                }
            }
            Ok(seen)
        });
        Ok(())
    }));

    cases.push(Case::new("replay/download-inside", |lab| {
        let (numbers, batches) = (Numbers::new(lab)?, decoding(lab, 6));
        lab.same("values read and put back", lab.exact().times(20.0), &|b| {
            let (model, cache) = (numbers.on(b)?, b.new_cache(&cache())?);
            let mut look = |plan: &Plan| {
                let y = model.step(&cache, plan)?;
                b.upload(&b.download(&y)?, y.shape())
            };
            batches.iter().map(|batch| model.replayed(batch, &mut look)).collect()
        });
        Ok(())
    }));

    cases.push(Case::new("replay/failing-step", |lab| {
        let (numbers, batches) = (Numbers::new(lab)?, decoding(lab, 6));
        let b = lab.subject();
        let failed = lab.guarded("failing", || {
            let (model, cache) = (numbers.on(&*b)?, b.new_cache(&cache())?);
            let fail = |batch| {
                let mut f = |p: &Plan| {
                    model.step(&cache, p)?;
                    Err(Error::unsupported("model", "told to fail"))
                };
                model.replayed(batch, &mut f).is_err()
            };
            // A key never seen before; a step that was recorded may be replayed without asking.
            Ok(fail(&batches[1]))
        });
        lab.check(failed == Some(true), || "a failing step gave no error".into());
        lab.same("after failures", lab.exact().times(20.0), &|b| {
            let (model, cache) = (numbers.on(b)?, b.new_cache(&cache())?);
            let mut seen = Vec::new();
            for (i, batch) in batches.iter().enumerate() {
                let mut once = i == 1;
                if once {
                    let mut fail = |_: &Plan| match std::mem::take(&mut once) {
                        true => Err(Error::unsupported("model", "told to fail")),
                        false => Err(Error::unsupported("model", "asked again")),
                    };
                    if model.replayed(batch, &mut fail).is_ok() {
                        return Err(Error::invalid("replay", "a failing step gave no error"));
                    }
                }
                seen.push(model.replayed(batch, &mut |p| model.step(&cache, p))?);
            }
            Ok(seen)
        });
        Ok(())
    }));

    cases.push(Case::new("replay/rows-of-nobody", |lab| {
        let spec = CacheSpec::new(vec![LayerCache::full(DIM, DIM)], 4, 40, 8);
        let (numbers, mut sequences) = (Numbers::new(lab)?, Sequences::new(&mut lab.random, &spec, 4));
        // Sequences without states: of one key, whoever of the four is there.
        let batches: Vec<Batch> = [4, 3, 4, 2, 3, 1, 4, 2, 1, 3, 4, 4]
            .into_iter()
            .map(|count| {
                let work: Vec<_> = (4 - count..4).map(|s| (s, 1)).collect();
                let mut batch = sequences.step(&work, 4 - count);
                batch.spans.iter_mut().for_each(|span| span.slots = [0; 2]);
                batch.outputs.resize(4, 3);
                batch
            })
            .collect();
        lab.same("steps of four rows", lab.exact().times(20.0), &|b| {
            let (model, cache) = (numbers.on(b)?, b.new_cache(&spec)?);
            let step = |batch: &Batch| {
                let key = StepKey::of(model.number, batch)
                    .ok_or_else(|| Error::invalid("replay", "a step of one row each has no key"))?;
                let mut f = |p: &Plan| b.linear(&b.outputs(&model.attended(&cache, p)?.1, p)?, &model.head);
                let y = b.replay(&key, &b.plan(batch.clone())?, &mut f)?;
                let mine = batch.spans.len();
                Ok(if mine == 4 { y } else { b.split(&y, Axis::Rows, &[mine, 4 - mine])?.swap_remove(0) })
            };
            batches.iter().map(step).collect()
        });
        Ok(())
    }));

    cases.push(Case::new("bucket/keeps-the-step", |lab| {
        let b = lab.subject();
        for batch in decoding(lab, 9) {
            let Some(padded) = lab.guarded("bucket", || Ok(b.bucket(batch.clone()))) else { continue };
            let begins = |long: &[u32], short: &[u32]| long.get(..short.len()) == Some(short);
            let ids = begins(&padded.tokens, &batch.tokens)
                && begins(&padded.positions, &batch.positions)
                && begins(&padded.types, &batch.types)
                && begins(&padded.outputs, &batch.outputs);
            lab.check(ids, || format!("rows or outputs of {batch:?} became {padded:?}"));
            let spans = format!("{:?}{:?}", batch.spans, batch.copies)
                == format!("{:?}{:?}", padded.spans, padded.copies);
            lab.check(spans, || format!("spans or copies of {batch:?} became {padded:?}"));
            lab.guarded("planning what bucket gave", || b.plan(padded));
        }
        Ok(())
    }));
}
