//! Large files: 100,000 tensors, a vocabulary of 300,000 tokens. The times are printed (`--nocapture`), not judged: a
//! time limit in a test fails on a busy machine and says nothing on an idle one.

#![allow(clippy::print_stdout, reason = "skips and figures are to be seen")]

mod common;

use std::time::{Duration, Instant};

use gguf_file::{GgmlType, Gguf, GgufWriter, StringArray};

/// The median of five openings.
fn opening(path: &std::path::Path) -> Duration {
    let mut times = [(); 5].map(|()| {
        let start = Instant::now();
        let file = Gguf::open(path).expect("it opens");
        let time = start.elapsed();
        drop(file);
        time
    });
    times.sort();
    times[2]
}

#[test]
fn a_hundred_thousand_tensors() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("many.gguf");
    let name = |i: usize| format!("blk.{}.some_part_{}.weight", i / 10, i % 10);
    let mut writer = GgufWriter::new();
    for i in 0..100_000 {
        writer.tensor(&name(i), &[8, 1], GgmlType::F32).expect("valid");
    }
    let mut data = writer.create(&path).expect("it can be created");
    for i in 0..100_000usize {
        data.append(&(i as u64).to_le_bytes().repeat(4)).expect("it fits");
    }
    data.finish().expect("all is written");

    println!(
        "100,000 tensors, {} bytes: opened in {:?}",
        path.metadata().expect("size").len(),
        opening(&path)
    );
    let file = Gguf::open(&path).expect("it opens");
    let start = Instant::now();
    for i in (0..100_000).rev() {
        let data = file.data(file.tensor(&name(i)).expect("it is there")).expect("data");
        assert_eq!(data.bytes()[..8], (i as u64).to_le_bytes());
    }
    println!("all found by name and touched in {:?}", start.elapsed());
}

#[test]
fn a_vocabulary_of_three_hundred_thousand() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("vocab.gguf");
    let token = |i: u32| format!("piece{}", i.wrapping_mul(2_654_435_761));
    let tokens: StringArray = (0..300_000).map(token).collect();
    let merges: StringArray = (0..300_000).map(|i| format!("{} {}", token(i), token(i + 1))).collect();
    let mut writer = GgufWriter::new();
    writer.set("tokenizer.ggml.tokens", tokens).set("tokenizer.ggml.merges", merges);
    writer.set("tokenizer.ggml.scores", (0..300_000).map(|i| -(i as f32)).collect::<Vec<_>>());
    writer.set("tokenizer.ggml.token_type", vec![1i32; 300_000]);
    writer.create(&path).expect("it can be created").finish().expect("no data are due");

    println!(
        "300,000 tokens, {} bytes: opened in {:?}",
        path.metadata().expect("size").len(),
        opening(&path)
    );
    let file = Gguf::open(&path).expect("it opens");
    let tokens = file.metadata().array_of_str("tokenizer.ggml.tokens").expect("tokens");
    assert_eq!(tokens.get_str(299_999), Some(&*token(299_999)));
    assert_eq!(tokens.iter_str().filter(|t| t.is_ok()).count(), 300_000);
}

#[test]
fn real_vocabularies() {
    let Some(shared) = common::shared() else { return };
    for path in common::gguf_files(&shared.join("vocab")) {
        println!("{:?}: opened in {:?}", path.file_name().unwrap_or_default(), opening(&path));
    }
}
