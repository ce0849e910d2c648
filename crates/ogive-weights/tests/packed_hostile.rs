//! Packed checkpoints that lie, lack something or are damaged: each a clear error, and none a panic.

mod common;
#[path = "common/packer.rs"]
mod packer;
#[path = "common/touch.rs"]
mod touch;

use common::write;
use ogive_tensor::serde_json::{Value, json};
use ogive_tensor::{Config, F16};
use ogive_weights::{Safetensors, open};
use packer::{Numbers, Tensor, file, tensor};
use proptest::prelude::*;
use std::sync::Arc;

/// What is said of these settings, or of the weight `a.weight` in these tensors.
fn error(settings: &Value, tensors: &[Tensor]) -> String {
    let files = Safetensors::from_bytes(Arc::new(file(tensors))).unwrap();
    let source = match files.with_config(&Config(json!({"quantization_config": settings}))) {
        Ok(source) => source,
        Err(e) => return e.to_string(),
    };
    let e = source.get("a.weight").expect_err(&settings.to_string());
    assert!(!e.is_missing(), "a loader would take it for a weight that need not be there: {e}");
    assert!(source.tensors().iter().all(|t| t.name != "a.weight"), "what cannot be had is not listed");
    assert!(source.left_out().iter().any(|t| t == "a.weight"), "and is what was left out");
    e.to_string()
}

#[track_caller]
fn says(settings: &Value, tensors: &[Tensor], what: &[&str]) {
    let e = error(settings, tensors);
    assert!(what.iter().all(|what| e.contains(what)), "{e}");
}

fn with(mut settings: Value, key: &str, value: Value) -> Value {
    settings[key] = value;
    settings
}

fn gptq() -> Value {
    json!({"quant_method": "gptq", "bits": 4, "group_size": 32})
}

fn awq() -> Value {
    json!({"quant_method": "awq", "bits": 4, "group_size": 32})
}

fn compressed() -> Value {
    json!({"quant_method": "compressed-tensors", "format": "pack-quantized"})
}

#[test]
fn settings_that_are_not_known_are_named_with_those_that_are() {
    let none = [];
    says(&json!({}), &none, &["quantization_config: quant_method: nothing is said; known are gptq, awq"]);
    says(&json!(7), &none, &["quant_method"]);
    says(&json!({"quant_method": 4}), &none, &["`quant_method` should be a string"]);
    let other = json!({"quant_method": "bitsandbytes"});
    says(
        &other,
        &none,
        &[
            "`bitsandbytes` is not read; known are gptq, awq (version gemm), compressed-tensors (pack-quantized, float-quantized, nvfp4- and mxfp4-pack-quantized), fp8, fbgemm_fp8, modelopt (FP8, NVFP4) and mxfp4",
        ],
    );
    for (key, value, what) in [
        ("bits", json!(5), "5 bits of gptq are not read; known are 2, 3, 4 and 8"),
        ("bits", json!(0), "0 bits"),
        ("bits", json!(1u64 << 63), "bits of gptq"),
        ("bits", json!("4"), "`bits` should be a whole number"),
        ("bits", json!(null), "`bits`"),
        ("group_size", json!(0), "it is `0`, where a number of columns is needed, or -1"),
        ("group_size", json!(-2), "it is `-2`"),
        ("group_size", json!(1.5), "it is `1.5`"),
        ("group_size", json!(null), "it is `null`"),
        ("checkpoint_format", json!("marlin"), "`marlin` is not read; known are gptq and gptq_v2"),
        ("is_marlin_format", json!(true), "marlin's kernels"),
        ("pack_dtype", json!("int64"), "words of int64"),
    ] {
        says(&with(gptq(), key, value), &none, &["quantization_config: ", what]);
    }
    let lacking = json!({"quant_method": "gptq", "bits": 4});
    says(&lacking, &none, &["group_size: nothing is said"]);
    says(&with(awq(), "bits", json!(8)), &none, &["8 bits of awq are not read; known is 4"]);
    says(
        &with(awq(), "version", json!("gemv_fast")),
        &none,
        &["`gemv_fast` of awq is not read; known is gemm"],
    );
    says(
        &with(compressed(), "format", json!("marlin-24")),
        &none,
        &["`marlin-24`", "pack-quantized, float-quantized", "mixed-precision of NVFP4 and FP8"],
    );
    says(&json!({"quant_method": "compressed-tensors"}), &none, &["`none`"]);
    let turned = json!({"config_groups": {"u": {"type": "hadamard"}}});
    says(&with(compressed(), "transform_config", turned), &none, &["transform_config", "rotations"]);
}

