//! Weights that were packed for PyTorch: each becomes a format of ggml's with the values of the definition, to the bit.

mod common;
#[path = "common/packer.rs"]
mod packer;

use common::{shared, write};
use ogive_tensor::serde_json::{Value, json};
use ogive_tensor::{BF16, Config, F16, F32, HostWeight, Source};
use ogive_weights::{Safetensors, open};
use packer::{Numbers, Tensor, file, tensor};
use std::sync::Arc;

fn opened(settings: Value, tensors: &[Tensor]) -> Box<dyn Source> {
    let files = Safetensors::from_bytes(Arc::new(file(tensors))).unwrap();
    files.with_config(&Config(json!({"quantization_config": settings}))).unwrap()
}

/// The weight `a.weight` of these tensors, which has to be listed as it is.
fn weight(settings: Value, tensors: &[Tensor]) -> HostWeight {
    let source = opened(settings, tensors);
    let weight = source.get("a.weight").unwrap();
    let listed = source.tensors();
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!(
        (&listed[0].name, listed[0].shape, listed[0].format),
        (&weight.name, weight.shape, weight.format)
    );
    weight
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

/// Whether the weight has these values and is in this format; the sign of a zero counts, too.
#[track_caller]
fn check(weight: &HostWeight, numbers: &Numbers, format: &str, what: &str) {
    assert_eq!((weight.shape, weight.format.name), ([1, numbers.rows, numbers.cols], format), "{what}");
    assert!(bits(&weight.to_vec()) == bits(&numbers.values()), "{what}");
    assert_eq!(weight.unpacked.is_some(), format == "f32", "{what}: {:?}", weight.unpacked);
}

/// The bits of an element in the file and the reason, of a weight that is decoded.
#[track_caller]
fn decoded(weight: &HostWeight) -> (f32, &str) {
    let unpacked = weight.unpacked.as_ref().unwrap();
    (unpacked.bits, &*unpacked.why)
}

fn gptq(bits: usize, group: i64, form: &str) -> Value {
    json!({"quant_method": "gptq", "bits": bits, "group_size": group, "checkpoint_format": form})
}

fn awq(group: i64) -> Value {
    json!({"quant_method": "awq", "bits": 4, "group_size": group, "version": "GEMM", "zero_point": true})
}

fn compressed() -> Value {
    json!({"quant_method": "compressed-tensors", "format": "pack-quantized"})
}

#[test]
fn gptq_of_every_width_group_and_version() {
    for bits in [2, 3, 4, 8] {
        // More rows than are written at a time, and not a whole number of those.
        for (shape, group) in
            [([160, 256], 32), ([32, 256], 64), ([32, 256], 128), ([64, 96], -1), ([32, 160], 64)]
        {
            let size = if group > 0 { group as usize } else { shape[1] };
            for zero in [None, Some(1 << (bits - 1))] {
                let numbers = Numbers::new(bits, shape, size, zero);
                let format = match (bits, zero) {
                    (2 | 3, _) | (4, Some(_)) => "q4_0",
                    (4, None) => "q5_0",
                    (_, Some(_)) => "q8_0",
                    (_, None) => "f32",
                };
                for (form, less) in [("gptq", 1), ("gptq_v2", 0)] {
                    let what = format!("{bits} bits, groups of {group}, {zero:?}, {form}");
                    let tensors = numbers.gptq("a.", less, &F16);
                    let w = weight(gptq(bits, group, form), &tensors);
                    check(&w, &numbers, format, &what);
                    assert!(w.is_plain(), "{what}");
                    // The list of groups says nothing here that the settings do not.
                    check(&weight(gptq(bits, group, form), &tensors[..3]), &numbers, format, &what);
                }
            }
        }
    }
}

/// What GPTQModel made of zero points of 4 in 3 bits before its pull request 2763, three words for 32.
#[test]
fn three_bits_that_are_symmetric_have_the_zero_point_that_they_must() {
    let numbers = Numbers::new(3, [64, 128], 64, Some(4));
    let mut tensors = numbers.gptq("a.", 1, &F16);
    let misplaced = [0, 0xB6DB_6DB7_u32, 0x4924_9249].map(u32::to_le_bytes).concat();
    tensors[1].bytes = misplaced.repeat(tensors[1].bytes.len() / 12);
    let mut settings = gptq(3, 64, "gptq");
    settings["sym"] = json!(true);
    let w = weight(settings.clone(), &tensors);
    check(&w, &numbers, "q4_0", "misplaced");
    check(&weight(settings, &numbers.gptq("a.", 1, &F16)), &numbers, "q4_0", "in their places");
}

/// Group of column `c` where each has `size` columns, far from each other.
fn scattered(cols: usize, size: usize) -> Vec<u32> {
    (0..cols).map(|c| ((c * 37 + 11) % cols / size) as u32).collect()
}

#[test]
fn act_order_puts_groups_together() {
    for bits in [2, 3, 4, 8] {
        for size in [32, 64, 128] {
            let mut numbers = Numbers::new(bits, [32, 256], size, Some(1 << (bits - 1)));
            numbers.groups = scattered(256, size);
            let w = weight(gptq(bits, size as i64, "gptq"), &numbers.gptq("a.", 1, &F16));
            check(
                &w,
                &numbers,
                if bits == 8 { "q8_0" } else { "q4_0" },
                &format!("{bits} bits in groups of {size}"),
            );
            assert!(w.input_perm.is_some());
        }
    }
    // Static groups of a size that is none of blocks are decoded, as are columns of which a group has too many.
    let mut numbers = Numbers::new(4, [32, 96], 48, Some(8));
    check(&weight(gptq(4, 48, "gptq"), &numbers.gptq("a.", 1, &F16)), &numbers, "f32", "groups of 48");
    numbers.groups[0] = 1;
    check(&weight(gptq(4, 48, "gptq"), &numbers.gptq("a.", 1, &F16)), &numbers, "f32", "uneven groups");
}

#[test]
fn awq_of_every_group() {
    for (shape, group) in [([136, 256], 32), ([16, 256], 64), ([8, 256], 128), ([16, 96], -1)] {
        let size = if group > 0 { group as usize } else { shape[1] };
        for (zero, format) in [(None, "q5_0"), (Some(8), "q4_0"), (Some(0), "q5_0"), (Some(15), "q5_0")] {
            let numbers = Numbers::new(4, shape, size, zero);
            check(
                &weight(awq(group), &numbers.awq("a.", &F16)),
                &numbers,
                format,
                &format!("{group} {zero:?}"),
            );
        }
    }
    let numbers = Numbers::new(4, [16, 40], 40, None);
    check(&weight(awq(-1), &numbers.awq("a.", &F16)), &numbers, "f32", "columns that are no blocks");
}

#[test]
fn compressed_tensors_by_group_and_by_channel() {
    for bits in [4, 8] {
        for (shape, size) in [([131, 256], 32), ([16, 256], 128), ([16, 96], 96)] {
            let half = 1 << (bits - 1);
            for (zero, format) in [(Some(half), ["q4_0", "q8_0"]), (None, ["q5_0", "f32"])] {
                let mut numbers = Numbers::new(bits, shape, size, zero);
                for (zeros, listed) in [(zero.is_none(), false), (true, false), (true, true)] {
                    if listed {
                        numbers.groups = scattered(shape[1], size);
                    }
                    let w = weight(compressed(), &numbers.compressed("a.", zeros, listed, &F16));
                    check(
                        &w,
                        &numbers,
                        format[bits / 8],
                        &format!("{bits} bits, {size}, {zero:?}, {listed}"),
                    );
                }
            }
        }
    }
}

/// compressed-tensors makes the list before it is known, and does not always come to fill it in.
#[test]
fn a_list_of_groups_with_minus_one_in_it_is_none() {
    let numbers = Numbers::new(4, [16, 128], 32, None);
    for blank in [0..128, 5..6] {
        let mut listed = Numbers::new(4, [16, 128], 32, None);
        listed.groups = scattered(128, 32);
        blank.for_each(|col| listed.groups[col] = u32::MAX);
        let w = weight(compressed(), &listed.compressed("a.", true, true, &F16));
        check(&w, &numbers, "q5_0", "-1");
        assert!(w.is_plain());
    }
}

#[test]
fn scales_of_other_types_are_taken_if_they_are_halves() {
    let mut numbers = Numbers::new(4, [32, 128], 32, Some(8));
    check(&weight(gptq(4, 32, "gptq"), &numbers.gptq("a.", 1, &F32)), &numbers, "q4_0", "f32, halves");
    check(
        &weight(compressed(), &numbers.compressed("a.", false, false, &F32)),
        &numbers,
        "q4_0",
        "f32, halves",
    );
    numbers.scales[1][5] = 0.1;
    check(&weight(awq(32), &numbers.awq("a.", &F32)), &numbers, "f32", "f32, a tenth");
    check(
        &weight(compressed(), &numbers.compressed("a.", true, false, &F32)),
        &numbers,
        "f32",
        "f32, a tenth",
    );
    let rounded = |v: f32| f32::from_bits(v.to_bits() & 0xFFFF_0000);
    numbers.scales.iter_mut().flatten().for_each(|s| *s = rounded(*s));
    check(&weight(awq(32), &numbers.awq("a.", &BF16)), &numbers, "q4_0", "bf16, halves");
    numbers.scales[1][5] = rounded(1e-7);
    check(&weight(awq(32), &numbers.awq("a.", &BF16)), &numbers, "f32", "bf16, too small for a half");
}

#[test]
fn what_is_not_packed_is_given_as_it_is() {
    let numbers = Numbers::new(4, [32, 64], 32, None);
    let mut tensors = numbers.awq("model.a.", &F16);
    tensors.push(tensor("model.a.", "bias", "F16", &[32], vec![0; 64]));
    tensors.push(tensor("", "lm_head.weight", "BF16", &[4, 32], vec![0; 256]));
    tensors.push(tensor("model.norm.", "scales", "F32", &[1], vec![0; 4]));
    tensors.extend(numbers.awq("", &F16));
    let source = opened(awq(32), &tensors);
    let names: Vec<String> = source.tensors().into_iter().map(|t| t.name).collect();
    assert_eq!(names, ["model.a.weight", "model.a.bias", "lm_head.weight", "model.norm.scales", "weight"]);
    assert!(source.get("model.b.weight").unwrap_err().is_missing());
    assert_eq!(source.left_out(), [""; 0]);
    // Without settings, files that have nothing packed have what they have.
    let files = Safetensors::from_bytes(Arc::new(file(&tensors[4..6]))).unwrap();
    let files = files.with_config(&Config(json!({}))).unwrap();
    assert_eq!(files.get("lm_head.weight").unwrap().format, &BF16);
}

#[test]
fn settings_of_older_packers_are_found_where_they_stand() {
    let numbers = Numbers::new(4, [32, 64], 32, Some(8));
    let class = json!(["LlamaForCausalLM"]);
    let model = |config: Value, beside: Option<Value>, tensors: &[Tensor]| {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "config.json", config.to_string());
        write(folder.path(), "model.safetensors", file(tensors));
        if let Some(beside) = beside {
            write(folder.path(), "quantize_config.json", beside.to_string());
        }
        let model = open(folder.path()).unwrap();
        assert_eq!(model.source.get("a.weight").unwrap().to_vec(), numbers.values());
        model.config
    };
    // AutoGPTQ's, which says no method, and is not asked where the model's own settings say something.
    let (plain, beside) =
        (json!({"architectures": class}), json!({"bits": 4, "group_size": 32, "sym": true}));
    let config = model(plain, Some(beside.clone()), &numbers.gptq("a.", 1, &F16));
    assert_eq!(config.at("quantization_config").opt_str("quant_method").unwrap(), Some("gptq"));
    let own = json!({"architectures": class, "quantization_config": gptq(4, 32, "gptq_v2")});
    model(own, Some(beside), &numbers.gptq("a.", 0, &F16));
    // compressed-tensors' first name for them.
    let method = json!({"format": "pack-quantized", "quant_method": "compressed-tensors"});
    for settings in [method, json!({"format": "pack-quantized"})] {
        let config = json!({"architectures": class, "compression_config": settings});
        model(config, None, &numbers.compressed("a.", false, false, &F16));
    }
}

