//! Where a model runs, by what is asked for and what there is: the CPU in place of a GPU only for a reason that is told, and never where a GPU
//! was named.
//!
//! Under the emulator only: each combination is a process of its own.
#![cfg(all(feature = "cuda", feature = "cpu"))]
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use ogive::{Device, Options};
use ptx_emulator_launcher::{LIBRARY, Launcher, Nvrtc, test, test_name};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A line of the tiny model's: what it was opened on, or why it was not.
fn line(device: Device) -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/llama");
    let opened = Options::new().device(device).context(40).open(path);
    opened.map_or_else(|e| e.to_string(), |model| model.device().to_owned())
}

/// In the process of a case: what is said of each device.
fn case() {
    // The harness has begun a line.
    println!();
    for device in ["auto", "cuda", "cuda:1", "cpu"] {
        println!("{device}: {}", line(device.parse().unwrap()));
    }
    ogive::devices().iter().for_each(|(device, about)| println!("device: {device} {about}"));
    ogive::libraries().iter().for_each(|line| println!("library: {line}"));
}

fn launcher() -> Launcher {
    let launcher = Launcher::new().patience(Duration::from_secs(300));
    launcher.set("OGIVE_CUDA_CACHE", concat!(env!("CARGO_TARGET_TMPDIR"), "/kernels"))
}

/// What is said with these variables.
fn said(name: &str, launcher: &Launcher, set: &[(&str, &str)]) -> Option<test::Report> {
    let with = set.iter().fold(launcher.clone(), |launcher, (name, value)| launcher.set(name, value));
    let report = test::run(name, &format!("{set:?}"), &with)?.ok();
    println!("{set:?}: {}", report.stdout);
    Some(report)
}

/// The only line of this name.
fn one<'a>(report: &'a test::Report, name: &'a str) -> &'a str {
    let all: Vec<&str> = report.values(name).collect();
    assert_eq!(all.len(), 1, "{name}: {}", report.stdout);
    all[0]
}

/// The CPU was taken, for a reason of these words, and who names a GPU gets an error of the same.
fn falls_back(report: &test::Report, words: &[&str]) {
    let auto = one(report, "auto");
    let why = auto.strip_prefix("CUDA not used: ").and_then(|rest| rest.split_once("; using the CPU, "));
    let (why, _) = why.unwrap_or_else(|| panic!("{}", report.stdout));
    let named = one(report, "cuda");
    assert!(named.contains("cuda:0 was asked for, but ") && named.contains(why), "{}", report.stdout);
    assert!(words.iter().all(|word| why.contains(word)), "no {words:?}: {}", report.stdout);
    assert!(one(report, "cuda:1").contains("cuda:1 was asked for, but "), "{}", report.stdout);
    assert!(!one(report, "cuda:1").contains("but cuda:0"), "{}", report.stdout);
    assert!(one(report, "cpu").starts_with("using the CPU, "), "{}", report.stdout);
    // It is not listed as if it could be used.
    let listed = report.values("device").find(|line| line.starts_with("cuda:0 ")).unwrap();
    assert!(listed.contains(&format!("not available: {why}")), "{}", report.stdout);
}

#[test]
fn a_gpu_that_cannot_be_used_is_passed_over_with_the_reason() {
    let name = test_name!();
    if test::case().is_some() {
        return case();
    }
    let launcher = launcher();
    for (set, words) in [
        (("PTX_EMU_DEVICES", "none"), &["there is no device here"][..]),
        (("PTX_EMU_FAULT", "no-device"), &["there is no device here"]),
        (("PTX_EMU_FAULT", "init:999"), &["starting the CUDA driver ", "CUDA_ERROR_UNKNOWN (999)"]),
        (("PTX_EMU_FAULT", "memory:1M"), &["opening cuda:0: ", "bytes of device memory asked for"]),
    ] {
        let Some(report) = said(name, &launcher, &[set]) else { return };
        falls_back(&report, words);
    }
    // A compiler that the driver is too old for, with what helps, and one that the device is too old for.
    let Some(report) = said(name, &launcher, &[("PTX_EMU_FAULT", "driver:11080")]) else { return };
    let helps = "update the driver or install an older NVRTC";
    falls_back(&report, &[" is NVRTC 12.9, newer than the driver, which is for CUDA 11.8: ", helps]);
    assert!(report.values("library").any(|line| line.starts_with("NVRTC: 12.9 (") && line.contains(helps)));
    let newest = launcher.nvrtc(Nvrtc::V13);
    let Some(report) = said(name, &newest, &[("PTX_EMU_DEVICES", "sm_61")]) else { return };
    falls_back(&report, &[" is NVRTC 13.", ", which does not know sm_61"]);
}