#[test]
fn parts_that_are_missing_or_do_not_fit_are_named() {
    let numbers = Numbers::new(4, [32, 64], 32, None);
    let (g, a) = (numbers.gptq("a.", 1, &F16), numbers.awq("a.", &F16));
    let c = numbers.compressed("a.", true, true, &F16);
    let without = |tensors: &[Tensor], leaf: &str| -> Vec<Tensor> {
        tensors.iter().filter(|t| t.name != format!("a.{leaf}")).cloned().collect()
    };
    let changed =
        |tensors: &[Tensor], leaf: &str, dtype: &str, shape: &[usize], width: usize| -> Vec<Tensor> {
            let bytes = vec![0; shape.iter().product::<usize>() * width];
            let mut tensors = without(tensors, leaf);
            tensors.push(tensor("a.", leaf, dtype, shape, bytes));
            tensors
        };
    for (settings, tensors, leaf) in [
        (gptq(), &g, "qzeros"),
        (gptq(), &g, "scales"),
        (awq(), &a, "qzeros"),
        (awq(), &a, "scales"),
        (compressed(), &c, "weight_scale"),
        (compressed(), &c, "weight_shape"),
    ] {
        let at = format!("a.{leaf}: a packed weight has no such tensor beside it");
        says(&settings, &without(tensors, leaf), &[&at]);
    }
    for (leaf, dtype, shape, width, what) in [
        ("qweight", "I32", &[8, 4, 8][..], 4, "a matrix of I32 is needed and this is [8, 4, 8] I32"),
        ("qweight", "I64", &[8, 32], 8, "[8, 32] I64"),
        ("qweight", "I32", &[0, 32], 4, "[0, 32] I32"),
        (
            "qweight",
            "I32",
            &[16, 32],
            4,
            "a.scales: its shape is [2, 32], where 32 rows of 128 columns of 4 bits in groups of 32 need [4, 32]",
        ),
        (
            "qzeros",
            "I32",
            &[2, 8],
            4,
            "a.qzeros: its shape is [2, 8], where 32 rows and 2 groups of 4 bits need [2, 4]",
        ),
        ("qzeros", "F16", &[2, 4], 2, "a.qzeros: a matrix of I32 is needed"),
        ("scales", "F16", &[2, 16], 2, "a.scales: its shape is [2, 16]"),
        (
            "scales",
            "I32",
            &[2, 32],
            4,
            "a.scales: a matrix of F16, BF16 or F32 is needed and this is [2, 32] I32",
        ),
        ("scales", "f16", &[2, 32], 2, "a matrix of F16, BF16 or F32 is needed"),
        (
            "g_idx",
            "I32",
            &[32],
            4,
            "a.g_idx: the groups of 64 columns are needed, as I32, and this is [32] I32",
        ),
        ("g_idx", "I64", &[64], 8, "[64] I64"),
    ] {
        says(&gptq(), &changed(&g, leaf, dtype, shape, width), &[what]);
    }
    for (leaf, shape, what) in [
        (
            "qweight",
            &[64, 2][..],
            "a.scales: its shape is [2, 32], where 16 rows of 64 columns in groups of 32 need [2, 16]",
        ),
        ("qzeros", &[1, 4], "a.qzeros: its shape is [1, 4], where 32 rows and 2 groups need [2, 4]"),
    ] {
        says(&awq(), &changed(&a, leaf, "I32", shape, 4), &[what]);
    }
    for (leaf, dtype, shape, width, what) in [
        ("weight_shape", "I64", &[2][..], 8, "a.weight_shape: [0, 0] are not 32 rows of whole words, 8 each"),
        ("weight_shape", "F64", &[2], 8, "two of I64 are needed"),
        ("weight_scale", "F16", &[32, 3], 2, "are not the scales of 32 rows of 64 columns in equal groups"),
        ("weight_scale", "F16", &[16, 2], 2, "its shape is [16, 2]"),
        ("weight_zero_point", "I32", &[2, 2], 4, "a.weight_zero_point: its shape is [2, 2], where 32 rows"),
        ("weight_g_idx", "I32", &[4], 4, "the groups of 64 columns are needed"),
    ] {
        says(&compressed(), &changed(&c, leaf, dtype, shape, width), &[what]);
    }
    says(
        &with(gptq(), "bits", json!(3)),
        &g,
        &["a.qweight: 8 lines of words are no whole numbers of 3 bits"],
    );
}

