//! Four bits of floating point as ModelOpt and compressed-tensors have them: the file's codes and scales in ggml's blocks, and a factor for the whole.

mod common;
#[path = "common/packer.rs"]
mod packer;

use common::write;
use ogive_tensor::serde_json::{Value, json};
use ogive_tensor::{Config, F32, Format, MXFP4, NVFP4, Result, Source};
use ogive_weights::{Safetensors, open};
use packer::{Tensor, file, tensor};
use std::sync::Arc;

const LEVELS: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];

fn source(settings: &Value, tensors: &[Tensor]) -> Result<Box<dyn Source>> {
    let files = Safetensors::from_bytes(Arc::new(file(tensors))).unwrap();
    files.with_config(&Config(json!({"quantization_config": settings})))
}

fn modelopt() -> Value {
    json!({"quant_method": "modelopt", "quant_algo": "NVFP4", "config_groups": {"group_0": {
        "weights": {"num_bits": 4, "type": "float", "group_size": 16, "dynamic": false}, "targets": ["Linear"]
    }}})
}

fn compressed(format: &str, group: usize) -> Value {
    json!({"quant_method": "compressed-tensors", "format": format, "config_groups": {"group_0": {
        "weights": {"num_bits": 4, "type": "float", "group_size": group, "symmetric": true}, "targets": ["Linear"]
    }}})
}

fn codes(n: usize) -> Vec<u8> {
    (0..n).map(|i| (i * 37 + i / 251) as u8).collect()
}

/// Some of each scale of E4M3 that is a number, of either sign.
fn scales(n: usize) -> Vec<u8> {
    (0..n).map(|i| (i * 29 + i / 256) as u8).map(|b| if b & 0x7f == 0x7f { 0x30 } else { b }).collect()
}

fn e4m3(b: u8) -> f32 {
    let (e, m) = (i32::from(b >> 3 & 15), f32::from(b & 7) / 8.0);
    let v = if e == 0 { m * 2_f32.powi(-6) } else { (1.0 + m) * 2_f32.powi(e - 7) };
    if b < 128 { v } else { -v }
}

/// Element `i` of the codes: the definition, which knows of no blocks.
fn level(codes: &[u8], i: usize) -> f32 {
    let code = codes[i / 2] >> (4 * (i % 2)) & 15;
    if code < 8 { LEVELS[usize::from(code)] } else { -LEVELS[usize::from(code - 8)] }
}

fn single(stem: &str, leaf: &str, values: &[f32], shape: &[usize]) -> Tensor {
    tensor(stem, leaf, "F32", shape, values.iter().flat_map(|v| v.to_le_bytes()).collect())
}

/// The tensors of a matrix under ModelOpt's names or compressed-tensors', and the values they mean.
fn matrix(stem: &str, settings: &Value, shape: &[usize]) -> (Vec<Tensor>, Vec<f32>) {
    let (rows, cols) = (shape.iter().rev().skip(1).product::<usize>(), shape[shape.len() - 1]);
    let experts: usize = shape.iter().rev().skip(2).product();
    let is_mx = settings["format"] == "mxfp4-pack-quantized";
    let of = if is_mx { 32 } else { 16 };
    let with = |n: usize| [&shape[..shape.len() - 1], &[n]].concat();
    let (codes, n) = (codes(rows * cols / 2), rows * cols / of);
    let scales = if is_mx { (0..n).map(|i| 120 + (i % 9) as u8).collect() } else { scales(n) };
    let factors: Vec<f32> = (0..experts).map(|e| 0.3 + e as f32).collect();
    let outer = if shape.len() == 2 { vec![] } else { vec![experts] };
    let (name, kind) = if settings["format"].is_null() { ("weight", 0) } else { ("weight_packed", 1) };
    let mut tensors = vec![
        tensor(stem, name, "U8", &with(cols / 2), codes.clone()),
        tensor(stem, "weight_scale", if is_mx { "U8" } else { "F8_E4M3" }, &with(cols / of), scales.clone()),
    ];
    match kind {
        _ if is_mx => {}
        0 => tensors.extend([
            single(stem, "weight_scale_2", &factors, &outer),
            single(stem, "input_scale", &[0.1], &[]),
        ]),
        _ => tensors.extend([
            single(stem, "weight_global_scale", &factors, &[experts]),
            single(stem, "input_global_scale", &[7.0], &[1]),
        ]),
    }
    let value = |i: usize| {
        let (scale, factor) = (scales[i / of], factors[i / (rows / experts * cols)]);
        match kind {
            _ if is_mx => level(&codes, i) * 2_f32.powi(i32::from(scale) - 127),
            0 => level(&codes, i) * e4m3(scale) * factor,
            _ => level(&codes, i) * e4m3(scale) * (1.0 / factor),
        }
    };
    (tensors, (0..rows * cols).map(value).collect())
}

