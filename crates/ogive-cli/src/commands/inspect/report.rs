//! What there is to say of a model, gathered from whichever kind of file it is.

use crate::error::{Result, with_causes};
use crate::options::check_plain;
use ogive::tensor::WeightInfo;
use ogive::tokenizer::Tokenizer;
use ogive::weights::Checkpoint;
use ogive::weights::gguf_file::{Array, Gguf, Str, TensorInfo, Value as Gv};
use ogive::{Memory, Options};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A tensor as its file has it.
pub(super) struct Tensor {
    pub(super) name: String,
    /// Slowest dimension first.
    pub(super) shape: Vec<u64>,
    pub(super) format: String,
    pub(super) elements: u64,
    /// Unknown where the format is.
    pub(super) bytes: Option<u64>,
}

/// Sums over the tensors of one format.
#[derive(Default)]
pub(super) struct Total {
    pub(super) tensors: u64,
    pub(super) elements: u64,
    pub(super) bytes: u64,
}

/// What there is to say of a model.
pub(super) struct Report {
    pub(super) path: PathBuf,
    /// In words: which kind of file, and its version.
    pub(super) kind: String,
    /// The kind in one word, for scripts.
    pub(super) form: &'static str,
    /// The name in the file: `llama`, `LlamaForCausalLM`.
    pub(super) architecture: Option<String>,
    /// In the order of the file.
    pub(super) metadata: Vec<(String, Value)>,
    pub(super) tensors: Vec<Tensor>,
    /// The kind of vocabulary, its size, and whether there is a chat template.
    pub(super) vocabulary: Result<(String, usize, bool), String>,
    pub(super) memory: Result<Memory, String>,
}

impl Report {
    /// Gathers it, without loading weights.
    pub(super) fn of(path: &Path, options: &Options) -> Result<Self> {
        // The file, its vocabulary and what it would take are read one after the other.
        check_plain(path, "inspected")?;
        let mut report = match gguf(path)? {
            Some(gguf) => Self::of_gguf(path, &gguf),
            None => Self::of_folder(path, &Options::new().checkpoint(path)?),
        };
        let vocabulary = ogive::open_tokenizer(path);
        let about = |t: Tokenizer| (t.model_name().to_owned(), t.vocab_size(), t.chat_template().is_some());
        report.vocabulary = vocabulary.map(about).map_err(|e| with_causes(&e));
        report.memory = options.estimate_memory(path).map_err(|e| with_causes(&e));
        Ok(report)
    }

    fn of_gguf(path: &Path, gguf: &Gguf) -> Self {
        let (meta, parts) = (gguf.metadata(), gguf.parts());
        let parts = if parts == 1 { String::new() } else { format!(", {parts} parts") };
        Self {
            path: path.into(),
            kind: format!("GGUF version {}, {} endian{parts}", gguf.version(), order(gguf)),
            form: "gguf",
            architecture: meta.opt_str("general.architecture").ok().flatten().map(Into::into),
            metadata: meta.iter().map(|(key, value)| (key.to_owned(), value_json(value))).collect(),
            tensors: gguf.tensors().iter().map(gguf_tensor).collect(),
            vocabulary: Err(String::new()),
            memory: Err(String::new()),
        }
    }

    fn of_folder(path: &Path, checkpoint: &Checkpoint) -> Self {
        let config = checkpoint.config.0.as_object();
        Self {
            path: path.into(),
            kind: "safetensors with config.json".into(),
            form: "safetensors",
            architecture: Some(checkpoint.architecture.clone()),
            metadata: config.into_iter().flatten().map(|(k, v)| (k.clone(), v.clone())).collect(),
            tensors: checkpoint.source.tensors().into_iter().map(tensor).collect(),
            vocabulary: Err(String::new()),
            memory: Err(String::new()),
        }
    }

    /// Sums by format.
    pub(super) fn totals(&self) -> BTreeMap<&str, Total> {
        let mut totals: BTreeMap<&str, Total> = BTreeMap::new();
        for t in &self.tensors {
            let total = totals.entry(&t.format).or_default();
            total.tensors += 1;
            total.elements = total.elements.saturating_add(t.elements);
            total.bytes = total.bytes.saturating_add(t.bytes.unwrap_or(0));
        }
        totals
    }
}

/// The file, if it is GGUF; `None` for another kind, to be told by whoever knows it.
fn gguf(path: &Path) -> Result<Option<Gguf>> {
    let one_file = path.is_file() || ogive::is_demo(path);
    if !one_file || !crate::commands::template::is_gguf(path)? {
        return Ok(None);
    }
    Ok(Some(ogive::open_gguf(path)?))
}

fn order(gguf: &Gguf) -> &'static str {
    match gguf.byte_order() {
        ogive::weights::gguf_file::ByteOrder::Little => "little",
        ogive::weights::gguf_file::ByteOrder::Big => "big",
    }
}

fn gguf_tensor(info: &TensorInfo) -> Tensor {
    Tensor {
        name: info.name().into(),
        shape: info.shape(),
        format: info.ggml_type().map_or_else(|| format!("type {}", info.type_id()), |t| t.name().into()),
        elements: info.elements(),
        bytes: info.byte_len(),
    }
}

fn tensor(info: WeightInfo) -> Tensor {
    let shape: Vec<u64> = info.shape.iter().map(|n| *n as u64).skip_while(|n| *n == 1).collect();
    Tensor {
        shape: if shape.is_empty() { vec![1] } else { shape },
        format: info.format.name.to_uppercase(),
        elements: info.elements() as u64,
        bytes: Some(info.bytes() as u64),
        name: info.name,
    }
}

/// A metadata value as JSON. Strings that are no UTF-8 get replacement characters, numbers that are none become null.
fn value_json(value: &Gv) -> Value {
    match value {
        Gv::F32(v) => short(*v),
        Gv::F64(v) => json!(v),
        Gv::Bool(v) => json!(v),
        Gv::String(v) => json!(v.to_string()),
        Gv::Array(v) => array_json(v),
        other => other.as_int().map_or(Value::Null, int),
    }
}

/// The number as it was meant: 1e-5 and not the double next to the single next to it.
fn short(v: f32) -> Value {
    json!(v.to_string().parse::<f64>().unwrap_or(f64::NAN))
}

fn int(v: i128) -> Value {
    u64::try_from(v).map(Value::from).or_else(|_| i64::try_from(v).map(Value::from)).unwrap_or(Value::Null)
}

/// As deep as the reader lets arrays nest, which is not deep.
fn array_json(array: &Array) -> Value {
    match array {
        Array::U8(v) => json!(v),
        Array::I8(v) => json!(v),
        Array::U16(v) => json!(v),
        Array::I16(v) => json!(v),
        Array::U32(v) => json!(v),
        Array::I32(v) => json!(v),
        Array::U64(v) => json!(v),
        Array::I64(v) => json!(v),
        Array::F32(v) => v.iter().copied().map(short).collect(),
        Array::F64(v) => json!(v),
        Array::Bool(v) => json!(v),
        Array::String(v) => v.iter().map(|s| Value::from(Str::from(s).to_string())).collect(),
        Array::Array(v) => v.iter().map(array_json).collect(),
    }
}
