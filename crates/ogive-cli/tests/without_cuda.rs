//! `ogive run` where CUDA is built in and is not there, or is not wanted: one line that says so, and no call to the driver that nobody asked for.
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

mod common;

use common::{command, ogive};
use ptx_emulator_launcher::{Launcher, test};
use std::path::Path;
use std::process::{Command, Stdio};

/// Ogive's own model, one token.
const RUN: [&str; 6] = ["run", "--raw", "--temp", "0", "-n1", "Once upon a time"];

/// Whether CUDA is built in.
fn has_cuda() -> bool {
    let has = !ogive(args!["devices"]).text().contains("has no CUDA backend");
    if !has {
        eprintln!("skipped: this build has no CUDA backend; a build of the whole workspace has");
    }
    has
}

/// Whether it went well, text, and notes.
fn ran(mut command: Command, args: &[&str]) -> (Option<i32>, String, String) {
    let out = command.args(args).stdin(Stdio::null()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (out.status.code(), text(&out.stdout), text(&out.stderr))
}

/// A machine with a driver of its own cannot play one without.
#[test]
fn without_a_driver_it_runs_on_the_cpu_and_says_why() {
    if !has_cuda() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let bare = || {
        let mut command = command();
        for name in ["LD_LIBRARY_PATH", "HOME", "VIRTUAL_ENV", "CONDA_PREFIX"] {
            command.env(name, folder.path());
        }
        for name in ["OGIVE_CUDA_PATH", "CUDA_PATH", "CUDA_ROOT", "CUDA_HOME", "OGIVE_FORCE_CPU"] {
            command.env_remove(name);
        }
        command
    };
    let (_, devices, _) = ran(bare(), &["devices"]);
    if devices.contains("CUDA driver: CUDA ") {
        return eprintln!("skipped: this machine has a driver");
    }
    let (code, text, said) = ran(bare(), &RUN);
    assert!(code == Some(0) && !text.trim().is_empty(), "{said}");
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("CUDA")).collect();
    let [line] = lines[..] else { panic!("{said}") };
    let rest = line.strip_prefix("CUDA not used: libcuda.so.1 not found; using the CPU, ");
    let threads = rest.and_then(|rest| rest.split_once(" thread")).map(|(n, _)| n.parse::<usize>());
    assert!(matches!(threads, Some(Ok(1..))), "{line}");

    let (code, text, said) = ran(bare(), &[&RUN[..], &["--device", "cuda"]].concat());
    assert!(code == Some(1) && text.is_empty(), "{said}");
    let errors: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix("error: ")).collect();
    let [error] = errors[..] else { panic!("{said}") };
    assert!(error.contains("cuda:0 was asked for, but CUDA driver: libcuda.so.1 not found; "), "{error}");
    assert!(error.contains("install NVIDIA's driver"), "{error}");

    // Nor where only some layers are wanted on a GPU.
    let (code, text, said) = ran(bare(), &[&RUN[..], &["--gpu-layers", "3"]].concat());
    assert!(code == Some(1) && text.is_empty(), "{said}");
    assert!(said.contains("3 layers on a GPU were asked for, but libcuda.so.1 not found; "), "{said}");
}

#[test]
fn who_wants_the_cpu_starts_no_driver() {
    if !has_cuda() {
        return;
    }
    let calls = |set: &[(&str, &str)], args: &[&str]| {
        let launcher = Launcher::new().set("PTX_EMU_TRACE", "1").set("PTX_EMU_DEVICES", "none");
        let launcher = set.iter().fold(launcher, |launcher, (name, value)| launcher.set(name, value));
        let command = test::command(Path::new(env!("CARGO_BIN_EXE_ogive")), &launcher)?;
        let (code, text, said) = ran(command, &[&RUN[..], args].concat());
        assert!(code == Some(0) && !text.trim().is_empty(), "{said}");
        assert!(said.contains("using the CPU, "), "{said}");
        Some((said.matches("ptx-emulator: cu").count(), said.matches("ptx-emulator: cuInit(").count()))
    };
    // Who leaves the choice to the program hears of the driver.
    let unset = ("OGIVE_FORCE_CPU", "0");
    let Some((_, starts)) = calls(&[unset], &[]) else { return };
    assert!(starts > 0);
    assert_eq!(calls(&[unset], &["--device", "cpu"]), Some((0, 0)));
    assert_eq!(calls(&[("OGIVE_FORCE_CPU", "1")], &[]), Some((0, 0)));
}
