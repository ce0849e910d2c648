//! The shared test data, and small files made here: a safetensors file of any header, a GGUF file of a few tensors.

#![allow(dead_code, reason = "each test binary uses a part")]

use gguf_file::{GgmlType, GgufWriter, Value};
use std::path::{Path, PathBuf};

/// The folder of shared test data; `None`, and a line that says so, where it is missing.
pub(crate) fn shared() -> Option<PathBuf> {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let path = std::env::var_os("OGIVE_SHARED").map_or(here, PathBuf::from);
    if path.is_dir() {
        return Some(path);
    }
    #[allow(clippy::print_stderr, reason = "a skipped test says so")]
    {
        eprintln!("skipped: shared test data not found");
    }
    None
}

/// A safetensors file of this header and that many bytes of data, which count up.
pub(crate) fn safetensors(header: &str, data: usize) -> Vec<u8> {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header.as_bytes());
    file.extend((0..data).map(|i| i as u8));
    file
}

/// A safetensors file of f32 tensors, each filled with its place in the list.
pub(crate) fn safetensors_of(tensors: &[(&str, &[usize])]) -> Vec<u8> {
    let (mut entries, mut data) = (Vec::new(), Vec::new());
    for (i, (name, shape)) in tensors.iter().enumerate() {
        let begin = data.len();
        let count: usize = shape.iter().product();
        (0..count).for_each(|_| data.extend_from_slice(&(i as f32).to_le_bytes()));
        entries.push(format!(
            r#""{name}":{{"dtype":"F32","shape":{shape:?},"data_offsets":[{begin},{}]}}"#,
            data.len()
        ));
    }
    let header = format!("{{{}}}", entries.join(","));
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header.as_bytes());
    file.extend_from_slice(&data);
    file
}

/// A GGUF file of f32 tensors (dimensions slowest first), which count up from 0, with these metadata.
pub(crate) fn gguf(metadata: &[(&str, Value)], tensors: &[(&str, &[u64])]) -> Vec<u8> {
    let mut writer = GgufWriter::new();
    for (key, value) in metadata {
        writer.set(key, value.clone());
    }
    for (name, shape) in tensors {
        let dims: Vec<u64> = shape.iter().rev().copied().collect();
        writer.tensor(name, &dims, GgmlType::F32).unwrap();
    }
    let mut file = Vec::new();
    let mut data = writer.write_to(&mut file).unwrap();
    for (name, shape) in tensors {
        let count: u64 = shape.iter().product();
        let bytes: Vec<u8> = (0..count).flat_map(|i| (i as f32).to_le_bytes()).collect();
        data.write_data(name, &bytes).unwrap();
    }
    data.finish().unwrap();
    file
}

/// Writes a file into a folder.
pub(crate) fn write(folder: &Path, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}
