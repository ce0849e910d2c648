//! `ogive embed`: texts in, vectors out.

mod common;

use common::{ogive, ogive_reads, shared};
use ogive::ndarray::Array2;

#[test]
fn a_vector_a_line_from_arguments_and_from_stdin_and_the_same_as_numpy() {
    let Some(model) = shared("models/stories260K/stories260K-f32.gguf") else { return };
    let given = ogive(args!["embed", "--model", model, "--quiet", "Once upon a time", "The end."]).text();
    let rows: Vec<Vec<f32>> = given.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((rows.len(), rows[0].len()), (2, 64));
    for row in &rows {
        assert!((row.iter().map(|v| v * v).sum::<f32>() - 1.0).abs() < 1e-5);
    }
    let piped = ogive_reads(args!["embed", "--model", model], b"Once upon a time\n\nThe end.\n").text();
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
fn mistakes_are_explained() {
    let Some(model) = shared("models/stories260K/stories260K-f32.gguf") else { return };
    let none = ogive_reads(args!["embed", "--model", model], b"\n \n");
    assert!(none.error(2).contains("no text given"));
    let long =
        ogive(args!["embed", "--model", model, "--context", "4", "one", "Once upon a time, there was"]);
    assert!(long.error(1).contains("text 1 has"), "{}", long.stderr);
    let bytes = ogive_reads(args!["embed", "--model", model], b"\xff\n");
    assert!(bytes.error(1).contains("reading stdin"), "{}", bytes.stderr);
    let out = ogive(args!["embed", "--model", model, "--out", "/nowhere/v.npy", "x"]);
    assert!(out.error(1).contains("there is no such folder"), "{}", out.stderr);
}
