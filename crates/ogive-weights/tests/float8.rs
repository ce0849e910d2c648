//! FP8 as files have it: the file's bytes, with factors beside them for whatever these are for.

mod common;
#[path = "common/packer.rs"]
mod packer;

use common::write;
use ogive_tensor::serde_json::{Value, json};
use ogive_tensor::{BF16, Config, F8_E4M3, F16, F32, Format, Result, Source};
use ogive_weights::{OpenOptions, Safetensors, open};
use packer::{Tensor, file, tensor};
use std::sync::Arc;

fn source(settings: &Value, tensors: &[Tensor]) -> Result<Box<dyn Source>> {
    let files = Safetensors::from_bytes(Arc::new(file(tensors))).unwrap();
    files.with_config(&Config(json!({"quantization_config": settings})))
}

/// Some of each byte that is a number.
fn codes(n: usize) -> Vec<u8> {
    (0..n).map(|i| (i * 37 + i / 251) as u8).map(|b| if b & 0x7f == 0x7f { 0 } else { b }).collect()
}

/// Factors that all three types hold to the bit.
fn factor(i: usize) -> f32 {
    2_f32.powi((i % 9) as i32 - 6)
}

fn factors(name: &str, format: &Format, shape: &[usize]) -> Tensor {
    let values: Vec<f32> = (0..shape.iter().product()).map(factor).collect();
    let mut bytes = vec![0; values.len() * format.block_bytes];
    format.encode_row(&values, &mut bytes).unwrap();
    tensor(name, "", &format.name.to_uppercase(), shape, bytes)
}

fn fp8(block: Value) -> Value {
    json!({"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": block, "fmt": "e4m3"})
}

