//! The backend: each operator by its name, and where it is computed.

use crate::blas::CublasUse;
use crate::builder::{Activations, Builder, Compute};
use crate::device::{self, Device};
use crate::driver::{self, DeviceInfo};
use crate::error::Result as CudaResult;
use crate::graph::{self, GraphCounts};
use crate::memory::Pool;
use crate::ops::slabs::Least;
use crate::ops::split::PARTS;
use crate::ops::{
    attend, best, codes, elementwise, elementwise::Two, linear, matrix, moe, moves, norm, recurrent, rope,
};
use crate::values::bytes;
use crate::{bucket, cache, library, peer, plan, weight};
use ogive_backend::{
    Activation, AttnSpec, Axis, Backend, Batch, Cache, CacheSpec, Experts, Facts, HostWeight, Ids, Left,
    Multiplied, Plan, Rope, RouterSpec, Routing, Sizes, StepKey, Weight, best_of, recurrent as definitions,
};
use ogive_tensor::{Error, Result, Shape, Tensor};
use std::sync::Arc;

/// Runs language models on one NVIDIA GPU.
///
/// Weights stay packed on the device; activations and sums are in single precision, and products too unless
/// [`Builder::compute`] or [`Builder::activations`] says otherwise. The same step gives the same bits, replayed or
/// not: [`replay`](Backend::replay) makes a CUDA graph of a step that comes again, unless a model asks for values in its middle. Calls
/// queue their work and return; [`download`](Backend::download), [`best`](Backend::best) and [`argmax`](Backend::argmax) wait.
#[derive(Debug)]
pub struct CudaBackend {
    pub(crate) device: Device,
    pub(crate) compute: Compute,
}

impl CudaBackend {
    /// The first device.
    ///
    /// # Errors
    /// If there is no driver, no NVRTC for it, or no device.
    pub fn new() -> CudaResult<Self> {
        Self::with_device(0)
    }

    /// Device `number` of those that `CUDA_VISIBLE_DEVICES` leaves visible.
    ///
    /// # Errors
    /// As [`new`](Self::new), and if there are not that many devices.
    pub fn with_device(number: usize) -> CudaResult<Self> {
        Self::builder().device(number).build()
    }

    /// Settings to choose.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Whether there is a driver, a device, and an NVRTC that compiles for it: any device, whose number
    /// [`first_available`](Self::first_available) has. Costs what opening them costs, the first time. Opening the device may still fail: if it
    /// has no free memory, or the driver is too old for that NVRTC.
    #[must_use]
    pub fn is_available() -> bool {
        Self::first_available().is_ok()
    }

    /// Why [`is_available`](Self::is_available) is false, if it is.
    #[must_use]
    pub fn unavailable() -> Option<crate::Error> {
        Self::first_available().err()
    }

    /// The number of the first device that an NVRTC compiles for, as [`with_device`](Self::with_device) has it.
    ///
    /// # Errors
    /// If there is no driver, no device, or no NVRTC for any of them: then for the first.
    pub fn first_available() -> CudaResult<usize> {
        device::first_with_compiler(&Self::devices()?)
    }

    /// The devices there are.
    ///
    /// # Errors
    /// If there is no driver, or it does not start.
    pub fn devices() -> CudaResult<Vec<DeviceInfo>> {
        let (driver, _) = library::driver()?;
        (0..driver.devices()?).map(|number| driver.info(number)).collect()
    }

    /// What this backend's device is.
    #[must_use]
    pub fn info(&self) -> &DeviceInfo {
        &self.device.info
    }

    /// Bytes of device memory in use, and the most that ever were. Weights share pages of 2 MiB and more, which are in use until all that
    /// lie there are dropped.
    #[must_use]
    pub fn memory_used(&self) -> (u64, u64) {
        self.device.pool.used()
    }

    /// Bytes of device memory that could be had now: as many as were free when the backend was opened, less what is in use, unless another
    /// program has taken some since.
    ///
    /// # Errors
    /// If the driver does not say.
    pub fn memory_left(&self) -> CudaResult<u64> {
        self.device.pool.left()
    }

    /// How much device memory is taken for what a model uploads, reserves and computes: for [`Estimate`](ogive_backend::Estimate). What kernels,
    /// page-locked memory and the driver itself take is not in it. [`Builder::sizes`] tells it before there is a backend.
    #[must_use]
    pub fn sizes(&self) -> Sizes {
        let d = &self.device;
        let (compute, cublas_from) = (self.compute, d.blas.wanted_from());
        let (activations, grouped_from) = (d.activations, d.grouped_from);
        let info = d.info.clone();
        sizes(Some(Products { info, compute, activations, cublas_from, grouped_from }))
    }

