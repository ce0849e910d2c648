//! Models that see, as one downloads them, and what transformers made of images and texts with them (`xtask/golden/sight.py`).
#![allow(dead_code, clippy::unwrap_used)]

use ndarray::Array2;
use ogive::backend::{Backend, Vectors};
use ogive::nn::Tower;
use ogive::{Device, Image, Model, Options, Prompt, models};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tempfile::TempDir;

pub(crate) fn images() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../ogive-vision/tests/data")
}

pub(crate) fn image(name: &str) -> Image {
    Image::open(images().join(name)).unwrap()
}

pub(crate) fn sights() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vision")
}

/// The models that there are, by name.
pub(crate) fn names() -> Vec<String> {
    let all = fs::read_dir(sights()).unwrap().map(|entry| entry.unwrap().file_name());
    let mut all: Vec<_> = all.map(|name| name.into_string().unwrap()).collect();
    all.sort();
    assert!(all.len() > 10, "{all:?}");
    all
}

/// A folder as one downloads it: weights and settings of the model, vocabulary, template and settings of its processor.
pub(crate) fn folder(name: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let weights = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ogive-models/tests/vision").join(name);
    for file in ["config.json", "model.safetensors"] {
        fs::copy(weights.join(file), folder.path().join(file)).unwrap();
    }
    for entry in fs::read_dir(sights().join(name)).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    folder
}

pub(crate) fn options() -> Options {
    // Longer than the tiny models were made for.
    Options::new().exact(true).device(Device::Cpu).threads(2).context(256)
}

pub(crate) fn open(name: &str) -> Model {
    options().vision().open(folder(name).path()).unwrap()
}

/// What transformers made of a text or a conversation.
pub(crate) struct Case {
    pub(crate) name: String,
    /// None of a conversation.
    pub(crate) text: Option<String>,
    pub(crate) images: Vec<Image>,
    pub(crate) ids: Vec<u32>,
    /// Of the last tokens.
    pub(crate) logits: Array2<f32>,
}

pub(crate) fn cases(model: &str) -> Vec<Case> {
    let folder = sights().join(model);
    let all: Value = serde_json::from_slice(&fs::read(folder.join("cases.json")).unwrap()).unwrap();
    let case = |of: &Value| Case {
        name: of["name"].as_str().unwrap().into(),
        text: of["text"].as_str().map(Into::into),
        images: of["images"].as_array().unwrap().iter().map(|name| image(name.as_str().unwrap())).collect(),
        ids: serde_json::from_value(of["ids"].clone()).unwrap(),
        logits: ndarray_npy::read_npy(folder.join(of["logits"].as_str().unwrap())).unwrap(),
    };
    all["cases"].as_array().unwrap().iter().map(case).collect()
}

pub(crate) fn case(model: &str, name: &str) -> Case {
    cases(model).into_iter().find(|case| case.name == name).unwrap()
}

pub(crate) fn shown(text: &str, images: &[Image]) -> Prompt {
    Prompt::Shown { text: text.into(), images: images.into(), rendered: false }
}

/// Counts how often it is asked to see.
#[derive(Debug)]
struct Counted(Box<dyn Tower>, Arc<AtomicUsize>);

impl Tower for Counted {
    fn dim(&self) -> usize {
        self.0.dim()
    }

    fn see(&self, b: &dyn Backend, patches: &[f32], grid: [usize; 2]) -> ogive::tensor::Result<Vectors> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.see(b, patches, grid)
    }
}

/// A model that counts how often its tower sees something.
pub(crate) fn open_counted(name: &str) -> (Model, Arc<AtomicUsize>) {
    counted(options(), folder(name).path())
}

/// The same of a folder, with these options.
pub(crate) fn counted(options: Options, folder: &Path) -> (Model, Arc<AtomicUsize>) {
    let count = Arc::<AtomicUsize>::default();
    let architecture = options.checkpoint(folder).unwrap().architecture;
    let (of, counter) = (architecture.clone(), Arc::clone(&count));
    let registry = models::registry().with_tower(&architecture, move |config, loader| {
        let tower = models::registry().tower(&of, config, loader)?;
        Ok(Box::new(Counted(tower, Arc::clone(&counter))))
    });
    (options.registry(registry).vision().open(folder).unwrap(), count)
}
