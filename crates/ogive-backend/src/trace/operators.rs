//! Each operator with what it has to do. Written out and not by the lists of [`forward_required`](crate::forward_required), whose
//! wrappers do not see operands.

use super::{Trace, Work};
use crate::*;

impl Backend for Trace {
    fn facts(&self) -> Facts {
        self.inner.facts()
    }
    fn upload(&self, values: &[f32], shape: Shape) -> Result<Tensor> {
        self.around("upload", &[], Work::NONE, |b| b.upload(values, shape))
    }
    fn download(&self, x: &Tensor) -> Result<Vec<f32>> {
        self.around("download", &[], Work::NONE, |b| b.download(x))
    }
    fn upload_weight(&self, w: &HostWeight) -> Result<Weight> {
        self.around("upload_weight", &[], Work::NONE, |b| b.upload_weight(w))
    }
    fn new_cache(&self, spec: &CacheSpec) -> Result<Cache> {
        self.around("new_cache", &[], Work::NONE, |b| b.new_cache(spec))
    }
    fn plan(&self, batch: Batch) -> Result<Plan> {
        self.around("plan", &[], Work::NONE, |b| b.plan(batch))
    }
    fn embed(&self, table: &Weight, ids: Ids, plan: &Plan) -> Result<Tensor> {
        self.around("embed", &[table], Work::embed(table, plan), |b| b.embed(table, ids, plan))
    }
    fn linear(&self, x: &Tensor, w: &Weight) -> Result<Tensor> {
        self.around("linear", &[w], Work::products(x.shape().rows(), [w]), |b| b.linear(x, w))
    }
    fn rms_norm(&self, x: &Tensor, w: &Tensor, eps: f32) -> Result<Tensor> {
        self.around("rms_norm", &[], Work::NONE, |b| b.rms_norm(x, w, eps))
    }
    fn layer_norm(&self, x: &Tensor, w: &Tensor, bias: Option<&Tensor>, eps: f32) -> Result<Tensor> {
        self.around("layer_norm", &[], Work::NONE, |b| b.layer_norm(x, w, bias, eps))
    }
    fn add(&self, x: Tensor, y: &Tensor) -> Result<Tensor> {
        self.around("add", &[], Work::NONE, |b| b.add(x, y))
    }
    fn mul(&self, x: Tensor, y: &Tensor) -> Result<Tensor> {
        self.around("mul", &[], Work::NONE, |b| b.mul(x, y))
    }
    fn sum(&self, x: &Tensor) -> Result<Tensor> {
        self.around("sum", &[], Work::NONE, |b| b.sum(x))
    }
    fn activate(&self, x: Tensor, f: Activation) -> Result<Tensor> {
        self.around("activate", &[], Work::NONE, |b| b.activate(x, f))
    }
    fn split(&self, x: &Tensor, axis: Axis, sizes: &[usize]) -> Result<Vec<Tensor>> {
        self.around("split", &[], Work::NONE, |b| b.split(x, axis, sizes))
    }
    fn concat(&self, xs: &[&Tensor], axis: Axis) -> Result<Tensor> {
        self.around("concat", &[], Work::NONE, |b| b.concat(xs, axis))
    }
    fn rope(&self, x: Tensor, rope: &Rope, plan: &Plan) -> Result<Tensor> {
        self.around("rope", &[], Work::NONE, |b| b.rope(x, rope, plan))
    }
    fn store_kv(
        &self,
        layer: usize,
        k: &Tensor,
        v: Option<&Tensor>,
        cache: &Cache,
        plan: &Plan,
    ) -> Result<()> {
        let work = Work::store(layer, cache, plan);
        self.around("store_kv", &[], work, |b| b.store_kv(layer, k, v, cache, plan))
    }
    fn gather_kv(&self, layer: usize, cache: &Cache, plan: &Plan) -> Result<(Tensor, Option<Tensor>)> {
        let work = Work::gather(layer, cache, plan);
        self.around("gather_kv", &[], work, |b| b.gather_kv(layer, cache, plan))
    }
    fn attend(&self, q: &Tensor, k: &Tensor, v: &Tensor, spec: &AttnSpec, plan: &Plan) -> Result<Tensor> {
        self.around("attend", &[], Work::attend(spec, plan), |b| b.attend(q, k, v, spec, plan))
    }
    fn copy_blocks(&self, cache: &Cache, plan: &Plan) -> Result<()> {
        self.around("copy_blocks", &[], Work::copy_blocks(cache, plan), |b| b.copy_blocks(cache, plan))
    }
    fn read_state(&self, layer: usize, cache: &Cache, plan: &Plan) -> Result<Tensor> {
        let work = Work::states(1, layer, cache, plan);
        self.around("read_state", &[], work, |b| b.read_state(layer, cache, plan))
    }
    fn write_state(&self, layer: usize, state: &Tensor, cache: &Cache, plan: &Plan) -> Result<()> {
        let work = Work::states(1, layer, cache, plan);
        self.around("write_state", &[], work, |b| b.write_state(layer, state, cache, plan))
    }
    fn route(&self, logits: &Tensor, spec: &RouterSpec) -> Result<Routing> {
        self.around("route", &[], Work::NONE, |b| b.route(logits, spec))
    }
    fn experts(&self, x: &Tensor, routing: &Routing, experts: &Experts) -> Result<Tensor> {
        let work = Work::experts(x.shape().rows(), routing.ids.shape().cols(), experts);
        self.around("experts", &experts.weights(), work, |b| b.experts(x, routing, experts))
    }
    fn outputs(&self, x: &Tensor, plan: &Plan) -> Result<Tensor> {
        self.around("outputs", &[], Work::NONE, |b| b.outputs(x, plan))
    }