#[test]
fn groups_and_columns_that_are_not_there() {
    let mut numbers = Numbers::new(4, [32, 64], 32, Some(8));
    numbers.groups[17] = 2;
    says(
        &gptq(),
        &numbers.gptq("a.", 1, &F16),
        &["a.weight: the list of groups gives column 17 the group 2, of 2"],
    );
    numbers.groups[17] = u32::MAX;
    says(&gptq(), &numbers.gptq("a.", 1, &F16), &["column 17 the group -1, of 2"]);
    numbers.groups[17] = 2;
    says(&compressed(), &numbers.compressed("a.", false, true, &F16), &["column 17 the group 2, of 2"]);
    let numbers = Numbers::new(4, [32, 64], 32, None);
    says(&with(awq(), "group_size", json!(48)), &numbers.awq("a.", &F16), &["64 columns in groups of 48"]);
    says(
        &with(gptq(), "group_size", json!(16)),
        &numbers.gptq("a.", 1, &F16),
        &["groups of 16 need [4, 32]", "`dynamic`"],
    );
    says(&with(gptq(), "group_size", json!(usize::MAX)), &numbers.gptq("a.", 1, &F16), &["need [1, 32]"]);
    let numbers = Numbers::new(4, [4, 64], 32, None);
    let mut tensors = Numbers::new(4, [8, 64], 32, None).gptq("a.", 1, &F16);
    tensors[0] = tensor("a.", "qweight", "I32", &[8, 4], vec![0; 128]);
    tensors[2] = tensor("a.", "scales", "F16", &[2, 4], vec![0; 16]);
    assert_eq!(numbers.rows, 4);
    says(&gptq(), &tensors, &["the zero points of 4 rows of 4 bits do not fill words"]);
}

#[test]
fn a_weight_that_is_there_twice_is_refused() {
    let mut tensors = Numbers::new(4, [32, 64], 32, None).awq("a.", &F16);
    tensors.push(tensor("a.", "weight", "F16", &[2], vec![0; 4]));
    says(&awq(), &tensors, &["a.weight: the weight is in the files twice"]);
}

#[test]
fn a_folder_says_where_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let config =
        json!({"architectures": ["LlamaForCausalLM"], "quantization_config": {"quant_method": "eetq"}});
    write(folder.path(), "config.json", config.to_string());
    write(folder.path(), "model.safetensors", file(&[]));
    let e = open(folder.path()).unwrap_err().to_string();
    assert!(
        e.contains(&folder.path().display().to_string())
            && e.contains("quantization_config: quant_method: `eetq`"),
        "{e}"
    );
}

/// The settings are what a user can find, where "there is nothing of this name" would send him after the weights.
#[test]
fn packed_weights_without_settings_are_refused_when_they_are_opened() {
    let numbers = Numbers::new(4, [32, 64], 32, None);
    for tensors in [
        numbers.gptq("a.", 1, &F16),
        numbers.awq("a.", &F16),
        numbers.awq("", &F16),
        numbers.compressed("a.", false, false, &F16),
    ] {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "config.json", r#"{"architectures": ["LlamaForCausalLM"]}"#);
        write(folder.path(), "model.safetensors", file(&tensors));
        let e = open(folder.path()).unwrap_err().to_string();
        let at = format!("{}: {}: the weight is packed", folder.path().display(), tensors[0].name);
        assert!(
            e.contains(&at) && e.contains("`quantization_config`") && e.contains("known are gptq"),
            "{e}"
        );
    }
}

#[test]
fn settings_of_a_file_of_their_own_may_be_wrong_too() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "config.json", r#"{"architectures": ["LlamaForCausalLM"]}"#);
    write(folder.path(), "model.safetensors", file(&Numbers::new(4, [32, 64], 32, None).gptq("a.", 1, &F16)));
    for (settings, what) in [
        ("[]", "quantize_config.json: the settings are no JSON object"),
        ("{", "quantize_config.json: reading JSON failed"),
        (r#"{"bits": 5, "group_size": 32}"#, "quantization_config: bits: 5 bits"),
    ] {
        write(folder.path(), "quantize_config.json", settings);
        let e = open(folder.path()).unwrap_err().to_string();
        assert!(e.contains(what), "{e}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn a_damaged_file_gives_whole_weights_or_errors(at in any::<prop::sample::Index>(), bit in 0..8_u32, header in any::<bool>(), which in 0..6_usize) {
        let numbers = Numbers::new(if which == 3 { 3 } else { 4 }, [32, 64], 32, None);
        let tensors = match which {
            0 | 3 => numbers.gptq("a.", 1, &F16),
            1 => numbers.awq("a.", &F16),
            4 => vec![
                tensor("a", "_blocks", "U8", &[2, 3, 2, 16], vec![0x5a; 192]),
                tensor("a", "_scales", "U8", &[2, 3, 2], vec![127; 12]),
            ],
            5 => vec![
                tensor("a.", "weight", "F8_E4M3", &[5, 10], vec![0x3c; 50]),
                tensor("a.", "weight_scale_inv", "F32", &[3, 3], [0, 0, 128, 63].repeat(9)),
                tensor("e", "", "F8_E4M3", &[2, 3, 4], vec![0x45; 24]),
                tensor("e", "_scale_inv", "BF16", &[2, 3, 1], [128, 63].repeat(6)),
            ],
            _ => numbers.compressed("a.", true, true, &F16),
        };
        let mut file = file(&tensors);
        let end = if header { file.len().min(600) } else { file.len() };
        let i = at.index(end);
        file[i] ^= 1_u8 << bit;
        touch::touch(&file);
    }
}
