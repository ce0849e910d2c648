//! Handles that another backend made: every operator must say so, whichever of its arguments it is.

use super::{Case, up};
use ogive_backend::tensor::{HostWeight, Result, Tensor};
use ogive_backend::{
    Activation, AttnOption, AttnSpec, Axis, Backend, Cache, CacheSpec, Experts, Ids, LayerCache, Plan, Rope,
    RouterSpec, Routing, Scoring, Weight,
};

/// What no backend can have made.
struct Stranger;

/// Handles of one maker. Rows are three, columns four.
struct Kit {
    x: Tensor,
    heads: Tensor,
    row: Tensor,
    w: Weight,
    cache: Cache,
    plan: Plan,
    routing: Routing,
}

fn spec() -> CacheSpec {
    CacheSpec::new(vec![LayerCache::full(4, 4), LayerCache::State { len: 4 }], 4, 2, 2)
}

fn host_weight() -> Result<HostWeight> {
    HostWeight::from_f32("w", [1, 4, 4], &[0.5; 16])
}

fn step() -> ogive_backend::Batch {
    super::cache::one(3)
}

impl Kit {
    fn of(b: &dyn Backend) -> Result<Self> {
        let x = up(b, &[1.0; 12], &[3, 4])?;
        Ok(Self {
            heads: x.clone().reshape([3, 1, 4])?,
            row: up(b, &[1.0; 4], &[4])?,
            w: b.upload_weight(&host_weight()?)?,
            cache: b.new_cache(&spec())?,
            plan: b.plan(step())?,
            routing: b.route(&up(b, &[1.0; 3], &[3, 1])?, &RouterSpec::new(1, Scoring::Softmax))?,
            x,
        })
    }

    fn strange() -> Result<Self> {
        let x = Tensor::new([3, 4], Stranger);
        Ok(Self {
            heads: x.clone().reshape([3, 1, 4])?,
            row: Tensor::new([4], Stranger),
            w: Weight::new(&host_weight()?, Stranger),
            cache: Cache::new(spec(), Stranger),
            plan: Plan::new(step(), Stranger),
            routing: Routing { ids: Tensor::new([3, 1], Stranger), weights: Tensor::new([3, 1], Stranger) },
            x,
        })
    }
}