#[test]
fn weights_can_be_cut_reordered_and_stacked() {
    let numbers = Numbers::new(4, [32, 128], 32, None);
    let (source, values) = (opened(awq(32), &numbers.awq("a.", &F16)), numbers.values());
    let w = source.get("a.weight").unwrap();
    assert_eq!(w.rows(8..24).unwrap().to_vec(), values[8 * 128..24 * 128]);
    assert_eq!(w.reordered(&[31; 32]).unwrap().to_vec(), values[31 * 128..].repeat(32));
    assert_eq!(HostWeight::stack("e", &[w.clone(), w]).unwrap().to_vec(), values.repeat(2));
    // Which format a weight becomes, its zero points decide.
    let centred = Numbers::new(4, [32, 128], 32, Some(8));
    let parts = [source, opened(awq(32), &centred.awq("a.", &F16))].map(|s| s.get("a.weight").unwrap());
    assert_ne!(parts[0].format, parts[1].format);
    assert_eq!(HostWeight::stack("e", &parts).unwrap().to_vec(), [values, centred.values()].concat());
    // Inputs that are permuted are so for all rows, but there is one permutation for a weight.
    let mut turned = Numbers::new(4, [32, 128], 32, Some(8));
    turned.groups = scattered(128, 32);
    let w = weight(gptq(4, 32, "gptq"), &turned.gptq("a.", 1, &F16));
    assert_eq!(w.rows(8..24).unwrap().to_vec(), turned.values()[8 * 128..24 * 128]);
    let both = HostWeight::stack("e", &[w.clone(), w.clone()]).unwrap();
    assert_eq!((both.format.name, both.to_vec()), ("q4_0", turned.values().repeat(2)));
    let mut other = Numbers::new(4, [32, 128], 32, Some(8));
    other.groups = scattered(128, 32).into_iter().rev().collect();
    let v = weight(gptq(4, 32, "gptq"), &other.gptq("a.", 1, &F16));
    let both = HostWeight::stack("e", &[w.clone(), v]).unwrap();
    assert_eq!((both.shape, both.to_vec()), ([2, 32, 128], [turned.values(), other.values()].concat()));
    assert_eq!(decoded(&both), (w.format.bits(), "experts have their columns in orders of their own"));
}

