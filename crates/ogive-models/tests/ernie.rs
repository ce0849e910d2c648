//! What ERNIE's mixtures do with biases of experts, which the class has by one switch for all matrices.

mod common;

use common::*;
use ogive_nn::tensor::{Error, HostWeight, Result, Source, WeightInfo};
use serde_json::json;

/// One of the biases.
const ONE: &str = "model.layers.1.mlp.experts.3.up_proj.bias";

/// That bias made into something else.
#[derive(Debug)]
struct Other(Box<dyn Source>, fn(HostWeight) -> Result<HostWeight>);

impl Source for Other {
    fn get(&self, name: &str) -> Result<HostWeight> {
        let weight = self.0.get(name)?;
        if name == ONE { (self.1)(weight) } else { Ok(weight) }
    }
    fn tensors(&self) -> Vec<WeightInfo> {
        self.0.tensors()
    }
}

#[test]
fn a_bias_that_is_missing_or_of_another_size_is_named() {
    let with = |change: fn(HostWeight) -> Result<HostWeight>| {
        with_weights("ernie4-5-moe-bias", &json!({}), move |source| Box::new(Other(source, change))).map(drop)
    };
    with(Ok).unwrap();
    let missing = with(|w| Err(Error::missing(&w.name))).unwrap_err().to_string();
    assert!(missing.contains(ONE), "{missing}");
    let shorter = |w: HostWeight| HostWeight::from_f32(&*w.name, [1, 1, w.shape[2] - 1], &w.to_vec()[1..]);
    let e = with(shorter).unwrap_err().to_string();
    assert!(e.contains(ONE) && e.contains("15 elements"), "{e}");
}
