//! Where a test of the CUDA backend runs: on the GPU of this machine if there is one, else under the emulator.
#![allow(clippy::print_stdout)]

use ogive_cuda::CudaBackend;
use ptx_emulator_launcher::{Launcher, Nvrtc, test};
use std::time::Duration;

/// Set: a test that finds neither a GPU nor the emulator fails.
const REQUIRED: &str = "OGIVE_REQUIRE_CUDA";

fn required() -> bool {
    std::env::var(REQUIRED).is_ok_and(|v| !matches!(v.as_str(), "" | "0"))
}

/// Runs `body` on a device: here, or in a process of its own under the emulator with this compiler.
pub(crate) fn on_device(name: &str, nvrtc: Nvrtc, body: impl FnOnce()) {
    if test::case().is_some() || CudaBackend::is_available() {
        return body();
    }
    let mut launcher = Launcher::new().nvrtc(nvrtc).patience(Duration::from_secs(900));
    if std::env::var_os("PTX_EMU_CHECK").is_none() {
        launcher = launcher.set("PTX_EMU_CHECK", "races");
    }
    if std::env::var_os("OGIVE_CUDA_CACHE").is_none() {
        // Not among the user's own.
        launcher = launcher.set("OGIVE_CUDA_CACHE", concat!(env!("CARGO_TARGET_TMPDIR"), "/kernels"));
    }
    match test::run(name, "cuda", &launcher) {
        Some(report) => print!("{}", report.ok().stdout),
        None => assert!(!required(), "{name}: neither a GPU nor the emulator is here, but {REQUIRED} is set"),
    }
}