#[test]
fn what_is_decoded_says_from_what_and_why() {
    let of = |bits, [rows, cols]: [usize; 2], size: usize, zero| {
        let numbers = Numbers::new(bits, [rows, cols], size, zero);
        weight(gptq(bits, size as i64, "gptq"), &numbers.gptq("a.", 1, &F16))
    };
    // Codes, and for each row and group a zero point and a scale.
    let share = |bits: usize, group: usize| bits as f32 + (bits + 16) as f32 / group as f32;
    let w = of(4, [32, 96], 48, None);
    assert_eq!(decoded(&w), (share(4, 48), "groups of 48 columns are no whole blocks of 32"));
    assert_eq!(w.rows(8..24).unwrap().unpacked, w.unpacked);
    assert_eq!(w.reordered(&[3; 32]).unwrap().unpacked, w.unpacked);
    assert_eq!(w.transposed().unwrap().unpacked, w.unpacked, "the first reason stays");
    assert_eq!(HostWeight::stack("e", &[w.clone(), w.clone()]).unwrap().unpacked, w.unpacked);
    let w = of(8, [32, 128], 32, None);
    assert_eq!(decoded(&w), (share(8, 32), "no packed format holds 8 bits with zero points other than 128"));
    let w = of(4, [32, 40], 40, Some(8));
    assert_eq!(decoded(&w), (share(4, 40), "rows of 40 columns are no whole blocks of 32"));
    let mut numbers = Numbers::new(4, [32, 128], 32, Some(8));
    numbers.scales[1][5] = 0.1;
    let w = weight(compressed(), &numbers.compressed("a.", false, false, &F32));
    assert_eq!(decoded(&w), (4.0 + 32.0 / 32.0, "no packed format holds scales that are no halves"));
}

