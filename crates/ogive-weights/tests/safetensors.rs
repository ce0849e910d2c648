//! Safetensors files and Hugging Face folders that are damaged, lie or lack something: each a clear error.

mod common;
#[path = "common/touch.rs"]
mod touch;

use common::{safetensors, safetensors_of, write};
use ogive_tensor::{Format, HostWeight, Source as _};
use ogive_weights::{OpenOptions, Safetensors, open};
use proptest::prelude::*;
use std::path::Path;
use std::sync::Arc;

const CONFIG: &str = r#"{"architectures": ["LlamaForCausalLM"], "hidden_size": 4, "rope_scaling": {"type": "linear", "factor": 2.0}}"#;

fn parse(bytes: Vec<u8>) -> Result<Safetensors, String> {
    Safetensors::from_bytes(Arc::new(bytes)).map_err(|e| e.to_string())
}

fn error(header: &str, data: usize) -> String {
    parse(safetensors(header, data)).expect_err(header)
}

#[test]
fn dimensions_and_types_are_read() {
    let file = parse(safetensors_of(&[
        ("s", &[]),
        ("v", &[3]),
        ("m", &[2, 3]),
        ("e", &[2, 2, 3]),
        ("c", &[2, 1, 1, 4]),
    ]));
    let file = file.unwrap();
    let shapes: Vec<_> = file.tensors().into_iter().map(|t| t.shape).collect();
    assert_eq!(shapes, [[1, 1, 1], [1, 1, 3], [1, 2, 3], [2, 2, 3], [2, 1, 4]]);
    assert_eq!(file.get("e").unwrap().to_vec(), [3.0; 12]);
    let ints = r#"{"i":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},"h":{"dtype":"F16","shape":[2],"data_offsets":[8,12]}}"#;
    let file = parse(safetensors(ints, 12)).unwrap();
    assert_eq!(file.tensors().len(), 1, "what cannot be read is not listed");
    assert_eq!(file.left_out(), ["i"]);
    let e = file.get("i").unwrap_err().to_string();
    assert!(e.starts_with("i: its elements are of type I64") && e.contains("f32, f16, bf16"), "{e}");
    assert!(file.get("j").unwrap_err().is_missing());
}

