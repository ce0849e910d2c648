//! A backend that holds nothing and computes nothing: it counts what loading a model would take.
//!
//! Building a model on it runs the same code as loading it, so the estimate cannot drift from what loading does; and a
//! model built on it can tell its cache layout, which only a built model knows.

use crate::*;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the bytes of weights and small tensors that a model uploads. Operators give tensors of the right shape
/// without elements; what needs values (`download`) is an error.
#[derive(Debug, Default)]
pub struct Estimate {
    weights: AtomicU64,
    tensors: AtomicU64,
}

impl Estimate {
    /// Nothing counted yet.
    pub fn new() -> Self {
        Self::default()
    }
    /// Bytes of all packed weights so far; one that is uploaded twice counts twice.
    pub fn weight_bytes(&self) -> u64 {
        self.weights.load(Ordering::Relaxed)
    }
    /// Bytes of all small tensors so far, as single precision.
    pub fn tensor_bytes(&self) -> u64 {
        self.tensors.load(Ordering::Relaxed)
    }
}

fn hollow(shape: impl Into<Shape>) -> Result<Tensor> {
    Ok(Tensor::new(shape, ()))
}

fn no_values<T>(at: &str) -> Result<T> {
    Err(Error::unsupported(at, "an estimate has no values"))
}

/// The shape of the operand that has all elements already, else rows of the one and columns of the other.
fn broadcast(x: &Tensor, y: &Tensor) -> Result<Tensor> {
    let (a, b) = (x.shape(), y.shape());
    let (rows, cols) = (a.rows().max(b.rows()), a.cols().max(b.cols()));
    let whole = [a, b].into_iter().find(|s| (s.rows(), s.cols()) == (rows, cols));
    hollow(whole.unwrap_or([rows, cols].into()))
}

impl Backend for Estimate {
    fn facts(&self) -> Facts {
        Facts::new("estimate", "counts memory, computes nothing")
    }
    fn upload(&self, values: &[f32], shape: Shape) -> Result<Tensor> {
        self.tensors.fetch_add(4 * values.len() as u64, Ordering::Relaxed);
        hollow(shape)
    }
    fn download(&self, _: &Tensor) -> Result<Vec<f32>> {
        no_values("download")
    }
    fn upload_weight(&self, w: &HostWeight) -> Result<Weight> {
        self.weights.fetch_add(w.bytes.len() as u64, Ordering::Relaxed);
        Ok(Weight::new(w, ()))
    }
    fn new_cache(&self, spec: &CacheSpec) -> Result<Cache> {
        spec.check()?;
        Ok(Cache::new(spec.clone(), ()))
    }
    fn plan(&self, batch: Batch) -> Result<Plan> {
        Ok(Plan::new(batch, ()))
    }
    fn embed(&self, table: &Weight, _: Ids, plan: &Plan) -> Result<Tensor> {
        hollow([plan.batch().tokens.len(), table.shape()[2]])
    }
    fn linear(&self, x: &Tensor, w: &Weight) -> Result<Tensor> {
        hollow(x.shape().with_cols(w.shape()[1]))
    }
    fn rms_norm(&self, x: &Tensor, _: &Tensor, _: f32) -> Result<Tensor> {
        hollow(x.shape())
    }
    fn layer_norm(&self, x: &Tensor, _: &Tensor, _: Option<&Tensor>, _: f32) -> Result<Tensor> {
        hollow(x.shape())
    }
    fn add(&self, x: Tensor, y: &Tensor) -> Result<Tensor> {
        broadcast(&x, y)
    }
    fn mul(&self, x: Tensor, y: &Tensor) -> Result<Tensor> {
        broadcast(&x, y)
    }
    fn sum(&self, x: &Tensor) -> Result<Tensor> {
        hollow(x.shape().with_cols(1))
    }
    fn activate(&self, x: Tensor, _: Activation) -> Result<Tensor> {
        hollow(x.shape())
    }
    fn split(&self, x: &Tensor, axis: Axis, sizes: &[usize]) -> Result<Vec<Tensor>> {
        let part = |&n: &usize| match axis {
            Axis::Rows => hollow(x.shape().with_first(n)),
            Axis::Cols => hollow(x.shape().with_cols(n)),
        };
        sizes.iter().map(part).collect()
    }
    fn concat(&self, xs: &[&Tensor], axis: Axis) -> Result<Tensor> {
        let first = xs.first().ok_or_else(|| Error::invalid("concat", "nothing to lay end to end"))?.shape();
        match axis {
            Axis::Rows => hollow(first.with_first(xs.iter().map(|x| x.shape().first()).sum())),
            Axis::Cols => hollow(first.with_cols(xs.iter().map(|x| x.shape().cols()).sum())),
        }
    }
    fn rope(&self, x: Tensor, _: &Rope, _: &Plan) -> Result<Tensor> {
        Ok(x)
    }
    fn store_kv(&self, _: usize, _: &Tensor, _: Option<&Tensor>, _: &Cache, _: &Plan) -> Result<()> {
        Ok(())
    }
    fn gather_kv(&self, layer: usize, cache: &Cache, plan: &Plan) -> Result<(Tensor, Option<Tensor>)> {
        match cache.spec().owner(layer)? {
            (_, LayerCache::Paged { k_dim, v_dim, .. }) => {
                let n = plan.batch().contexts();
                Ok((hollow([n, k_dim])?, if v_dim > 0 { Some(hollow([n, v_dim])?) } else { None }))
            }
            _ => Err(Error::invalid("gather_kv", format!("layer {layer} has no pages"))),
        }
    }
    fn attend(&self, q: &Tensor, _: &Tensor, _: &Tensor, spec: &AttnSpec, _: &Plan) -> Result<Tensor> {
        hollow([q.shape().first(), spec.heads * spec.v_dim])
    }
    fn copy_blocks(&self, _: &Cache, _: &Plan) -> Result<()> {
        Ok(())
    }
    fn read_state(&self, layer: usize, cache: &Cache, plan: &Plan) -> Result<Tensor> {
        match cache.spec().owner(layer)? {
            (_, LayerCache::State { len }) => hollow([plan.batch().spans.len(), len]),
            _ => Err(Error::invalid("read_state", format!("layer {layer} has no state"))),
        }
    }
    fn write_state(&self, _: usize, _: &Tensor, _: &Cache, _: &Plan) -> Result<()> {
        Ok(())
    }
    fn route(&self, logits: &Tensor, spec: &RouterSpec) -> Result<Routing> {
        let shape = logits.shape().with_cols(spec.k);
        Ok(Routing { ids: hollow(shape)?, weights: hollow(shape)? })
    }
    fn experts(&self, x: &Tensor, _: &Routing, _: &Experts) -> Result<Tensor> {
        hollow(x.shape())
    }
    fn outputs(&self, x: &Tensor, plan: &Plan) -> Result<Tensor> {
        hollow(x.shape().with_first(plan.batch().outputs.len()))
    }
}