#[test]
fn a_layer_has_the_values_of_its_packer() {
    let Some(shared) = shared() else { return };
    for (name, format) in [("qwen2-awq-g128", "q5_0"), ("qwen2-gptq-4bit-g128-sym", "q4_0")] {
        let folder = shared.join("golden/quant-hf").join(name);
        let mut golden =
            ndarray_npy::NpzReader::new(std::fs::File::open(folder.join("dequant_l0_q_proj.npz")).unwrap())
                .unwrap();
        let want: ogive_tensor::ndarray::Array2<f32> = golden.by_name("weight.npy").unwrap();
        let model = open(&folder).unwrap();
        let w = model.source.get("model.layers.0.self_attn.q_proj.weight").unwrap();
        assert_eq!((w.format.name, w.shape), (format, [1, 128, 128]));
        assert!(bits(&w.to_vec()) == bits(&want.iter().copied().collect::<Vec<_>>()), "{name}");
        // Seven matrices and two norms in each of two layers, three biases; embedding, norm and head.
        assert_eq!(model.source.tensors().len(), 2 * (7 + 2 + 3) + 3);
        assert_eq!(model.source.get("lm_head.weight").unwrap().format, &F16);
    }
}

fn mxfp4() -> Value {
    json!({"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]})
}

/// Two experts of three rows of 64 columns, by the definition: neighbours in a byte, the first in its low half, and a power of two for 32.
#[test]
fn blocks_of_mxfp4_are_numbers_of_four_bits_times_a_power() {
    let pairs: Vec<u8> = (0..2 * 3 * 2 * 16).map(|i| (i * 37 % 256) as u8).collect();
    let powers: Vec<u8> = (0..2 * 3 * 2).map(|i| 120 + i as u8).collect();
    let of = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];
    let value = |i: usize| {
        let code = pairs[i / 2] >> (4 * (i % 2)) & 15;
        of[usize::from(code)] * 2f32.powi(i32::from(powers[i / 32]) - 127)
    };
    let want: Vec<f32> = (0..2 * 3 * 64).map(value).collect();
    let stem = "model.layers.0.mlp.experts.gate_up_proj";
    let of_bias = tensor(stem, "_bias", "F32", &[2, 3], vec![0; 24]);
    let parts = [
        tensor(stem, "_blocks", "U8", &[2, 3, 2, 16], pairs.clone()),
        tensor(stem, "_scales", "U8", &[2, 3, 2], powers.clone()),
    ];
    let all = |parts: &[&Tensor]| {
        let tensors: Vec<Tensor> = parts.iter().map(|t| (*t).clone()).collect();
        opened(mxfp4(), &tensors)
    };
    let source = all(&[&parts[0], &parts[1], &of_bias]);
    let w = source.get(&format!("{stem}.weight")).unwrap();
    assert_eq!((w.shape, w.format.name, w.unpacked.is_none()), ([2, 3, 64], "mxfp4", true));
    assert!(bits(&w.to_vec()).iter().zip(bits(&want)).all(|(a, b)| *a == b || (a | b) << 1 == 0));
    let names: Vec<String> = source.tensors().into_iter().map(|t| t.name).collect();
    assert_eq!(names, [format!("{stem}.weight"), format!("{stem}_bias")]);

    // What does not fit is told by the tensor's own name.
    let refused = |parts: &[&Tensor], what: &str, why: &str| {
        let e = all(parts).get(&format!("{stem}.weight")).unwrap_err().to_string();
        assert!(e.contains(&format!("{stem}_{what}")) && e.contains(why), "{e}");
    };
    refused(&[&parts[0]], "scales", "no such tensor beside it");
    let few = tensor(stem, "_scales", "U8", &[2, 3, 1], vec![0; 6]);
    refused(&[&parts[0], &few], "scales", "need [2, 3, 2] U8");
    let wide = tensor(stem, "_blocks", "U8", &[2, 3, 1, 32], pairs.clone());
    refused(&[&wide, &parts[1]], "blocks", "[2, 3, 1, 32] U8");
    let wrong = tensor(stem, "_blocks", "I8", &[2, 3, 2, 16], pairs.clone());
    refused(&[&wrong, &parts[1]], "blocks", "I8");
    // Without settings nothing says what the bytes mean.
    let files = Safetensors::from_bytes(Arc::new(file(&parts))).unwrap();
    let e = files.with_config(&Config(json!({}))).unwrap_err().to_string();
    assert!(e.contains("gate_up_proj_blocks") && e.contains("nothing says how"), "{e}");
}
