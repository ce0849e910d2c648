//! `ogive logits`, against transformers.

mod common;

use common::{ogive, shared, shared_json};
use ndarray_npy::{ReadNpyExt, read_npy};
use ogive::ndarray::Array2;
use std::fs;

/// As measured for dense models in single precision.
const TOLERANCE: f32 = 5e-5;

#[test]
fn llamas_are_the_references() {
    let Some(golden) = shared_json("golden/llama/golden.json") else { return };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("logits.npy");
    let forms = ["llama/llama-f32.gguf", "llama", "llama-split/llama-f32-00001-of-00003.gguf"];
    for case in golden["cases"].as_array().unwrap() {
        let ids: Vec<String> = case["ids"].as_array().unwrap().iter().map(ToString::to_string).collect();
        let expected = shared("golden/llama").unwrap().join(case["logits"].as_str().unwrap());
        let expected: Array2<f32> = read_npy(expected).unwrap();
        for form in forms {
            let model = shared("golden").unwrap().join(form);
            let run =
                ogive(args!["logits", "--model", model, "--tokens", ids.join(","), "--out", out, "--exact"]);
            assert_eq!(run.text(), "");
            let got = Array2::<f32>::read_npy(fs::File::open(&out).unwrap()).unwrap();
            assert_eq!(got.dim(), expected.dim());
            let worst = (&got - &expected).iter().fold(0.0_f32, |w, d| w.max(d.abs()));
            assert!(worst <= TOLERANCE, "{form}: {worst}");
        }
    }
    // Written over each other, and nothing left beside.
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
#[cfg(unix)]
fn a_pipe_is_written_to_and_not_replaced() {
    let Some(model) = shared("golden/llama/llama-f32.gguf") else { return };
    assert_eq!(ogive(args!["logits", "--model", model, "--tokens", "1", "--out", "/dev/null"]).text(), "");
    use std::os::unix::fs::FileTypeExt;
    assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("l.npy");
    ogive(args!["logits", "--model", model, "--tokens", "1", "--out", out]).text();
    use std::os::unix::fs::PermissionsExt;
    let plain =
        fs::File::create(folder.path().join("plain")).unwrap().metadata().unwrap().permissions().mode();
    assert_eq!(fs::metadata(out).unwrap().permissions().mode(), plain);
}
