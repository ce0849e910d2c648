//! Weights that were packed for PyTorch (GPTQ, AWQ, compressed-tensors) on a GPU: which stay packed there, and that products with each are
//! those of the numbers in the file. The table of docs/CUDA.md.
//!
//! Here and not with either crate, as it takes both: how files become formats is ogive-weights', how formats are kept ogive-cuda's.
#![allow(clippy::print_stdout)]

#[path = "common/device.rs"]
mod device;
#[path = "../../ogive-weights/tests/common/packer.rs"]
mod packer;

use ogive_cuda::{Activations, Compute, CudaBackend};
use ogive_nn::backend::Backend;
use ogive_nn::tensor::serde_json::{Value, json};
use ogive_nn::tensor::{Config, F16, F32, Format, HostWeight};
use ogive_weights::Safetensors;
use packer::{Numbers, Tensor, file};
use ptx_emulator_launcher::{Nvrtc, test_name};
use std::sync::Arc;

/// Rows and columns: whole groups of each size.
const SHAPE: [usize; 2] = [40, 256];

/// A weight of a file, what its numbers are, and how it is kept on the device: the format's name, and whether with an order of columns.
struct Case {
    what: String,
    weight: HostWeight,
    numbers: Numbers,
    kept: (&'static str, bool),
}

fn weight(settings: Value, tensors: &[Tensor]) -> HostWeight {
    let files = Safetensors::from_bytes(Arc::new(file(tensors))).unwrap();
    files.with_config(&Config(json!({"quantization_config": settings}))).unwrap().get("a.weight").unwrap()
}

/// Groups whose columns are far from each other.
fn scattered(size: usize) -> Vec<u32> {
    (0..SHAPE[1]).map(|c| ((c * 37 + 11) % SHAPE[1] / size) as u32).collect()
}

/// GPTQ's, with the width's own zero point or with any.
fn gptq(bits: usize, group: i64, symmetric: bool, act_order: bool, kept: &'static str) -> Case {
    let size = usize::try_from(group).unwrap_or(SHAPE[1]);
    let mut numbers = Numbers::new(bits, [64, SHAPE[1]], size, symmetric.then_some(1 << (bits - 1)));
    if act_order {
        numbers.groups = scattered(size);
    }
    let settings = json!({"quant_method": "gptq", "bits": bits, "group_size": group, "desc_act": act_order});
    let weight = weight(settings, &numbers.gptq("a.", 1, &F16));
    let what = format!("gptq, {bits} bits, groups of {group}, symmetric {symmetric}, act-order {act_order}");
    // One group has no order.
    Case { what, weight, numbers, kept: (kept, act_order && group > 0 && kept != "f32") }
}

fn awq(group: i64, symmetric: bool, scales: &Format, kept: &'static str) -> Case {
    let size = usize::try_from(group).unwrap_or(SHAPE[1]);
    let mut numbers = Numbers::new(4, SHAPE, size, symmetric.then_some(8));
    if std::ptr::eq(scales, &F32) {
        numbers.scales[0][3] = 0.1;
    }
    let settings = json!({"quant_method": "awq", "bits": 4, "group_size": group, "version": "gemm"});
    let weight = weight(settings, &numbers.awq("a.", scales));
    let what = format!("awq, groups of {group}, symmetric {symmetric}, scales in {}", scales.name);
    Case { what, weight, numbers, kept: (kept, false) }
}

fn compressed(bits: usize, size: usize, symmetric: bool, kept: &'static str) -> Case {
    let numbers = Numbers::new(bits, SHAPE, size, symmetric.then_some(1 << (bits - 1)));
    let settings = json!({"quant_method": "compressed-tensors", "format": "pack-quantized"});
    let weight = weight(settings, &numbers.compressed("a.", !symmetric, false, &F16));
    let what = format!("compressed-tensors, {bits} bits, groups of {size}, symmetric {symmetric}");
    Case { what, weight, numbers, kept: (kept, false) }
}

fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    for group in [32, 64, 128, -1] {
        for act_order in [false, true] {
            for bits in [2, 3] {
                all.extend([true, false].map(|symmetric| gptq(bits, group, symmetric, act_order, "q4_0")));
            }
            all.push(gptq(4, group, true, act_order, "q4_0"));
            all.push(gptq(4, group, false, act_order, "q5_0"));
            all.push(gptq(8, group, true, act_order, "q8_0"));
            all.push(gptq(8, group, false, act_order, "f32"));
        }
        all.push(awq(group, true, &F16, "q4_0"));
        all.push(awq(group, false, &F16, "q5_0"));
    }
    for size in [32, 128, 256] {
        all.push(compressed(4, size, true, "q4_0"));
        all.push(compressed(4, size, false, "q5_0"));
        all.push(compressed(8, size, true, "q8_0"));
        all.push(compressed(8, size, false, "f32"));
    }
    // Groups that part a block of 32, and scales that are no halves.
    all.push(gptq(4, 16, true, false, "f32"));
    all.push(gptq(4, 16, true, true, "f32"));
    all.push(awq(32, true, &F32, "f32"));
    all
}

/// `x · wᵀ`, and the size of its terms.
fn product(x: &[f32], values: &[f32], cols: usize) -> Vec<(f64, f64)> {
    let row = |x: &[f32], w: &[f32]| {
        x.iter()
            .zip(w)
            .map(|(a, b)| f64::from(*a) * f64::from(*b))
            .fold((0.0, 0.0), |(s, t), v| (s + v, t + v.abs()))
    };
    x.chunks(cols).flat_map(|x| values.chunks(cols).map(move |w| row(x, w))).collect()
}

#[test]
fn groups_stay_packed_and_multiply_as_the_file_says() {
    device::on_device(test_name!(), Nvrtc::V12, || {
        let cases = cases();
        // Single precision, and as programs have it: one to eight rows in integers, more in bf16, plain weights in single precision.
        let exact = CudaBackend::new().unwrap();
        let opened =
            CudaBackend::builder().compute(Compute::Auto).activations(Activations::Int8).build().unwrap();
        for Case { what, weight, numbers, kept: (format, ordered) } in &cases {
            let [_, rows, cols] = weight.shape;
            assert_eq!((weight.format.name, weight.input_perm.is_some()), (*format, *ordered), "{what}");
            let packed = rows * weight.format.row_bytes(cols) + if *ordered { 4 * cols } else { 0 };
            for (b, bound) in [(&exact, 1e-5), (&opened, 2f64.powi(-6))] {
                let before = b.memory_used().0;
                let w = b.upload_weight(weight).unwrap();
                let taken = b.memory_used().0 - before;
                assert_eq!(Some(taken), CudaBackend::estimate_memory([weight], None), "{what}");
                // Whole pages of the driver's.
                assert_eq!(taken, packed.next_multiple_of(2 << 20) as u64, "{what}: {packed} packed");
                for n in [1, 20] {
                    let x: Vec<f32> =
                        (0..n * cols).map(|i| ((i * 7919) % 1009) as f32 / 1009.0 - 0.5).collect();
                    let y = b.linear(&b.upload(&x, [n, cols].into()).unwrap(), &w).unwrap();
                    for (got, (want, size)) in
                        b.download(&y).unwrap().iter().zip(product(&x, &numbers.values(), cols))
                    {
                        let off = (f64::from(*got) - want).abs() / size;
                        assert!(
                            off <= bound,
                            "{what}, {n} rows: {got} and not {want}, off by {off:.1e} of its terms"
                        );
                    }
                }
            }
        }
        println!("cuda: {} ways to pack", cases.len());
    });
}