#[test]
fn a_gpu_without_a_compiler_is_passed_over_with_the_reason() {
    let name = test_name!();
    if test::case().is_some() {
        return case();
    }
    let launcher = launcher();
    let Some(all) = test::unless_excused(name, launcher.environment(&|_| {})) else { return };
    let library = all.iter().find(|(name, _)| name == LIBRARY).map(|(_, path)| PathBuf::from(path)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    link(&library, &folder.path().join("libcuda.so.1"));
    let here = folder.path().to_str().unwrap();
    let names = ["LD_LIBRARY_PATH", "HOME", "VIRTUAL_ENV", "CONDA_PREFIX"];
    let Some(report) = said(name, &launcher, &names.map(|name| (name, here))) else { return };
    if let Some(line) = report.values("library").find(|line| line.starts_with("NVRTC: 1")) {
        return println!("skipped: {name}: this machine has one: {line}");
    }
    falls_back(&report, &["libnvrtc.so not found"]);
}

/// The file under another name.
fn link(from: &Path, to: &Path) {
    #[cfg(unix)]
    std::os::unix::fs::symlink(from, to).unwrap();
    #[cfg(not(unix))]
    std::fs::copy(from, to).unwrap();
}

#[test]
fn who_forces_the_cpu_gets_it() {
    let name = test_name!();
    if test::case().is_some() {
        return case();
    }
    let launcher = launcher();
    for value in ["", "0"] {
        let Some(report) = said(name, &launcher, &[("OGIVE_FORCE_CPU", value)]) else { return };
        for device in ["auto", "cuda"] {
            assert!(one(&report, device).starts_with("using CUDA: NVIDIA "), "{value}: {}", report.stdout);
        }
    }
    let Some(report) = said(name, &launcher, &[("OGIVE_FORCE_CPU", "1")]) else { return };
    let auto = one(&report, "auto");
    assert!(auto.starts_with("using the CPU, ") && auto.ends_with(" (OGIVE_FORCE_CPU is set)"), "{auto}");
    assert!(!auto.contains("CUDA not used"), "{auto}");
    for (device, asked) in [("cuda", "cuda:0"), ("cuda:1", "cuda:1")] {
        let error = one(&report, device);
        let told = format!("{asked} was asked for, but OGIVE_FORCE_CPU is set; use the device cpu");
        assert!(error.contains(&told), "{error}");
    }
    assert!(one(&report, "cpu").starts_with("using the CPU, "), "{}", report.stdout);
    let listed = report.values("device").find(|line| line.starts_with("cuda:0 ")).unwrap();
    assert!(listed.ends_with("; not available: OGIVE_FORCE_CPU is set"), "{listed}");
}

#[test]
fn the_drivers_own_variable_chooses_devices() {
    let name = test_name!();
    if test::case().is_some() {
        return case();
    }
    let launcher = launcher();
    let launcher = launcher.set("PTX_EMU_DEVICES", "sm_80,sm_90");
    let listed = |report: &test::Report| -> Vec<String> {
        let all = report.values("device").filter(|line| line.starts_with("cuda:"));
        all.map(|line| line.rsplit(", ").next().unwrap().to_owned()).collect()
    };
    let card = |line: &str| line.split(',').next().unwrap().to_owned();
    let Some(both) = said(name, &launcher, &[]) else { return };
    assert_eq!(listed(&both), ["sm_80", "sm_90"]);
    let cards = [card(one(&both, "cuda")), card(one(&both, "cuda:1"))];
    assert!(cards[0] != cards[1] && cards.iter().all(|card| card.starts_with("using CUDA: ")), "{cards:?}");
    assert_eq!(card(one(&both, "auto")), cards[0]);
    // The second alone, both the other way round, none.
    let Some(second) = said(name, &launcher, &[("CUDA_VISIBLE_DEVICES", "1")]) else { return };
    assert_eq!((listed(&second), card(one(&second, "auto"))), (vec!["sm_90".to_owned()], cards[1].clone()));
    let error = one(&second, "cuda:1");
    assert!(error.contains("cuda:1 was asked for, but cuda:1: there is one device (cuda:0) here"), "{error}");
    assert!(error.contains("CUDA_VISIBLE_DEVICES"), "{error}");
    let Some(turned) = said(name, &launcher, &[("CUDA_VISIBLE_DEVICES", "1,0")]) else { return };
    assert_eq!(listed(&turned), ["sm_90", "sm_80"]);
    assert_eq!(
        [card(one(&turned, "auto")), card(one(&turned, "cuda:1"))],
        [cards[1].clone(), cards[0].clone()]
    );
    for hidden in ["", "-1", "7"] {
        let Some(none) = said(name, &launcher, &[("CUDA_VISIBLE_DEVICES", hidden)]) else { return };
        falls_back(&none, &["there is no device here"]);
    }
}
