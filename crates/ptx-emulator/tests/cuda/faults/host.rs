//! Faults of the host: what it does too early, twice, or not at all.
#![allow(unsafe_code)]

use cudarc::cublas::result::sgemm;
use cudarc::cublas::sys::cublasOperation_t::CUBLAS_OP_N;
use cudarc::driver::sys::{self, CUresult, CUstreamCaptureMode};
use ptx_emulator_launcher::{Nvrtc, test, test_name};

use crate::support::gpu::address;
use crate::support::nvrtc::Compiler;
use crate::support::run::again;
use crate::support::{Gpu, args};

/// Runs `program` with the fault and without it; `wrong` judges what the first printed, the second must be silent.
#[track_caller]
fn find(
    name: &str,
    settings: &[(&str, &str)],
    program: impl Fn(bool),
    found: impl Fn(&test::Report) -> bool,
) {
    if let Some(case) = test::case() {
        return program(case == "planted");
    }
    let mut all = vec![("PTX_EMU_CHECK", "1"), ("PTX_EMU_SCHEDULE", "adversarial"), ("PTX_EMU_IDLE_MS", "0")];
    all.extend(settings);
    let Some(twin) = again(name, "twin", &all) else { return };
    let twin = twin.ok();
    assert!(!twin.stderr.contains("ptx-emulator:"), "the twin is reported:\n{}", twin.stderr);
    // Calls that are refused say why in a trace.
    all.push(("PTX_EMU_TRACE", "1"));
    let Some(planted) = again(name, "planted", &all) else { return };
    assert!(found(&planted), "{}\n{}\n{}", planted.ending, planted.stdout, planted.stderr);
}

/// The report says all of these words.
fn says(words: &[&str]) -> impl Fn(&test::Report) -> bool {
    move |report| words.iter().all(|word| report.stderr.contains(word))
}

/// The program's own comparison failed: the wrong order was taken, as a GPU may take it.
fn shows(report: &test::Report) -> bool {
    !report.passed && report.stderr.contains("assertion")
}

#[test]
fn host_reads_without_waiting() {
    let program = |planted: bool| {
        let gpu = Gpu::open(80);
        let x = gpu.up(&[5f32; 64]);
        gpu.stream.synchronize().unwrap();
        // SAFETY: written in full before it is read, and given back after all work.
        let mut pinned = unsafe { gpu.context.alloc_pinned::<f32>(64) }.unwrap();
        pinned.as_mut_slice().unwrap().fill(0.0);
        let to = pinned.as_mut_ptr().unwrap();
        // SAFETY: both are 256 bytes long.
        unsafe { sys::cuMemcpyDtoHAsync_v2(to.cast(), address(&x), 256, gpu.stream.cu_stream()) }
            .result()
            .unwrap();
        if !planted {
            gpu.stream.synchronize().unwrap();
        }
        // SAFETY: the emulator may be writing it, which is the fault; a float is a float whatever its bits.
        let seen = unsafe { std::ptr::read_volatile(to) };
        gpu.stream.synchronize().unwrap();
        assert_eq!(seen, 5.0);
    };
    find(test_name!(), &[], program, shows);
}

#[test]
fn pinned_memory_overwritten_too_early() {
    let program = |planted: bool| {
        let gpu = Gpu::open(80);
        let x = gpu.fresh::<f32>(64);
        // SAFETY: written in full before it is read, and given back after all work.
        let mut pinned = unsafe { gpu.context.alloc_pinned::<f32>(64) }.unwrap();
        pinned.as_mut_slice().unwrap().fill(1.0);
        let from = pinned.as_mut_ptr().unwrap();
        // SAFETY: both are 256 bytes long.
        unsafe { sys::cuMemcpyHtoDAsync_v2(address(&x), from.cast(), 256, gpu.stream.cu_stream()) }
            .result()
            .unwrap();
        if !planted {
            gpu.stream.synchronize().unwrap();
        }
        // SAFETY: the copy may be reading it, which is the fault.
        unsafe { std::ptr::write_volatile(from, 2.0) };
        assert_eq!(gpu.down(&x), [1.0; 64]);
    };
    find(test_name!(), &[], program, shows);
}

#[test]
fn leak() {
    let program = |planted: bool| {
        let gpu = Gpu::open(80);
        let x = gpu.up(&[1f32; 100]);
        gpu.stream.synchronize().unwrap();
        if planted {
            std::mem::forget(x);
        }
    };
    find(test_name!(), &[], program, says(&["ptx-emulator:", "400"]));
}

