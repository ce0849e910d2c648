//! The fuzzer's seed corpus, replayed on every run of the tests. `cargo test -p ogive-weights --test corpus -- --ignored`
//! writes the seeds anew.

mod common;
#[path = "common/packer.rs"]
mod packer;
#[path = "common/touch.rs"]
mod touch;

use ogive_weights::tensor::F16;
use packer::{Numbers, tensor};
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/safetensors")
}

/// Small files of every kind: whole, lying, damaged.
fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let ok = common::safetensors_of(&[
        ("model.norm.weight", &[4]),
        ("a", &[2, 3]),
        ("e", &[2, 2, 2]),
        ("none", &[0, 3]),
    ]);
    let entry = |dtype: &str, shape: &str, begin: u64, end: u64| {
        format!(r#"{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{begin},{end}]}}"#)
    };
    let one = |dtype, shape, begin, end, data| {
        common::safetensors(&format!(r#"{{"w":{}}}"#, entry(dtype, shape, begin, end)), data)
    };
    let overlap = format!(r#"{{"a":{},"b":{}}}"#, entry("F16", "[2]", 0, 4), entry("BF16", "[2]", 2, 6));
    let twice = format!(r#"{{"a":{0},"a":{0}}}"#, entry("F16", "[2]", 0, 4));
    let metadata = format!(r#"{{"__metadata__":{{"format":"pt"}},"a":{}}}  "#, entry("F8_E4M3", "[4]", 0, 4));
    let whole = Numbers::new(4, [32, 64], 32, None);
    let mut scattered = Numbers::new(4, [32, 64], 32, Some(8));
    scattered.groups.iter_mut().step_by(2).for_each(|group| *group = 1 - *group);
    let mut outside = Numbers::new(3, [32, 64], 32, None);
    outside.groups[9] = 9;
    let float8 = [
        tensor("a.", "weight", "F8_E4M3", &[5, 10], (0..50).collect()),
        tensor("a.", "weight_scale_inv", "F32", &[3, 3], [0, 0, 128, 63].repeat(9)),
        tensor("e", "", "F8_E4M3", &[2, 3, 4], (90..114).collect()),
        tensor("e", "_scale_inv", "BF16", &[2, 3, 1], [128, 63].repeat(6)),
    ];
    vec![
        ("gptq", packer::file(&scattered.gptq("a.", 1, &F16))),
        ("gptq-outside", packer::file(&outside.gptq("a.", 1, &F16))),
        ("awq", packer::file(&whole.awq("a.", &F16))),
        ("compressed", packer::file(&scattered.compressed("a.", true, true, &F16))),
        ("float8", packer::file(&float8)),
        ("empty", Vec::new()),
        ("small", ok.clone()),
        ("truncated", ok[..ok.len() - 5].to_vec()),
        ("scalar", one("BF16", "[]", 0, 2, 2)),
        ("five-dims", one("U8", "[1,2,1,2,1]", 0, 4, 4)),
        ("count-overflow", one("F32", "[4294967296,4294967296,4]", 0, 4, 4)),
        ("huge-zero", one("F32", "[18446744073709551615,0]", 0, 0, 0)),
        ("offset-overflow", one("F32", "[1]", 18_446_744_073_709_551_610, 18_446_744_073_709_551_614, 4)),
        ("backwards", one("F32", "[1]", 4, 0, 4)),
        ("unknown-dtype", one("Q9", "[3]", 0, 4, 4)),
        ("small-letters", one("f16", "[4]", 0, 16, 16)),
        ("packed", one("q8_0", "[64]", 0, 68, 68)),
        ("overlap", common::safetensors(&overlap, 6)),
        ("twice", common::safetensors(&twice, 4)),
        ("metadata", common::safetensors(&metadata, 4)),
        ("deep", common::safetensors(&"[".repeat(2000), 0)),
        ("lying-length", [u64::MAX.to_le_bytes().as_slice(), b"{}"].concat()),
    ]
}

#[test]
fn every_file_of_the_corpus_is_harmless() {
    let files: Vec<_> = match std::fs::read_dir(folder()) {
        Ok(files) => files.map(|f| f.unwrap().path()).collect(),
        // A packaged crate has no folder beside it: then the seeds as they would be written.
        Err(_) => Vec::new(),
    };
    let opened = files.iter().filter(|f| touch::touch(&std::fs::read(f).unwrap())).count();
    assert!(
        files.is_empty() || (opened >= 5 && files.len() - opened >= 8),
        "{opened} of {} open",
        files.len()
    );
    for (name, bytes) in seeds() {
        let should = ["small", "scalar", "five-dims", "huge-zero", "unknown-dtype", "packed", "metadata"]
            .into_iter()
            .chain(["gptq", "gptq-outside", "awq", "compressed", "float8"])
            .any(|whole| whole == name);
        assert_eq!(touch::touch(&bytes), should, "{name}");
    }
}

#[test]
#[ignore = "writes the corpus"]
fn write_the_corpus() {
    std::fs::create_dir_all(folder()).unwrap();
    for (name, bytes) in seeds() {
        std::fs::write(folder().join(name), bytes).unwrap();
    }
}
