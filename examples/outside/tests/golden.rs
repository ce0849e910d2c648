//! GPT-2 against transformers' logits, by the façade alone.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use ogive::cpu::{CpuBackend, Precision};
use ogive::engine::{Evaluate, evaluate};
use ogive::nn::Loader;
use ogive::tensor::serde_json::{Value, from_str};
use ogive::tensor::{Error, HostWeight, Result, Source, WeightInfo};
use ogive::{Generate, Model, Options, ndarray::Array2};
use ogive_example_outside::{load, registry};
use std::path::{Path, PathBuf};

/// The folder of the golden model, or `None` with a visible word where the test data is missing.
fn golden() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let shared = std::env::var_os("OGIVE_SHARED").map_or(beside, PathBuf::from);
    if shared.is_dir() {
        return Some(shared.join("golden/gpt2"));
    }
    println!("skipped: shared test data not found");
    None
}

fn open(path: &Path) -> Model {
    Options::new().registry(registry()).exact(true).open(path).unwrap()
}

fn npy(path: &Path) -> Array2<f32> {
    ndarray_npy::read_npy(path).unwrap()
}

/// Input ids, the greedy continuation, how far each best logit was ahead, and the logits.
type Case = (Vec<u32>, Vec<u32>, Vec<f64>, Array2<f32>);

/// The cases of `golden.json`.
fn cases(folder: &Path) -> Vec<Case> {
    let json: Value = from_str(&std::fs::read_to_string(folder.join("golden.json")).unwrap()).unwrap();
    let ids = |v: &Value| v.as_array().unwrap().iter().map(|v| v.as_u64().unwrap() as u32).collect();
    let numbers = |v: &Value| v.as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect();
    let case = |c: &Value| {
        let logits = npy(&folder.join(c["logits"].as_str().unwrap()));
        (ids(&c["ids"]), ids(&c["greedy16"]), numbers(&c["greedy16_gap"]), logits)
    };
    json["cases"].as_array().unwrap().iter().map(case).collect()
}

fn worst(a: &Array2<f32>, b: &Array2<f32>) -> f32 {
    assert_eq!(a.dim(), b.dim());
    assert!(a.iter().all(|v| v.is_finite()));
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn logits_are_those_of_transformers() {
    let Some(folder) = golden() else { return };
    for path in [folder.clone(), folder.join("gpt2-f32.gguf")] {
        let model = open(&path);
        for (ids, _, _, want) in cases(&folder) {
            let error = worst(&model.logits(&ids).unwrap(), &want);
            println!("{}, {} tokens: {error:.1e}", path.display(), ids.len());
            assert!(error <= 5e-5, "{}: {error:.1e}", path.display());
        }
    }
}

#[test]
fn packed_weights_give_the_logits_of_their_decoded_values() {
    let Some(folder) = golden() else { return };
    let (ids, ..) = cases(&folder).remove(0);
    for name in ["gpt2-Q8_0", "gpt2-Q4_0"] {
        let want = npy(&folder.join(format!("{name}.deq_logits.npy")));
        let error = worst(&open(&folder.join(format!("{name}.gguf"))).logits(&ids).unwrap(), &want);
        println!("{name}: {error:.1e}");
        // The reference looks GELU up in a table of half-precision numbers: transformers, given the decoded values, is as
        // far from it, and within 1e-5 of what is computed here.
        assert!(error <= 2e-3, "{name}: {error:.1e}");
    }
}

#[test]
fn greedy_text_is_that_of_transformers() {
    let Some(folder) = golden() else { return };
    let model = open(&folder);
    for (ids, want, gaps, _) in cases(&folder) {
        let how = Generate::greedy().max_tokens(16).ignore_end();
        let mut session = model.session().unwrap();
        let mut answer = session.generate(ids, &how).unwrap();
        let text = answer.text().unwrap();
        // Beyond a near tie another rounding may go another way.
        let certain = gaps.iter().take_while(|g| **g > 1e-3).count();
        assert!(certain > 8);
        assert_eq!(answer.ids()[..certain], want[..certain]);
        assert_eq!(text, model.tokenizer().unwrap().decode(answer.ids()).unwrap());
    }
}

#[test]
fn a_context_beyond_the_learned_positions_is_refused_and_the_default_is_within() {
    let Some(folder) = golden() else { return };
    for path in [folder.clone(), folder.join("gpt2-f32.gguf")] {
        assert_eq!(open(&path).context(), 256);
        let e = Options::new().registry(registry()).context(257).open(path).unwrap_err().to_string();
        assert!(e.contains("has learned 256 positions, and a context of 257"), "{e}");
    }
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
fn names_may_lack_their_prefix_and_settings_are_checked() {
    let Some(folder) = golden() else { return };
    let mut checkpoint = ogive::weights::open(&folder).unwrap();
    let source = Bare(checkpoint.source);
    let cpu = CpuBackend::builder().precision(Precision::Exact).build().unwrap();
    let model = load(&checkpoint.config, &Loader::new(&source, &cpu)).unwrap();
    let (ids, _, _, want) = cases(&folder).remove(1);
    let error = worst(&evaluate(&cpu, &*model, &ids, &Evaluate::new()).unwrap(), &want);
    assert!(error <= 5e-5, "{error:.1e}");

    for heads in [0, 3] {
        checkpoint.config.0["num_attention_heads"] = heads.into();
        let e = load(&checkpoint.config, &Loader::new(&source, &cpu)).unwrap_err().to_string();
        assert_eq!(e, format!("config: `hidden_size` 64 cannot be cut into {heads} heads"));
    }
}
