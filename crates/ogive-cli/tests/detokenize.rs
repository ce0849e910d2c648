//! `ogive detokenize`, the inverse of `ogive tokenize`.

mod common;

use common::{ogive, ogive_reads, shared};
use serde_json::json;

#[test]
fn what_was_cut_comes_back() {
    for name in ["gpt-2", "llama-spm"] {
        let Some(model) = shared(&format!("vocab/ggml-vocab-{name}.gguf")) else { return };
        for text in [&b""[..], b"Hello world\n", "  na\u{ef}ve\t\u{1f642} ".as_bytes(), b"a\xff\xfeb"] {
            let ids = ogive_reads(args!["tokenize", "--model", model], text);
            assert_eq!(ids.code, Some(0), "{}", ids.stderr);
            let back = ogive_reads(args!["detokenize", "--model", model], &ids.stdout);
            assert_eq!((back.code, &back.stdout[..]), (Some(0), text), "{name}: {}", back.stderr);
            let back = ogive_reads(args!["detokenize", "--model", model, "--special"], &ids.stdout);
            assert_eq!((back.code, &back.stdout[..]), (Some(0), text), "{name}: {}", back.stderr);
        }
    }
}

#[test]
fn options_may_follow_ids() {
    let before = ogive(args!["detokenize", "--json", "--model", ogive::DEMO, "300", "301"]).text();
    assert!(before.starts_with('"') && before.len() > 4, "{before}");
    assert_eq!(ogive(args!["detokenize", "300", "301", "--json", "-m", ogive::DEMO, "-q"]).text(), before);
    let negative = ogive(args!["detokenize", "300", "-1", "--model", ogive::DEMO]);
    assert_eq!(negative.error(2), "`-1` is no token id");
}

#[test]
fn ids_in_any_form() {
    let Some(model) = shared("vocab/ggml-vocab-gpt-2.gguf") else { return };
    for ids in [&["15496", "995"][..], &["15496,995"], &["[15496, 995]"]] {
        let fixed = args!["detokenize", "--model", model];
        assert_eq!(ogive(fixed.into_iter().chain(ids.iter().map(Into::into))).text(), "Hello world");
    }
    assert_eq!(
        ogive(args!["detokenize", "--model", model, "--json", "15496", "198"]).json(),
        json!("Hello\n")
    );
    assert_eq!(ogive(args!["detokenize", "--model", model, "--special", "50256"]).text(), "<|endoftext|>");
    assert_eq!(ogive(args!["detokenize", "--model", model, "50256"]).text(), "");
    for nonsense in ["-1", "x", "1.5", "[1", "4294967296"] {
        assert!(!ogive(args!["detokenize", "--model", model, nonsense]).error(2).is_empty());
    }
    assert!(ogive(args!["detokenize", "--model", model, "50257"]).error(1).contains("50257"));
    assert!(ogive_reads(args!["detokenize", "--model", model], b"one two").error(1).contains("`one`"));
    assert!(ogive_reads(args!["detokenize", "--model", model], b"\xff").error(1).contains("stdin"));
}
