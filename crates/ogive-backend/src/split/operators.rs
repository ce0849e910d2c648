//! Each operator of a split backend: which part computes it, and what is brought there.
//!
//! Provided operators are passed on where all they need is of one part, so that a part's own better ways are used; else their
//! definitions run, and each piece finds its place. Each goes through [`Split::list`], which knows whether it is computed at all.

use super::Split;
use crate::*;
use ogive_tensor::{Error, Result, Shape, Tensor};

/// The steps of all parts.
#[derive(Debug)]
struct Plans(Vec<Plan>);

impl Split {
    pub(super) fn plan_of<'a>(&self, part: usize, plan: &'a Plan) -> Result<&'a Plan> {
        let plans = plan.device::<Plans>().filter(|plans| plans.0.len() == self.parts.len());
        plans.and_then(|plans| plans.0.get(part)).ok_or_else(|| Error::foreign("plan"))
    }

    /// Options that hold tensors, with those where `part` is.
    fn attention(&self, part: usize, spec: &AttnSpec) -> Result<AttnSpec> {
        let option = |option: &AttnOption| match option {
            AttnOption::Sinks(x) => Ok(AttnOption::Sinks(self.at(part, x)?)),
            AttnOption::Mask(x) => Ok(AttnOption::Mask(self.at(part, x)?)),
            other => Ok(other.clone()),
        };
        let options = spec.options.iter().map(option).collect::<Result<_>>()?;
        Ok(AttnSpec { options, ..spec.clone() })
    }

    fn router(&self, part: usize, spec: &RouterSpec) -> Result<RouterSpec> {
        let bias = spec.bias.as_ref().map(|bias| self.at(part, bias)).transpose()?;
        Ok(RouterSpec { bias, ..spec.clone() })
    }

    /// The experts, and the part that has all of them.
    fn experts_of(&self, experts: &Experts) -> Result<(usize, Experts)> {
        let gate = experts.gate.as_ref().map(|gate| self.weight(gate)).transpose()?;
        let ((part, up), (other, down)) = (self.weight(&experts.up)?, self.weight(&experts.down)?);
        if other != part || gate.is_some_and(|(other, _)| other != part) {
            return Err(Error::unsupported(
                "experts",
                "the weights of a layer's experts must be of one part",
            ));
        }
        let (gate, up, down) = (gate.map(|(_, gate)| gate.clone()), up.clone(), down.clone());
        let bias = match &experts.bias {
            Some([gate, up, down]) => Some([self.at(part, gate)?, self.at(part, up)?, self.at(part, down)?]),
            None => None,
        };
        Ok((part, Experts { gate, up, down, bias, ..experts.clone() }))
    }

    /// The part that all of these weights are of, if they are of one.
    fn common<'a>(&self, ws: &[&'a Weight]) -> Result<Option<(usize, Vec<&'a Weight>)>> {
        let placed = ws.iter().map(|w| self.weight(w)).collect::<Result<Vec<_>>>()?;
        let Some(&(part, _)) = placed.first() else { return Ok(None) };
        let same = placed.iter().all(|(p, _)| *p == part);
        Ok(same.then(|| (part, placed.into_iter().map(|(_, w)| w).collect())))
    }
}

impl Backend for Split {
    fn facts(&self) -> Facts {
        self.describe()
    }
    fn upload(&self, values: &[f32], shape: Shape) -> Result<Tensor> {
        self.run.outside("an upload")?;
        if values.len() != shape.len() {
            return Err(Error::shape("upload", [values.len()].into(), shape));
        }
        Ok(self.everywhere(values, shape))
    }
    fn download(&self, x: &Tensor) -> Result<Vec<f32>> {
        self.run.outside("a download")?;
        self.values(x)
    }
    fn upload_weight(&self, w: &HostWeight) -> Result<Weight> {
        self.run.outside("an upload")?;
        self.take_weight(w)
    }
    fn new_cache(&self, spec: &CacheSpec) -> Result<Cache> {
        self.run.outside("a new cache")?;
        spec.check()?;
        self.cache(spec)
    }
    fn plan(&self, batch: Batch) -> Result<Plan> {
        self.run.outside("another step")?;
        let plans = self.parts.iter().map(|b| b.plan(batch.clone())).collect::<Result<_>>()?;
        Ok(Plan::new(batch, Plans(plans)))
    }

