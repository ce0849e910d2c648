//! The oracle: every required operator and no override, written to be read. It is what each operator *means*.
//!
//! Values are single precision between operators, as every backend has them; inside one, sums and functions are computed
//! in double precision and rounded once. So the oracle's own error stays far below any tolerance, and what the suite
//! measures is the other backend's. One thread, no unsafe code, and no call, however wrong, panics.

mod attend;
mod cache;
mod elementwise;
mod erf;
mod moe;
mod moves;
mod norm;
mod product;
mod rope;
mod step;
mod values;

use ogive_backend::tensor::{Result, Shape, Tensor};
use ogive_backend::{
    Activation, AttnSpec, Axis, Backend, Batch, Cache, CacheSpec, Experts, Facts, HostWeight, Ids, Plan,
    Rope, RouterSpec, Routing, Weight,
};

/// A backend that defines what the others compute: plain values, double precision sums, no overrides.
///
/// Weights stay packed as the file has them and are decoded row by row, whatever their format. Quick enough for models
/// of a few million parameters.
#[derive(Clone, Copy, Debug, Default)]
pub struct Oracle;

impl Backend for Oracle {
    fn facts(&self) -> Facts {
        let mut facts = Facts::new("oracle", "one thread, single precision with double precision sums");
        facts.exact = true;
        facts
    }

    fn upload(&self, values: &[f32], shape: Shape) -> Result<Tensor> {
        values::upload(values, shape)
    }

    fn download(&self, x: &Tensor) -> Result<Vec<f32>> {
        Ok(values::read("download", x)?.to_vec())
    }

    fn upload_weight(&self, w: &HostWeight) -> Result<Weight> {
        product::upload(w)
    }

    fn new_cache(&self, spec: &CacheSpec) -> Result<Cache> {
        cache::new(spec)
    }

    fn plan(&self, batch: Batch) -> Result<Plan> {
        step::plan(batch)
    }

    fn embed(&self, table: &Weight, ids: Ids, plan: &Plan) -> Result<Tensor> {
        product::embed(table, ids, plan)
    }

    fn linear(&self, x: &Tensor, w: &Weight) -> Result<Tensor> {
        product::linear(x, w)
    }

    fn rms_norm(&self, x: &Tensor, w: &Tensor, eps: f32) -> Result<Tensor> {
        norm::rms(x, w, eps)
    }

    fn layer_norm(&self, x: &Tensor, w: &Tensor, b: Option<&Tensor>, eps: f32) -> Result<Tensor> {
        norm::layer(x, w, b, eps)
    }

    fn add(&self, x: Tensor, y: &Tensor) -> Result<Tensor> {
        elementwise::broadcast("add", x, y, |x, y| x + y)
    }

    fn mul(&self, x: Tensor, y: &Tensor) -> Result<Tensor> {
        elementwise::broadcast("mul", x, y, |x, y| x * y)
    }

    fn sum(&self, x: &Tensor) -> Result<Tensor> {
        norm::sum(x)
    }

    fn activate(&self, x: Tensor, f: Activation) -> Result<Tensor> {
        elementwise::activate(x, f)
    }

    fn split(&self, x: &Tensor, axis: Axis, sizes: &[usize]) -> Result<Vec<Tensor>> {
        moves::split(x, axis, sizes)
    }

    fn concat(&self, xs: &[&Tensor], axis: Axis) -> Result<Tensor> {
        moves::concat(xs, axis)
    }

    fn rope(&self, x: Tensor, rope: &Rope, plan: &Plan) -> Result<Tensor> {
        rope::rope(x, rope, plan)
    }

    fn store_kv(
        &self,
        layer: usize,
        k: &Tensor,
        v: Option<&Tensor>,
        cache: &Cache,
        plan: &Plan,
    ) -> Result<()> {
        cache::store_kv(layer, k, v, cache, plan)
    }

    fn gather_kv(&self, layer: usize, cache: &Cache, plan: &Plan) -> Result<(Tensor, Option<Tensor>)> {
        cache::gather_kv(layer, cache, plan)
    }

    fn attend(&self, q: &Tensor, k: &Tensor, v: &Tensor, spec: &AttnSpec, plan: &Plan) -> Result<Tensor> {
        attend::attend(q, k, v, spec, plan)
    }

    fn copy_blocks(&self, cache: &Cache, plan: &Plan) -> Result<()> {
        cache::copy_blocks(cache, plan)
    }

    fn read_state(&self, layer: usize, cache: &Cache, plan: &Plan) -> Result<Tensor> {
        cache::read_state(layer, cache, plan)
    }

    fn write_state(&self, layer: usize, state: &Tensor, cache: &Cache, plan: &Plan) -> Result<()> {
        cache::write_state(layer, state, cache, plan)
    }

    fn route(&self, logits: &Tensor, spec: &RouterSpec) -> Result<Routing> {
        moe::route(logits, spec)
    }

    fn experts(&self, x: &Tensor, routing: &Routing, experts: &Experts) -> Result<Tensor> {
        moe::experts(x, routing, experts)
    }

    fn outputs(&self, x: &Tensor, plan: &Plan) -> Result<Tensor> {
        moves::outputs(x, plan)
    }
}
