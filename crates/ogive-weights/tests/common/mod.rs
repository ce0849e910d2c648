//! The shared test data, and small files made here: a safetensors file of any header, a GGUF file of a few tensors.

#![allow(dead_code, reason = "each test binary uses a part")]

use gguf_file::{GgmlType, Gguf, GgufWriter, Value};
use ogive_weights::{Checkpoint, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;

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

/// A GGUF file of this architecture, with these keys below its name and these tensors, as a model.
pub(crate) fn checkpoint(
    arch: &str,
    keys: &[(&str, Value)],
    tensors: &[(&str, &[u64])],
) -> ogive_tensor::Result<Checkpoint> {
    let keys: Vec<_> = keys.iter().map(|(key, v)| (format!("{arch}.{key}"), v.clone())).collect();
    let mut meta = vec![("general.architecture", Value::from(arch))];
    meta.extend(keys.iter().map(|(key, v)| (&**key, v.clone())));
    OpenOptions::new().of_gguf(Arc::new(Gguf::from_bytes(gguf(&meta, tensors)).unwrap()))
}

/// The sizes of six heads of a state space, of so many elements together.
pub(crate) fn space(inner: u32) -> [(&'static str, Value); 5] {
    [
        ("ssm.conv_kernel", 4_u32.into()),
        ("ssm.state_size", 10_u32.into()),
        ("ssm.group_count", 3_u32.into()),
        ("ssm.time_step_rank", 6_u32.into()),
        ("ssm.inner_size", inner.into()),
    ]
}

/// Writes a file into a folder.
pub(crate) fn write(folder: &Path, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}
