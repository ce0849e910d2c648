//! `ogive devices`: whether a model fits there, and what is told of a GPU that cannot be used. The latter under the emulator.
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

mod common;

use common::{command, ogive, reads};
use ptx_emulator_launcher::{Launcher, Nvrtc, test};
use std::path::Path;
use std::process::Stdio;

#[test]
fn a_model_is_counted_for_each_device() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("tiny.gguf");
    ogive(args!["synth", "--shape", "tiny", "--format", "q4_k_m", "-q", &model]).text();
    let bytes = std::fs::metadata(&model).unwrap().len();

    let plain = ogive(args!["devices"]).text();
    assert!(plain.starts_with("cpu ") && plain.contains("\ncuda:0 "), "{plain}");
    let text = ogive(args!["devices", "--model", &model, "--context", "256"]).text();
    assert_eq!(text.matches("weights").count(), text.matches("cuda:").count().max(1) + 1, "{text}");
    assert!(text.contains("at 256 tokens"), "{text}");

    let json = ogive(args!["devices", "--json", "--model", &model, "--context", "256"]).json();
    for device in json.as_array().unwrap() {
        let memory = &device["memory"];
        let [weights, cache, total] = ["weights", "cache", "total"].map(|k| memory[k].as_u64().unwrap());
        // A GPU gives whole pages.
        assert!(weights > bytes / 2 && weights < bytes + bytes / 4 + (2 << 20), "{device}");
        // Two layers of keys and values, two heads of 32, half precision.
        assert!(cache >= 2 * 2 * 2 * 32 * 2 * 256 && total > weights + cache, "{device}");
    }
    let several = ogive(args!["devices", "--json", "--model", &model, "--context", "256", "-b", "3"]).json();
    for (one, three) in json.as_array().unwrap().iter().zip(several.as_array().unwrap()) {
        let [one, three] = [one, three].map(|device| device["memory"]["cache"].as_u64().unwrap());
        // A GPU gives whole pages.
        assert!(three > 2 * one && three <= 3 * one, "{one} {three}");
    }
    for option in ["--sequences", "--context"] {
        let without = ogive(args!["devices", option, "3"]);
        assert!(without.error(2).contains("count what a model takes: name one with --model"));
    }
    // The environment names one as well.
    let named = reads(command().args(["devices", "-c", "256"]).env("OGIVE_MODEL", &model), b"").text();
    assert_eq!(named.matches("at 256 tokens").count(), text.matches("at 256 tokens").count(), "{named}");
    let other = args!["devices", "-m", ogive::DEMO];
    let other = reads(command().args(other).env("OGIVE_MODEL", &model), b"").text();
    assert!(other.contains("ogive:demo: ") && !other.contains("tiny.gguf"), "{other}");
    let text = ogive(args!["devices", "--model", &model, "--gpu-layers", "0"]).text();
    assert!(text.matches("nothing of it is here, and on the CPU ").count() >= 1, "{text}");
    let none = ogive(args!["devices", "--model", folder.path().join("none.gguf")]);
    assert!(none.error(1).contains("none.gguf: no such file or folder"));
    // One that the environment names still, and that is gone, hides no devices.
    let gone =
        |args: &[&str]| reads(command().args(args).env("OGIVE_MODEL", folder.path().join("none.gguf")), b"");
    let left = gone(&["devices"]);
    assert_eq!(left.text(), plain);
    let why = "the model that OGIVE_MODEL names is not counted: ";
    assert!(
        left.stderr.starts_with(why) && left.stderr.contains("none.gguf: no such file"),
        "{}",
        left.stderr
    );
    assert!(gone(&["devices", "--json"]).json()[0].get("memory").is_none());
}

