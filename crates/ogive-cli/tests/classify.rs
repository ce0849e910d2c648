//! `ogive classify`: texts in, their classes out; and `ogive rerank` of a model that is asked.

mod common;

use common::{ogive, ogive_reads};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// A tiny model of the repository, of other crates' tests.
fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name)
}

const JUDGE: &str = "ogive-models/tests/golden/bert-reranker";

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn each_text_has_a_line_of_its_classes() {
    let model = golden(JUDGE);
    let all =
        lines(&ogive_reads(args!["classify", "--model", model, "--quiet"], b"the cats\n\ntax\n").text());
    assert_eq!(all.iter().map(|l| l["text"].as_str().unwrap()).collect::<Vec<_>>(), ["the cats", "", "tax"]);
    for line in &all {
        assert_eq!(line["classes"][0]["label"], "LABEL_0");
        assert!((0.0..1.0).contains(&line["classes"][0]["score"].as_f64().unwrap()), "{line}");
    }
    let raw = args!["classify", "--model", model, "--quiet", "--scores", "raw", "--top", "1", "tax"];
    let raw = lines(&ogive(raw).text());
    let logit = raw[0]["classes"][0]["score"].as_f64().unwrap();
    let share = all[2]["classes"][0]["score"].as_f64().unwrap();
    assert!((share - 1.0 / (1.0 + (-logit).exp())).abs() < 1e-6, "{logit} {share}");
}

#[test]
fn mistakes_are_explained() {
    let model = golden(JUDGE);
    let long = ogive(args!["classify", "--model", model, "--quiet", "cat ".repeat(60)]);
    assert!(
        long.error(1).contains("text 1 has 62 tokens") && long.stderr.contains("--truncate"),
        "{}",
        long.stderr
    );
    let other = ogive(args!["classify", "--model", golden("ogive-models/tests/golden/bert"), "a"]);
    assert!(other.error(1).contains("no head for classes"), "{}", other.stderr);
    let scores = ogive(args!["classify", "--model", model, "--scores", "best", "a"]);
    assert!(scores.error(2).contains("'best'") && scores.stderr.contains("softmax"), "{}", scores.stderr);
}

#[test]
fn a_model_is_asked_where_that_is_said() {
    let model = golden("ogive/tests/rerankers/qwen3");
    let pairs: Value = serde_json::from_slice(&std::fs::read(model.join("golden.json")).unwrap()).unwrap();
    let pairs = &pairs["pairs"];
    let query = pairs["query"].as_str().unwrap();
    let documents = pairs["documents"].as_array().unwrap().iter().map(|d| d.as_str().unwrap());
    for (more, wanted) in
        [(&["--asked"][..], "scores"), (&["--asked", "--instruction", "like cats"], "instructed")]
    {
        let mut args = args!["rerank", "--model", model, "--quiet", "--exact"];
        args.extend(more.iter().map(Into::into));
        args.push(query.into());
        args.extend(documents.clone().map(Into::into));
        for line in lines(&ogive(args).text()) {
            let (got, i) = (line["score"].as_f64().unwrap(), line["index"].as_u64().unwrap() as usize);
            assert!((got - pairs[wanted][i].as_f64().unwrap()).abs() < 2e-6, "{line}");
        }
    }
    let plain = ogive(args!["rerank", "--model", model, "a", "b"]);
    assert!(plain.error(1).contains("--asked"), "{}", plain.stderr);
    let off = ogive(args!["rerank", "--model", model, "--asked=false", "a", "b"]);
    assert!(off.error(1).contains("is no reranker"), "{}", off.stderr);
    let neither = ogive(args!["rerank", "--model", model, "--asked=maybe", "a", "b"]);
    assert!(neither.error(2).contains("'maybe'"), "{}", neither.stderr);
    let judge = ogive(args!["rerank", "--model", golden(JUDGE), "--instruction", "x", "a", "b"]);
    assert!(judge.error(1).contains("takes no instruction"), "{}", judge.stderr);
}