    /// Bytes of device memory that weights, taken in in this order, and a cache would take; `None` where they cannot be counted. Needs no device. What steps take
    /// depends on the model: [`Estimate`](ogive_backend::Estimate) runs them.
    #[must_use]
    pub fn estimate_memory<'w>(
        weights: impl IntoIterator<Item = &'w HostWeight>,
        cache: Option<&CacheSpec>,
    ) -> Option<u64> {
        let cache = cache.map_or(Some(0), cache::size)?;
        Pool::lasting_size(weights.into_iter().map(weight::size))?.checked_add(cache)
    }

    /// How steps were run that could have been replayed as graphs.
    #[must_use]
    pub fn graphs(&self) -> GraphCounts {
        self.device.graphs.counts()
    }

    /// What has become of cuBLAS, which products of many rows in a half are for.
    #[must_use]
    pub fn cublas(&self) -> CublasUse {
        self.device.blas.found()
    }

    /// Gives back the memory that recorded steps keep. Steps that come again are recorded anew. Happens by itself where memory is short.
    pub fn drop_graphs(&self) {
        self.device.graphs.forget(&self.device);
        self.device.slots.forget();
    }

    /// Waits until everything that was asked for is done.
    ///
    /// # Errors
    /// If any of it failed: a device reports failures late.
    pub fn synchronize(&self) -> CudaResult<()> {
        self.device.outside("synchronize")?;
        self.device.stream().wait("synchronize")?;
        self.device.peers.check()
    }
}

/// How products are computed on a device.
pub(crate) struct Products {
    pub(crate) info: DeviceInfo,
    pub(crate) compute: Compute,
    pub(crate) activations: Activations,
    /// From how many rows on by cuBLAS.
    pub(crate) cublas_from: Option<Least>,
    /// From how many choices an expert on mixtures are grouped.
    pub(crate) grouped_from: usize,
}

/// How memory is taken where products are computed so; that of products is left out where it is not known how.
pub(crate) fn sizes(products: Option<Products>) -> Sizes {
    let piece = |bytes| usize::try_from(bytes).ok().and_then(Pool::size).map_or(u64::MAX, |n| n as u64);
    let sizes =
        Sizes::new(piece, weight::size, cache::size).weights(weight::taken).unpacked(weight::unpacked);
    let Some(products) = products.map(Arc::new) else { return sizes };
    let mixtures = Arc::clone(&products);
    let norms = Arc::clone(&products);
    let norm = move |shape| codes::left(&norms, shape);
    let attention = Arc::clone(&products);
    let sizes = sizes.attention(move |attended| attend::scratch(&attention, attended));
    let from = products.cublas_from;
    let sizes = sizes.filled(move |batch, has_experts| bucket::fill(batch, from, has_experts));
    let gates = Arc::clone(&products);
    let gated = move |of: [&Multiplied; 2]| {
        let kept = of.map(weight::Kept::of_product);
        let (name, bytes) = matrix::left(&gates, of[0].rows, kept.each_ref())?;
        Some(Left::new(bytes, name))
    };
    let product = move |p: &Multiplied| linear::scratch(&products, p, &weight::Kept::of_product(p));
    sizes.product(product).mixture(move |mixed| moe::scratch(&mixtures, mixed)).norm(norm).gated(gated)
}

