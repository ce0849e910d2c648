//! What the program does when nobody reads, when nothing can be written, and on Ctrl-C.
#![cfg(unix)]

mod common;

use common::{command, shared};
#[cfg(target_os = "linux")]
use std::fs::File;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn a_reader_that_has_enough_ends_it_quietly() {
    let Some(model) = shared("models/stories260K/stories260K-f32.gguf") else { return };
    let long: [&[&str]; 2] =
        [&["run", "-q", "--ignore-eos", "--context", "100000", "Once"], &["inspect", "--full"]];
    for args in long {
        let mut run = command();
        run.args(args).env("OGIVE_MODEL", &model).env("OGIVE_LOG", "error");
        let mut child = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut few = [0; 10];
        child.stdout.take().unwrap().read_exact(&mut few).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(
            (output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()),
            (Some(0), ""),
            "{args:?}"
        );
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_is_an_error() {
    let Some(model) = shared("models/stories260K/stories260K-f32.gguf") else { return };
    for args in [&["run", "Once"][..], &["inspect"], &["run", "--json", "Once"]] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = command().args(args).env("OGIVE_MODEL", &model).stdout(full).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains("error: writing to stdout: No space left"), "{stderr}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_stderr_that_takes_nothing_is_nothing_to_fail_for() {
    let Some(model) = shared("models/stories260K/stories260K-f32.gguf") else { return };
    let full = || File::options().write(true).open("/dev/full").unwrap();
    let run =
        |args: &[&str]| command().args(args).env("OGIVE_MODEL", &model).stderr(full()).output().unwrap();
    let told = run(&["run", "-vvv", "--temp", "0", "-n", "5", "Once upon a time"]);
    assert_eq!(
        (told.status.code(), String::from_utf8(told.stdout).unwrap().as_str()),
        (Some(0), ", there was a little")
    );
    assert_eq!(run(&["run", "--context", "0", "x"]).status.code(), Some(2));
}

#[test]
fn a_run_dies_of_ctrl_c() {
    let Some(model) = shared("models/stories260K/stories260K-f32.gguf") else { return };
    let mut run = command();
    run.args(["run", "--ignore-eos", "--context", "200000", "Once"]).env("OGIVE_MODEL", &model);
    let mut child = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 20]).unwrap();
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let start = Instant::now();
    let rest = std::thread::spawn(move || stdout.read_to_end(&mut Vec::new()).unwrap());
    let output = child.wait_with_output().unwrap();
    rest.join().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(2), "{stderr}");
    assert!(stderr.contains("interrupted") && !stderr.contains("error"), "{stderr}");
    assert!(start.elapsed() < Duration::from_secs(20));
}
