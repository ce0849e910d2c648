//! `ogive embed`: texts in, vectors out.

mod common;

use common::{ogive, ogive_reads, shared};
use ogive::ndarray::Array2;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

#[test]
fn a_vector_a_line_from_arguments_and_from_stdin_and_the_same_as_numpy() {
    let Some(model) = shared("models/stories260K/stories260K-f32.gguf") else { return };
    let given = ogive(args!["embed", "--model", model, "--quiet", "Once upon a time", "The end."]).text();
    let rows: Vec<Vec<f32>> = given.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((rows.len(), rows[0].len()), (2, 64));
    for row in &rows {
        assert!((row.iter().map(|v| v * v).sum::<f32>() - 1.0).abs() < 1e-5);
    }
    let piped = ogive_reads(args!["embed", "--model", model], b"Once upon a time\nThe end.\n").text();
    assert_eq!(piped, given);
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("v.npy");
    let args = args!["embed", "--model", model, "--out", out, "Once upon a time", "The end."];
    assert_eq!(ogive(args).text(), "");
    let saved: Array2<f32> = ndarray_npy::read_npy(&out).unwrap();
    assert_eq!(saved.rows().into_iter().map(|r| r.to_vec()).collect::<Vec<_>>(), rows);
    let last =
        ogive(args!["embed", "--model", model, "--pooling", "last", "--no-normalize", "The end."]).text();
    let last: Vec<f32> = serde_json::from_str(&last).unwrap();
    assert!(last.iter().map(|v| v * v).sum::<f32>() > 2.0);
}

#[test]
fn every_line_has_a_vector_also_one_without_text() {
    let model = golden("bert");
    let given = ogive(args!["embed", "--model", model, "--quiet", "the cats", "", " ", "dog"]).text();
    assert_eq!(given.lines().count(), 4, "{given}");
    // A line ends with its break, and the last may do without.
    for lines in [&b"the cats\n\n \ndog\n"[..], b"the cats\r\n\r\n \r\ndog"] {
        assert_eq!(ogive_reads(args!["embed", "--model", model, "--quiet"], lines).text(), given);
    }
    let one = ogive_reads(args!["embed", "--model", model, "--quiet"], b"\n").text();
    assert_eq!(one.lines().collect::<Vec<_>>(), [given.lines().nth(1).unwrap()]);
    let none = ogive_reads(args!["embed", "--model", model], b"");
    assert!(none.error(2).contains("no text given"), "{}", none.stderr);
    // As lines are counted, and by the name that it has here.
    let long = ogive_reads(args!["embed", "--model", model], format!("\n{}\n", "x".repeat(60)).as_bytes());
    assert!(long.error(1).contains("text 2 has 62 tokens"), "{}", long.stderr);
    assert!(long.stderr.contains("--truncate"), "{}", long.stderr);
    let nothing = ogive(args!["embed", "--model", model, "--dimensions", "0", "x"]);
    assert!(nothing.error(2).contains("it should be at least 1"), "{}", nothing.stderr);
}

#[test]
fn mistakes_are_explained() {
    let Some(model) = shared("models/stories260K/stories260K-f32.gguf") else { return };
    let long =
        ogive(args!["embed", "--model", model, "--context", "4", "one", "Once upon a time, there was"]);
    assert!(long.error(1).contains("text 2 has"), "{}", long.stderr);
    let bytes = ogive_reads(args!["embed", "--model", model], b"\xff\n");
    assert!(bytes.error(1).contains("reading stdin"), "{}", bytes.stderr);
    let out = ogive(args!["embed", "--model", model, "--out", "/nowhere/v.npy", "x"]);
    assert!(out.error(1).contains("there is no such folder"), "{}", out.stderr);
}

/// A tiny encoder of the repository, of another crate's tests: a folder as sentence-transformers saves it.
fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../ogive-models/tests/golden").join(name)
}