/// The CPU too has what its system and its limits leave it.
#[test]
#[cfg(target_os = "linux")]
fn whether_a_model_fits_the_cpu_is_told() {
    let devices = |context: &str, more: &[&str]| {
        let fixed = args!["devices", "--model", ogive::DEMO, "--device", "cpu", "--context", context];
        ogive(fixed.into_iter().chain(more.iter().map(Into::into)))
    };
    let fits = devices("64", &[]).text();
    assert!(fits.contains("; fits in ") && fits.trim_end().ends_with(" free"), "{fits}");
    let json = devices("64", &["--json"]).json();
    assert!(json[0]["memory"]["fits"] == true && json[0]["memory"]["free"].is_u64(), "{json}");
    // Some terabytes. What is asked of GPUs means nothing there.
    for more in [&[][..], &["--gpu-layers", "auto"]] {
        let ran = devices("10000000000", more);
        let large = ran.text();
        let less = "use a smaller context or cache type, or smaller weights (`ogive quantize`)";
        assert!(large.contains("; does not fit in ") && large.trim_end().ends_with(less), "{large}");
        assert!(!large.contains("--gpu-layers"), "{large}");
        // Nothing is opened, which would be warned of.
        assert_eq!(ran.stderr, "");
    }
}

#[test]
fn the_cpu_is_listed_with_the_threads_it_is_to_have() {
    let listed = |threads: &str| ogive(args!["devices", "--device", "cpu", "-t", threads]);
    assert!(listed("3").text().starts_with("cpu      3 threads, "), "{}", listed("3").text());
    for none in ["0", "5000"] {
        assert!(listed(none).error(2).contains("is not in 1..=4096"), "{}", listed(none).stderr);
    }
}

#[test]
fn only_the_device_that_is_named_is_listed() {
    let cpu = ogive(args!["devices", "--device", "cpu"]).text();
    assert!(cpu.starts_with("cpu ") && cpu.lines().count() == 1, "{cpu}");
    let all = ogive(args!["devices", "--json"]).json();
    for listed in all.as_array().unwrap() {
        let name = listed["device"].as_str().unwrap();
        let one = ogive(args!["devices", "--json", "--device", name]).json();
        assert_eq!((one.as_array().unwrap().len(), &one[0]["device"]), (1, &listed["device"]));
    }
    for (named, none) in [("cuda:777", "cuda:777"), ("cuda:0,cuda:778", "cuda:778")] {
        let ran = ogive(args!["devices", "--device", named]);
        let why =
            format!("listing devices: --device names {none}, which is none of those there are: cpu, cuda:0");
        assert!(ran.error(1).starts_with(&why), "{}", ran.stderr);
    }
}

/// The lines of `ogive devices` with an emulated GPU, and its JSON; `None` where it was built without CUDA, or there is no emulator.
fn devices(launcher: Launcher) -> Option<(Vec<String>, serde_json::Value)> {
    if ogive(args!["devices"]).text().contains("has no CUDA backend") {
        eprintln!("skipped: this build has no CUDA backend; a build of the whole workspace has");
        return None;
    }
    let launcher = launcher.set("OGIVE_CUDA_CACHE", concat!(env!("CARGO_TARGET_TMPDIR"), "/kernels"));
    let run = |args: &[&str]| {
        let mut command = test::command(Path::new(env!("CARGO_BIN_EXE_ogive")), &launcher)?;
        let out = command.args(args).stdin(Stdio::null()).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        Some(String::from_utf8(out.stdout).unwrap())
    };
    let lines: Vec<String> = run(&["devices"])?.lines().map(str::to_owned).collect();
    let json: serde_json::Value = serde_json::from_str(&run(&["devices", "--json"])?).unwrap();
    // The same devices and libraries, however they are printed.
    let all = json.as_array().unwrap();
    let told =
        all.iter().map(|d| format!("{:<8} {}", d["device"].as_str().unwrap(), d["about"].as_str().unwrap()));
    assert_eq!(told.collect::<Vec<_>>(), lines[..all.len()]);
    for device in all {
        let libraries: Vec<&str> =
            device["libraries"].as_array().unwrap().iter().filter_map(|l| l.as_str()).collect();
        let wanted = if device["device"] == "cpu" { &[][..] } else { &lines[all.len()..] };
        assert_eq!(libraries, wanted, "{device}");
    }
    Some((lines, json))
}

