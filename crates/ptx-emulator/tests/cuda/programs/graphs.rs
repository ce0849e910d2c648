//! Graphs: captured once, launched often; forks; what may not be captured.
#![allow(unsafe_code)]

use cudarc::driver::sys::{CUgraphInstantiate_flags, CUresult, CUstreamCaptureMode, CUstreamCaptureStatus};
use ptx_emulator_launcher::test_name;

use crate::support::{args, everywhere, source};

const MODE: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;

#[test]
fn graphs_run_again_and_again() {
    everywhere(test_name!(), source!("steps.cu"), 61, |gpu| {
        let (x, mut factor) = (gpu.up(&[1f32; 64]), gpu.up(&[2f32]));
        gpu.stream.synchronize().unwrap();
        gpu.stream.begin_capture(MODE).unwrap();
        gpu.run("scale_by", 1, 64, 0, args![&x, &factor, 64]);
        gpu.run("scale_add", 1, 64, 0, args![&x, 1f32, 1f32, 64]);
        let graph = gpu.stream.end_capture(CUgraphInstantiate_flags(0)).unwrap().unwrap();
        assert_eq!(gpu.down(&x), [1.0; 64], "a capture runs nothing");
        graph.launch().unwrap();
        graph.launch().unwrap();
        assert_eq!(gpu.down(&x), [7.0; 64]);
        gpu.stream.memcpy_htod(&[10f32], &mut factor).unwrap();
        graph.launch().unwrap();
        assert_eq!(gpu.down(&x), [71.0; 64]);
    });
}

#[test]
fn a_capture_forks_and_joins() {
    everywhere(test_name!(), source!("steps.cu"), 61, |gpu| {
        let other = gpu.other_stream();
        let (x, y, z) = (gpu.fresh::<f32>(64), gpu.fresh::<f32>(64), gpu.fresh::<f32>(64));
        gpu.stream.synchronize().unwrap();
        gpu.stream.begin_capture(MODE).unwrap();
        gpu.run("fill", 1, 64, 0, args![&x, 3f32, 64]);
        let fork = gpu.stream.record_event(None).unwrap();
        other.stream.wait(&fork).unwrap();
        other.run("fill", 1, 64, 0, args![&y, 4f32, 64]);
        gpu.run("scale_add", 1, 64, 0, args![&x, 2f32, 0f32, 64]);
        let join = other.stream.record_event(None).unwrap();
        gpu.stream.wait(&join).unwrap();
        gpu.run("add", 1, 64, 0, args![&x, &y, &z, 64]);
        let graph = gpu.stream.end_capture(CUgraphInstantiate_flags(0)).unwrap().unwrap();
        graph.launch().unwrap();
        assert_eq!(gpu.down(&z), [10.0; 64]);
    });
}

#[test]
fn waiting_breaks_a_capture() {
    everywhere(test_name!(), source!("steps.cu"), 61, |gpu| {
        let x = gpu.up(&[1f32; 64]);
        gpu.stream.synchronize().unwrap();
        gpu.stream.begin_capture(MODE).unwrap();
        gpu.run("scale_add", 1, 64, 0, args![&x, 2f32, 0f32, 64]);
        let waited = gpu.stream.synchronize().unwrap_err();
        assert_eq!(waited.0, CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        let status = gpu.stream.capture_status().unwrap();
        assert_eq!(status, CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_INVALIDATED);
        let ended = gpu.stream.end_capture(CUgraphInstantiate_flags(0)).map(|_| ()).unwrap_err();
        assert_eq!(ended.0, CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        // The stream is as good as before.
        gpu.run("scale_add", 1, 64, 0, args![&x, 3f32, 0f32, 64]);
        assert_eq!(gpu.down(&x), [3.0; 64]);
    });
}