impl Backend for CudaBackend {
    fn facts(&self) -> Facts {
        let d = &self.device;
        let gib = d.info.memory as f64 / f64::from(1 << 30);
        let ((major, minor), (n_major, n_minor)) = (d.driver, d.modules.nvrtc().version);
        let driver = driver::release().unwrap_or_else(|| format!("for CUDA {major}.{minor}"));
        let about = format!("{}, {gib:.0} GiB, driver {driver}, NVRTC {n_major}.{n_minor}", d.info.name);
        let mut facts = Facts::new("cuda", about);
        facts.memory = Some(d.pool.limit());
        facts.exact = self.compute == Compute::F32 && d.activations == Activations::Float;
        facts
    }
    fn upload(&self, values: &[f32], shape: Shape) -> Result<Tensor> {
        let at = "upload";
        self.device.outside(at)?;
        if bytes(at, shape)? != 4 * values.len() {
            return Err(Error::shape(at, [values.len()].into(), shape));
        }
        let x = self.device.tensor(at, shape)?;
        self.device.transfer.send_values(self.device.stream(), self.device.read(at, &x)?, values)?;
        Ok(Device::as_sent(x))
    }
    fn download(&self, x: &Tensor) -> Result<Vec<f32>> {
        let at = "download";
        self.device.outside(at)?;
        let (from, len) = (self.device.read(at, x)?, x.shape().len());
        let mut values = Vec::with_capacity(len);
        self.device.fetch(at, from, 4 * len, &mut |part| {
            let number = |b: &[u8]| f32::from_le_bytes(b.first_chunk::<4>().copied().unwrap_or_default());
            values.extend(part.chunks_exact(4).map(number));
        })?;
        Ok(values)
    }
    fn upload_weight(&self, w: &HostWeight) -> Result<Weight> {
        weight::upload(&self.device, w)
    }
    fn new_cache(&self, spec: &CacheSpec) -> Result<Cache> {
        cache::new_cache(&self.device, spec)
    }
    fn plan(&self, batch: Batch) -> Result<Plan> {
        plan::plan(&self.device, batch)
    }
    fn embed(&self, table: &Weight, ids: Ids, plan: &Plan) -> Result<Tensor> {
        moves::embed(&self.device, table, ids, plan)
    }
    fn linear(&self, x: &Tensor, w: &Weight) -> Result<Tensor> {
        linear::linear(&self.device, self.compute, x, w)
    }
    fn rms_norm(&self, x: &Tensor, w: &Tensor, eps: f32) -> Result<Tensor> {
        norm::rms_norm(&self.device, x, w, eps)
    }
    fn layer_norm(&self, x: &Tensor, w: &Tensor, b: Option<&Tensor>, eps: f32) -> Result<Tensor> {
        norm::layer_norm(&self.device, x, w, b, eps)
    }
    fn add(&self, x: Tensor, y: &Tensor) -> Result<Tensor> {
        elementwise::broadcast(&self.device, Two::Add, x, y)
    }
    fn mul(&self, x: Tensor, y: &Tensor) -> Result<Tensor> {
        elementwise::broadcast(&self.device, Two::Mul, x, y)
    }
    fn sum(&self, x: &Tensor) -> Result<Tensor> {
        norm::sum(&self.device, x)
    }
    fn activate(&self, x: Tensor, f: Activation) -> Result<Tensor> {
        elementwise::activate(&self.device, x, f)
    }
    fn split(&self, x: &Tensor, axis: Axis, sizes: &[usize]) -> Result<Vec<Tensor>> {
        moves::split(&self.device, x, axis, sizes)
    }
    fn concat(&self, xs: &[&Tensor], axis: Axis) -> Result<Tensor> {
        moves::concat(&self.device, xs, axis)
    }
    fn rope(&self, x: Tensor, rope: &Rope, plan: &Plan) -> Result<Tensor> {
        rope::rope(&self.device, x, rope, plan)
    }
    fn store_kv(
        &self,
        layer: usize,
        k: &Tensor,
        v: Option<&Tensor>,
        cache: &Cache,
        plan: &Plan,
    ) -> Result<()> {
        cache::store_kv(&self.device, layer, k, v, cache, plan)
    }
    fn gather_kv(&self, layer: usize, cache: &Cache, plan: &Plan) -> Result<(Tensor, Option<Tensor>)> {
        cache::gather_kv(&self.device, layer, cache, plan)
    }
    fn attend(&self, q: &Tensor, k: &Tensor, v: &Tensor, spec: &AttnSpec, plan: &Plan) -> Result<Tensor> {
        attend::attend(&self.device, self.compute, q, k, v, spec, plan)
    }
    fn copy_blocks(&self, cache: &Cache, plan: &Plan) -> Result<()> {
        cache::copy_blocks(&self.device, cache, plan)
    }
    fn read_state(&self, layer: usize, cache: &Cache, plan: &Plan) -> Result<Tensor> {
        cache::read_state(&self.device, layer, cache, plan)
    }
    fn write_state(&self, layer: usize, state: &Tensor, cache: &Cache, plan: &Plan) -> Result<()> {
        cache::write_state(&self.device, layer, state, cache, plan)
    }
    fn route(&self, logits: &Tensor, spec: &RouterSpec) -> Result<Routing> {
        moe::route(&self.device, logits, spec)
    }
    fn experts(&self, x: &Tensor, routing: &Routing, experts: &Experts) -> Result<Tensor> {
        moe::experts(&self.device, self.compute, x, routing, experts)
    }
    fn outputs(&self, x: &Tensor, plan: &Plan) -> Result<Tensor> {
        moves::outputs(&self.device, x, plan)
    }

