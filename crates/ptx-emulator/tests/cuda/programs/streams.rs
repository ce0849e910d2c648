//! Streams and what orders them: events, the default stream, dependent launches; host memory in flight.
#![allow(unsafe_code)]

use ptx_emulator_launcher::test_name;

use crate::support::gpu::address;
use crate::support::{Arg, Gpu, Random, args, everywhere, source};

const N: usize = 1000;

fn steps(gpu: &Gpu, kernel: &str, args: &[Arg<'_>]) {
    gpu.run(kernel, 8, 128, 0, args);
}

#[test]
fn events_order_streams() {
    everywhere(test_name!(), source!("steps.cu"), 61, |gpu| {
        let other = gpu.other_stream();
        let (x, y, z) = (gpu.fresh::<f32>(N), gpu.fresh::<f32>(N), gpu.fresh::<f32>(N));
        gpu.stream.synchronize().unwrap();
        for round in 0..3 {
            steps(gpu, "fill", args![&x, round as f32, 1000]);
            steps(gpu, "scale_add", args![&x, 2f32, 1f32, 1000]);
            let made = gpu.stream.record_event(None).unwrap();
            steps(&other, "fill", args![&y, 10f32, 1000]);
            other.stream.wait(&made).unwrap();
            steps(&other, "add", args![&x, &y, &z, 1000]);
            // The next round overwrites x: not before it was read.
            let read = other.stream.record_event(None).unwrap();
            gpu.stream.wait(&read).unwrap();
            let got = other.down(&z);
            assert_eq!(got, vec![round as f32 * 2.0 + 11.0; N]);
        }
        gpu.stream.synchronize().unwrap();
    });
}

#[test]
fn the_default_stream_waits_for_all() {
    everywhere(test_name!(), source!("steps.cu"), 61, |gpu| {
        use cudarc::driver::sys;
        let x = gpu.fresh::<f32>(N);
        gpu.stream.synchronize().unwrap();
        let mut blocking: sys::CUstream = std::ptr::null_mut();
        // SAFETY: the flags are the default ones; the stream is destroyed below, after its work.
        unsafe { sys::cuStreamCreate(&raw mut blocking, 0) }.result().unwrap();
        // SAFETY: the memory lives until both streams are waited for.
        unsafe { sys::cuMemsetD32Async(address(&x), 1f32.to_bits(), N, blocking) }.result().unwrap();
        let default = Gpu::on(gpu, gpu.context.default_stream());
        steps(&default, "scale_add", args![&x, 3f32, 2f32, 1000]);
        // SAFETY: as above; the copy goes from the first half to the second.
        unsafe { sys::cuMemcpyDtoDAsync_v2(address(&x) + 2000, address(&x), 2000, blocking) }
            .result()
            .unwrap();
        // SAFETY: made above.
        unsafe { sys::cuStreamSynchronize(blocking) }.result().unwrap();
        assert_eq!(default.down(&x), vec![5.0; N]);
        // SAFETY: made above, and its work is done.
        unsafe { sys::cuStreamDestroy_v2(blocking) }.result().unwrap();
    });
}

#[test]
fn pinned_memory_in_turns() {
    everywhere(test_name!(), source!("steps.cu"), 61, |gpu| {
        // SAFETY: written in full before it is read.
        let mut pinned = [(); 2].map(|()| unsafe { gpu.context.alloc_pinned::<f32>(N) }.unwrap());
        let mut x = gpu.fresh::<f32>(N);
        let mut done: [Option<cudarc::driver::CudaEvent>; 2] = [None, None];
        let total = gpu.zeros::<f32>(N);
        for round in 0..5usize {
            let turn = round % 2;
            // The buffer may be written again when the copy before last has read it.
            if let Some(done) = &done[turn] {
                done.synchronize().unwrap();
            }
            pinned[turn].as_mut_slice().unwrap().fill((round + 1) as f32);
            gpu.stream.memcpy_htod(&pinned[turn], &mut x).unwrap();
            done[turn] = Some(gpu.stream.record_event(None).unwrap());
            steps(gpu, "add", args![&x, &total, &total, 1000]);
        }
        assert_eq!(gpu.down(&total), vec![15.0; N]);
    });
}

#[test]
fn dependent_launches() {
    everywhere(test_name!(), source!("dependent.cu"), 90, |gpu| {
        let n = 500;
        let mut random = Random::new(30);
        let weights = random.floats(n);
        let mut x = random.floats(n);
        let device = gpu.up(&weights);
        let buffers = [gpu.up(&x), gpu.fresh::<f32>(n), gpu.fresh::<f32>(n)];
        for i in 0..5 {
            let (before, after) = (&buffers[i % 3], &buffers[(i + 1) % 3]);
            gpu.launch_dependent("link", 4, 128, args![&device, before, after, 500]);
            x = (0..n).map(|i| x[n - 1 - i].mul_add(weights[i], 1.0)).collect();
        }
        assert_eq!(gpu.down(&buffers[5 % 3]), x);
    });
}