#[test]
fn both_packers_weights_have_the_numbers_of_their_files() {
    let mixed = json!({"quant_method": "compressed-tensors", "format": "mixed-precision", "config_groups": {
        "a": {"weights": {"num_bits": 4, "type": "float", "group_size": 16}, "format": "nvfp4-pack-quantized"},
        "b": {"weights": {"num_bits": 8, "type": "float", "strategy": "channel"}, "format": "float-quantized"},
    }});
    let layers = json!({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION",
        "quantized_layers": {"a": {"quant_algo": "NVFP4", "group_size": 16}, "b": {"quant_algo": "FP8"}}});
    let kept = json!({"quant_method": "modelopt_mixed", "quant_algo": "MIXED_PRECISION",
        "quantized_layers": {"a": {"quant_algo": "W4A16_NVFP4", "group_size": 16}, "b": {"quant_algo": "FP8_PB_WO"}}});
    let alone = json!({"quant_method": "modelopt", "quant_algo": "W4A16_NVFP4"});
    let nvfp4 = compressed("nvfp4-pack-quantized", 16);
    let mxfp4 = compressed("mxfp4-pack-quantized", 32);
    for (settings, shape, format) in [
        (&modelopt(), &[5, 128][..], &NVFP4),
        (&layers, &[3, 64], &NVFP4),
        (&kept, &[3, 64], &NVFP4),
        (&alone, &[3, 64], &NVFP4),
        (&modelopt(), &[3, 4, 192], &NVFP4),
        (&nvfp4, &[5, 128], &NVFP4),
        (&mixed, &[5, 64], &NVFP4),
        (&mxfp4, &[5, 96], &MXFP4),
        // Rows of no whole blocks of ggml's.
        (&modelopt(), &[5, 80], &F32),
        (&nvfp4, &[7, 16], &F32),
    ] {
        let (mut tensors, want) = matrix("a.", settings, shape);
        tensors.push(tensor("b.", "weight", "F8_E4M3", &[1, 2], vec![0x38, 0xb8]));
        tensors.push(single("b.", "weight_scale", &[2.0], &[1]));
        tensors.push(single("norm.", "weight", &[1.0], &[1]));
        let source = source(settings, &tensors).unwrap();
        let w = source.get("a.weight").unwrap();
        assert_eq!((w.format, w.unpacked.is_some()), (format as &Format, std::ptr::eq(format, &F32)));
        assert!(w.to_vec() == want, "{settings} {shape:?}");
        assert_eq!(source.get("b.weight").unwrap().to_vec(), [2.0, -2.0]);
        let listed: Vec<_> = source.tensors().into_iter().map(|t| (t.name, t.shape, t.format)).collect();
        let of_b = ("b.weight".to_owned(), [1, 1, 2], &ogive_tensor::F8_E4M3);
        assert_eq!(
            listed,
            [("a.weight".to_owned(), w.shape, format), of_b, ("norm.weight".into(), [1, 1, 1], &F32)]
        );
        assert_eq!(source.left_out(), [""; 0]);
    }
}

#[test]
fn settings_of_modelopt_are_found_beside_the_weights() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "config.json", r#"{"architectures": ["LlamaForCausalLM"]}"#);
    let (tensors, want) = matrix("a.", &modelopt(), &[2, 64]);
    write(folder.path(), "model.safetensors", file(&tensors));
    let e = open(folder.path()).unwrap_err().to_string();
    assert!(e.contains("the weight is packed, and nothing says how") && e.contains("NVFP4"), "{e}");
    let beside =
        json!({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "group_size": 16}});
    write(folder.path(), "hf_quant_config.json", beside.to_string());
    assert_eq!(open(folder.path()).unwrap().source.get("a.weight").unwrap().to_vec(), want);
}

