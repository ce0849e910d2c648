//! The backend: each operator by its name, and where it is computed.

use crate::{
    Builder, CpuWeight, Path, Precision, attend, cache,
    held::{self, Owned, Repacker},
    linear, memory,
    ops::{self, make, make_in, math::Function, read},
    plan::{self, CpuPlan},
    pool::Pool,
    room::Rooms,
    spare::Spare,
    weight,
};
use ogive_backend::{
    Activation, AttnSpec, Axis, Backend, Batch, Cache, CacheSpec, Experts, Facts, HostWeight, Ids, Plan,
    Rope, RouterSpec, Routing, Weight,
};
use ogive_tensor::{Error, Result, Shape, Tensor};
use std::sync::Arc;

/// Runs language models on the CPU, on its own threads.
///
/// A token's results are the same bits whatever else is in the step, however its prompt was cut into steps, on any
/// number of threads and on every [`Path`].
#[derive(Debug)]
pub struct CpuBackend {
    pub(crate) pool: Pool,
    pub(crate) precision: Precision,
    pub(crate) path: Path,
    pub(crate) repack: bool,
    /// Who lays weights, if not whoever uploads them.
    pub(crate) repacker: Option<Repacker>,
    pub(crate) spare: Arc<Spare>,
    pub(crate) rooms: Rooms,
}

/// Rows of an empty tensor, at most: far more than a step has, and few enough for operators that make something of each, as a sum.
const ROWS_OF_NOTHING: usize = 1 << 24;

impl CpuBackend {
    /// With the default settings of [`Builder`].
    ///
    /// # Errors
    /// As [`Path::choose`], where `OGIVE_CPU_FORCE` is set.
    pub fn new() -> Result<Self> {
        Self::builder().build()
    }
    /// Settings to choose.
    pub fn builder() -> Builder {
        Builder::default()
    }
    /// Threads that compute, the caller's among them.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }
    /// What products with weights are computed in.
    pub fn precision(&self) -> Precision {
        self.precision
    }
    /// Waits until weights lie as they will stay, where they are laid in the background ([`Builder::background`]): for whoever
    /// measures.
    pub fn settle(&self) {
        if let Some(repacker) = &self.repacker {
            repacker.wait();
        }
    }
    fn gave_result(&self) {
        if let Some(repacker) = &self.repacker {
            repacker.begin();
        }
    }
    /// The instructions that are used.
    pub fn path(&self) -> Path {
        self.path
    }
    /// Whether BF16 weights are multiplied by instructions for pairs of bf16, once they are repacked. Otherwise they are made
    /// singles on the way, and single precision is all that their products can be held against.
    pub fn multiplies_bf16(&self) -> bool {
        self.path == Path::Amx || self.repack && self.path.has_pairs()
    }
}

/// The elements of `x` and its rows, if it can be multiplied by each of `ws`, which have one matrix each.
fn factors<'a>(at: &str, x: &'a Tensor, ws: &[&Weight]) -> Result<(&'a [f32], usize)> {
    for w in ws {
        let [experts, _, cols] = w.shape();
        if experts != 1 || x.shape().cols() != cols {
            return Err(Error::shape(at, x.shape(), w.shape().into()));
        }
    }
    Ok((read(at, x)?, x.shape().rows()))
}

/// Checks what kernels lean on, because a weight's fields can be set one by one: that the bytes fill the shape, that
/// scales cover it, and that a permutation names each column once.
fn check_weight(w: &HostWeight) -> Result<()> {
    let mut whole = HostWeight::new(w.name.as_str(), w.shape, w.format, w.bytes.clone())?;
    if let Some(scale) = &w.scale {
        whole = whole.with_scale(scale.clone())?;
    }
    if let Some(perm) = &w.input_perm {
        whole.with_input_perm(Arc::clone(perm))?;
    }
    Ok(())
}

