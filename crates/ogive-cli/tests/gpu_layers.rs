//! A model that is larger than the device: split, and what is said of it. Under the emulator, whose devices have the memory a test wants.
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

mod common;

use common::ogive;
use ptx_emulator_launcher::{Launcher, test};
use std::path::Path;
use std::process::{Command, Stdio};

/// The program with an emulated device; `None` where it was built without CUDA, or there is no emulator.
fn with_device(device: &str) -> Option<Command> {
    if ogive(args!["devices"]).text().contains("has no CUDA backend") {
        eprintln!("skipped: this build has no CUDA backend; a build of the whole workspace has");
        return None;
    }
    let launcher = Launcher::new().set("PTX_EMU_DEVICES", device).set("PTX_EMU_CHECK", "1");
    let launcher = launcher.set("OGIVE_CUDA_CACHE", concat!(env!("CARGO_TARGET_TMPDIR"), "/kernels"));
    test::command(Path::new(env!("CARGO_BIN_EXE_ogive")), &launcher)
}

/// Text and notes of a run.
fn run(device: &str, args: &[&str]) -> Option<(bool, String, String)> {
    let out = with_device(device)?.args(args).stdin(Stdio::null()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Some((out.status.success(), text(&out.stdout), text(&out.stderr)))
}

#[test]
fn as_many_layers_as_fit_go_to_the_device() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model.gguf");
    ogive(args!["synth", "--shape", "stories-15m", "--format", "f32", "-q", &model]).text();
    let model = model.to_str().unwrap();
    let how = ["run", "--model", model, "--raw", "--temp", "0", "-n", "4", "--exact", "The water"];
    let with = |device: &str, more: &[&str]| run(device, &[&how[..], more].concat());

    let Some((ok, small, said)) = with("sm_80:64M", &[]) else { return };
    assert!(ok, "{said}");
    let line = said.lines().find(|l| l.contains("using")).unwrap();
    // Six layers; the head alone is half of the model.
    assert!(line.starts_with("using CUDA: ") && line.contains("and the head; the CPU, "), "{line}");
    assert!(
        line.contains("for layers 0 to ")
            && line.contains("; all of it takes ")
            && line.contains(" MiB free"),
        "{line}"
    );
    let (ok, large, said) = with("sm_80:8G", &[]).unwrap();
    assert!(ok && !said.contains("the CPU"), "{said}");
    let (_, cpu, _) = with("sm_80:8G", &["--device", "cpu"]).unwrap();
    assert!(!cpu.is_empty() && small == cpu && large == cpu, "{small:?} {large:?} {cpu:?}");

    // Two of them hold all of it, and a third is left alone.
    let (ok, both, said) = with("sm_80:64M,sm_80:64M,sm_80:64M", &[]).unwrap();
    assert!(ok && both == cpu && !said.contains("the CPU") && !said.contains("cuda:2"), "{said}");
    assert!(said.contains("using CUDA: 2 × NVIDIA ") && said.contains(", cuda:0 for layers 0 to "), "{said}");
    assert!(said.contains("; all of it takes ") && said.contains(", of 62 + 62 MiB free"), "{said}");

    // A small one beside one that holds the head and a layer: a layer more.
    let (ok, three, said) = with("sm_80:20M,sm_80:57M", &[]).unwrap();
    assert!(
        ok && three == cpu && said.contains("using CUDA: 2 × NVIDIA ") && said.contains("; the CPU, "),
        "{said}"
    );

    // Neither of the first two holds the head; beside the third, which does, both have layers.
    let (ok, three, said) = with("sm_80:28M,sm_80:28M,sm_80:57M", &[]).unwrap();
    assert!(ok && three == cpu && said.contains("using CUDA: 3 × NVIDIA "), "{said}");
    assert!(
        ["the head, cuda:1 for layer", ", cuda:0 for layer"].iter().all(|part| said.contains(part)),
        "{said}"
    );

    // Who names the device gets it or an error that says what there is.
    let (ok, _, said) = with("sm_80:64M", &["--device", "cuda"]).unwrap();
    assert!(!ok && said.contains("(in all ") && said.contains("are free"), "{said}");
    // And what would fit: as many layers as were taken where that was left open.
    let (_, fits) =
        said.split_once(" of 6 layers on the GPU (--gpu-layers ").unwrap_or_else(|| panic!("{said}"));
    let fits = fits.split(')').next().unwrap();
    let (ok, named, said) = with("sm_80:64M", &["--device", "cuda", "--gpu-layers", fits]).unwrap();
    assert!(ok && named == cpu, "{said}");
    let first = 6 - fits.parse::<usize>().unwrap();
    assert!(line.contains(&format!(" for layers 0 to {}", first - 1)), "{fits}: {line}");
    let (ok, named, said) = with("sm_80:64M", &["--device", "cuda", "--gpu-layers", "1"]).unwrap();
    assert!(ok && named == cpu && said.contains("layer 5 and the head"), "{said}");
    // Not even the head fits.
    let (ok, none, said) = with("sm_80:16M", &[]).unwrap();
    assert!(
        ok && none == cpu && said.contains("CUDA not used: not one layer fits; all of it takes"),
        "{said}"
    );

    let (_, text, _) = run("sm_80:64M", &["devices", "--model", model]).unwrap();
    assert!(text.contains("does not fit in ") && text.contains("--gpu-layers auto"), "{text}");
}

/// Text that broke off is not the error's beginning where both go to one place, and stays as it was written.
#[test]
fn an_error_in_the_middle_of_an_answer_begins_a_line() {
    let how = ["run", "--device", "cuda", "--temp", "0", "-n", "12", "Once upon a time"];
    let Some((ok, whole, said)) = run("sm_80", &how) else { return };
    assert!(ok && !said.contains("\n\n"), "{said}");
    let mut launch = 64;
    let (text, said) = loop {
        let mut command = with_device("sm_80").unwrap();
        let out = command.args(how).env("PTX_EMU_FAULT", format!("launch:{launch}")).output().unwrap();
        let [text, said] = [out.stdout, out.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        assert!(!out.status.success(), "no launch failed after the first words: {said}");
        if !text.is_empty() {
            break (text, said);
        }
        assert!(said.contains("\nerror: ") && !said.contains("\n\n"), "{said}");
        launch += launch / 2;
    };
    assert!(whole.starts_with(&text) && !text.ends_with('\n') && text.len() < whole.len(), "{text}");
    assert!(said.contains("\n\nerror: "), "{said}");
}
