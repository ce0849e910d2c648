//! Layers between the pooling and a text's vector: what they compute, in what order, and what is told of those that are not known.
#![allow(clippy::unwrap_used)]

use ndarray::Array2;
use ogive::{Embed, Options, Pooling, ndarray};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../ogive-models/tests/golden/embedding-gemma")
}

/// The model once more, with changes to its modules and to the settings of its first layer.
fn changed(modules: impl FnOnce(&mut Vec<Value>), first: impl FnOnce(&mut Value)) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for file in [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "1_Pooling/config.json",
        "2_Dense/config.json",
        "2_Dense/model.safetensors",
        "3_Dense/config.json",
        "3_Dense/model.safetensors",
    ] {
        std::fs::create_dir_all(folder.path().join(file).parent().unwrap()).unwrap();
        std::fs::copy(golden().join(file), folder.path().join(file)).unwrap();
    }
    let read = |file: &str| serde_json::from_slice(&std::fs::read(golden().join(file)).unwrap()).unwrap();
    let (mut all, mut settings): (Value, Value) = (read("modules.json"), read("2_Dense/config.json"));
    modules(all.as_array_mut().unwrap());
    first(&mut settings);
    std::fs::write(folder.path().join("modules.json"), all.to_string()).unwrap();
    std::fs::write(folder.path().join("2_Dense/config.json"), settings.to_string()).unwrap();
    folder
}

/// A safetensors file of single precision.
fn write(path: &Path, tensors: &[(&str, &[usize], Vec<f32>)]) {
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for (name, shape, values) in tensors {
        let begin = data.len();
        data.extend(values.iter().flat_map(|v| v.to_le_bytes()));
        header.insert(
            (*name).into(),
            json!({"dtype": "F32", "shape": shape, "data_offsets": [begin, data.len()]}),
        );
    }
    let header = Value::Object(header).to_string();
    let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat();
    std::fs::write(path, bytes).unwrap();
}

fn vectors(folder: &Path, how: &Embed) -> Result<Array2<f32>, String> {
    let model = Options::new().exact(true).open(folder).map_err(|e| e.to_string())?;
    model.embed_all(["the cat", "on a mat, the cat"], how).map_err(|e| e.to_string())
}

#[test]
fn a_layer_has_a_bias_and_an_activation_where_it_says_so() {
    let values = |n: usize| (0..n).map(|i| ((i * 7 % 11) as f32 - 5.0) / 20.0).collect::<Vec<f32>>();
    let (weight, bias) = (values(5 * 48), values(5));
    let only = |modules: &mut Vec<Value>| modules.retain(|m| m["path"] != "3_Dense");
    let raw = Embed::new().normalize(false);
    let pooled = changed(|m| m.retain(|m| !m["path"].as_str().unwrap().ends_with("Dense")), |_| {});
    let pooled = vectors(pooled.path(), &raw).unwrap();
    assert_eq!(pooled.ncols(), 48);
    let tanh = "torch.nn.modules.activation.Tanh";
    for (class, f) in [(tanh, f32::tanh as fn(f32) -> f32), ("torch.nn.modules.linear.Identity", |v| v)] {
        let folder = changed(only, |c| c["activation_function"] = class.into());
        let tensors = [("linear.weight", &[5, 48][..], weight.clone()), ("linear.bias", &[5], bias.clone())];
        write(&folder.path().join("2_Dense/model.safetensors"), &tensors);
        let weight = Array2::from_shape_vec((5, 48), weight.clone()).unwrap();
        let want = (pooled.dot(&weight.t()) + &ndarray::Array1::from(bias.clone())).mapv(f);
        let got = vectors(folder.path(), &raw).unwrap();
        let far = (&got - &want).iter().fold(0.0_f32, |most, d| most.max(d.abs()));
        assert!(got.dim() == (2, 5) && far < 2e-6, "{class}: {far:.1e}");
        // Cut and scaled behind the layer.
        let short = vectors(folder.path(), &Embed::new().dimensions(2)).unwrap();
        let row = want.row(1);
        let length = (row[0] * row[0] + row[1] * row[1]).sqrt();
        assert!((short[[1, 1]] - row[1] / length).abs() < 2e-6, "{short}");
    }
}

#[test]
fn layers_follow_any_pooling_but_not_single_tokens() {
    let mean = vectors(&golden(), &Embed::new()).unwrap();
    let last = vectors(&golden(), &Embed::new().pooling(Pooling::Last)).unwrap();
    assert!(mean.dim() == last.dim() && mean != last);
    let model = Options::new().exact(true).open(golden()).unwrap();
    let raw = Embed::new().normalize(false);
    let tokens = model.embed_tokens(["the cat"], &raw).unwrap();
    let bare = changed(|m| m.retain(|m| !m["path"].as_str().unwrap().ends_with("Dense")), |_| {});
    let bare = Options::new().exact(true).open(bare.path()).unwrap();
    assert_eq!(tokens, bare.embed_tokens(["the cat"], &raw).unwrap());
}

#[test]
fn what_is_not_known_is_told_and_a_chosen_pooling_does_without() {
    let dense = |modules: &mut Vec<Value>| modules.remove(2);
    type Change = (fn(&mut Vec<Value>), fn(&mut Value));
    let swapped: fn(&mut Vec<Value>) = |m| m.swap(1, 2);
    let same: fn(&mut Vec<Value>) = |_| {};
    let cases: [(Change, &str); 4] = [
        ((same, |c| c["activation_function"] = "torch.nn.modules.activation.Mish".into()), "`Mish`"),
        ((same, |c| c["module_input_name"] = "token_embeddings".into()), "something else than the pooled"),
        ((swapped, |_| {}), "a layer `Dense` after its model"),
        ((|m| m.swap(3, 4), |_| {}), "a layer `Dense` after its model"),
    ];
    for ((modules, first), word) in cases {
        let folder = changed(modules, first);
        let e = vectors(folder.path(), &Embed::new()).unwrap_err();
        assert!(e.contains(word) && e.contains("choose a pooling"), "{e}");
        let without = vectors(folder.path(), &Embed::new().pooling(Pooling::Mean)).unwrap();
        let bare = changed(|m| m.retain(|m| !m["path"].as_str().unwrap().ends_with("Dense")), |_| {});
        assert_eq!(without, vectors(bare.path(), &Embed::new()).unwrap(), "{word}");
    }
    // What does not fit is an error of whoever opens it.
    let folder = changed(|m| _ = dense(m), |_| {});
    let e = vectors(folder.path(), &Embed::new()).unwrap_err();
    assert!(e.contains("72") && e.contains("48"), "{e}");
    let folder = changed(|m| m.swap(2, 3), |_| {});
    assert!(vectors(folder.path(), &Embed::new()).is_err());
    let folder = changed(|_| {}, |_| {});
    write(&folder.path().join("2_Dense/model.safetensors"), &[("weight", &[72, 48], vec![0.0; 72 * 48])]);
    let e = vectors(folder.path(), &Embed::new()).unwrap_err();
    assert!(e.contains("2_Dense.linear.weight"), "{e}");
    std::fs::remove_file(folder.path().join("2_Dense/model.safetensors")).unwrap();
    let e = vectors(folder.path(), &Embed::new()).unwrap_err();
    assert!(e.contains("no model.safetensors"), "{e}");
    std::fs::write(folder.path().join("2_Dense/model.safetensors"), b"none").unwrap();
    assert!(vectors(folder.path(), &Embed::new()).unwrap_err().contains("2_Dense"));
}
