//! Where a test runs: on the GPU of this machine if there is one, else under the emulator.
//!
//! The emulator takes the driver's place for a whole process, so a test that wants it starts itself again.
#![allow(clippy::print_stdout)]

use ogive_backend::tensor::{FEW_BITS, FORMATS, IQ2_S};
use ogive_conformance::Options;
use ogive_cuda::CudaBackend;
use ptx_emulator_launcher::{Launcher, Nvrtc, test};
use std::time::Duration;

/// Set: a test that finds neither a GPU nor the emulator fails.
const REQUIRED: &str = "OGIVE_REQUIRE_CUDA";

fn required() -> bool {
    std::env::var(REQUIRED).is_ok_and(|v| !matches!(v.as_str(), "" | "0"))
}

/// Runs `body` on a device: here if there is one, else in a process of its own under the emulator with this compiler.
#[allow(dead_code)] // not every test program wants it
pub(crate) fn on_device(name: &str, nvrtc: Nvrtc, body: impl FnOnce()) {
    on_kind(name, nvrtc, None, body);
}

/// The same; the emulator stands for this kind of device, as `sm_75`.
#[allow(dead_code)] // not every test program wants it
pub(crate) fn on_kind(name: &str, nvrtc: Nvrtc, kind: Option<&str>, body: impl FnOnce()) {
    on_kind_with(name, nvrtc, kind, &[], body);
}

/// The same, with these variables besides.
#[allow(dead_code)]
pub(crate) fn on_kind_with(
    name: &str,
    nvrtc: Nvrtc,
    kind: Option<&str>,
    variables: &[(&str, &str)],
    body: impl FnOnce(),
) {
    if test::case().is_some() || CudaBackend::is_available() {
        // The harness has begun a line.
        println!();
        return body();
    }
    let mut launcher = Launcher::new().nvrtc(nvrtc).patience(Duration::from_secs(3600));
    if let Some(kind) = kind {
        launcher = launcher.set("PTX_EMU_DEVICES", kind);
    }
    for (variable, value) in variables {
        launcher = launcher.set(variable, value);
    }
    if std::env::var_os("PTX_EMU_CHECK").is_none() {
        launcher = launcher.set("PTX_EMU_CHECK", "races");
    }
    if std::env::var_os("OGIVE_CUDA_CACHE").is_none() {
        // Not among the user's own.
        launcher = launcher.set("OGIVE_CUDA_CACHE", concat!(env!("CARGO_TARGET_TMPDIR"), "/kernels"));
    }
    match test::run(name, &format!("nvrtc {nvrtc}"), &launcher) {
        Some(report) => {
            let report = report.ok();
            report.stdout.lines().filter(|l| l.starts_with("cuda:")).for_each(|l| println!("{l}"));
        }
        None => assert!(!required(), "{name}: neither a GPU nor the emulator is here, but {REQUIRED} is set"),
    }
}

/// The suite with one format of few bits: they are one source but for how a block is read, and the suite itself runs with all of them.
#[allow(dead_code)] // not every test program wants it
pub(crate) fn with_one_of_few_bits() -> Options {
    let is_few = |format| FEW_BITS.contains(&format) && format != &IQ2_S;
    Options::new().formats(FORMATS.iter().copied().filter(|format| !is_few(*format)).collect())
}