impl Backend for CpuBackend {
    fn facts(&self) -> Facts {
        let (threads, s) = (self.threads(), if self.threads() == 1 { "" } else { "s" });
        let mut facts = Facts::new("cpu", format!("{threads} thread{s}, {}", self.path));
        facts.memory = memory::available();
        facts.exact = self.precision == Precision::Exact;
        facts.composed = &["moe"];
        facts
    }
    fn upload(&self, values: &[f32], shape: Shape) -> Result<Tensor> {
        // Multiplied up with care: a shape may say more than can be counted.
        let len = shape.dims().iter().try_fold(1usize, |n, d| n.checked_mul(*d));
        if len != Some(values.len()) {
            return Err(Error::shape("upload", [values.len()].into(), shape));
        }
        // Where an extent is 0 the values bound no other.
        let rows = shape.dims().iter().try_fold(1usize, |n, d| n.checked_mul(*d.max(&1)));
        if len == Some(0) && rows.is_none_or(|rows| rows > ROWS_OF_NOTHING) {
            let why = format!("{shape:?} is nothing in more than {ROWS_OF_NOTHING} rows");
            return Err(Error::invalid("upload", why));
        }
        Ok(make(shape, values.to_vec()))
    }
    fn download(&self, x: &Tensor) -> Result<Vec<f32>> {
        self.gave_result();
        read("download", x).map(<[f32]>::to_vec)
    }
    fn upload_weight(&self, w: &HostWeight) -> Result<Weight> {
        check_weight(w)?;
        let by_rows = w.by_rows;
        let rounded = match self.precision {
            Precision::Bf16 => Some(weight::rounded(&self.pool, w)?),
            _ => None,
        };
        let w = rounded.as_ref().unwrap_or(w);
        let taken = CpuWeight::new(w, self.precision, self.path)?;
        let mut owned = Owned::new(taken);
        match &self.repacker {
            _ if !self.repack || by_rows => {}
            Some(repacker) => repacker.lay(&mut owned),
            None => owned.lay(&self.pool, &self.rooms),
        }
        Ok(Weight::new(w, owned))
    }
    fn new_cache(&self, spec: &CacheSpec) -> Result<Cache> {
        cache::new_cache(spec)
    }
    fn plan(&self, batch: Batch) -> Result<Plan> {
        plan::check(&batch)?;
        Ok(Plan::new(batch, CpuPlan::default()))
    }
    fn embed(&self, table: &Weight, ids: Ids, plan: &Plan) -> Result<Tensor> {
        ops::shape::embed(self, table, ids, plan)
    }
    fn linear(&self, x: &Tensor, w: &Weight) -> Result<Tensor> {
        let (xs, n) = factors("linear", x, &[w])?;
        let mut out = self.spare.take(n * w.shape()[1]);
        linear::linear(&self.pool, xs, n, &held::now(w)?, 0, &mut out)?;
        Ok(make_in(self, x.shape().with_cols(w.shape()[1]), out))
    }
    fn rms_norm(&self, x: &Tensor, w: &Tensor, eps: f32) -> Result<Tensor> {
        ops::norm::rms_norm(self, x, w, eps)
    }
    fn layer_norm(&self, x: &Tensor, w: &Tensor, b: Option<&Tensor>, eps: f32) -> Result<Tensor> {
        ops::norm::layer_norm(self, x, w, b, eps)
    }
    fn add(&self, x: Tensor, y: &Tensor) -> Result<Tensor> {
        ops::elementwise::zip(self, "add", x, y, |x, y| x + y)
    }
    fn mul(&self, x: Tensor, y: &Tensor) -> Result<Tensor> {
        ops::elementwise::zip(self, "mul", x, y, |x, y| x * y)
    }
    fn sum(&self, x: &Tensor) -> Result<Tensor> {
        ops::norm::sum(self, x)
    }
    fn activate(&self, x: Tensor, f: Activation) -> Result<Tensor> {
        ops::elementwise::activate(self, x, f)
    }
    fn split(&self, x: &Tensor, axis: Axis, sizes: &[usize]) -> Result<Vec<Tensor>> {
        ops::shape::split(self, x, axis, sizes)
    }
    fn concat(&self, xs: &[&Tensor], axis: Axis) -> Result<Tensor> {
        ops::shape::concat(self, xs, axis)
    }
    fn rope(&self, x: Tensor, rope: &Rope, plan: &Plan) -> Result<Tensor> {
        ops::rope::rope(self, x, rope, plan)
    }
    fn store_kv(
        &self,
        layer: usize,
        k: &Tensor,
        v: Option<&Tensor>,
        cache: &Cache,
        plan: &Plan,
    ) -> Result<()> {
        cache::store_kv(self, layer, k, v, None, cache, plan)
    }
    fn gather_kv(&self, layer: usize, cache: &Cache, plan: &Plan) -> Result<(Tensor, Option<Tensor>)> {
        cache::gather_kv(layer, cache, plan)
    }
    fn attend(&self, q: &Tensor, k: &Tensor, v: &Tensor, spec: &AttnSpec, plan: &Plan) -> Result<Tensor> {
        attend::attend(self, q, k, v, spec, plan)
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
        ops::route::route(logits, spec)
    }
    fn experts(&self, x: &Tensor, routing: &Routing, experts: &Experts) -> Result<Tensor> {
        ops::experts::experts(self, x, routing, experts)
    }
    fn outputs(&self, x: &Tensor, plan: &Plan) -> Result<Tensor> {
        ops::shape::outputs(self, x, plan)
    }

