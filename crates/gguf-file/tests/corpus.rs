//! The fuzzer's seed corpus, replayed on every run of the tests. `cargo test -p gguf-file --test corpus -- --ignored`
//! writes it anew from `common/samples.rs`.

#![allow(clippy::print_stdout, reason = "skips and figures are to be seen")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::samples;
use common::touch::touch;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/gguf")
}

#[test]
fn every_seed_behaves() {
    for (name, bytes, opens) in samples::seeds() {
        assert_eq!(touch(&bytes), opens, "{name}");
    }
}

#[test]
fn every_file_of_the_corpus_is_harmless() {
    // Absent where the crate is tested from its package alone.
    let Ok(entries) = fs::read_dir(folder()) else {
        println!("skipped: fuzz/corpus/gguf not found");
        return;
    };
    let mut replayed = 0;
    for entry in entries {
        let path = entry.expect("the entry can be read").path();
        touch(&fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())));
        replayed += 1;
    }
    assert!(replayed >= samples::seeds().len(), "only {replayed} files were replayed");
}

#[test]
#[ignore = "writes the corpus"]
fn write_the_corpus() {
    fs::create_dir_all(folder()).expect("the folder can be made");
    for (name, bytes, _) in samples::seeds() {
        fs::write(folder().join(name), bytes).expect("the seed can be written");
    }
}