fn floats(weights: Value) -> Value {
    let group = json!({"targets": ["Linear"], "weights": weights, "input_activations": {"num_bits": 8, "type": "float"}});
    json!({"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {"group_0": group}})
}

/// Whether `name` has the shape, and its bytes times the factors of these tiles, and nothing was made of it.
#[track_caller]
fn check(source: &dyn Source, name: &str, [e, r, c]: [usize; 3], [tr, tc]: [usize; 2]) {
    let w = source.get(name).unwrap();
    assert_eq!((w.shape, w.format, w.unpacked.is_some()), ([e, r, c], &F8_E4M3, false), "{name}");
    let mut bytes = vec![0.0; e * r * c];
    F8_E4M3.decode_row(&codes(e * r * c), &mut bytes);
    let (high, wide) = (r.div_ceil(tr), c.div_ceil(tc));
    let of = |i: usize| factor((i / (r * c) * high + i / c % r / tr) * wide + i % c / tc);
    let want: Vec<f32> = bytes.iter().enumerate().map(|(i, v)| v * of(i)).collect();
    assert!(w.to_vec() == want, "{name} in tiles of {tr} by {tc}");
    let listed = source.tensors();
    assert_eq!(listed.iter().filter(|t| t.name == name && t.shape == [e, r, c]).count(), 1, "{listed:?}");
    assert_eq!(source.left_out(), [""; 0]);
}

#[test]
fn factors_of_every_kind_are_read() {
    let (rows, cols) = (131, 200);
    let block = json!([128, 128]);
    let structure = json!({"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [16, 32]});
    let channel = json!({"num_bits": 8, "type": "float", "strategy": "channel"});
    let pb = json!({"quant_method": "modelopt", "quant_algo": "FP8_PB_WO"});
    let nested = json!({"quant_method": "modelopt", "quantization": {"quant_algo": "FP8_BLOCK_SCALES"}});
    let whole = [rows, cols];
    for (settings, leaf, shape, tile) in [
        (fp8(block.clone()), "weight_scale_inv", &[2, 2][..], [128, 128]),
        (fp8(json!([100, 30])), "weight_scale_inv", &[2, 7], [100, 30]),
        (fp8(Value::Null), "weight_scale_inv", &[], whole),
        (fp8(Value::Null), "weight_scale", &[1], whole),
        (fp8(block), "weight_scale_inv", &[1], whole),
        (json!({"quant_method": "fbgemm_fp8"}), "weight_scale", &[rows, 1], [1, cols]),
        (floats(channel.clone()), "weight_scale", &[rows, 1], [1, cols]),
        (floats(channel.clone()), "weight_scale", &[1], whole),
        (floats(channel), "weight_scale", &[rows, 8], [1, 25]),
        (floats(structure), "weight_scale", &[9, 7], [16, 32]),
        (
            json!({"quant_method": "compressed-tensors", "format": "float-quantized"}),
            "weight_scale",
            &[1],
            whole,
        ),
        (json!({"quant_method": "modelopt", "quant_algo": "FP8"}), "weight_scale", &[], whole),
        (
            json!({"quant_method": "modelopt", "quant_algo": "FP8_PER_CHANNEL_PER_TOKEN"}),
            "weight_scale",
            &[rows],
            [1, cols],
        ),
        (pb, "weight_scale", &[2, 1, 2, 1], [128, 128]),
        (nested, "weight_scale", &[2, 2], [128, 128]),
        // What is packed says nothing of what is not.
        (json!({"quant_method": "mxfp4"}), "weight_scale", &[rows, 1], [1, cols]),
        (json!({"quant_method": "awq", "bits": 4, "group_size": 32}), "weight_scale_inv", &[1], whole),
    ] {
        for format in [&F32, &BF16, &F16] {
            let tensors = [
                tensor("a.", "weight", "F8_E4M3", &[rows, cols], codes(rows * cols)),
                factors(&format!("a.{leaf}"), format, shape),
                tensor("a.", "bias", "F32", &[2], vec![0; 8]),
            ];
            check(&*source(&settings, &tensors).unwrap(), "a.weight", [1, rows, cols], tile);
        }
    }
}

#[test]
fn powers_of_two_may_be_written_as_such() {
    let exponents: Vec<u8> = (0..4).map(|i| (factor(i).to_bits() >> 23) as u8).collect();
    let tensors = [
        tensor("a.", "weight", "F8_E4M3", &[131, 200], codes(131 * 200)),
        tensor("a.", "weight_scale_inv", "F8_E8M0", &[2, 2], exponents),
    ];
    check(&*source(&fp8(json!([128, 128])), &tensors).unwrap(), "a.weight", [1, 131, 200], [128, 128]);
}

/// As transformers keeps experts, and as Llama 4 has theirs: columns for rows.
#[test]
fn stacks_of_experts_have_factors_of_their_own() {
    let stack = |factors| {
        let elements = tensor("mlp.experts.", "gate_up_proj", "F8_E4M3", &[3, 12, 40], codes(3 * 12 * 40));
        [elements, factors]
    };
    let name = "mlp.experts.gate_up_proj";
    for (end, shape, tile) in [
        ("_scale_inv", &[3, 2, 2][..], [8, 32]),
        ("_scale_inv", &[3, 1, 1], [12, 40]),
        ("_scale", &[3], [12, 40]),
        ("_scale", &[3, 12, 1], [1, 40]),
        ("_scale", &[3, 1, 40], [12, 1]),
    ] {
        let tensors = stack(factors(&format!("{name}{end}"), &F32, shape));
        check(&*source(&fp8(json!([8, 32])), &tensors).unwrap(), name, [3, 12, 40], tile);
    }
}

/// How activations and the cache were rounded is not computed, and nothing that is missed.
#[test]
fn what_is_said_of_activations_and_the_cache_is_left_out() {
    let one = |name| factors(name, &F32, &[1]);
    let tensors = [
        tensor("a.", "weight", "F8_E4M3", &[4, 8], codes(32)),
        one("a.weight_scale"),
        one("a.input_scale"),
        one("self_attn.k_scale"),
        one("self_attn.kv_scale"),
        one("mlp.experts.gate_up_proj_activation_scale"),
        one("mlp.experts.down_proj_activation_scale"),
        tensor("a.", "input_zero_point", "I8", &[1], vec![3]),
        tensor("a.", "weight_zero_point", "I8", &[4, 1], vec![0; 4]),
        tensor("a.", "weight_g_idx", "I32", &[8], vec![0xff; 32]),
        one("self_attn.v_proj.output_scale"),
        tensor("", "norm.weight", "BF16", &[4], vec![0; 8]),
    ];
    let settings =
        json!({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_scheme": {"num_bits": 8}});
    let source = source(&settings, &tensors).unwrap();
    let names: Vec<String> = source.tensors().into_iter().map(|t| t.name).collect();
    assert_eq!((names, source.left_out()), (vec!["a.weight".to_owned(), "norm.weight".into()], vec![]));
}

/// Elements without their factors would be numbers, and wrong ones.
#[test]
fn matrices_without_settings_and_factors_that_are_known_are_refused() {
    let matrix = tensor("a.", "weight", "F8_E4M3", &[4, 8], codes(32));
    let open = |settings: &Value, tensors: &[Tensor]| {
        Safetensors::from_bytes(Arc::new(file(tensors))).unwrap().with_config(&Config(settings.clone()))
    };
    let e = open(&json!({}), &[matrix, factors("a.scale_weight", &F32, &[])]).unwrap_err().to_string();
    assert!(e.contains("a.weight: the weight is packed, and nothing says how"), "{e}");
    let vector = [tensor("norm.", "weight", "F8_E4M3", &[8], codes(8))];
    assert_eq!(open(&json!({}), &vector).unwrap().get("norm.weight").unwrap().shape, [1, 1, 8]);
}

/// A format of a stranger's by this name says itself what its bytes are.
#[test]
fn a_replaced_format_is_whole_without_factors() {
    static OWN: Format =
        Format { encode: None, decode: |bytes, out| out[0] = f32::from(bytes[0]), ..F8_E4M3 };
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "config.json", r#"{"architectures": ["LlamaForCausalLM"]}"#);
    write(
        folder.path(),
        "model.safetensors",
        file(&[tensor("a.", "weight", "F8_E4M3", &[2, 2], vec![1, 2, 3, 4])]),
    );
    let source = OpenOptions::new().format(&OWN).open(folder.path()).unwrap().source;
    assert_eq!(source.get("a.weight").unwrap().to_vec(), [1.0, 2.0, 3.0, 4.0]);
}

#[test]
fn settings_of_modelopt_are_found_beside_the_weights() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "config.json", r#"{"architectures": ["LlamaForCausalLM"]}"#);
    let tensors =
        [tensor("a.", "weight", "F8_E4M3", &[4, 8], codes(32)), factors("a.weight_scale", &F32, &[])];
    write(folder.path(), "model.safetensors", file(&tensors));
    let e = open(folder.path()).unwrap_err().to_string();
    assert!(
        e.contains("a.weight: the weight is packed, and nothing says how")
            && e.contains("hf_quant_config.json"),
        "{e}"
    );
    let beside = json!({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": null}});
    write(folder.path(), "hf_quant_config.json", beside.to_string());
    check(&*open(folder.path()).unwrap().source, "a.weight", [1, 4, 8], [4, 8]);
}

/// What is said of these settings, or of the weight `a.weight`.
#[track_caller]
fn says(settings: &Value, tensors: &[Tensor], what: &str) {
    let e = match source(settings, tensors) {
        Err(e) => e,
        Ok(source) => {
            let e = source.get("a.weight").unwrap_err();
            assert!(!e.is_missing(), "a loader would take it for a weight that need not be there: {e}");
            assert!(source.tensors().is_empty(), "what cannot be had is not listed");
            assert_eq!(source.left_out(), ["a.weight"]);
            e
        }
    };
    assert!(e.to_string().contains(what), "{e}");
}

#[test]
fn factors_that_are_missing_or_do_not_fit_are_named() {
    let weight = tensor("a.", "weight", "F8_E4M3", &[131, 200], codes(131 * 200));
    let (block, none) = (fp8(json!([128, 128])), fp8(Value::Null));
    says(
        &block,
        std::slice::from_ref(&weight),
        "a.weight: its elements are in FP8, and no factors are beside it",
    );
    for (settings, shape, what) in [
        (
            &block,
            &[2, 1][..],
            "its shape is [2, 1], where a weight of [1, 131, 200] needs [2, 2] for tiles of 128 by 128",
        ),
        (&block, &[3, 2], "[2, 2] for tiles"),
        (&block, &[0], "its shape is [0]"),
        (&block, &[131, 3], "[131, 1] for rows"),
        (&none, &[2, 2], "needs [131, 1] for rows or one for all of an expert"),
        (&none, &[130, 1], "needs [131, 1]"),
        (&none, &[2], "needs [131, 1]"),
    ] {
        says(settings, &[weight.clone(), factors("a.weight_scale_inv", &F32, shape)], what);
    }
    for (value, what) in [(f32::NAN, "factor 0 is NaN"), (f32::NEG_INFINITY, "factor 0 is -inf")] {
        let scale = tensor("a.", "weight_scale", "F32", &[1], value.to_le_bytes().to_vec());
        says(&none, &[weight.clone(), scale], what);
    }
    let scale = tensor("a.", "weight_scale", "F8_E8M0", &[1], vec![255]);
    says(&none, &[weight.clone(), scale], "factor 0 is NaN");
    let scale = tensor("a.", "weight_scale", "I32", &[1], vec![0; 4]);
    says(
        &none,
        &[weight.clone(), scale],
        "factors in F32, BF16, F16 or F8_E8M0 are needed and these are I32",
    );
    // What is packed has its own parts; so has what is not.
    let gptq = json!({"quant_method": "gptq", "bits": 4, "group_size": 32});
    let compressed = json!({"quant_method": "compressed-tensors", "format": "pack-quantized"});
    for settings in [gptq, compressed] {
        says(&settings, std::slice::from_ref(&weight), "no factors are beside it");
        let tiles = factors("a.weight_scale_inv", &F32, &[2, 2]);
        says(&settings, &[weight.clone(), tiles], "its shape is [2, 2]");
    }
}

/// An asymmetric weight is no elements times factors, and columns in an order stand elsewhere.
#[test]
fn zero_points_and_orders_of_columns_are_refused() {
    let weights = json!({"num_bits": 8, "type": "float", "strategy": "channel"});
    let zeros = tensor("a.", "weight_zero_point", "F8_E4M3", &[4, 1], vec![0, 0x38, 0, 0]);
    let order = tensor("a.", "weight_g_idx", "I32", &[8], (0..8).flat_map(i32::to_le_bytes).collect());
    for (more, what) in [
        (zeros, "it is in FP8 and has zero points beside it (`a.weight_zero_point`)"),
        (order, "an order of its columns beside it (`a.weight_g_idx`)"),
    ] {
        let weight = tensor("a.", "weight", "F8_E4M3", &[4, 8], codes(32));
        says(&floats(weights.clone()), &[weight, factors("a.weight_scale", &F32, &[4, 1]), more], what);
    }
}

#[test]
fn settings_that_are_not_known_are_named() {
    for (settings, what) in [
        (
            fp8(json!([0, 128])),
            "weight_block_size: tiles: it is [0,128], where the rows and the columns of a tile are needed",
        ),
        (fp8(json!([128])), "it is [128]"),
        (fp8(json!([128, 128, 1])), "it is [128,128,1]"),
        (fp8(json!([128, -1])), "it is [128,-1]"),
        (fp8(json!("128")), "it is \"128\""),
        (json!({"quant_method": "fp8", "fmt": "e5m2"}), "fmt: `e5m2` of fp8 is not read; known is e4m3"),
        (
            json!({"quant_method": "modelopt", "quant_algo": "NVFP4_AWQ"}),
            "quant_algo: `NVFP4_AWQ` of modelopt is not read; known are FP8",
        ),
        (json!({"quant_method": "modelopt"}), "quant_algo: nothing is said"),
        (
            floats(json!({"num_bits": 4, "type": "float"})),
            "config_groups: `group_0` has weights that are no floating point of 8 bits",
        ),
        (floats(json!({"num_bits": 8, "type": "int"})), "no floating point of 8 bits"),
        (
            floats(json!({"num_bits": 8, "type": "float", "block_structure": [0, 1]})),
            "group_0: tiles: it is [0,1]",
        ),
        (
            json!({"quant_method": "compressed-tensors", "format": "marlin-24"}),
            "`marlin-24` of compressed-tensors is not read",
        ),
    ] {
        says(&settings, &[], what);
    }
}