#[test]
fn double_free() {
    let program = |planted: bool| {
        let gpu = Gpu::open(80);
        let mut at = 0;
        // SAFETY: an address to be given back below.
        unsafe { sys::cuMemAlloc_v2(&raw mut at, 64) }.result().unwrap();
        // SAFETY: nothing uses the memory.
        unsafe { sys::cuMemFree_v2(at) }.result().unwrap();
        if planted {
            // SAFETY: the fault; the emulator knows that the address is free.
            let again = unsafe { sys::cuMemFree_v2(at) };
            assert_eq!(again, CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        drop(gpu);
    };
    find(test_name!(), &[], program, says(&["ptx-emulator:", "freed"]));
}

#[test]
fn allocation_while_capturing() {
    let program = |planted: bool| {
        let gpu = Gpu::open(80);
        gpu.stream.synchronize().unwrap();
        gpu.stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL).unwrap();
        let mut at = 0;
        if planted {
            // SAFETY: it must fail.
            let refused = unsafe { sys::cuMemAlloc_v2(&raw mut at, 64) };
            assert_eq!(refused, CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
        let ended = gpu.stream.end_capture(sys::CUgraphInstantiate_flags(0)).map(|_| ());
        assert_eq!(ended.is_err(), planted);
    };
    find(test_name!(), &[], program, says(&["ptx-emulator:", "captur"]));
}

#[test]
fn wrong_leading_dimension() {
    let program = |planted: bool| {
        let gpu = Gpu::open(80);
        let blas = cudarc::cublas::CudaBlas::new(gpu.stream.clone()).unwrap();
        let (a, b, c) = (gpu.up(&[1f32; 64]), gpu.up(&[1f32; 64]), gpu.fresh::<f32>(64));
        gpu.stream.synchronize().unwrap();
        let lda = if planted { 7 } else { 8 };
        let (one, zero) = (1f32, 0f32);
        let (pa, pb, pc) = (address(&a) as *const f32, address(&b) as *const f32, address(&c) as *mut f32);
        // SAFETY: three matrices of 8 × 8; a leading dimension below 8 must be refused.
        let outcome = unsafe {
            sgemm(
                *blas.handle(),
                CUBLAS_OP_N,
                CUBLAS_OP_N,
                8,
                8,
                8,
                &raw const one,
                pa,
                lda,
                pb,
                8,
                &raw const zero,
                pc,
                8,
            )
        };
        assert_eq!(outcome.is_err(), planted);
    };
    find(test_name!(), &[], program, says(&["cublasSgemm_v2 = CUBLAS_STATUS_INVALID_VALUE"]));
}

#[test]
fn copy_beyond_the_end() {
    let program = |planted: bool| {
        let gpu = Gpu::open(80);
        let (x, y) = (gpu.up(&[1f32; 64]), gpu.fresh::<f32>(64));
        let bytes = if planted { 260 } else { 256 };
        // SAFETY: the emulator compares the sizes with the allocations.
        let queued =
            unsafe { sys::cuMemcpyDtoDAsync_v2(address(&y), address(&x), bytes, gpu.stream.cu_stream()) };
        let done = gpu.stream.synchronize();
        assert_eq!(queued != CUresult::CUDA_SUCCESS || done.is_err(), planted);
        if planted {
            std::mem::forget((gpu, x, y));
        }
    };
    find(test_name!(), &[], program, says(&["ptx-emulator:", "256-byte"]));
}

#[test]
fn copy_onto_itself() {
    let program = |planted: bool| {
        let gpu = Gpu::open(80);
        let x = gpu.up(&[1f32; 64]);
        let (from, to) = (address(&x), address(&x) + if planted { 124 } else { 128 });
        // SAFETY: both lie within the allocation; that they overlap is the fault, which the emulator looks for.
        unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, 128, gpu.stream.cu_stream()) }.result().unwrap();
        assert_eq!(gpu.stream.synchronize().is_err(), planted);
        if planted {
            std::mem::forget((gpu, x));
        }
    };
    find(test_name!(), &[], program, says(&["ptx-emulator:", "onto itself"]));
}

/// The kernels of `grids.cu` on one stream and another.
fn two_streams() -> (Gpu, Gpu) {
    let source = include_str!("grids.cu");
    let ptx = Compiler::new(Nvrtc::V12).compile("grids.cu", source, 80, &["PLANTED=0"], &[]);
    let gpu = Gpu::open(80).with(&ptx);
    let other = gpu.other_stream();
    (gpu, other)
}

#[test]
fn missing_event_shows_in_the_result() {
    let program = |planted: bool| {
        let (gpu, other) = two_streams();
        let (x, y) = (gpu.up(&[0f32; 64]), gpu.fresh::<f32>(64));
        gpu.stream.synchronize().unwrap();
        gpu.run("fill", 1, 64, 0, args![&x, 3f32]);
        if !planted {
            other.stream.wait(&gpu.stream.record_event(None).unwrap()).unwrap();
        }
        other.run("twice", 1, 64, 0, args![&x, &y]);
        let seen = other.down(&y);
        gpu.stream.synchronize().unwrap();
        assert_eq!(seen, [6.0; 64]);
    };
    find(test_name!(), &[], program, shows);
}

#[test]
fn launch_too_big() {
    let program = |planted: bool| {
        let (gpu, _) = two_streams();
        let x = gpu.fresh::<f32>(2048);
        let threads = if planted { 2048 } else { 1024 };
        let launched = gpu.try_launch("fill", (1, 1, 1), (threads, 1, 1), 0, args![&x, 1f32], false);
        assert_eq!(launched.is_err(), planted);
    };
    find(test_name!(), &[], program, says(&["cuLaunchKernel", "1024"]));
}
