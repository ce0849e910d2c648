//! What the fuzzer and the tests of damaged files do with bytes: open them, and look at everything.
//!
//! By itself in a file, because the fuzz target includes it and has none of the tests' other helpers.

use ogive_weights::Safetensors;
use ogive_weights::tensor::Source;
use std::sync::Arc;

/// Opens the bytes as a safetensors file. What opens must be whole: every listed tensor can be had, has the shape and
/// format that the list says, lies within the file and decodes. Says whether it opened.
pub(crate) fn touch(bytes: &[u8]) -> bool {
    let Ok(source) = Safetensors::from_bytes(Arc::new(bytes.to_vec())) else { return false };
    let mut most = bytes.len();
    for info in source.tensors() {
        let weight = source.get(&info.name).expect("a listed tensor can be had");
        assert_eq!((weight.shape, weight.format), (info.shape, info.format));
        assert_eq!(weight.bytes.len(), info.bytes());
        most = most.checked_sub(weight.bytes.len()).expect("tensors do not overlap");
        assert_eq!(weight.to_vec().len(), info.elements());
    }
    assert!(source.get("no tensor of this name").unwrap_err().is_missing());
    true
}
