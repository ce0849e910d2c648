//! Against files that llama.cpp's quantiser made of the same originals: types, bytes, errors.

mod common;

use common::{format, packed, rmse, shared, values};
use ogive_quantize::gguf_file::Gguf;
use ogive_quantize::{GgmlType, Input};

const ORIGINAL: &str = "golden/llama-k256/llama-k256-f32.gguf";

#[test]
fn mixes_choose_the_types_that_llama_cpp_chooses() {
    let mut files = vec![
        ("q4_k_m", ORIGINAL.to_owned(), "golden/quant/k256-Q4_K_M-mix.gguf".to_owned()),
        ("q5_k_m", ORIGINAL.to_owned(), "golden/quant/k256-Q5_K_M-mix.gguf".to_owned()),
    ];
    for arch in [
        "llama",
        "mistral",
        "mixtral",
        "qwen2",
        "qwen3",
        "gemma2",
        "gemma3",
        "phi3",
        "gpt2",
        "llama3-rope",
        "deepseek-v2",
    ] {
        for (name, file) in [("q4_0", "Q4_0"), ("q8_0", "Q8_0")] {
            files.push((
                name,
                format!("golden/{arch}/{arch}-f32.gguf"),
                format!("golden/{arch}/{arch}-{file}.gguf"),
            ));
        }
    }
    for (name, original, theirs) in files {
        let (Some(original), Some(file)) = (shared(&original), shared(&theirs)) else { return };
        let file = Gguf::open(file).unwrap();
        let plan = format(name).plan(&Input::open(original).unwrap()).unwrap();
        assert_eq!(plan.len(), file.tensors().len(), "{theirs}");
        for t in plan {
            let want = file.tensor(&t.name).and_then(|t| t.ggml_type());
            assert_eq!(Some(t.to), want, "{theirs}: {}", t.name);
        }
    }
}

#[test]
fn older_formats_give_the_same_files_byte_for_byte() {
    let Some(original) = shared(ORIGINAL) else { return };
    for name in ["F16", "BF16", "Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0"] {
        let theirs = Gguf::open(shared(&format!("golden/quant/k256-{name}-pure.gguf")).unwrap()).unwrap();
        let ours = packed(&format(name).pure(true), &original).unwrap();
        for t in theirs.tensors() {
            let own = ours.tensor(t.name()).unwrap();
            assert_eq!((own.dims(), own.ggml_type()), (t.dims(), t.ggml_type()), "{name}: {}", t.name());
            let same = ours.data(own).unwrap().bytes() == theirs.data(t).unwrap().bytes();
            assert!(same, "{name}: the bytes of {} differ", t.name());
        }
        assert_eq!(
            ours.metadata().u32("general.file_type").ok(),
            theirs.metadata().u32("general.file_type").ok()
        );
    }
}

#[test]
fn searched_formats_lose_no_more_than_ggml_loses() {
    let Some(path) = shared(ORIGINAL) else { return };
    let original = Gguf::open(&path).unwrap();
    let mut compared = 0;
    for (name, file) in [
        ("q2_k", "Q2_K-pure"),
        ("q6_k", "Q6_K-pure"),
        ("iq4_nl", "IQ4_NL-pure"),
        ("mxfp4", "MXFP4-pure"),
        ("q4_k_m", "Q4_K_M-mix"),
        ("q5_k_m", "Q5_K_M-mix"),
    ] {
        let theirs = Gguf::open(shared(&format!("golden/quant/k256-{file}.gguf")).unwrap()).unwrap();
        let ours = packed(&format(name).pure(file.ends_with("pure")), &path).unwrap();
        for t in theirs.tensors() {
            // Some of those files kept a type of their own here and there.
            if t.ggml_type() == Some(GgmlType::F32)
                || ours.tensor(t.name()).unwrap().ggml_type() != t.ggml_type()
            {
                continue;
            }
            let want = values(&original, t.name());
            let (own, their) =
                (rmse(&values(&ours, t.name()), &want), rmse(&values(&theirs, t.name()), &want));
            assert!(own <= their * 1.000_001, "{file}: {}: {own} against {their}", t.name());
            compared += 1;
        }
    }
    assert!(compared >= 50, "{compared}");
}

#[test]
fn split_files_are_put_together() {
    let (Some(split), Some(whole)) =
        (shared("golden/llama-split/llama-f32-00001-of-00003.gguf"), shared("golden/llama/llama-f32.gguf"))
    else {
        return;
    };
    let (one, other) = (packed(&format("q8_0"), &split).unwrap(), packed(&format("q8_0"), &whole).unwrap());
    assert!(one.metadata().iter().all(|(key, _)| !key.starts_with("split.")));
    assert_eq!(one.tensors().len(), other.tensors().len());
    for t in other.tensors() {
        let own = one.tensor(t.name()).unwrap();
        assert!(one.data(own).unwrap().bytes() == other.data(t).unwrap().bytes(), "{}", t.name());
    }
}

/// As a shell's `<(...)` gives one.
#[cfg(target_os = "linux")]
#[test]
fn a_file_may_come_out_of_a_pipe() {
    use std::io::Write;
    use std::os::fd::AsRawFd;
    let Some(file) = shared("golden/llama/llama-f32.gguf") else { return };
    let (reader, mut writer) = std::io::pipe().unwrap();
    let bytes = std::fs::read(&file).unwrap();
    let writing = std::thread::spawn(move || writer.write_all(&bytes));
    let piped = Input::open(format!("/dev/fd/{}", reader.as_raw_fd())).unwrap();
    writing.join().unwrap().unwrap();
    assert_eq!(
        format("q8_0").plan(&piped).unwrap(),
        format("q8_0").plan(&Input::open(file).unwrap()).unwrap()
    );
}
