//! A mapped file's pages leave memory when whoever has made something of a weight releases its bytes.
#![cfg(target_os = "linux")]

mod common;

use common::{gguf, safetensors_of};
use std::{fs, path::Path};

/// A weight of 8 MB: far larger than the pieces in which a system maps files.
const SHAPE: [usize; 2] = [1024, 2048];

/// Kilobytes of a mapped file that are in this process's memory.
fn resident(path: &Path) -> u64 {
    let maps = fs::read_to_string("/proc/self/smaps").unwrap();
    let mut of_file = maps.lines().skip_while(|line| !line.ends_with(path.to_str().unwrap()));
    let line = of_file.find_map(|line| line.strip_prefix("Rss:")).expect("a map of the file");
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn check(path: &Path, name: &str) {
    let opened = ogive_weights::open(path).unwrap();
    let weight = opened.source.get(name).unwrap();
    let file = if path.is_dir() { path.join("model.safetensors") } else { path.to_owned() };
    let before = weight.to_vec();
    assert!(resident(&file) >= 8192, "{} kB", resident(&file));
    weight.bytes.release();
    assert!(resident(&file) < 3072, "{} kB", resident(&file));
    assert!(weight.to_vec() == before, "they come back when they are read");
}

#[test]
fn of_a_gguf_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    let shape = SHAPE.map(|n| n as u64);
    let metadata = [
        ("general.architecture", "llama".into()),
        ("llama.block_count", 1_u32.into()),
        ("llama.embedding_length", 2048_u32.into()),
        ("llama.attention.head_count", 32_u32.into()),
    ];
    fs::write(&path, gguf(&metadata, &[("token_embd.weight", &shape)])).unwrap();
    check(&path, "model.embed_tokens.weight");
}

#[test]
fn of_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("config.json"), r#"{"architectures": ["Any"]}"#).unwrap();
    fs::write(folder.path().join("model.safetensors"), safetensors_of(&[("w", &SHAPE)])).unwrap();
    check(folder.path(), "w");
}
