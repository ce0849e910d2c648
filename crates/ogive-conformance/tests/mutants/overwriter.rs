//! A backend of a few operators whose tensors can be written through, as memory on a device can: it shows what happens
//! to those who overwrite an input that someone else holds.

use ogive_backend::tensor::{Error, Result, Shape, Tensor};
use ogive_backend::*;
use ogive_conformance::Oracle;
use std::sync::RwLock;

/// Writes results into the left operand: only where no one else holds it, or always.
#[derive(Debug)]
pub(crate) struct Overwriter {
    always: bool,
}

/// The oracle's tensor that has these values now.
struct Memory(RwLock<Tensor>);

fn none<T>(at: &str) -> Result<T> {
    Err(Error::unsupported(at, "not part of this test"))
}

impl Overwriter {
    pub(crate) fn new(always: bool) -> Self {
        Self { always }
    }

    fn read(x: &Tensor) -> Result<Tensor> {
        x.data::<Memory>()?.0.read().unwrap().clone().reshape(x.shape())
    }

    fn wrap(y: Tensor) -> Tensor {
        Tensor::new(y.shape(), Memory(RwLock::new(y)))
    }

    /// `y` in the memory of `x`, if it fits and may be written.
    fn write(&self, mut x: Tensor, y: Tensor) -> Result<Tensor> {
        let free = x.data_mut::<Memory>().is_some();
        if y.shape() == x.shape() && (free || self.always) {
            *x.data::<Memory>()?.0.write().unwrap() = y;
            return Ok(x);
        }
        Ok(Self::wrap(y))
    }
}

impl Backend for Overwriter {
    fn facts(&self) -> Facts {
        Oracle.facts()
    }
    fn upload(&self, values: &[f32], shape: Shape) -> Result<Tensor> {
        Ok(Self::wrap(Oracle.upload(values, shape)?))
    }
    fn download(&self, x: &Tensor) -> Result<Vec<f32>> {
        Oracle.download(&Self::read(x)?)
    }
    fn add(&self, x: Tensor, y: &Tensor) -> Result<Tensor> {
        let z = Oracle.add(Self::read(&x)?, &Self::read(y)?)?;
        self.write(x, z)
    }
    fn mul(&self, x: Tensor, y: &Tensor) -> Result<Tensor> {
        let z = Oracle.mul(Self::read(&x)?, &Self::read(y)?)?;
        self.write(x, z)
    }
    fn activate(&self, x: Tensor, f: Activation) -> Result<Tensor> {
        let y = Oracle.activate(Self::read(&x)?, f)?;
        self.write(x, y)
    }

    fn upload_weight(&self, _: &HostWeight) -> Result<Weight> {
        none("upload_weight")
    }
    fn new_cache(&self, _: &CacheSpec) -> Result<Cache> {
        none("new_cache")
    }
    fn plan(&self, _: Batch) -> Result<Plan> {
        none("plan")
    }
    fn embed(&self, _: &Weight, _: Ids, _: &Plan) -> Result<Tensor> {
        none("embed")
    }
    fn linear(&self, _: &Tensor, _: &Weight) -> Result<Tensor> {
        none("linear")
    }
    fn rms_norm(&self, _: &Tensor, _: &Tensor, _: f32) -> Result<Tensor> {
        none("rms_norm")
    }
    fn layer_norm(&self, _: &Tensor, _: &Tensor, _: Option<&Tensor>, _: f32) -> Result<Tensor> {
        none("layer_norm")
    }
    fn sum(&self, _: &Tensor) -> Result<Tensor> {
        none("sum")
    }
    fn split(&self, _: &Tensor, _: Axis, _: &[usize]) -> Result<Vec<Tensor>> {
        none("split")
    }
    fn concat(&self, _: &[&Tensor], _: Axis) -> Result<Tensor> {
        none("concat")
    }
    fn rope(&self, _: Tensor, _: &Rope, _: &Plan) -> Result<Tensor> {
        none("rope")
    }
    fn store_kv(&self, _: usize, _: &Tensor, _: Option<&Tensor>, _: &Cache, _: &Plan) -> Result<()> {
        none("store_kv")
    }
    fn gather_kv(&self, _: usize, _: &Cache, _: &Plan) -> Result<(Tensor, Option<Tensor>)> {
        none("gather_kv")
    }
    fn attend(&self, _: &Tensor, _: &Tensor, _: &Tensor, _: &AttnSpec, _: &Plan) -> Result<Tensor> {
        none("attend")
    }
    fn copy_blocks(&self, _: &Cache, _: &Plan) -> Result<()> {
        none("copy_blocks")
    }
    fn read_state(&self, _: usize, _: &Cache, _: &Plan) -> Result<Tensor> {
        none("read_state")
    }
    fn write_state(&self, _: usize, _: &Tensor, _: &Cache, _: &Plan) -> Result<()> {
        none("write_state")
    }
    fn route(&self, _: &Tensor, _: &RouterSpec) -> Result<Routing> {
        none("route")
    }
    fn experts(&self, _: &Tensor, _: &Routing, _: &Experts) -> Result<Tensor> {
        none("experts")
    }
    fn outputs(&self, _: &Tensor, _: &Plan) -> Result<Tensor> {
        none("outputs")
    }
}