    fn embed(&self, table: &Weight, ids: Ids, plan: &Plan) -> Result<Tensor> {
        let (part, table) = self.weight(table)?;
        let x = self.one(part, "embed", |b| b.embed(table, ids, self.plan_of(part, plan)?))?;
        Ok(Self::begins(x))
    }
    fn linear(&self, x: &Tensor, w: &Weight) -> Result<Tensor> {
        let (part, w) = self.weight(w)?;
        self.one(part, "linear", |b| b.linear(&self.at(part, x)?, w))
    }
    fn rms_norm(&self, x: &Tensor, w: &Tensor, eps: f32) -> Result<Tensor> {
        let part = self.part_of(&[x, w])?;
        self.one(part, "rms_norm", |b| b.rms_norm(&self.at(part, x)?, &self.at(part, w)?, eps))
    }
    fn layer_norm(&self, x: &Tensor, w: &Tensor, b: Option<&Tensor>, eps: f32) -> Result<Tensor> {
        let part = self.part_of(&[x, w])?;
        self.one(part, "layer_norm", |own| {
            let b = b.map(|b| self.at(part, b)).transpose()?;
            own.layer_norm(&self.at(part, x)?, &self.at(part, w)?, b.as_ref(), eps)
        })
    }
    fn add(&self, x: Tensor, y: &Tensor) -> Result<Tensor> {
        let part = self.part_of(&[&x, y])?;
        self.one(part, "add", |b| {
            let y = self.at(part, y)?;
            b.add(self.into(part, x)?, &y)
        })
    }
    fn mul(&self, x: Tensor, y: &Tensor) -> Result<Tensor> {
        let part = self.part_of(&[&x, y])?;
        self.one(part, "mul", |b| {
            let y = self.at(part, y)?;
            b.mul(self.into(part, x)?, &y)
        })
    }
    fn sum(&self, x: &Tensor) -> Result<Tensor> {
        let part = self.part_of(&[x])?;
        self.one(part, "sum", |b| b.sum(&self.at(part, x)?))
    }
    fn activate(&self, x: Tensor, f: Activation) -> Result<Tensor> {
        let part = self.part_of(&[&x])?;
        self.one(part, "activate", |b| b.activate(self.into(part, x)?, f))
    }
    fn split(&self, x: &Tensor, axis: Axis, sizes: &[usize]) -> Result<Vec<Tensor>> {
        let part = self.part_of(&[x])?;
        self.list(part, "split", |b| b.split(&self.at(part, x)?, axis, sizes))
    }
    fn concat(&self, xs: &[&Tensor], axis: Axis) -> Result<Tensor> {
        let part = self.part_of(xs)?;
        self.one(part, "concat", |b| {
            let xs = xs.iter().map(|x| self.at(part, x)).collect::<Result<Vec<_>>>()?;
            b.concat(&xs.iter().collect::<Vec<_>>(), axis)
        })
    }
    fn rope(&self, x: Tensor, rope: &Rope, plan: &Plan) -> Result<Tensor> {
        let part = self.part_of(&[&x])?;
        self.one(part, "rope", |b| b.rope(self.into(part, x)?, rope, self.plan_of(part, plan)?))
    }
    fn store_kv(
        &self,
        layer: usize,
        k: &Tensor,
        v: Option<&Tensor>,
        cache: &Cache,
        plan: &Plan,
    ) -> Result<()> {
        let (part, own) = self.layer(layer, cache)?;
        self.none(part, "store_kv", |b| {
            let (k, v) = (self.at(part, k)?, v.map(|v| self.at(part, v)).transpose()?);
            b.store_kv(layer, &k, v.as_ref(), own, self.plan_of(part, plan)?)
        })
    }
    fn gather_kv(&self, layer: usize, cache: &Cache, plan: &Plan) -> Result<(Tensor, Option<Tensor>)> {
        let (part, own) = self.layer(layer, cache)?;
        let mut both = self
            .list(part, "gather_kv", |b| {
                let (k, v) = b.gather_kv(layer, own, self.plan_of(part, plan)?)?;
                Ok([k].into_iter().chain(v).collect())
            })?
            .into_iter();
        let k = both.next().ok_or_else(|| Error::invalid("gather_kv", "there are no keys"))?;
        Ok((k, both.next()))
    }
    fn attend(&self, q: &Tensor, k: &Tensor, v: &Tensor, spec: &AttnSpec, plan: &Plan) -> Result<Tensor> {
        let part = self.part_of(&[q, k, v])?;
        self.one(part, "attend", |b| {
            let (q, k, v) = (self.at(part, q)?, self.at(part, k)?, self.at(part, v)?);
            b.attend(&q, &k, &v, &self.attention(part, spec)?, self.plan_of(part, plan)?)
        })
    }
    fn copy_blocks(&self, cache: &Cache, plan: &Plan) -> Result<()> {
        self.run.outside("copies of blocks")?;
        let mut caches = self.shared(cache)?.caches.iter().enumerate();
        caches.try_for_each(|(part, own)| self.backend(part)?.copy_blocks(own, self.plan_of(part, plan)?))
    }
    fn read_state(&self, layer: usize, cache: &Cache, plan: &Plan) -> Result<Tensor> {
        let (part, own) = self.layer(layer, cache)?;
        self.one(part, "read_state", |b| b.read_state(layer, own, self.plan_of(part, plan)?))
    }
    fn write_state(&self, layer: usize, state: &Tensor, cache: &Cache, plan: &Plan) -> Result<()> {
        let (part, own) = self.layer(layer, cache)?;
        self.none(part, "write_state", |b| {
            b.write_state(layer, &self.at(part, state)?, own, self.plan_of(part, plan)?)
        })
    }
    fn route(&self, logits: &Tensor, spec: &RouterSpec) -> Result<Routing> {
        let part = self.part_of(&[logits])?;
        let (mut ids, weights) = self.two(part, "route", |b| {
            let routing = b.route(&self.at(part, logits)?, &self.router(part, spec)?)?;
            Ok((routing.ids, routing.weights))
        })?;
        self.chosen_by(&mut ids, logits, spec);
        Ok(Routing { ids, weights })
    }
    fn experts(&self, x: &Tensor, routing: &Routing, experts: &Experts) -> Result<Tensor> {
        let (part, experts) = self.experts_of(experts)?;
        self.held(&routing.weights)?;
        let (logits, spec) = self.routed(&routing.ids)?.ok_or_else(|| Error::foreign("routing"))?;
        let here = self.part_of(&[&routing.ids])? == part;
        self.one(part, "experts", |b| {
            let x = self.at(part, x)?;
            if here {
                let (ids, weights) = (self.at(part, &routing.ids)?, self.at(part, &routing.weights)?);
                return b.experts(&x, &Routing { ids, weights }, &experts);
            }
            // Numbers of experts are in a form of the part that chose them.
            b.experts(&x, &b.route(&self.at(part, logits)?, &self.router(part, spec)?)?, &experts)
        })
    }
    fn outputs(&self, x: &Tensor, plan: &Plan) -> Result<Tensor> {
        let part = self.part_of(&[x])?;
        self.one(part, "outputs", |b| b.outputs(&self.at(part, x)?, self.plan_of(part, plan)?))
    }

