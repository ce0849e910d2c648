//! `ogive rerank`: a question and texts in, the best first.

mod common;

use common::{ogive, ogive_reads};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// A tiny model of the repository, of another crate's tests.
fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../ogive-models/tests/golden").join(name)
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn the_best_text_is_first_from_a_folder_and_from_the_file_made_of_it() {
    for name in ["bert-reranker", "roberta-reranker", "modern-bert-reranker"] {
        let pairs: Value =
            serde_json::from_slice(&std::fs::read(golden(name).join("golden.json")).unwrap()).unwrap();
        let pairs = &pairs["pairs"];
        let (query, texts) = (pairs["query"].as_str().unwrap(), pairs["documents"].as_array().unwrap());
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("model.gguf");
        ogive(args!["quantize", golden(name), file, "--format", "f32", "--quiet"]).text();
        for model in [golden(name), file] {
            let mut args = args!["rerank", "--model", model, "--quiet", "--exact", query];
            args.extend(texts.iter().map(|t| t.as_str().unwrap().into()));
            let best = lines(&ogive(args).text());
            assert_eq!(best.len(), 4);
            for line in &best {
                let i = line["index"].as_u64().unwrap() as usize;
                let (got, want) = (line["score"].as_f64().unwrap(), pairs["scores"][i].as_f64().unwrap());
                assert!((got - want).abs() < 2e-6, "{}, {i}: {got} for {want}", model.display());
                assert_eq!(line["text"], texts[i]);
            }
            assert!(best.windows(2).all(|two| two[0]["score"].as_f64() >= two[1]["score"].as_f64()));
        }
    }
}

#[test]
fn lines_of_stdin_are_texts_and_mistakes_are_explained() {
    let model = golden("bert-reranker");
    let args = |more: &[&str]| {
        let mut args = args!["rerank", "--model", model, "--quiet", "cats?"];
        args.extend(more.iter().map(Into::into));
        args
    };
    let all = lines(&ogive_reads(args(&["--sigmoid"]), b"the cats\n\ndog\n").text());
    assert!(
        all.len() == 3 && all.iter().all(|l| (0.0..1.0).contains(&l["score"].as_f64().unwrap())),
        "{all:?}"
    );
    let one = lines(&ogive_reads(args(&["--sigmoid", "--top", "1"]), b"the cats\n\ndog\n").text());
    assert_eq!(one, all[..1]);
    let none = ogive_reads(args(&[]), b"");
    assert!(none.error(2).contains("no text given"), "{}", none.stderr);
    let long = ogive_reads(args(&[]), format!("a\n{}\n", "cat ".repeat(60)).as_bytes());
    assert!(long.error(1).contains("text 2 have") && long.stderr.contains("--truncate"), "{}", long.stderr);
    let other = ogive(args!["rerank", "--model", golden("bert"), "a", "b"]);
    assert!(other.error(1).contains("is no reranker"), "{}", other.stderr);
    let vectors = ogive(args!["embed", "--model", model, "a"]);
    assert!(vectors.error(1).contains("ranks texts"), "{}", vectors.stderr);
}
