//! Reference data and the backends that are held against it.
#![allow(dead_code, clippy::unwrap_used, clippy::print_stdout)]

use ndarray::Array2;
use ogive_conformance::Oracle;
use ogive_cpu::{CpuBackend, Precision};
use ogive_engine::{Evaluate, evaluate};
use ogive_nn::backend::Backend;
use ogive_nn::tensor::{Error, HostWeight, Result, WeightInfo};
use ogive_nn::{Loader, Model, Source};
use std::path::{Path, PathBuf};

/// The test data beside the workspace, or `None` with a visible word where it is missing.
pub(crate) fn shared() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let path = std::env::var_os("OGIVE_SHARED").map_or(beside, PathBuf::from);
    if path.is_dir() {
        return Some(path);
    }
    println!("skipped: shared test data not found");
    None
}

/// The models that `cargo xtask golden` makes and that have logits, by name; they are part of the repository.
pub(crate) fn own() -> Vec<(String, PathBuf)> {
    let own: Vec<_> = every().into_iter().filter(|(_, folder)| !is_encoder(folder)).collect();
    assert!(own.len() >= 20, "{own:?}");
    own
}

/// Those that have hidden states only.
pub(crate) fn encoders() -> Vec<(String, PathBuf)> {
    let own: Vec<_> = every().into_iter().filter(|(_, folder)| is_encoder(folder)).collect();
    assert!(own.len() >= 2, "{own:?}");
    own
}

fn is_encoder(folder: &Path) -> bool {
    // Decoders have no vocabulary of their own.
    folder.join("tokenizer.json").is_file()
}

