//! What llama.cpp's converter and Ogive write otherwise, and how a file is told from the other: by keys of Ogive's own, or by a number.

mod common;

use common::{format, none, packed, rewritten_own, set};
use ogive_quantize::gguf_file::{Gguf, GgufWriter, Metadata};
use ogive_weights::{Checkpoint, OpenOptions};
use serde_json::json;
use std::path::Path;

/// The file with some of its keys and tensors otherwise. Tensors keep their shapes and types.
fn edited(file: &Gguf, keys: impl FnOnce(&mut Metadata), tensor: impl Fn(&str) -> Option<Vec<u8>>) -> Gguf {
    let mut metadata = file.metadata().clone();
    keys(&mut metadata);
    let mut writer = GgufWriter::with_metadata(metadata);
    for t in file.tensors() {
        writer.tensor(t.name(), t.dims(), t.ggml_type().unwrap()).unwrap();
    }
    let mut bytes = Vec::new();
    let mut data = writer.write_to(&mut bytes).unwrap();
    for t in file.tensors() {
        let values = tensor(t.name()).unwrap_or_else(|| file.data(t).unwrap().bytes().to_vec());
        data.write_data(t.name(), &values).unwrap();
    }
    data.finish().unwrap();
    Gguf::from_bytes(bytes).unwrap()
}

fn open(file: Gguf) -> Checkpoint {
    OpenOptions::new().of_gguf(file.into()).unwrap()
}

/// llama.cpp's converter interleaves whole heads of a Bamba, of which half turns: `reshape(heads, 2, dim / 2, cols).swapaxes(1, 2)`.
#[test]
fn a_bamba_of_whole_interleaved_heads_is_read_as_its_folder() {
    const KEY: &str = "ogive.rope.interleaved_in_part";
    let folder = rewritten_own("bamba", |_| {}, none);
    let source = ogive_weights::open(folder.path()).unwrap().source;
    let ours = packed(&format("bf16"), folder.path()).unwrap();
    assert_eq!(ours.metadata().u32("granitehybrid.rope.dimension_count").unwrap(), 6);
    let (dim, row) = (12, 2 * 48);
    let own = |part: &str| source.get(&format!("model.layers.1.self_attn.{part}_proj.weight")).unwrap();
    let permuted = |name: &str| {
        let part =
            name.strip_prefix("blk.1.attn_")?.strip_suffix(".weight").filter(|p| ["q", "k"].contains(p))?;
        let own = own(part);
        let mut out = vec![0; own.bytes.len()];
        for r in 0..own.shape[1] {
            let (head, half, i) = (r / dim, r % dim / (dim / 2), r % (dim / 2));
            out[(head * dim + 2 * i + half) * row..][..row].copy_from_slice(&own.bytes[r * row..][..row]);
        }
        Some(out)
    };
    let without = |keys: &mut Metadata| _ = keys.remove(KEY);
    for (file, same) in [
        (edited(&ours, |_| {}, |_| None), true),
        (edited(&ours, without, permuted), true),
        // The key is what tells them apart.
        (edited(&ours, without, |_| None), false),
        (edited(&ours, |_| {}, permuted), false),
    ] {
        let file = open(file);
        for part in ["q", "k"] {
            let back = file.source.get(&format!("model.layers.1.self_attn.{part}_proj.weight")).unwrap();
            assert_eq!(back.bytes[..] == own(part).bytes[..], same, "{part}");
        }
    }
    let wrong = edited(&ours, |keys| _ = keys.set(KEY, "yes"), |_| None);
    let e = OpenOptions::new().of_gguf(wrong.into()).map(|_| ()).unwrap_err().to_string();
    assert!(e.contains(KEY), "{e}");
}

/// llama.cpp has one for all; ours say which is meant.
#[test]
fn neoxs_gelu_comes_back() {
    for gelu in ["gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh"] {
        let folder = rewritten_own("gptneox", set(json!({"hidden_act": gelu})), none);
        let file = packed(&format("bf16"), folder.path()).unwrap();
        assert_eq!(file.metadata().get("ogive.hidden_act").is_some(), gelu != "gelu");
        assert_eq!(open(file).config.opt_str("hidden_act").unwrap(), Some(gelu));
    }
}

/// GGUF does not say what is made of a head's numbers; ours do.
#[test]
fn a_classifiers_kind_comes_back() {
    const KEY: &str = "ogive.classifier.problem_type";
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ogive-models/tests/golden/bert-reranker");
    let own = packed(&format("bf16"), &golden).unwrap();
    assert!(own.metadata().get(KEY).is_none());
    let said = edited(&own, |keys| _ = keys.set(KEY, "regression"), |_| None);
    assert_eq!(open(said).config.opt_str("problem_type").unwrap(), Some("regression"));
    let wrong = edited(&own, |keys| _ = keys.set(KEY, 3_u32), |_| None);
    let e = OpenOptions::new().of_gguf(wrong.into()).map(|_| ()).unwrap_err().to_string();
    assert!(e.contains(KEY) && e.contains("should be a name"), "{e}");
}

/// The number that Phi-3's formula gives, which llama.cpp's converter writes, stands for Microsoft's; any other for itself.
#[test]
fn phi_3_5_moes_magnitude_is_microsofts() {
    let folder = rewritten_own("phimoe", |_| {}, none);
    let own = packed(&format("bf16"), folder.path()).unwrap();
    let formula = (1.0 + 32f64.ln() / 4096f64.ln()).sqrt() as f32;
    for (context, said, want) in
        [(131_072_u32, formula, 1.243_163_1), (131_072, 1.3, 1.3), (65_536, formula, formula)]
    {
        let keys = |keys: &mut Metadata| {
            keys.set("phimoe.context_length", context);
            keys.set("phimoe.rope.scaling.original_context_length", 4096_u32);
            keys.set("phimoe.rope.scaling.attn_factor", said);
        };
        let file = open(edited(&own, keys, |_| None));
        let found = file.config.at("rope_scaling").f32_or("attention_factor", 0.0).unwrap();
        assert!((found - want).abs() < 1e-6, "{context}, {said}: {found}");
    }
}
