//! Devices: several of them, their limits, and how they fail.

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{CUdevice_attribute, CUresult};
use ptx_emulator_launcher::{test, test_name};

use crate::support::nvrtc::Compiler;
use crate::support::run::again;
use crate::support::{Gpu, args, in_all_settings};

/// A module with the kernels of `steps.cu`.
fn steps() -> String {
    Compiler::new(ptx_emulator_launcher::Nvrtc::V12).compile(
        "steps.cu",
        include_str!("steps.cu"),
        61,
        &[],
        &[],
    )
}

#[test]
fn every_device_is_what_it_says() {
    in_all_settings(test_name!(), || {
        let ptx = steps();
        let mut seen = Vec::new();
        for ordinal in 0..CudaContext::device_count().unwrap() {
            let context = CudaContext::new(usize::try_from(ordinal).unwrap()).unwrap();
            let (major, minor) = context.compute_capability().unwrap();
            assert!(context.total_mem().unwrap() > 1 << 30);
            assert_eq!(context.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE).unwrap(), 32);
            let arch = u32::try_from(major * 10 + minor).unwrap();
            let gpu = Gpu::open(arch).with(&ptx);
            let x = gpu.up(&[f32::from(u16::try_from(arch).unwrap()); 10]);
            gpu.run("scale_add", 1, 32, 0, args![&x, 1f32, 1f32, 10]);
            seen.push((arch, gpu.down(&x)));
        }
        for (arch, values) in &seen {
            assert_eq!(*values, [*arch as f32 + 1.0; 10]);
        }
        let archs: Vec<u32> = seen.iter().map(|(arch, _)| *arch).collect();
        assert_eq!(archs, [61, 75, 80, 90, 120]);
    });
}

#[test]
fn launches_beyond_the_limits_are_refused() {
    in_all_settings(test_name!(), || {
        let gpu = Gpu::open(80).with(&steps());
        let x = gpu.up(&[1f32; 10]);
        let refused = |grid, block, shared| {
            gpu.try_launch("fill", grid, block, shared, args![&x, 0f32, 10], false).unwrap_err().0
        };
        let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
        assert_eq!(refused((1, 1, 1), (1025, 1, 1), 0), invalid);
        assert_eq!(refused((0, 1, 1), (32, 1, 1), 0), invalid);
        assert_eq!(refused((1, 65536, 1), (32, 1, 1), 0), invalid);
        assert_eq!(refused((1, 1, 1), (1, 1, 65), 0), invalid);
        let all_at_once = gpu.try_launch("fill", (1 << 20, 1, 1), (1024, 1, 1), 0, args![&x, 0f32, 10], true);
        assert_eq!(all_at_once.unwrap_err().0, CUresult::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
        assert_eq!(gpu.down(&x), [1.0; 10], "nothing ran");
    });
}

#[test]
fn a_fault_stays() {
    if test::case().is_none() {
        let Some(report) = again(test_name!(), "fault", &[]) else { return };
        report.ok();
        return;
    }
    let gpu = Gpu::open(80).with(&steps());
    let x = gpu.up(&[1f32; 32]);
    gpu.run("fail", 1, 32, 0, args![&x]);
    let illegal = CUresult::CUDA_ERROR_ILLEGAL_ADDRESS;
    assert_eq!(gpu.stream.synchronize().unwrap_err().0, illegal);
    assert_eq!(
        gpu.try_launch("fill", (1, 1, 1), (32, 1, 1), 0, args![&x, 0f32, 10], false).unwrap_err().0,
        illegal
    );
    // What is left is lost with the process; giving it back would only fail too.
    std::mem::forget((gpu, x));
}

#[test]
fn memory_runs_out() {
    if test::case().is_none() {
        for (case, settings) in
            [("64 MiB", ("PTX_EMU_FAULT", "memory:64M")), ("third", ("PTX_EMU_FAULT", "alloc:3"))]
        {
            let Some(report) = again(test_name!(), case, &[settings]) else { return };
            report.ok();
        }
        return;
    }
    let gpu = Gpu::open(80);
    let mut kept = Vec::new();
    let error = loop {
        match gpu.stream.alloc_zeros::<u8>(10 << 20) {
            Ok(slice) => kept.push(slice),
            Err(error) => break error,
        }
    };
    assert_eq!(error.0, CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    let fitted = if test::case().as_deref() == Some("third") { 2 } else { 6 };
    assert!(kept.len() == fitted || kept.len() + 1 == fitted, "{}", kept.len());
    // An allocation that failed has done no harm.
    kept.pop();
    assert!(gpu.stream.alloc_zeros::<u8>(10 << 20).is_ok());
}

#[test]
fn no_device() {
    if test::case().is_none() {
        let Some(report) = again(test_name!(), "none", &[("PTX_EMU_DEVICES", "none")]) else { return };
        report.ok();
        return;
    }
    assert_eq!(CudaContext::new(0).unwrap_err().0, CUresult::CUDA_ERROR_NO_DEVICE);
}