/// Its keys are anybody's, as long as each stands there once.
#[test]
fn metadata_are_not_taken_for_a_tensor() {
    let with = |metadata: &str| {
        format!(r#"{{"__metadata__":{metadata},"w":{{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}}}"#)
    };
    let deep = format!(r#"{{"a":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    for metadata in [
        r#"{"format":"pt"}"#,
        r#"{"shape":"square","dtype":"float32","data_offsets":"none"}"#,
        r#"{"shape":["a"],"dtype":3}"#,
        "{}",
        "null",
        &deep,
    ] {
        let file = parse(safetensors(&with(metadata), 8)).unwrap();
        assert_eq!(file.tensors().len(), 1);
        assert!(file.get("__metadata__").unwrap_err().is_missing());
    }
    let twice = r#"{"__metadata__":{},"__metadata__":{"shape":"x"}}"#;
    assert!(error(twice, 0).contains("`__metadata__` stands there twice"));
    assert!(error(&format!("{} x", with("{}")), 8).contains("reading the header failed"));
}

#[test]
fn lies_are_named() {
    let of = |dtype: &str, shape: &str, at: &str| {
        format!(r#"{{"w":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{at}}}}}"#)
    };
    for (header, data, says) in [
        (of("F32", "[3]", "[0,8]"), 8, "does not fill its 8 bytes"),
        (of("F32", "[2]", "[0,8]"), 4, "truncated"),
        (of("F32", "[2]", "[8,0]"), 8, "truncated or damaged"),
        (of("F32", "[2]", "[0,8]"), 12, "4 bytes after the last tensor"),
        (of("F32", "[1]", "[4,8]"), 8, "leaves a gap"),
        (of("F32", "[4294967296,4294967296]", "[0,8]"), 8, "cannot be counted"),
        (of("F32", "[-1]", "[0,8]"), 8, "reading the header failed"),
        (r#"{"w":{"dtype":"F32","shape":[2]}}"#.into(), 8, "lacks its dtype"),
        (r#"{"w":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"v":{"dtype":"U8","shape":[1],"data_offsets":[7,8]}}"#.into(), 8, "overlaps"),
        (r#"{"w":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"w":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}}"#.into(), 8, "twice"),
        ("[]".into(), 0, "reading the header failed"),
        ("{".into(), 0, "reading the header failed"),
        (format!(r#"{{"w":{}}}"#, "[".repeat(100_000)), 0, "reading the header failed"),
    ] {
        let e = error(&header, data);
        assert!(e.contains(says), "{e}");
    }
    assert!(parse(vec![0; 7]).unwrap_err().contains("7 bytes"));
    assert!(parse(u64::MAX.to_le_bytes().to_vec()).unwrap_err().contains("announced"));
    assert!(parse([9u64.to_le_bytes().as_slice(), b"{}"].concat()).unwrap_err().contains("2 are left"));
    let mut not_text = safetensors(r#"{"__metadata__":{"a":"b"}}"#, 0);
    not_text[10] = 0xFF;
    assert!(parse(not_text).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn a_damaged_file_opens_whole_or_not_at_all(at in any::<prop::sample::Index>(), bit in 0..8_u32, cut in any::<prop::sample::Index>(), whole in any::<bool>()) {
        let mut file = safetensors_of(&[("model.norm.weight", &[4]), ("model.embed_tokens.weight", &[3, 4]), ("e", &[2, 2, 2])]);
        let i = at.index(file.len());
        file[i] ^= 1_u8 << bit;
        if !whole {
            file.truncate(cut.index(file.len()));
        }
        touch::touch(&file);
    }
}

fn sharded(folder: &Path, map: &str) {
    write(folder, "config.json", CONFIG);
    write(folder, "a.safetensors", safetensors_of(&[("x", &[4]), ("y", &[2, 4])]));
    write(folder, "b.safetensors", safetensors_of(&[("z", &[4])]));
    write(folder, "model.safetensors.index.json", format!(r#"{{"metadata": {{}}, "weight_map": {map}}}"#));
}

#[test]
fn an_index_must_be_true() {
    let folder = tempfile::tempdir().unwrap();
    sharded(folder.path(), r#"{"x": "a.safetensors", "y": "a.safetensors", "z": "b.safetensors"}"#);
    let model = open(folder.path()).unwrap();
    assert_eq!(model.source.tensors().len(), 3);
    assert_eq!(model.source.get("z").unwrap().shape, [1, 1, 4]);
    assert_eq!(model.config.at("rope_scaling").opt_str("rope_type").unwrap(), Some("linear"));
    for (map, says) in [
        (r#"{"x": "b.safetensors"}"#, "`x` should be in `b.safetensors` and is nowhere"),
        (
            r#"{"x": "a.safetensors", "z": "a.safetensors"}"#,
            "`z` should be in `a.safetensors` and is nowhere",
        ),
        (r#"{"x": "a.safetensors", "z": "c.safetensors"}"#, "c.safetensors"),
        (r#"{"x": "../a.safetensors"}"#, "no name of a file"),
        (r#"{"x": "/etc/passwd"}"#, "no name of a file"),
        (r#"{"x": ""}"#, "no name of a file"),
        (r#"{"x": "a.safetensors", "x": "b.safetensors"}"#, "`x` stands there twice"),
        ("{}", "names no tensors"),
        ("[]", "reading JSON failed"),
        (r#"{"x": 1}"#, "reading JSON failed"),
    ] {
        sharded(folder.path(), map);
        let e = open(folder.path()).expect_err(map).to_string();
        assert!(e.contains(says) && e.contains("index.json"), "{e}");
    }
    write(folder.path(), "b.safetensors", safetensors_of(&[("x", &[4])]));
    let map = r#"{"x": "a.safetensors", "y": "a.safetensors", "z": "b.safetensors"}"#;
    write(folder.path(), "model.safetensors.index.json", format!(r#"{{"weight_map": {map}}}"#));
    let e = open(folder.path()).unwrap_err().to_string();
    assert!(e.contains("b.safetensors: the tensor `x` stands in another file too"), "{e}");
}

/// Several models in a folder, as with `consolidated.safetensors` or a variant beside the usual files.
#[test]
fn the_file_that_is_named_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, tensor: &str| write(folder.path(), name, safetensors_of(&[(tensor, &[4])]));
    let names = |path: &Path| {
        let model = open(path).unwrap();
        model.source.tensors().into_iter().map(|t| t.name).collect::<Vec<_>>()
    };
    sharded(folder.path(), r#"{"x": "a.safetensors", "y": "a.safetensors", "z": "b.safetensors"}"#);
    let other = file("other.safetensors", "other");
    assert_eq!(names(&other), ["other"], "the index does not list it");
    assert_eq!(names(&folder.path().join("b.safetensors")), ["x", "y", "z"], "the index lists it");
    assert_eq!(names(folder.path()), ["x", "y", "z"]);
    let single = file("model.safetensors", "single");
    assert_eq!((names(folder.path()), names(&single)), (vec!["single".into()], vec!["single".into()]));
    assert_eq!(names(&folder.path().join("config.json")), ["single"]);
    assert_eq!(names(&folder.path().join("model.safetensors.index.json")), ["x", "y", "z"]);
    file("c.safetensors", "c");
    for index in ["other.safetensors.index.json", "model.safetensors.index.fp16.json"] {
        let index = write(folder.path(), index, r#"{"weight_map": {"c": "c.safetensors"}}"#);
        assert_eq!(names(&index), ["c"]);
    }
}

#[test]
fn a_folder_that_lacks_something_says_what() {
    let folder = tempfile::tempdir().unwrap();
    let says = |what: &str| {
        let e = open(folder.path()).unwrap_err().to_string();
        assert!(e.contains(what), "{e}");
    };
    says("no config.json in this folder, which");
    write(folder.path(), "model-q4.gguf", "");
    says("but a GGUF file: name model-q4.gguf");
    write(folder.path(), "config.json", "{");
    says("reading JSON failed");
    write(folder.path(), "config.json", "[]");
    says("no JSON object");
    write(folder.path(), "config.json", r#"{"hidden_size": 4}"#);
    says(
        "neither model.safetensors nor model.safetensors.index.json in this folder; name its safetensors file",
    );
    write(folder.path(), "model.safetensors", safetensors_of(&[("x", &[4])]));
    says("config `architectures`");
    write(folder.path(), "config.json", CONFIG);
    let model = open(folder.path()).unwrap();
    assert_eq!((model.architecture.as_str(), model.source.tensors().len()), ("LlamaForCausalLM", 1));
    let alone = write(folder.path(), "other.safetensors", safetensors_of(&[("x", &[4]), ("y", &[4])]));
    assert_eq!(open(alone).unwrap().source.tensors().len(), 2);
    let text = write(folder.path(), "README.md", "# A model");
    assert!(open(text).unwrap_err().to_string().contains("neither a GGUF file nor"));
    assert!(open(folder.path().join("none.gguf")).unwrap_err().to_string().contains("none.gguf"));
    for cut in 0..8 {
        write(folder.path(), "model.safetensors", &safetensors_of(&[("x", &[4])])[..cut]);
        says("model.safetensors: the file has");
    }
}

/// Another crate's format: one byte an element.
static F8: Format = Format {
    name: "f8_e5m2",
    block_len: 1,
    block_bytes: 1,
    decode: |b, o| o[0] = f32::from(b[0]),
    encode: None,
};

#[test]
fn another_crate_can_bring_a_format() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "config.json", CONFIG);
    let header = r#"{"w":{"dtype":"F8_E5M2","shape":[2,2],"data_offsets":[0,4]}}"#;
    write(folder.path(), "model.safetensors", safetensors(header, 4));
    let e = open(folder.path()).unwrap().source.get("w").unwrap_err().to_string();
    assert!(e.contains("w: its elements are of type F8_E5M2, which is not read"), "{e}");
    let read: HostWeight =
        OpenOptions::new().format(&F8).open(folder.path()).unwrap().source.get("w").unwrap();
    assert_eq!((read.shape, read.to_vec()), ([1, 2, 2], vec![0., 1., 2., 3.]));
}