    fn linear_many(&self, x: &Tensor, ws: &[&Weight]) -> Result<Vec<Tensor>> {
        let work = Work::products(x.shape().rows(), ws.iter().copied());
        self.around("linear_many", ws, work, |b| b.linear_many(x, ws))
    }
    fn linear_each(&self, x: &Tensor, ws: &[Weight]) -> Result<Tensor> {
        let each: Vec<&Weight> = ws.iter().collect();
        // Each row of a step has a row for each head.
        let work = Work::products(x.shape().first(), ws);
        self.around("linear_each", &each, work, |b| b.linear_each(x, ws))
    }
    fn linear_gated(&self, x: &Tensor, gate: &Weight, up: &Weight, f: Activation) -> Result<Tensor> {
        let work = Work::products(x.shape().rows(), [gate, up]);
        self.around("linear_gated", &[gate, up], work, |b| b.linear_gated(x, gate, up, f))
    }
    fn add_rms_norm(&self, residual: Tensor, x: &Tensor, w: &Tensor, eps: f32) -> Result<(Tensor, Tensor)> {
        self.around("add_rms_norm", &[], Work::NONE, |b| b.add_rms_norm(residual, x, w, eps))
    }
    fn gated(&self, gate: Tensor, up: &Tensor, f: Activation) -> Result<Tensor> {
        self.around("gated", &[], Work::NONE, |b| b.gated(gate, up, f))
    }
    fn attend_cache(
        &self,
        layer: usize,
        q: &Tensor,
        cache: &Cache,
        spec: &AttnSpec,
        plan: &Plan,
    ) -> Result<Tensor> {
        let work = Work::attend_cache(layer, cache, spec, plan);
        self.around("attend_cache", &[], work, |b| b.attend_cache(layer, q, cache, spec, plan))
    }
    fn attend_latent(
        &self,
        layer: usize,
        q: &Tensor,
        cache: &Cache,
        spec: &AttnSpec,
        plan: &Plan,
    ) -> Result<Tensor> {
        let work = Work::attend_cache(layer, cache, spec, plan);
        self.around("attend_latent", &[], work, |b| b.attend_latent(layer, q, cache, spec, plan))
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
        if self.opens("rope_attend") {
            return composed::rope_attend(self, layer, q, k, v, rope, cache, spec, plan);
        }
        let work = Work::store(layer, cache, plan) + Work::attend_cache(layer, cache, spec, plan);
        self.around("rope_attend", &[], work, |b| b.rope_attend(layer, q, k, v, rope, cache, spec, plan))
    }
    fn causal_conv(
        &self,
        layer: usize,
        x: &Tensor,
        w: &Tensor,
        cache: &Cache,
        plan: &Plan,
    ) -> Result<Tensor> {
        let work = Work::conv(layer, x, w, cache, plan);
        self.around("causal_conv", &[], work, |b| b.causal_conv(layer, x, w, cache, plan))
    }
    fn selective_scan(
        &self,
        layer: usize,
        x: &Tensor,
        dt: &Tensor,
        a: &Tensor,
        b_in: &Tensor,
        c: &Tensor,
        cache: &Cache,
        plan: &Plan,
    ) -> Result<Tensor> {
        let work = Work::scan(layer, x, a, cache, plan);
        let scan = |b: &dyn Backend| b.selective_scan(layer, x, dt, a, b_in, c, cache, plan);
        self.around("selective_scan", &[], work, scan)
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
        let work = Work::linear_attention(layer, k, v, beta.is_some(), cache, plan);
        let attend = |b: &dyn Backend| b.linear_attention(layer, q, k, v, g, beta, cache, plan);
        self.around("linear_attention", &[], work, attend)
    }
    fn moe(&self, x: &Tensor, logits: &Tensor, spec: &RouterSpec, experts: &Experts) -> Result<Tensor> {
        if self.opens("moe") {
            return composed::moe(self, x, logits, spec, experts);
        }
        let work = Work::experts(x.shape().rows(), spec.k, experts);
        self.around("moe", &experts.weights(), work, |b| b.moe(x, logits, spec, experts))
    }
    fn argmax(&self, x: &Tensor) -> Result<Vec<u32>> {
        self.around("argmax", &[], Work::NONE, |b| b.argmax(x))
    }
    fn best(&self, x: &Tensor, k: usize) -> Result<Vec<Vec<(u32, f32)>>> {
        self.around("best", &[], Work::NONE, |b| b.best(x, k))
    }
    fn top_k(&self, x: Tensor, k: usize) -> Result<Tensor> {
        self.around("top_k", &[], Work::NONE, |b| b.top_k(x, k))
    }

    fn bring(&self, x: &Tensor, from: &dyn Backend, place: Option<Tensor>) -> Result<Tensor> {
        self.around("bring", &[], Work::NONE, |b| b.bring(x, from, place))
    }

    // How a step runs is the inner backend's to say; what runs in it comes back here.
    fn replay(
        &self,
        key: &StepKey,
        plan: &Plan,
        f: &mut dyn FnMut(&Plan) -> Result<Tensor>,
    ) -> Result<Tensor> {
        self.inner.replay(key, plan, f)
    }
    fn bucket(&self, batch: Batch) -> Batch {
        self.inner.bucket(batch)
    }
}
