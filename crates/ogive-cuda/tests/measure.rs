//! Times and ceilings: that they are of what was done. How large they are means nothing under the emulator.

mod common;

use ogive_cuda::{CudaBackend, measure::Mark};
use ptx_emulator_launcher::{Nvrtc, test_name};
use std::time::Duration;

#[test]
fn copies_copy_and_marks_are_in_order() {
    common::on_device(test_name!(), Nvrtc::V12, || {
        let cuda = CudaBackend::new().unwrap();
        for bytes in [1, 16, 4096 + 16, 70_000] {
            let memory = cuda.stretch(bytes).unwrap();
            assert_eq!(memory.bytes(), bytes.next_multiple_of(16));
            assert!(!memory.is_copied().unwrap(), "{bytes}: both halves were equal before");
            memory.read().unwrap();
            assert!(!memory.is_copied().unwrap(), "{bytes}: reading wrote");
            memory.copy_by_kernel().unwrap();
            assert!(memory.is_copied().unwrap(), "{bytes}: by our kernel");
            let other = cuda.stretch(bytes).unwrap();
            other.copy().unwrap();
            assert!(other.is_copied().unwrap(), "{bytes}: by the driver");
        }
        let memory = cuda.stretch(1 << 16).unwrap();
        let first = Mark::now(&cuda).unwrap();
        memory.copy_by_kernel().unwrap();
        let second = Mark::now(&cuda).unwrap();
        memory.copy_by_kernel().unwrap();
        let third = Mark::now(&cuda).unwrap();
        let (one, both) = (second.since(&first).unwrap(), third.since(&first).unwrap());
        assert!(both >= one && both > Duration::ZERO, "{one:?} of {both:?}");
    });
}

#[test]
fn cublas_multiplies() {
    common::on_device(test_name!(), Nvrtc::V12, || {
        let cuda = CudaBackend::new().unwrap();
        let blas = match cuda.blas() {
            Ok(blas) => blas,
            Err(why) => {
                assert!(why.to_string().contains("cuBLAS"), "{why}");
                return;
            }
        };
        assert!(blas.version()[0] >= 11, "{:?}", blas.version());
        let product = blas.product(16, 24, 32).unwrap();
        assert!((product.operations() - 2.0 * 16.0 * 24.0 * 32.0).abs() < 0.5);
        product.compute().unwrap();
        cuda.synchronize().unwrap();
        assert!(blas.product(usize::MAX, 1, 1).is_err());
    });
}
