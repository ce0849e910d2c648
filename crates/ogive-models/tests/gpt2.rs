//! GPT-2's own traits: learned positions that end, names without their prefix, heads that must fit.

mod common;

use common::*;
use ogive_nn::Loader;
use ogive_nn::tensor::{Error, HostWeight, Result, Source, WeightInfo};
use std::path::PathBuf;

fn folder() -> PathBuf {
    own().into_iter().find(|(name, _)| name == "gpt2").unwrap().1
}

#[test]
fn a_context_beyond_the_learned_positions_is_refused() {
    let (b, checkpoint) = (exact(), ogive_weights::open(folder()).unwrap());
    let load = |context| {
        let loader = Loader::new(&*checkpoint.source, &b).for_context(context);
        ogive_models::gpt2::load(&checkpoint.config, &loader)
    };
    assert!(load(43).is_ok());
    let e = load(44).unwrap_err().to_string();
    assert!(e.contains("has learned 43 positions, and a context of 44"), "{e}");
}

/// The first published checkpoints: the same names without `transformer.` before them.
#[derive(Debug)]
struct Bare(Box<dyn Source>);

impl Source for Bare {
    fn get(&self, name: &str) -> Result<HostWeight> {
        if name.starts_with("transformer.") {
            return Err(Error::missing(name));
        }
        self.0.get(&format!("transformer.{name}"))
    }
    fn tensors(&self) -> Vec<WeightInfo> {
        Vec::new()
    }
}

#[test]
fn names_may_lack_their_prefix_and_heads_must_fit() {
    let mut checkpoint = ogive_weights::open(folder()).unwrap();
    let (b, source) = (exact(), Bare(checkpoint.source));
    let (_, ids, want) = cases(&folder()).remove(1);
    let model = ogive_models::gpt2::load(&checkpoint.config, &Loader::new(&source, &b)).unwrap();
    let got = ogive_engine::evaluate(&b, &*model, &ids, &ogive_engine::Evaluate::new()).unwrap();
    assert!(worst(&got, &want) < 2e-5);
    for heads in [0, 5] {
        checkpoint.config.0["num_attention_heads"] = heads.into();
        let e = ogive_models::gpt2::load(&checkpoint.config, &Loader::new(&source, &b)).unwrap_err();
        assert_eq!(e.to_string(), format!("config: `hidden_size` 48 cannot be cut into {heads} heads"));
    }
}

/// Its matrices are turned already, and turning a square one again would go unnoticed.
#[test]
fn a_packed_one_is_refused() {
    let (b, mut checkpoint) = (exact(), ogive_weights::open(folder()).unwrap());
    checkpoint.config.0["quantization_config"] =
        ogive_nn::tensor::serde_json::json!({"quant_method": "gptq"});
    let e = ogive_models::gpt2::load(&checkpoint.config, &Loader::new(&*checkpoint.source, &b)).unwrap_err();
    assert!(e.to_string().contains("a packed GPT-2 is not read; take the model before it was packed"), "{e}");
}
