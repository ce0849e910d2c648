//! `ogive imatrix` and `ogive quantize --imatrix`: what is collected packs the model, and what is none is told by what it is.

mod common;

use common::{ogive, ogive_reads};
use ogive_quantize::Importance;
use ogive_quantize::gguf_file::Gguf;
use std::fs;

const STORY: &str = "Once upon a time there was a little rabbit who lived in a small house by the river. One day the rabbit lost her \
    red ball. She looked in the garden and she looked under the bed. Her friend the mouse helped her. They found the ball in the \
    tree, and both were glad. The capital of France is Paris. The rabbit said thank you, and the mouse was proud and happy all day.";

#[test]
fn a_model_is_packed_by_what_it_met_on_a_text() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("text.txt"), STORY).unwrap();
    let (text, imatrix) = (at("text.txt"), at("imatrix.gguf"));
    let made =
        ogive(args!["imatrix", "--model", "ogive:demo", text, "--out", imatrix, "-c", "32", "--chunks", "2"]);
    assert!(
        made.text().ends_with("s\n") && made.text().contains("28 tensors, 64 tokens in "),
        "{}",
        made.text()
    );
    assert!(
        made.stderr.contains("reading 2 windows of 32") && made.stderr.contains("[2/2]"),
        "{}",
        made.stderr
    );
    let all = Importance::open(&imatrix).unwrap();
    assert_eq!((all.chunks, all.chunk_size, &*all.datasets), (2, 32, &[text.display().to_string()][..]));
    assert!(all.iter().all(|(name, s)| name.starts_with("blk.") && s.counts() == [64]));
    // Not twice under one name, unless told so.
    let again = args!["imatrix", "--model", "ogive:demo", text, "--out", imatrix, "-c", "32"];
    assert!(ogive(again.clone()).error(1).contains("overwrite it with --force"));
    let whole = ogive(again.into_iter().chain(args!["--force", "--process-output"]));
    assert!(whole.text().contains("29 tensors"), "{}", whole.text());
    assert!(
        Importance::open(&imatrix).unwrap().get("token_embd.weight").is_some(),
        "the embedding is the head"
    );

    ogive(args!["imatrix", "--model", "ogive:demo", text, "--out", imatrix, "-c", "32", "--force"]).text();
    let pack = |out: &str, more: &[&str]| {
        let fixed = args!["quantize", "ogive:demo", at(out), "-f", "q2_k_s", "--allow-requantize"];
        let ran = ogive(fixed.into_iter().chain(more.iter().map(Into::into)));
        assert_eq!(ran.text(), "");
        (Gguf::open(at(out)).unwrap(), ran.stderr)
    };
    let (by, said) = pack("by.gguf", &["--imatrix", imatrix.to_str().unwrap()]);
    assert!(said.contains("no importances of token_embd.weight, which was packed without"), "{said}");
    assert!(!said.contains("will be poor"), "{said}");
    assert_eq!(by.metadata().str("quantize.imatrix.file").unwrap(), imatrix.to_str().unwrap());
    assert_eq!(by.metadata().u32("quantize.imatrix.entries_count").unwrap(), 28);
    let (_, said) = pack("without.gguf", &[]);
    assert!(
        said.contains("get so few bits that the model will be poor") && said.contains("ogive imatrix"),
        "{said}"
    );
}

#[test]
fn nonsense_is_told_by_what_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let [text, empty, model] = ["text.txt", "empty.txt", "model.gguf"].map(at);
    fs::write(&text, STORY).unwrap();
    fs::write(&empty, "").unwrap();
    ogive(args!["quantize", "ogive:demo", model, "-f", "q4_k_m", "--allow-requantize"]).text();
    let collect = |more: Vec<std::ffi::OsString>| {
        ogive(args!["imatrix", "--model", "ogive:demo", "--out", at("x.gguf")].into_iter().chain(more))
    };
    assert!(collect(args![empty]).error(1).contains("it is empty"));
    assert!(collect(args![text]).error(1).contains("tokens, and one window takes 512; give a longer text"));
    assert!(collect(args![text, "-c", "3"]).error(2).contains("a window has at least 4 tokens"));
    assert!(collect(args![at("none.txt")]).error(1).contains("none.txt"));
    assert!(!at("x.gguf").exists());
    let over = ogive(args!["imatrix", "--model", model, text, "--out", model, "-c", "32"]);
    assert!(over.error(1).contains("this is the model"), "{}", over.stderr);
    let read = ogive_reads(
        args!["imatrix", "--model", "ogive:demo", "-", "-c", "32", "-o", at("stdin.gguf")],
        STORY.as_bytes(),
    );
    assert!(read.text().contains("28 tensors"));

    let pack = |imatrix: &std::path::Path| {
        ogive(args![
            "quantize",
            "ogive:demo",
            at("y.gguf"),
            "-f",
            "q4_k_m",
            "--allow-requantize",
            "--imatrix",
            imatrix
        ])
    };
    let why = pack(&model);
    assert!(
        why.error(1).contains("model.gguf: it is a GGUF file of the type `model`, and no importance matrix"),
        "{}",
        why.stderr
    );
    assert!(pack(&text).error(1).contains("text.txt: it is no GGUF file"));
    assert!(pack(&at("none.gguf")).error(1).contains("none.gguf"));
    // Of another model: the same names and other widths.
    let mut other = Importance::open(at("stdin.gguf")).unwrap();
    other.insert("blk.0.attn_q.weight", ogive_quantize::Squares::new(vec![1.0; 64], vec![1]).unwrap());
    other.save(at("other.gguf")).unwrap();
    let why = pack(&at("other.gguf"));
    assert!(
        why.error(1).contains("blk.0.attn_q.weight") && why.stderr.contains("was it made of this model?"),
        "{}",
        why.stderr
    );
    assert!(!at("y.gguf").exists());
}
