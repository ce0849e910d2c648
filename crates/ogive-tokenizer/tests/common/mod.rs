//! What the tests share: the folder of test data that lies outside the repository, and tokenizers opened from it.
#![allow(dead_code)]

pub(crate) mod samples;
pub(crate) mod touch;

use ogive_tokenizer::Tokenizer;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The folder of shared test data, or `None` after saying that it is missing.
pub(crate) fn shared() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let folder = std::env::var_os("OGIVE_SHARED").map_or(beside, PathBuf::from);
    if folder.join("vocab").is_dir() {
        return Some(folder);
    }
    eprintln!("skipped: shared test data not found");
    None
}

pub(crate) fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

pub(crate) fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| u32::try_from(id.as_u64().unwrap()).unwrap()).collect()
}

pub(crate) fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

pub(crate) fn gguf(path: &Path) -> Tokenizer {
    let file = gguf_file::Gguf::open(path).unwrap();
    Tokenizer::from_gguf(file.metadata()).unwrap_or_else(|e| panic!("{path:?}: {e}"))
}

/// The four real vocabularies: the names in `vocab/ext`, and the tokenizers.
pub(crate) fn vocabularies(shared: &Path) -> Vec<(&'static str, Tokenizer)> {
    let open = |name| (name, gguf(&shared.join(format!("vocab/ggml-vocab-{name}.gguf"))));
    ["gpt-2", "llama-bpe", "llama-spm", "qwen2"].map(open).into()
}

/// Processor time of this thread where the system tells it, else wall time: others use the machine too.
pub(crate) fn cpu_time<T>(f: impl FnOnce() -> T) -> (Duration, T) {
    let used = || {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
        Some(Duration::from_nanos(text.split(' ').next()?.parse().ok()?))
    };
    let (wall, before) = (Instant::now(), used());
    let result = f();
    match (before, used()) {
        (Some(a), Some(b)) => (b.saturating_sub(a), result),
        _ => (wall.elapsed(), result),
    }
}