type Call = (&'static str, fn(&dyn Backend, &Kit, &Kit) -> Result<()>);

fn experts(weights: [&Weight; 3]) -> Experts {
    Experts::new(weights.map(Clone::clone), Activation::Silu)
}

fn attn() -> AttnSpec {
    AttnSpec::causal(1, 1, 4)
}

/// `o` is our own, `s` the stranger's.
const CALLS: [Call; 51] = [
    ("download", |b, _, s| b.download(&s.x).map(drop)),
    ("embed, table", |b, o, s| b.embed(&s.w, Ids::Tokens, &o.plan).map(drop)),
    ("embed, plan", |b, o, s| b.embed(&o.w, Ids::Tokens, &s.plan).map(drop)),
    ("linear, input", |b, o, s| b.linear(&s.x, &o.w).map(drop)),
    ("linear, weight", |b, o, s| b.linear(&o.x, &s.w).map(drop)),
    ("rms_norm, input", |b, o, s| b.rms_norm(&s.x, &o.row, 1e-5).map(drop)),
    ("rms_norm, factors", |b, o, s| b.rms_norm(&o.x, &s.row, 1e-5).map(drop)),
    ("layer_norm, input", |b, o, s| b.layer_norm(&s.x, &o.row, None, 1e-5).map(drop)),
    ("layer_norm, factors", |b, o, s| b.layer_norm(&o.x, &s.row, None, 1e-5).map(drop)),
    ("layer_norm, shifts", |b, o, s| b.layer_norm(&o.x, &o.row, Some(&s.row), 1e-5).map(drop)),
    ("add, left", |b, o, s| b.add(s.x.clone(), &o.x).map(drop)),
    ("add, right", |b, o, s| b.add(o.x.clone(), &s.x).map(drop)),
    ("mul, left", |b, o, s| b.mul(s.x.clone(), &o.row).map(drop)),
    ("mul, right", |b, o, s| b.mul(o.x.clone(), &s.row).map(drop)),
    ("sum", |b, _, s| b.sum(&s.x).map(drop)),
    ("activate", |b, _, s| b.activate(s.x.clone(), Activation::Silu).map(drop)),
    ("split", |b, _, s| b.split(&s.x, Axis::Rows, &[1, 2]).map(drop)),
    ("concat", |b, o, s| b.concat(&[&o.x, &s.x], Axis::Rows).map(drop)),
    ("rope, input", |b, o, s| b.rope(s.heads.clone(), &Rope::new([1.0]), &o.plan).map(drop)),
    ("rope, plan", |b, o, s| b.rope(o.heads.clone(), &Rope::new([1.0]), &s.plan).map(drop)),
    ("store_kv, keys", |b, o, s| b.store_kv(0, &s.x, Some(&o.x), &o.cache, &o.plan)),
    ("store_kv, values", |b, o, s| b.store_kv(0, &o.x, Some(&s.x), &o.cache, &o.plan)),
    ("store_kv, cache", |b, o, s| b.store_kv(0, &o.x, Some(&o.x), &s.cache, &o.plan)),
    ("store_kv, plan", |b, o, s| b.store_kv(0, &o.x, Some(&o.x), &o.cache, &s.plan)),
    ("gather_kv, cache", |b, o, s| b.gather_kv(0, &s.cache, &o.plan).map(drop)),
    ("gather_kv, plan", |b, o, s| b.gather_kv(0, &o.cache, &s.plan).map(drop)),
    ("attend, queries", |b, o, s| b.attend(&s.x, &o.x, &o.x, &attn(), &o.plan).map(drop)),
    ("attend, keys", |b, o, s| b.attend(&o.x, &s.x, &o.x, &attn(), &o.plan).map(drop)),
    ("attend, values", |b, o, s| b.attend(&o.x, &o.x, &s.x, &attn(), &o.plan).map(drop)),
    ("attend, plan", |b, o, s| b.attend(&o.x, &o.x, &o.x, &attn(), &s.plan).map(drop)),
    ("attend, sinks", |b, o, s| {
        let sinks = s.row.clone().reshape([4])?;
        let spec = AttnSpec::causal(4, 4, 1).with(AttnOption::Sinks(sinks));
        b.attend(&o.x, &o.x, &o.x, &spec, &o.plan).map(drop)
    }),
    ("attend, mask", |b, o, _| {
        let spec = attn().with(AttnOption::Mask(Tensor::new([3, 3], Stranger)));
        b.attend(&o.x, &o.x, &o.x, &spec, &o.plan).map(drop)
    }),
    ("attend_cache, queries", |b, o, s| b.attend_cache(0, &s.x, &o.cache, &attn(), &o.plan).map(drop)),
    ("attend_cache, cache", |b, o, s| b.attend_cache(0, &o.x, &s.cache, &attn(), &o.plan).map(drop)),
    ("attend_cache, plan", |b, o, s| b.attend_cache(0, &o.x, &o.cache, &attn(), &s.plan).map(drop)),
    ("copy_blocks, cache", |b, o, s| b.copy_blocks(&s.cache, &o.plan)),
    ("copy_blocks, plan", |b, o, s| b.copy_blocks(&o.cache, &s.plan)),
    ("read_state, cache", |b, o, s| b.read_state(1, &s.cache, &o.plan).map(drop)),
    ("read_state, plan", |b, o, s| b.read_state(1, &o.cache, &s.plan).map(drop)),
    ("write_state, state", |b, o, _| b.write_state(1, &Tensor::new([1, 4], Stranger), &o.cache, &o.plan)),
    ("write_state, plan", |b, o, s| b.write_state(1, &o.row.clone().reshape([1, 4])?, &o.cache, &s.plan)),
    ("route, logits", |b, _, s| b.route(&s.x, &RouterSpec::new(1, Scoring::Softmax)).map(drop)),
    ("route, bias", |b, o, s| {
        b.route(&o.x, &RouterSpec::new(1, Scoring::Softmax).biased(s.row.clone())).map(drop)
    }),
    ("experts, input", |b, o, s| b.experts(&s.x, &o.routing, &experts([&o.w; 3])).map(drop)),
    ("experts, routing", |b, o, s| b.experts(&o.x, &s.routing, &experts([&o.w; 3])).map(drop)),
    ("experts, weights", |b, o, s| b.experts(&o.x, &o.routing, &experts([&o.w, &o.w, &s.w])).map(drop)),
    ("experts, weights without a gate", |b, o, s| {
        let ungated = |[up, down]: [&Weight; 2]| {
            b.experts(&o.x, &o.routing, &Experts::ungated([up.clone(), down.clone()], Activation::Silu))
        };
        ungated([&o.w, &o.w])?;
        // An error only where both are.
        ungated([&s.w, &o.w]).or(ungated([&o.w, &s.w])).map(drop)
    }),
    ("experts, biases", |b, o, s| {
        let (own, strange) = (o.row.clone().reshape([1, 4])?, s.row.clone().reshape([1, 4])?);
        let biased = experts([&o.w; 3]).biased([own.clone(), own, strange]);
        b.experts(&o.x, &o.routing, &biased).map(drop)
    }),
    ("outputs, input", |b, o, s| b.outputs(&s.x, &o.plan).map(drop)),
    ("outputs, plan", |b, o, s| b.outputs(&o.x, &s.plan).map(drop)),
    ("argmax", |b, _, s| b.argmax(&s.x).map(drop)),
];

pub(super) fn add(cases: &mut Vec<Case>) {
    cases.push(Case::new("foreign-handles", |lab| {
        for (what, call) in CALLS {
            lab.refuses_foreign(what, |b| Ok((Kit::of(b)?, Kit::strange()?)), |b, (o, s)| call(b, &o, &s));
        }
        Ok(())
    }));
}
