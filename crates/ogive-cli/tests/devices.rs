//! `ogive devices`, and whether a model fits there.

mod common;

use common::ogive;

#[test]
fn a_model_is_counted_for_each_device() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("tiny.gguf");
    ogive(args!["synth", "--shape", "tiny", "--format", "q4_k_m", "-q", &model]).text();
    let bytes = std::fs::metadata(&model).unwrap().len();

    let plain = ogive(args!["devices"]).text();
    assert!(plain.starts_with("cpu ") && plain.contains("\ncuda:0 "), "{plain}");
    let text = ogive(args!["devices", "--model", &model, "--context", "256"]).text();
    assert_eq!(text.matches("weights").count(), text.matches("cuda:").count().max(1) + 1, "{text}");
    assert!(text.contains("at 256 tokens"), "{text}");

    let json = ogive(args!["devices", "--json", "--model", &model, "--context", "256"]).json();
    for device in json.as_array().unwrap() {
        let memory = &device["memory"];
        let [weights, cache, total] = ["weights", "cache", "total"].map(|k| memory[k].as_u64().unwrap());
        assert!(weights > bytes / 2 && weights < bytes + bytes / 4, "{device}");
        // Two layers of keys and values, two heads of 32, half precision.
        assert!(cache >= 2 * 2 * 2 * 32 * 2 * 256 && total > weights + cache, "{device}");
    }
    let none = ogive(args!["devices", "--model", folder.path().join("none.gguf")]);
    assert!(none.error(1).contains("none.gguf: no such file or folder"));
}