#[test]
fn settings_that_are_not_known_are_named() {
    let group = |weights: Value| json!({"g": {"weights": weights}});
    let opt = |algo: &str, key: &str, value: Value| json!({"quant_method": "modelopt", "quant_algo": algo, key: value});
    let ct = |format: &str, weights: Value| json!({"quant_method": "compressed-tensors", "format": format, "config_groups": group(weights)});
    for (settings, what) in [
        (opt("NVFP4", "group_size", json!(32)), "group_size: groups of 32 columns of NVFP4 are not read"),
        (
            opt("NVFP4", "config_groups", group(json!({"num_bits": 8, "type": "float"}))),
            "`g` has weights that are no symmetric",
        ),
        (opt("W4A8_NVFP4_FP8", "a", json!(1)), "`W4A8_NVFP4_FP8` of modelopt is not read"),
        (
            opt("MIXED_PRECISION", "quantized_layers", json!({"l.0": {"quant_algo": "W4A16_AWQ"}})),
            "`l.0` is packed as `W4A16_AWQ`",
        ),
        (
            ct("nvfp4-pack-quantized", json!({"num_bits": 4, "type": "float", "group_size": 32})),
            "a scale for 16 columns",
        ),
        (
            ct("nvfp4-pack-quantized", json!({"num_bits": 4, "type": "float", "symmetric": false})),
            "no symmetric",
        ),
        (
            ct("mxfp4-pack-quantized", json!({"num_bits": 4, "type": "float", "group_size": 16})),
            "a scale for 32 columns",
        ),
        (ct("mixed-precision", json!({"num_bits": 4, "type": "int", "group_size": 16})), "or of 8 bits"),
        (
            opt(
                "MIXED_PRECISION",
                "quantized_layers",
                json!({"l.0": {"quant_algo": "NVFP4", "group_size": 32}}),
            ),
            "quantized_layers: l.0: group_size: groups of 32",
        ),
    ] {
        let e = source(&settings, &[]).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(e.contains(what), "{settings}: {e}");
    }
}