/// All of them, where `OGIVE_GOLDEN` says if it is set.
pub(crate) fn every() -> Vec<(String, PathBuf)> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let folder = std::env::var_os("OGIVE_GOLDEN").map_or(here, PathBuf::from);
    let mut all: Vec<_> = std::fs::read_dir(&folder)
        .unwrap_or_else(|e| panic!("{}: {e}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), path))
        .collect();
    all.sort();
    all
}

/// How far the shorter case of one of our own models is from what transformers computes, with this in the model's place.
pub(crate) fn error_of(name: &str, model: &dyn Model) -> f32 {
    let (_, ids, want) = cases(&golden(name)).remove(1);
    worst(&evaluate(&exact(), model, &ids, &Evaluate::new()).unwrap(), &want)
}

pub(crate) fn exact() -> CpuBackend {
    CpuBackend::builder().precision(Precision::Exact).build().unwrap()
}

/// Backends that compute in single precision throughout.
pub(crate) fn exact_backends() -> Vec<(&'static str, Box<dyn Backend>)> {
    vec![("oracle", Box::new(Oracle)), ("cpu", Box::new(exact()))]
}

pub(crate) fn load(path: &Path, b: &dyn Backend) -> Box<dyn Model> {
    load_for(path, b, None)
}

/// The model at `path` for a context of so many tokens: some ways of stretching rotary positions depend on it.
pub(crate) fn load_for(path: &Path, b: &dyn Backend, context: Option<usize>) -> Box<dyn Model> {
    let c = ogive_weights::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let loader = Loader::new(&*c.source, b);
    let loader = context.map_or(loader.clone(), |tokens| loader.for_context(tokens));
    ogive_models::registry()
        .build(&c.architecture, &c.config, &loader)
        .unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The repository's model of this name.
pub(crate) fn golden(name: &str) -> PathBuf {
    own().into_iter().find(|(own, _)| own == name).unwrap().1
}

/// The adapters that `xtask/golden/adapters.py` made, each over the model of its name.
pub(crate) const ADAPTERS: [&str; 5] = ["llama", "gpt2", "gptneox", "phi3", "granite-hybrid"];

/// The adapter's folder.
pub(crate) fn adapter(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/adapters").join(name)
}

/// The long prompt of the model, and PEFT's logits of it.
pub(crate) fn adapted_case(name: &str) -> (Vec<u32>, Array2<f32>) {
    let (_, ids, _) = cases(&golden(name)).into_iter().find(|(case, ..)| case == "long").unwrap();
    (ids, ndarray_npy::read_npy(adapter(name).join("logits.npy")).unwrap())
}

/// It with other settings, of its text where it also sees; those that are `null` are left out.
pub(crate) fn with_settings(name: &str, more: &serde_json::Value) -> Result<Box<dyn Model>> {
    with_weights(name, more, |source| source)
}

/// The same with what `change` makes of its weights.
pub(crate) fn with_weights(
    name: &str,
    more: &serde_json::Value,
    change: impl FnOnce(Box<dyn Source>) -> Box<dyn Source>,
) -> Result<Box<dyn Model>> {
    let mut file = ogive_weights::open(golden(name)).unwrap();
    let text = file.config.has("text_config");
    let settings = if text { &mut file.config.0["text_config"] } else { &mut file.config.0 };
    let settings = settings.as_object_mut().unwrap();
    settings.extend(more.as_object().unwrap().clone());
    settings.retain(|_, value| !value.is_null());
    let source = change(file.source);
    ogive_models::registry().build(&file.architecture, &file.config, &Loader::new(&*source, &exact()))
}

/// Weights that are changed when they are asked for.
#[derive(Debug)]
pub(crate) struct Changed(pub(crate) Box<dyn Source>, pub(crate) fn(HostWeight) -> HostWeight);

impl Source for Changed {
    fn get(&self, name: &str) -> Result<HostWeight> {
        self.0.get(name).map(self.1)
    }
    fn tensors(&self) -> Vec<WeightInfo> {
        self.0.tensors()
    }
}

pub(crate) fn logits(path: &Path, b: &dyn Backend, ids: &[u32]) -> Array2<f32> {
    evaluate(b, &*load_for(path, b, Some(ids.len())), ids, &Evaluate::new()).unwrap()
}

/// The last layer's output for each token, normed.
pub(crate) fn hidden(path: &Path, b: &dyn Backend, ids: &[u32]) -> Array2<f32> {
    let mut how = Evaluate::new();
    how.hidden = true;
    evaluate(b, &*load_for(path, b, Some(ids.len())), ids, &how).unwrap()
}

/// The same weights under other names: asked for `name`, it looks for what `renamed` makes of it.
#[derive(Debug)]
pub(crate) struct Renamed(pub(crate) Box<dyn Source>, pub(crate) fn(&str) -> Option<String>);

impl Source for Renamed {
    fn get(&self, name: &str) -> Result<HostWeight> {
        self.0.get(&(self.1)(name).ok_or_else(|| Error::missing(name))?)
    }
    fn tensors(&self) -> Vec<WeightInfo> {
        Vec::new()
    }
}

/// What a model makes of ids in steps of four, or in one where it looks ahead.
pub(crate) fn hidden_of(b: &dyn Backend, model: &dyn Model, ids: &[u32]) -> Array2<f32> {
    let mut how = Evaluate::new();
    (how.hidden, how.chunk) = (true, 4);
    evaluate(b, model, ids, &how).unwrap()
}

pub(crate) fn npy(path: &Path) -> Array2<f32> {
    ndarray_npy::read_npy(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// A case of a `golden.json`: its name, ids and logits.
pub(crate) fn cases(folder: &Path) -> Vec<(String, Vec<u32>, Array2<f32>)> {
    cases_of(folder, "logits")
}

/// The same with another result in place of the logits.
pub(crate) fn cases_of(folder: &Path, what: &str) -> Vec<(String, Vec<u32>, Array2<f32>)> {
    let golden = std::fs::read_to_string(folder.join("golden.json")).unwrap();
    let golden: serde_json::Value = serde_json::from_str(&golden).unwrap();
    let case = |c: &serde_json::Value| {
        let name = c["name"].as_str().unwrap().to_owned();
        (name, ids(&c["ids"]), npy(&folder.join(c[what].as_str().unwrap())))
    };
    golden["cases"].as_array().unwrap().iter().map(case).collect()
}

pub(crate) fn ids(v: &serde_json::Value) -> Vec<u32> {
    v.as_array().unwrap().iter().map(|v| v.as_u64().unwrap() as u32).collect()
}

pub(crate) fn worst(a: &Array2<f32>, b: &Array2<f32>) -> f32 {
    assert_eq!(a.dim(), b.dim());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, |m, d| if d.is_nan() { f32::NAN } else { d.max(m) })
}

/// Mean square of the difference over that of the reference.
pub(crate) fn nmse(got: &Array2<f32>, want: &Array2<f32>) -> f64 {
    assert_eq!(got.dim(), want.dim());
    let square = |v: f32| f64::from(v) * f64::from(v);
    let error: f64 = got.iter().zip(want).map(|(g, w)| square(g - w)).sum();
    error / want.iter().map(|w| square(*w)).sum::<f64>()
}

/// Folders of `golden/` and the largest difference allowed.
pub(crate) const ARCHITECTURES: [(&str, f32); 13] = [
    ("llama", 5e-5),
    ("llama3-rope", 5e-5),
    ("llama-k256", 5e-5),
    ("llama-bf16-sharded", 5e-5),
    ("mistral", 5e-5),
    ("qwen2", 5e-5),
    ("qwen3", 5e-5),
    ("mixtral", 5e-5),
    ("deepseek-v2", 5e-5),
    ("gemma2", 1e-4),
    ("gemma3", 1e-4),
    ("phi3", 5e-5),
    ("gpt2", 5e-5),
];

/// Packed models of `golden/` and the folder whose ids they were given.
pub(crate) fn packed_files(shared: &Path) -> Vec<(PathBuf, &'static str)> {
    let mut files: Vec<_> = std::fs::read_dir(shared.join("golden/quant"))
        .into_iter()
        .flatten()
        .filter_map(|e| Some(e.ok()?.path()))
        .filter(|p| p.extension().is_some_and(|e| e == "gguf"))
        .map(|p| (p, "llama-k256"))
        .collect();
    for (arch, _) in ARCHITECTURES {
        for kind in ["Q8_0", "Q4_0"] {
            let file = shared.join(format!("golden/{arch}/{arch}-{kind}.gguf"));
            files.extend(file.exists().then_some((file, arch)));
        }
    }
    assert!(files.len() > 20, "{} files", files.len());
    files.sort();
    files
}

/// The folder of this name whose weights are FP8.
pub(crate) fn float8(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/float8").join(name)
}

/// The folder of this name whose weights are NVFP4.
pub(crate) fn fp4(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fp4").join(name)
}

/// Folders of weights that were packed for PyTorch, by name.
pub(crate) fn packed_folders(shared: &Path) -> Vec<(String, PathBuf)> {
    ["qwen2-awq-g128", "qwen2-gptq-4bit-g128-sym"]
        .map(|name| (name.to_owned(), shared.join("golden/quant-hf").join(name)))
        .into()
}

/// The largest difference from logits of decoded weights.
pub(crate) fn decoded_tolerance(arch: &str) -> f32 {
    // The decoded reference looks GELU up in a table of half-precision numbers; rounding the function so brings Gemma's
    // difference down to 2e-4. Against transformers' exact function all three are within 1e-5.
    match arch {
        "gemma2" | "gemma3" => 2e-3,
        "gpt2" => 3e-3,
        _ => 1e-4,
    }
}
