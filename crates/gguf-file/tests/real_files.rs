//! Real files, written by llama.cpp and gguf-py, opened whole: every tensor is touched.
#![allow(clippy::print_stdout, reason = "skips and figures are to be seen")]

mod common;

use gguf_file::{ByteOrder, GgmlType, Gguf};

#[test]
fn every_shared_file_opens_and_every_tensor_has_its_bytes() {
    let Some(shared) = common::shared() else { return };
    let mut opened = 0;
    for path in common::gguf_files(&shared) {
        let name = path.file_name().and_then(|n| n.to_str()).expect("the name is text");
        if name.contains("-of-") && !name.contains("-00001-of-") {
            let error = Gguf::open(&path).expect_err("a later part is not opened").to_string();
            assert!(error.contains("open `llama-f32-00001-of-00003.gguf` instead"), "{error}");
            continue;
        }
        let file = Gguf::open(&path).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((file.version(), file.byte_order()), (3, ByteOrder::Little), "{name}");
        let meta = file.metadata();
        let arch = meta.str("general.architecture").expect("every file names its architecture");
        assert!(meta.u32(&format!("{arch}.block_count")).expect("a count") > 0, "{name}");
        let tokens = meta.opt_array_of_str("tokenizer.ggml.tokens").expect("strings, if there");
        assert!(tokens.is_none_or(|t| t.len() > 100), "{name}");
        assert_eq!(file.tensors().is_empty(), name.starts_with("ggml-vocab-"), "{name}");
        for t in file.tensors() {
            let data = file.data(t).unwrap_or_else(|e| panic!("{name}: {e}"));
            let ty = t.known_type().expect("all are known");
            assert_eq!(data.bytes().len() as u64, t.elements() / ty.block_len() * ty.block_bytes(), "{name}");
            assert_eq!(file.tensor(t.name()), Some(t));
            assert!((data.bytes().as_ptr() as usize).is_multiple_of(32), "a mapped tensor is aligned");
        }
        let copied = Gguf::open_in_memory(&path).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(copied.tensors(), file.tensors());
        opened += 1;
    }
    println!("{opened} files opened");
    assert!(opened >= 40, "only {opened} files were found");
}

#[test]
fn split_and_whole_hold_the_same() {
    let Some(shared) = common::shared() else { return };
    let split =
        Gguf::open(shared.join("golden/llama-split/llama-f32-00001-of-00003.gguf")).expect("it opens");
    let whole = Gguf::open(shared.join("golden/llama/llama-f32.gguf")).expect("it opens");
    assert_eq!((split.parts(), split.tensors().len()), (3, 21));
    assert_eq!(split.tensors().len(), whole.tensors().len());
    for t in whole.tensors() {
        let other = split.tensor(t.name()).expect("both have it");
        assert_eq!((other.dims(), other.ggml_type()), (t.dims(), Some(GgmlType::F32)));
        assert_eq!(
            split.data(other).expect("data").bytes(),
            whole.data(t).expect("data").bytes(),
            "{}",
            t.name()
        );
    }
    for (key, value) in whole.metadata().iter() {
        assert_eq!(split.metadata().get(key), Some(value), "{key}");
    }
}

#[test]
fn vocabularies_have_their_known_sizes() {
    let Some(shared) = common::shared() else { return };
    for (name, tokens, merges) in [
        ("gpt-2", 50257, 50000),
        ("llama-bpe", 128256, 280147),
        ("llama-spm", 32000, 0),
        ("qwen2", 151936, 151387),
    ] {
        let file = Gguf::open(shared.join(format!("vocab/ggml-vocab-{name}.gguf"))).expect("it opens");
        let meta = file.metadata();
        assert_eq!(meta.array_of_str("tokenizer.ggml.tokens").expect("tokens").len(), tokens, "{name}");
        assert_eq!(meta.array_of_i32("tokenizer.ggml.token_type").expect("types").len(), tokens, "{name}");
        let found = meta.opt_array_of_str("tokenizer.ggml.merges").expect("merges").map_or(0, |m| m.len());
        assert_eq!(found, merges, "{name}");
    }
}