    fn linear_many(&self, x: &Tensor, ws: &[&Weight]) -> Result<Vec<Tensor>> {
        linear::linear_many(&self.device, self.compute, x, ws)
    }
    fn add_rms_norm(&self, residual: Tensor, x: &Tensor, w: &Tensor, eps: f32) -> Result<(Tensor, Tensor)> {
        norm::add_rms_norm(&self.device, residual, x, w, eps)
    }
    fn gated(&self, gate: Tensor, up: &Tensor, f: Activation) -> Result<Tensor> {
        elementwise::gated(&self.device, gate, up, f)
    }
    fn linear_gated(&self, x: &Tensor, gate: &Weight, up: &Weight, f: Activation) -> Result<Tensor> {
        linear::linear_gated(&self.device, self.compute, x, [gate, up], f)
    }
    fn attend_cache(
        &self,
        layer: usize,
        q: &Tensor,
        cache: &Cache,
        spec: &AttnSpec,
        plan: &Plan,
    ) -> Result<Tensor> {
        attend::attend_cache(&self.device, self.compute, layer, q, cache, spec, plan, false, PARTS)
    }
    fn attend_latent(
        &self,
        layer: usize,
        q: &Tensor,
        cache: &Cache,
        spec: &AttnSpec,
        plan: &Plan,
    ) -> Result<Tensor> {
        attend::attend_cache(&self.device, self.compute, layer, q, cache, spec, plan, true, PARTS)
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
        let (mut q, done) = rope::rope_store(&self.device, layer, q, &k, v, rope, cache, plan)?;
        if !done {
            q = self.rope(q, rope, plan)?;
            let k = self.rope(k, rope, plan)?;
            self.store_kv(layer, &k, Some(v), cache, plan)?;
        }
        self.attend_cache(layer, &q, cache, spec, plan)
    }
    fn causal_conv(
        &self,
        layer: usize,
        x: &Tensor,
        w: &Tensor,
        cache: &Cache,
        plan: &Plan,
    ) -> Result<Tensor> {
        match recurrent::causal_conv(&self.device, layer, x, w, cache, plan)? {
            Some(y) => Ok(y),
            None => definitions::causal_conv(self, layer, x, w, cache, plan),
        }
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
        match recurrent::selective_scan(&self.device, layer, [x, dt, a, b, c], cache, plan)? {
            Some(y) => Ok(y),
            None => definitions::selective_scan(self, layer, x, dt, a, b, c, cache, plan),
        }
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
        match recurrent::linear_attention(&self.device, layer, [q, k, v, g], beta, cache, plan)? {
            Some(y) => Ok(y),
            None => definitions::linear_attention(self, layer, q, k, v, g, beta, cache, plan),
        }
    }
    fn best(&self, x: &Tensor, k: usize) -> Result<Vec<Vec<(u32, f32)>>> {
        if let Some(found) = best::best(&self.device, x, k)? {
            return Ok(found);
        }
        let (values, cols) = (self.download(x)?, x.shape().cols().max(1));
        Ok(values.chunks(cols).map(|row| best_of(row, k)).collect())
    }
    fn top_k(&self, x: Tensor, k: usize) -> Result<Tensor> {
        best::top_k(&self.device, x, k)
    }
    fn bring(&self, x: &Tensor, from: &dyn Backend, place: Option<Tensor>) -> Result<Tensor> {
        let at = "bring";
        self.device.outside(at)?;
        let place = place.filter(|there| there.shape() == x.shape());
        let there = match place.and_then(|there| self.device.reused(there)) {
            // Whatever still reads it was queued earlier.
            Some(there) => there,
            None => self.device.tensor(at, x.shape())?,
        };
        let to = self.device.read(at, &there)?;
        if let Some(other) = from.downcast_ref::<Self>() {
            other.device.outside(at)?;
            let (source, len) = (other.device.read(at, x)?, bytes(at, x.shape())?);
            if peer::copy(&self.device, to, &other.device, source, len)? {
                return Ok(there);
            }
        }
        let values = from.download(x)?;
        if values.len() != x.shape().len() {
            return Err(Error::shape(at, [values.len()].into(), x.shape()));
        }
        self.device.transfer.send_values(self.device.stream(), to, &values)?;
        Ok(there)
    }
    fn replay(
        &self,
        key: &StepKey,
        plan: &Plan,
        f: &mut dyn FnMut(&Plan) -> Result<Tensor>,
    ) -> Result<Tensor> {
        graph::replay(&self.device, key, plan, f)
    }
    fn bucket(&self, batch: Batch) -> Batch {
        bucket::pad(&self.device, batch)
    }
}
