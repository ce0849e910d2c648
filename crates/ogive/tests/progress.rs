//! What is heard while a model is opened.

use ogive::{Device, Options};
use std::sync::{Arc, Mutex};

/// A model of the repository, of another crate's tests.
const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/llama");

#[test]
fn progress_rises_to_the_whole() {
    let heard: Arc<Mutex<Vec<(u64, u64)>>> = Arc::default();
    let to = Arc::clone(&heard);
    let options = Options::new().device(Device::Cpu).progress(move |done, total| {
        to.lock().unwrap().push((done, total));
    });
    options.estimate_memory(MODEL).unwrap();
    assert_eq!(*heard.lock().unwrap(), [], "an estimate loads nothing");

    options.open(MODEL).unwrap();
    let heard = heard.lock().unwrap();
    let tensors = options.checkpoint(MODEL).unwrap().source.tensors();
    let total = tensors.iter().map(|t| t.bytes() as u64).sum();
    assert!(heard.is_sorted() && heard.iter().all(|(_, of)| *of == total), "{heard:?}");
    assert_eq!((heard.first(), heard.last()), (Some(&(0, total)), Some(&(total, total))));
    // Before each tensor, and at the end: so one that is waited for is the next to be heard of.
    assert!(heard.len() > tensors.len(), "{} calls for {} tensors", heard.len(), tensors.len());
}
