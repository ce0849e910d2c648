//! How fast packed checkpoints become weights, on one thread, by the time that it had a processor (Linux tells):
//! `cargo test --release -p ogive-weights --test packed_speed -- --ignored --nocapture`.

#[path = "common/packer.rs"]
mod packer;

use ogive_tensor::serde_json::{Value, json};
use ogive_tensor::{Config, F16};
use ogive_weights::Safetensors;
use packer::{Numbers, Tensor, file};
use std::{hint::black_box, sync::Arc};

/// Seconds that this thread has run.
fn on_cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(f64::NAN) / 1e9
}

#[test]
#[ignore = "measures"]
#[allow(clippy::print_stdout, reason = "it measures")]
fn packed_weights_are_repacked() {
    // The largest matrix of a 7B model, and the same with few rows.
    for shape in [[11008, 4096], [4096, 11008]] {
        let scattered = |mut numbers: Numbers| {
            numbers.groups = (0..shape[1]).map(|c| ((c * 37) % shape[1] / 128) as u32).collect();
            numbers
        };
        let gptq = |bits: usize| json!({"quant_method": "gptq", "bits": bits, "group_size": 128});
        let awq = json!({"quant_method": "awq", "bits": 4, "group_size": 128});
        let compressed = json!({"quant_method": "compressed-tensors", "format": "pack-quantized"});
        let of = |bits, zero| Numbers::new(bits, shape, 128, zero);
        let cases: [(&str, Value, Vec<Tensor>); 7] = [
            ("gptq, 4 bits", gptq(4), of(4, Some(8)).gptq("a.", 1, &F16)),
            ("gptq, 4 bits, asymmetric", gptq(4), of(4, None).gptq("a.", 1, &F16)),
            ("gptq, 4 bits, act-order", gptq(4), scattered(of(4, Some(8))).gptq("a.", 1, &F16)),
            ("gptq, 3 bits", gptq(3), of(3, None).gptq("a.", 1, &F16)),
            ("gptq, 8 bits", gptq(8), of(8, Some(128)).gptq("a.", 1, &F16)),
            ("awq", awq, of(4, None).awq("a.", &F16)),
            ("compressed-tensors, 4 bits", compressed, of(4, Some(8)).compressed("a.", false, false, &F16)),
        ];
        for (name, settings, tensors) in cases {
            let bytes = Arc::new(file(&tensors));
            let mut best = f64::MAX;
            let mut made = 0;
            for _ in 0..7 {
                let files = Safetensors::from_bytes(Arc::clone(&bytes) as _).unwrap();
                let source = files.with_config(&Config(json!({"quantization_config": settings}))).unwrap();
                let begin = on_cpu();
                let weight = source.get("a.weight").unwrap();
                made = black_box(&*weight.bytes).len();
                best = best.min(on_cpu() - begin);
            }
            let rate = |bytes: usize| bytes as f64 / best / 1e9;
            println!(
                "{shape:?} {name:28} {:5.2} GB/s read, {:5.2} GB/s written",
                rate(bytes.len()),
                rate(made)
            );
        }
    }
}
