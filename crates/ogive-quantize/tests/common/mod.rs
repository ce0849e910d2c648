//! Where the test data is, and short ways to pack into memory.

#![allow(dead_code, reason = "each test binary uses a part")]
#![allow(clippy::print_stderr, reason = "a skipped test says so")]

use ogive_quantize::gguf_file::Gguf;
use ogive_quantize::{FileFormat, Input, Quantize, Result};
use ogive_tensor::format_by_name;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// A file of the shared test data; `None`, and a line that says so, where they are missing.
pub(crate) fn shared(name: &str) -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let root = std::env::var_os("OGIVE_SHARED").map_or(beside, PathBuf::from);
    if root.is_dir() {
        return Some(root.join(name));
    }
    eprintln!("skipped: shared test data not found");
    None
}

/// Packs into memory.
pub(crate) fn packed(quantize: &Quantize, input: &Path) -> Result<Gguf> {
    let mut file = Vec::new();
    quantize.write_to(&Input::open(input)?, &mut file, |_| true)?;
    Ok(Gguf::from_bytes(file)?)
}

pub(crate) fn format(name: &str) -> Quantize {
    Quantize::new(FileFormat::find(name).unwrap())
}

/// A tensor of a safetensors file.
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) dtype: String,
    pub(crate) shape: Vec<u64>,
    pub(crate) bytes: Vec<u8>,
}

/// A copy of a golden folder, with changes to its settings and to its tensors; one of the repository's, `own/NAME`, gets the vocabulary of
/// another, as it has none.
pub(crate) fn rewritten(
    model: &str,
    settings: impl FnOnce(&mut Value),
    tensors: impl FnOnce(&mut Vec<Tensor>),
) -> Option<tempfile::TempDir> {
    if let Some(name) = model.strip_prefix("own/") {
        return Some(rewritten_own(name, settings, tensors));
    }
    let from = shared(&format!("golden/{model}"))?;
    Some(rewritten_from(&from, &from, settings, tensors))
}

/// The same of one of the repository's own models, with the vocabulary of the encoder among them: decoders have none there.
pub(crate) fn rewritten_own(
    model: &str,
    settings: impl FnOnce(&mut Value),
    tensors: impl FnOnce(&mut Vec<Tensor>),
) -> tempfile::TempDir {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ogive-models/tests/golden");
    let settings = |c: &mut Value| {
        (c["bos_token_id"], c["eos_token_id"]) = (json!(2), json!(3));
        settings(c);
    };
    rewritten_from(&own.join(model), &own.join("bert"), settings, tensors)
}

/// Sets these settings, of the text where a model also sees.
pub(crate) fn set(more: Value) -> impl FnOnce(&mut Value) {
    move |config| {
        let text = config["text_config"].is_object();
        let settings = if text { &mut config["text_config"] } else { config };
        settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    }
}

/// Leaves tensors as they are.
pub(crate) fn none(_: &mut Vec<Tensor>) {}

/// What opening a folder of one of our own models with these settings and tensors fails with.
pub(crate) fn refusal(name: &str, settings: Value, tensors: impl FnOnce(&mut Vec<Tensor>)) -> String {
    let folder = rewritten_own(name, set(settings), tensors);
    let e = Input::open(folder.path()).map(|_| ()).unwrap_err().to_string();
    assert!(!e.contains('\n'), "{e}");
    e
}

fn rewritten_from(
    from: &Path,
    vocabulary: &Path,
    settings: impl FnOnce(&mut Value),
    tensors: impl FnOnce(&mut Vec<Tensor>),
) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
    for name in ["tokenizer.json", "tokenizer_config.json"] {
        write(name, &std::fs::read(vocabulary.join(name)).unwrap());
    }
    let mut config = serde_json::from_slice(&std::fs::read(from.join("config.json")).unwrap()).unwrap();
    settings(&mut config);
    write("config.json", config.to_string().as_bytes());

    let file = std::fs::read(from.join("model.safetensors")).unwrap();
    let (length, rest) = file.split_first_chunk::<8>().unwrap();
    let (header, data) = rest.split_at(u64::from_le_bytes(*length) as usize);
    let header: serde_json::Map<String, Value> = serde_json::from_slice(header).unwrap();
    let number = |v: &Value| v.as_u64().unwrap();
    let tensor = |(name, t): (String, Value)| Tensor {
        name,
        dtype: t["dtype"].as_str().unwrap().into(),
        shape: t["shape"].as_array().unwrap().iter().map(number).collect(),
        bytes: data[number(&t["data_offsets"][0]) as usize..number(&t["data_offsets"][1]) as usize].into(),
    };
    let mut all: Vec<Tensor> = header.into_iter().filter(|(n, _)| n != "__metadata__").map(tensor).collect();
    tensors(&mut all);
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for t in all {
        let begin = data.len();
        data.extend(t.bytes);
        let place = json!({"dtype": t.dtype, "shape": t.shape, "data_offsets": [begin, data.len()]});
        header.insert(t.name, place);
    }
    let header = Value::Object(header).to_string();
    write(
        "model.safetensors",
        &[&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat(),
    );
    folder
}

/// A tensor's elements.
pub(crate) fn values(gguf: &Gguf, tensor: &str) -> Vec<f32> {
    let info = gguf.tensor(tensor).unwrap_or_else(|| panic!("no {tensor}"));
    let format = format_by_name(info.ggml_type().unwrap().name()).unwrap();
    let mut out = vec![0.0; info.elements() as usize];
    format.decode_row(gguf.data(info).unwrap().bytes(), &mut out);
    out
}

/// Root of the mean square difference.
pub(crate) fn rmse(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let sum: f64 = a.iter().zip(b).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum();
    (sum / a.len() as f64).sqrt()
}