    fn linear_many(&self, x: &Tensor, ws: &[&Weight]) -> Result<Vec<Tensor>> {
        match self.common(ws)? {
            Some((part, own)) => self.list(part, "linear_many", |b| b.linear_many(&self.at(part, x)?, &own)),
            None => ws.iter().map(|w| self.linear(x, w)).collect(),
        }
    }
    fn linear_gated(&self, x: &Tensor, gate: &Weight, up: &Weight, f: Activation) -> Result<Tensor> {
        if let Some((part, own)) = self.common(&[gate, up])?
            && let [gate, up] = own[..]
        {
            return self.one(part, "linear_gated", |b| b.linear_gated(&self.at(part, x)?, gate, up, f));
        }
        self.gated(self.linear(x, gate)?, &self.linear(x, up)?, f)
    }
    fn add_rms_norm(&self, residual: Tensor, x: &Tensor, w: &Tensor, eps: f32) -> Result<(Tensor, Tensor)> {
        let part = self.part_of(&[&residual, x])?;
        self.two(part, "add_rms_norm", |b| {
            let (x, w) = (self.at(part, x)?, self.at(part, w)?);
            b.add_rms_norm(self.into(part, residual)?, &x, &w, eps)
        })
    }
    fn gated(&self, gate: Tensor, up: &Tensor, f: Activation) -> Result<Tensor> {
        let part = self.part_of(&[&gate, up])?;
        self.one(part, "gated", |b| {
            let up = self.at(part, up)?;
            b.gated(self.into(part, gate)?, &up, f)
        })
    }
    fn attend_cache(
        &self,
        layer: usize,
        q: &Tensor,
        cache: &Cache,
        spec: &AttnSpec,
        plan: &Plan,
    ) -> Result<Tensor> {
        let (part, own) = self.layer(layer, cache)?;
        self.one(part, "attend_cache", |b| {
            let (q, spec, plan) = (self.at(part, q)?, self.attention(part, spec)?, self.plan_of(part, plan)?);
            b.attend_cache(layer, &q, own, &spec, plan)
        })
    }
    fn attend_latent(
        &self,
        layer: usize,
        q: &Tensor,
        cache: &Cache,
        spec: &AttnSpec,
        plan: &Plan,
    ) -> Result<Tensor> {
        let (part, own) = self.layer(layer, cache)?;
        self.one(part, "attend_latent", |b| {
            let (q, spec, plan) = (self.at(part, q)?, self.attention(part, spec)?, self.plan_of(part, plan)?);
            b.attend_latent(layer, &q, own, &spec, plan)
        })
    }
    fn rope_attend(
        &self,
        layer: usize,
        q: Tensor,
        k: Tensor,
        v: &Tensor,
        rope: &Rope,
        cache: &Cache,
        spec: &AttnSpec,
        plan: &Plan,
    ) -> Result<Tensor> {
        let (part, own) = self.layer(layer, cache)?;
        self.one(part, "rope_attend", |b| {
            let (q, k, v) = (self.into(part, q)?, self.into(part, k)?, self.at(part, v)?);
            let (spec, plan) = (self.attention(part, spec)?, self.plan_of(part, plan)?);
            b.rope_attend(layer, q, k, &v, rope, own, &spec, plan)
        })
    }
    fn causal_conv(
        &self,
        layer: usize,
        x: &Tensor,
        w: &Tensor,
        cache: &Cache,
        plan: &Plan,
    ) -> Result<Tensor> {
        let (part, own) = self.layer(layer, cache)?;
        self.one(part, "causal_conv", |b| {
            b.causal_conv(layer, &self.at(part, x)?, &self.at(part, w)?, own, self.plan_of(part, plan)?)
        })
    }
    fn selective_scan(
        &self,
        layer: usize,
        x: &Tensor,
        dt: &Tensor,
        a: &Tensor,
        b: &Tensor,
        c: &Tensor,
        cache: &Cache,
        plan: &Plan,
    ) -> Result<Tensor> {
        let (part, own) = self.layer(layer, cache)?;
        self.one(part, "selective_scan", |backend| {
            let [x, dt, a] = [self.at(part, x)?, self.at(part, dt)?, self.at(part, a)?];
            let [b, c] = [self.at(part, b)?, self.at(part, c)?];
            backend.selective_scan(layer, &x, &dt, &a, &b, &c, own, self.plan_of(part, plan)?)
        })
    }
    fn linear_attention(
        &self,
        layer: usize,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        g: &Tensor,
        beta: Option<&Tensor>,
        cache: &Cache,
        plan: &Plan,
    ) -> Result<Tensor> {
        let (part, own) = self.layer(layer, cache)?;
        self.one(part, "linear_attention", |b| {
            let [q, k, v] = [self.at(part, q)?, self.at(part, k)?, self.at(part, v)?];
            let (g, beta) = (self.at(part, g)?, beta.map(|beta| self.at(part, beta)).transpose()?);
            b.linear_attention(layer, &q, &k, &v, &g, beta.as_ref(), own, self.plan_of(part, plan)?)
        })
    }
    fn moe(&self, x: &Tensor, logits: &Tensor, spec: &RouterSpec, experts: &Experts) -> Result<Tensor> {
        let (part, experts) = self.experts_of(experts)?;
        self.one(part, "moe", |b| {
            let (x, logits) = (self.at(part, x)?, self.at(part, logits)?);
            b.moe(&x, &logits, &self.router(part, spec)?, &experts)
        })
    }
    fn best(&self, x: &Tensor, k: usize) -> Result<Vec<Vec<(u32, f32)>>> {
        self.run.outside("a choice")?;
        let part = self.part_of(&[x])?;
        self.backend(part)?.best(&self.at(part, x)?, k)
    }
    fn top_k(&self, x: Tensor, k: usize) -> Result<Tensor> {
        let part = self.part_of(&[&x])?;
        self.one(part, "top_k", |b| b.top_k(self.into(part, x)?, k))
    }

    fn replay(
        &self,
        key: &StepKey,
        plan: &Plan,
        f: &mut dyn FnMut(&Plan) -> Result<Tensor>,
    ) -> Result<Tensor> {
        self.in_pieces(key, plan, f)
    }
}