/// The line that begins so.
fn line<'a>(lines: &'a [String], begin: &str) -> &'a str {
    lines.iter().find(|line| line.starts_with(begin)).unwrap_or_else(|| panic!("no {begin}: {lines:#?}"))
}

#[test]
fn a_gpu_that_can_be_used_is_listed_with_its_libraries() {
    let Some((lines, json)) = devices(Launcher::new().set("PTX_EMU_DEVICES", "sm_80,sm_90")) else { return };
    assert!(lines.iter().all(|line| !line.contains("not available") && !line.contains("pip")), "{lines:#?}");
    assert!(
        line(&lines, "cuda:0 ").ends_with(", 8 GiB, sm_80") && line(&lines, "cuda:1 ").ends_with(", sm_90")
    );
    for library in ["CUDA driver: CUDA 13.5 (/", "NVRTC: 12.9 (/", "cuBLAS: /"] {
        line(&lines, library);
    }
    assert_eq!(json.as_array().unwrap().len(), 3);
}

/// Opening it fails, so it is not listed as if it could be used, and what helps is told.
#[test]
fn a_gpu_whose_driver_is_too_old_for_the_compiler_is_not_available() {
    let Some((lines, _)) = devices(Launcher::new().set("PTX_EMU_FAULT", "driver:11080")) else { return };
    let helps = "newer than the driver, which is for CUDA 11.8: update the driver or install an older NVRTC";
    let gpu = line(&lines, "cuda:0 ");
    assert!(
        gpu.contains(", sm_80; not available: /") && gpu.contains(" is NVRTC 12.9, ") && gpu.contains(helps),
        "{gpu}"
    );
    let nvrtc = line(&lines, "NVRTC: 12.9 (/");
    assert!(nvrtc.contains(helps) && nvrtc.contains("pip install nvidia-cuda-nvrtc-cu11"), "{nvrtc}");
}

#[test]
fn each_gpu_has_its_own_reason() {
    let launcher = Launcher::new().nvrtc(Nvrtc::V13).set("PTX_EMU_DEVICES", "sm_61,sm_80,sm_90:1M");
    let Some((lines, _)) = devices(launcher) else { return };
    assert!(line(&lines, "cuda:0 ").contains("; not available: /"), "{lines:#?}");
    assert!(line(&lines, "cuda:0 ").ends_with(", which does not know sm_61"), "{lines:#?}");
    assert!(line(&lines, "cuda:1 ").ends_with(", sm_80"), "{lines:#?}");
    let full = "; not available: opening cuda:2: 4194304 bytes of device memory asked for, ";
    assert!(line(&lines, "cuda:2 ").contains(full), "{lines:#?}");
    let helps =
        "; none for sm_61: pip install nvidia-cuda-nvrtc-cu12, or point OGIVE_CUDA_PATH to its folder";
    assert!(line(&lines, "NVRTC: 13.").contains(helps), "{lines:#?}");
}

#[test]
fn where_no_gpu_is_the_reason_is_told() {
    let Some((lines, _)) = devices(Launcher::new().set("PTX_EMU_DEVICES", "none")) else { return };
    assert!(
        line(&lines, "cuda:0 ").ends_with(" not available: cuda:0: there is no device here"),
        "{lines:#?}"
    );
    assert!(
        line(&lines, "CUDA driver: ").contains("look at nvidia-smi, and at CUDA_VISIBLE_DEVICES"),
        "{lines:#?}"
    );
    let Some((lines, _)) = devices(Launcher::new().set("PTX_EMU_FAULT", "init:999")) else { return };
    assert!(line(&lines, "cuda:0 ").contains("CUDA_ERROR_UNKNOWN (999)"), "{lines:#?}");
    assert!(
        line(&lines, "CUDA driver: ").ends_with("is the driver's kernel module loaded (nvidia-smi)?"),
        "{lines:#?}"
    );
    let Some((lines, _)) = devices(Launcher::new().set("OGIVE_FORCE_CPU", "1")) else { return };
    assert!(
        line(&lines, "cuda:0 ").ends_with(", sm_80; not available: OGIVE_FORCE_CPU is set"),
        "{lines:#?}"
    );
}