    fn linear_many(&self, x: &Tensor, ws: &[&Weight]) -> Result<Vec<Tensor>> {
        let (xs, n) = factors("linear_many", x, ws)?;
        let data = ws.iter().map(|w| held::now(w)).collect::<Result<Vec<_>>>()?;
        let data: Vec<_> = data.iter().collect();
        let mut outs: Vec<Vec<f32>> = ws.iter().map(|w| self.spare.take(n * w.shape()[1])).collect();
        linear::linear_many(&self.pool, xs, n, &data, 0, &mut outs)?;
        let made = ws.iter().zip(outs).map(|(w, out)| make_in(self, x.shape().with_cols(w.shape()[1]), out));
        Ok(made.collect())
    }
    fn linear_each(&self, x: &Tensor, ws: &[Weight]) -> Result<Tensor> {
        let at = "linear_each";
        let (shape, xs) = (x.shape(), read(at, x)?);
        let Some([experts, rows, k]) = ws.first().map(Weight::shape) else {
            return Err(Error::invalid(at, "there are no heads"));
        };
        if let Some(odd) = ws.iter().find(|w| w.shape() != [1, rows, k] || experts != 1) {
            return Err(Error::shape(at, odd.shape().into(), [1, rows, k].into()));
        }
        let n = shape.dims().first().copied().unwrap_or(0);
        if shape != [n, ws.len(), k].into() {
            return Err(Error::shape(at, shape, [n, ws.len(), k].into()));
        }
        let data = ws.iter().map(held::now).collect::<Result<Vec<_>>>()?;
        let mut out = self.spare.take(n * ws.len() * rows);
        linear::linear_each(&self.pool, xs, n, &data.iter().collect::<Vec<_>>(), &mut out)?;
        Ok(make_in(self, [n, ws.len(), rows], out))
    }
    fn add_rms_norm(&self, residual: Tensor, x: &Tensor, w: &Tensor, eps: f32) -> Result<(Tensor, Tensor)> {
        ops::norm::add_rms_norm(self, residual, x, w, eps)
    }
    fn gated(&self, gate: Tensor, up: &Tensor, f: Activation) -> Result<Tensor> {
        ops::elementwise::gated(self, gate, up, f)
    }
    fn linear_gated(&self, x: &Tensor, gate: &Weight, up: &Weight, f: Activation) -> Result<Tensor> {
        let (xs, n) = factors("linear_gated", x, &[gate, up])?;
        if gate.shape() != up.shape() {
            return Err(Error::shape("linear_gated", gate.shape().into(), up.shape().into()));
        }
        let f = Function::of(f)?;
        let mut out = self.spare.take(n * gate.shape()[1]);
        let path = self.path;
        let apply = move |part: &mut [f32]| ops::elementwise::apply(path, f, part);
        let data = [held::now(gate)?, held::now(up)?];
        linear::linear_gated(&self.pool, xs, n, &data[0], &data[1], 0, apply, &mut out)?;
        Ok(make_in(self, x.shape().with_cols(gate.shape()[1]), out))
    }
    fn attend_cache(
        &self,
        layer: usize,
        q: &Tensor,
        cache: &Cache,
        spec: &AttnSpec,
        plan: &Plan,
    ) -> Result<Tensor> {
        attend::attend_cache(self, layer, q, cache, spec, plan, false)
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
        ops::rope::rope_attend(self, layer, [q, k, v.clone()], rope, cache, spec, plan)
    }
    fn attend_latent(
        &self,
        layer: usize,
        q: &Tensor,
        cache: &Cache,
        spec: &AttnSpec,
        plan: &Plan,
    ) -> Result<Tensor> {
        attend::attend_cache(self, layer, q, cache, spec, plan, true)
    }
    fn causal_conv(
        &self,
        layer: usize,
        x: &Tensor,
        w: &Tensor,
        cache: &Cache,
        plan: &Plan,
    ) -> Result<Tensor> {
        ops::recurrent::causal_conv(self, layer, x, w, cache, plan)
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
        ops::recurrent::selective_scan(self, layer, [x, dt, a, b, c], cache, plan)
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
        ops::linear_attention::linear_attention(self, layer, [q, k, v, g], beta, cache, plan)
    }
    fn argmax(&self, x: &Tensor) -> Result<Vec<u32>> {
        self.gave_result();
        ops::best::argmax(self, x)
    }
    fn best(&self, x: &Tensor, k: usize) -> Result<Vec<Vec<(u32, f32)>>> {
        self.gave_result();
        ops::best::best(self, x, k)
    }
}
