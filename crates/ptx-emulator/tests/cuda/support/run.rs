//! Tests that run again under the emulator, and kernels that run on every compiler and architecture.

use std::collections::BTreeMap;

use ptx_emulator_launcher::test::{self, Report};
use ptx_emulator_launcher::{Launcher, Nvrtc};

use super::gpu::Gpu;
use super::nvrtc::Compiler;

/// A kernel's file: its name and text.
pub(crate) type Source = (&'static str, &'static str);

/// The `.cu` file beside the test.
macro_rules! source {
    ($name:literal) => {
        ($name, include_str!($name))
    };
}
pub(crate) use source;

/// Every architecture's device at once; a test takes the one it is for.
pub(crate) const DEVICES: &str = "sm_61,sm_75,sm_80,sm_90,sm_120";

/// The settings under which everything must hold. Seeds draw the order of blocks and streams.
const RUNS: [&[(&str, &str)]; 3] = [
    &[
        ("PTX_EMU_SEED", "1"),
        ("PTX_EMU_WORKERS", "2"),
        ("PTX_EMU_CHECK", "1"),
        ("PTX_EMU_SCHEDULE", "adversarial"),
    ],
    &[("PTX_EMU_SEED", "2"), ("PTX_EMU_WORKERS", "3"), ("PTX_EMU_SCHEDULE", "random")],
    &[
        ("PTX_EMU_SEED", "3"),
        ("PTX_EMU_WORKERS", "1"),
        ("PTX_EMU_CHECK", "races"),
        ("PTX_EMU_SCHEDULE", "lazy"),
    ],
];

/// Runs the test `name` again as `case` with these settings; `None` where it had to be skipped.
#[track_caller]
pub(crate) fn again(name: &str, case: &str, settings: &[(&str, &str)]) -> Option<Report> {
    let mut launcher = Launcher::new().every_nvrtc();
    if !settings.iter().any(|(name, _)| *name == "PTX_EMU_DEVICES") {
        launcher = launcher.set("PTX_EMU_DEVICES", DEVICES);
    }
    for (name, value) in settings {
        launcher = launcher.set(*name, *value);
    }
    test::run(name, case, &launcher)
}

/// Runs `body` under each of the settings; it must pass, and nothing may be reported.
#[track_caller]
pub(crate) fn in_all_settings(name: &str, body: impl Fn()) {
    if test::case().is_some() {
        return body();
    }
    let mut promises: BTreeMap<String, String> = BTreeMap::new();
    for settings in RUNS {
        let Some(report) = again(name, "run", settings) else { return };
        let report = report.ok();
        assert!(!report.stderr.contains("ptx-emulator:"), "{settings:?}: reported\n{}", report.stderr);
        for promise in report.values("promise") {
            let (what, value) = promise.rsplit_once(' ').unwrap();
            let first = promises.entry(what.into()).or_insert_with(|| value.into());
            assert_eq!(first, value, "{what} moved with {settings:?}");
        }
    }
}

/// Runs `body` on `source` as each compiler makes it for each architecture from `least` on, under each of the settings. What the
/// body promises must be the same to the bit under all of them.
#[track_caller]
pub(crate) fn everywhere(name: &str, source: Source, least: u32, body: impl Fn(&Gpu)) {
    everywhere_since(name, source, Nvrtc::V11, least, body);
}

/// The same for what older compilers do not know.
#[track_caller]
#[allow(clippy::print_stdout)] // how a case speaks to the test that started it
pub(crate) fn everywhere_since(name: &str, source: Source, since: Nvrtc, least: u32, body: impl Fn(&Gpu)) {
    in_all_settings(name, || {
        for version in Nvrtc::ALL.into_iter().filter(|version| *version >= since) {
            let compiler = Compiler::new(version);
            for arch in compiler.architectures().iter().filter(|arch| **arch >= least) {
                let ptx = compiler.compile(source.0, source.1, *arch, &[], &[]);
                let gpu = Gpu::open(*arch).with(&ptx);
                println!("running: NVRTC {version}, sm_{arch}");
                body(&gpu);
                println!("promise: NVRTC {version}, sm_{arch} {:016x}", gpu.promised());
            }
        }
    });
}