fn far(a: &[Vec<f32>], b: &Array2<f32>) -> f32 {
    assert_eq!((a.len(), a[0].len()), b.dim());
    a.iter().flatten().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn encoders_give_their_vectors_from_a_folder_and_from_the_file_made_of_it() {
    for name in ["bert", "nomic-bert", "xlm-roberta", "modern-bert", "embedding-gemma"] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("model.gguf");
        ogive(args!["quantize", golden(name), file, "--format", "f32", "--quiet"]).text();
        let golden_json = std::fs::read(golden(name).join("golden.json")).unwrap();
        let texts: serde_json::Value = serde_json::from_slice(&golden_json).unwrap();
        let want: Array2<f32> = ndarray_npy::read_npy(golden(name).join("vectors.npy")).unwrap();
        let mut args = args!["embed", "--quiet", "--exact", "--truncate"];
        // Not the one with special tokens in it, which are a user's words here.
        let (kept, rows): (Vec<_>, Vec<_>) = texts["texts"]["of"]
            .as_array()
            .unwrap()
            .iter()
            .map(|t| t.as_str().unwrap())
            .zip(want.rows())
            .filter(|(text, _)| !text.contains("[CLS]") && !text.contains("</s>") && !text.contains('\0'))
            .unzip();
        let want = ogive::ndarray::stack(ogive::ndarray::Axis(0), &rows).unwrap();
        args.extend(kept.iter().map(Into::into));
        for model in [golden(name), file] {
            let mut args = args.clone();
            args.splice(1..1, args!["--model", model]);
            let got = ogive(args).text();
            let got: Vec<Vec<f32>> = got.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            let far = far(&got, &want);
            assert!(far < 2e-6, "{name}, {}: {far:.1e}", model.display());
        }
    }
}

#[test]
fn tokens_have_vectors_of_their_own_and_vectors_can_be_short() {
    let model = golden("bert");
    let each =
        ogive(args!["embed", "--model", model, "--quiet", "--pooling", "none", "the cats", "dog"]).text();
    let each: Vec<Vec<Vec<f32>>> = each.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(each.iter().map(|t| (t.len(), t[0].len())).collect::<Vec<_>>(), [(5, 48), (3, 48)]);
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("v.npy");
    ogive(args!["embed", "--model", model, "--quiet", "--pooling", "none", "--out", out, "the cats"]).text();
    let saved: Array2<f32> = ndarray_npy::read_npy(&out).unwrap();
    assert!(far(&each[0], &saved) < 1e-6);
    let two = ogive(args!["embed", "--model", model, "--pooling", "none", "--out", out, "a", "b"]);
    assert!(two.error(2).contains("has room for one text"), "{}", two.stderr);
    let short = ogive(args!["embed", "--model", model, "--quiet", "--dimensions", "3", "the cats"]).text();
    let short: Vec<f32> = serde_json::from_str(&short).unwrap();
    assert!((short.iter().map(|v| v * v).sum::<f32>() - 1.0).abs() < 1e-5 && short.len() == 3);
    let wide = ogive(args!["embed", "--model", model, "--dimensions", "64", "x"]);
    assert!(wide.error(1).contains("the model's have 48"), "{}", wide.stderr);
    let long = ogive(args!["embed", "--model", model, "x".repeat(60)]);
    assert!(long.error(1).contains("has 62 tokens, and the context is 43"), "{}", long.stderr);
}

#[test]
fn whoever_wants_text_of_an_encoder_is_told_of_embed() {
    let model = golden("bert");
    for command in [&["run", "--model"][..], &["chat", "--model"]] {
        let mut args: Vec<OsString> = command.iter().map(Into::into).collect();
        args.push(model.clone().into());
        args.extend((command[0] == "run").then(|| "Once".into()));
        let said = ogive(args);
        assert!(said.error(1).contains("`ogive embed`"), "{}", said.stderr);
        assert_eq!(said.stderr.trim().lines().filter(|l| l.contains("error")).count(), 1, "{}", said.stderr);
    }
}
