//! What the fuzzer and the tests of damaged files do with bytes: open them, and look at everything.
//!
//! By itself in a file, because the fuzz target includes it and has none of the tests' other helpers.

use ogive_weights::Safetensors;
use ogive_weights::tensor::{Config, Source, WeightInfo, serde_json};
use std::sync::Arc;

/// Ways of packing that the bytes are read as.
const METHODS: [&str; 9] = [
    r#"{"quant_method": "mxfp4"}"#,
    r#"{"quant_method": "gptq", "bits": 4, "group_size": 32}"#,
    r#"{"quant_method": "gptq", "bits": 3, "group_size": 32}"#,
    r#"{"quant_method": "gptq", "bits": 2, "group_size": -1, "checkpoint_format": "gptq_v2"}"#,
    r#"{"quant_method": "awq", "bits": 4, "group_size": 32}"#,
    r#"{"quant_method": "awq", "bits": 4, "group_size": -1}"#,
    r#"{"quant_method": "compressed-tensors", "format": "pack-quantized"}"#,
    r#"{"quant_method": "fp8", "weight_block_size": [2, 4]}"#,
    r#"{"quant_method": "compressed-tensors", "format": "float-quantized"}"#,
];

/// Opens the bytes as a safetensors file. What opens must be whole: every listed tensor can be had, has the shape and
/// format that the list says, lies within the file and decodes. Says whether it opened.
pub(crate) fn touch(bytes: &[u8]) -> bool {
    let Ok(source) = Safetensors::from_bytes(Arc::new(bytes.to_vec())) else { return false };
    let mut most = bytes.len();
    for info in source.tensors() {
        let len = look(&source, &info);
        most = most.checked_sub(len).expect("tensors do not overlap");
    }
    for method in METHODS {
        let method: serde_json::Value = serde_json::from_str(method).expect("settings");
        let config = Config(serde_json::json!({"quantization_config": method}));
        let files = Safetensors::from_bytes(Arc::new(bytes.to_vec())).expect("it has opened");
        // It may have a weight twice.
        let Ok(source) = files.with_config(&config) else { continue };
        for info in source.tensors() {
            // Two bits become a single, and each byte of the file may be in a packed weight and its scales.
            assert!(look(&*source, &info) <= 16 * bytes.len());
        }
    }
    assert!(source.get("no tensor of this name").unwrap_err().is_missing());
    true
}

/// Looks at a listed tensor; gives its bytes' number.
fn look(source: &dyn Source, info: &WeightInfo) -> usize {
    let weight = source.get(&info.name).expect("a listed tensor can be had");
    assert_eq!((weight.shape, weight.format), (info.shape, info.format));
    assert_eq!(weight.bytes.len(), info.bytes());
    assert_eq!(weight.to_vec().len(), info.elements());
    weight.bytes.len()
}