#[test]
fn parts_that_are_missing_or_do_not_fit_are_named() {
    let nvfp4 = compressed("nvfp4-pack-quantized", 16);
    for (settings, leaf, part, what) in [
        (&modelopt(), "weight", None, "a.weight: a packed weight has no such tensor beside it"),
        (&modelopt(), "weight_scale", None, "a.weight_scale: a packed weight has no such tensor"),
        (&nvfp4, "weight_global_scale", None, "a.weight_global_scale: a packed weight has no such tensor"),
        (
            &modelopt(),
            "weight_scale",
            Some(tensor("a.", "weight_scale", "F8_E4M3", &[5, 4], vec![0; 20])),
            "its shape is [5, 4] F8_E4M3, where the codes need [5, 8] F8_E4M3",
        ),
        (
            &modelopt(),
            "weight",
            Some(tensor("a.", "weight", "U8", &[5, 60], vec![0; 300])),
            "with whole groups of 16",
        ),
        (
            &modelopt(),
            "weight",
            Some(tensor("a.", "weight", "I8", &[5, 64], vec![0; 320])),
            "U8 of the shape",
        ),
        (
            &modelopt(),
            "weight_scale_2",
            Some(single("a.", "weight_scale_2", &[1.0, 2.0], &[2])),
            "for each of 1 matrices",
        ),
        (
            &modelopt(),
            "weight_scale_2",
            Some(single("a.", "weight_scale_2", &[f32::NAN], &[])),
            "a factor is NaN",
        ),
        (
            &nvfp4,
            "weight_global_scale",
            Some(single("a.", "weight_global_scale", &[0.0], &[1])),
            "a factor is 0",
        ),
        (
            &modelopt(),
            "pre_quant_scale",
            Some(single("a.", "pre_quant_scale", &[1.0], &[1])),
            "a.pre_quant_scale",
        ),
        (
            &nvfp4,
            "weight_zero_point",
            Some(tensor("a.", "weight_zero_point", "I8", &[1], vec![1])),
            "a.weight_zero_point",
        ),
    ] {
        let (mut tensors, _) = matrix("a.", settings, &[5, 128]);
        let at = format!("a.{leaf}");
        tensors.retain(|t| t.name != at);
        tensors.extend(part);
        let source = source(settings, &tensors).unwrap();
        let e = source.get("a.weight").unwrap_err();
        assert!(!e.is_missing() && e.to_string().contains(what), "{leaf}: {e}");
        assert!(source.left_out().contains(&"a.weight".to_owned()), "{leaf}");
    }
    // Numbers are looked at when a weight is asked for.
    let (mut tensors, _) = matrix("a.", &modelopt(), &[5, 128]);
    tensors[1] = tensor("a.", "weight_scale", "F8_E4M3", &[5, 8], [vec![0x38; 17], vec![0xff; 23]].concat());
    let e = source(&modelopt(), &tensors).unwrap().get("a.weight").unwrap_err().to_string();
    assert!(e.contains("scale 17 is NaN"), "{e}");
    let mxfp4 = compressed("mxfp4-pack-quantized", 32);
    let (mut tensors, _) = matrix("a.", &mxfp4, &[1, 64]);
    tensors[1] = tensor("a.", "weight_scale", "U8", &[1, 2], vec![254, 255]);
    let e = source(&mxfp4, &tensors).unwrap().get("a.weight").unwrap_err().to_string();
    assert!(e.contains("scale 1 is NaN"), "{e}");
    // Zero points of zeros change nothing.
    let (mut tensors, want) = matrix("a.", &nvfp4, &[5, 128]);
    tensors.push(tensor("a.", "weight_zero_point", "I8", &[5, 8], vec![0; 40]));
    let source = source(&nvfp4, &tensors).unwrap();
    assert_eq!(source.get("a.weight").unwrap().to_vec(), want);
    assert_eq!((source.tensors().len(), source.left_out()), (1, vec![]));
}

#[test]
fn eights_beside_have_their_tiles() {
    let ct = json!({"quant_method": "compressed-tensors", "format": "mixed-precision", "config_groups": {
        "a": {"weights": {"num_bits": 4, "type": "float", "group_size": 16}},
        "b": {"weights": {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [2, 3]}},
    }});
    let (mut tensors, _) = matrix("a.", &ct, &[1, 64]);
    tensors.push(tensor("b.", "weight", "F8_E4M3", &[3, 4], vec![0x38; 12]));
    tensors.push(single("b.", "weight_scale", &[1.0, 2.0, 3.0, 4.0], &[2, 2]));
    let b = source(&ct, &tensors).unwrap().get("b.weight").unwrap();
    assert_eq!(b.to_vec(), [1.0, 1.0, 1.0, 2.0, 1.0, 1.0, 1.0, 2.0, 3.0, 3.0, 3.0, 4.0]);
}

#[test]
fn stacks_of_modelopt_are_named_and_what_is_empty_takes_nothing() {
    let stack = [
        tensor("experts.", "gate_up_proj", "U8", &[2, 4, 32], vec![0; 256]),
        tensor("experts.", "gate_up_proj_weight_scale", "F8_E4M3", &[2, 4, 4], vec![0; 32]),
        single("experts.", "gate_up_proj_weight_scale_2", &[1.0], &[]),
    ];
    let e = source(&modelopt(), &stack).unwrap().get("experts.gate_up_proj").unwrap_err().to_string();
    assert!(e.contains("a stack of experts in NVFP4"), "{e}");
    let wide = 1 << 40;
    for rows in [[0, 1], [1, 0]] {
        let empty = [
            tensor("a.", "weight", "U8", &[rows[0], rows[1], wide + 8], vec![]),
            tensor("a.", "weight_scale", "F8_E4M3", &[rows[0], rows[1], wide / 8 + 1], vec![]),
            single("a.", "weight_scale_2", &vec![1.0; rows[0]], &[rows[0]]),
        ];
        if let Ok(w) = source(&modelopt(), &empty).unwrap().get("a.weight") {
            assert_eq!(w.bytes.len(), 0);
        }
    }
}
