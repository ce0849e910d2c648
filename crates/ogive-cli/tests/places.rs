//! Where commands read and write: our own model by its name, places where nothing can be written, disks that are full. Nothing
//! half-written stays under any name.
#![allow(clippy::print_stdout)]

mod common;

use common::{Ran, command, ogive, ogive_reads};
#[cfg(unix)]
use common::{limited, reads};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::Path;

/// Every command that writes a file, with `out` as the file, and what it is to read from stdin.
fn writers(out: &Path) -> Vec<(Vec<OsString>, String)> {
    let tokens = vec!["9"; 300].join(",");
    let texts = (0..60).map(|i| format!("line {i}\n")).collect();
    // Of a size that no limit below allows.
    let story = "Once upon a time there was ".repeat(12);
    vec![
        (args!["quantize", "ogive:demo", out, "-f", "q4_0", "--allow-requantize", "--force"], String::new()),
        (args!["synth", "--shape", "tiny", "--format", "f32", out, "--force"], String::new()),
        (args!["logits", "--tokens", tokens, "--out", out], String::new()),
        (args!["embed", "--out", out], texts),
        (args!["run", "-n", "4", "--raw", "--save", out, story], String::new()),
        (args!["chat", "-n", "4", "--session", out], format!("{story}\n")),
    ]
}

fn each(out: &Path, mut check: impl FnMut(&str, Ran)) {
    for (args, input) in writers(out) {
        let name = args[0].to_str().unwrap().to_owned();
        check(&name, ogive_reads(args, input.as_bytes()));
    }
}

/// One line that names the file and says what is wrong with it.
fn told(command: &str, ran: &Ran, name: &str, why: &[&str]) {
    assert_eq!(ran.code, Some(1), "{command}: {}", ran.stderr);
    let line = ran.stderr.lines().find(|l| l.starts_with("error: ")).unwrap_or_default();
    assert!(line.contains(name) && why.iter().any(|why| line.contains(why)), "{command}: {}", ran.stderr);
}

fn names(folder: &Path) -> Vec<OsString> {
    fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name()).collect()
}

#[test]
fn our_own_model_has_a_name_everywhere() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    fs::write(file("m.json"), r#"[{"role": "user", "content": "x"}]"#).unwrap();
    fs::write(file("t.txt"), "Once upon a time there was a cat. ".repeat(8)).unwrap();
    let of = |command: &str, more: Vec<OsString>| {
        let fixed = args![command, "--model", ogive::DEMO, "-q"];
        let ran = ogive_reads(fixed.into_iter().chain(more), b"What is the capital of France?\n");
        assert_eq!(ran.code, Some(0), "{command}: {}", ran.stderr);
        String::from_utf8(ran.stdout).unwrap()
    };
    assert!(of("run", args!["--temp", "0", "The capital of Peru is", "--raw"]).starts_with(" Lima."));
    assert_eq!(of("chat", args!["--temp", "0"]), "The capital of France is Paris.\n");
    assert!(of("inspect", args![]).contains("llama"));
    let ids = of("tokenize", args![]);
    assert_eq!(of("detokenize", args![ids.trim()]), "What is the capital of France?\n");
    assert!(of("template", args!["--messages", file("m.json")]).contains("<|user|>x"));
    of("logits", args!["--tokens", "1,2", "--out", file("l.npy")]);
    assert!(of("embed", args!["a cat"]).starts_with('['));
    assert!(of("perplexity", args!["-c", "32", file("t.txt")]).starts_with("PPL = "));
    assert!(of("bench", args!["-p", "2", "-n", "2", "-r", "1"]).contains("decode"));

    // The same bytes as of the model as a file, and what can be asked of a file.
    fs::write(file("own.gguf"), ogive_demo_model::GGUF).unwrap();
    for (input, out) in [(OsStr::new(ogive::DEMO), "a.gguf"), (file("own.gguf").as_os_str(), "b.gguf")] {
        ogive(args!["quantize", input, file(out), "-f", "q4_0", "--allow-requantize"]).text();
    }
    assert!(fs::read(file("a.gguf")).unwrap() == fs::read(file("b.gguf")).unwrap());
    assert!(
        ogive(args!["quantize", ogive::DEMO, "--plan", "-f", "q8_0"]).text().contains("token_embd.weight")
    );
    let e = ogive(args!["quantize", ogive::DEMO, file("c.gguf"), "-f", "q4_0"]);
    assert!(e.error(1).contains("allow requantizing"), "{}", e.stderr);
}

#[test]
fn places_are_looked_at_before_anything_is_computed() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    fs::create_dir(file("folder")).unwrap();
    each(&file("folder"), |c, ran| {
        told(c, &ran, "folder", &["this is a folder; name a file"]);
        assert!(ran.stdout.is_empty(), "{c}");
    });
    each(&file("no/x"), |c, ran| {
        told(c, &ran, "no/x", &["there is no such folder"]);
        assert!(ran.stdout.is_empty(), "{c}");
    });
    // The model itself.
    let own = file("own.gguf");
    fs::write(&own, ogive_demo_model::GGUF).unwrap();
    for form in [
        args!["quantize", own, own, "-f", "q8_0", "--force"],
        args!["logits", "--model", own, "--tokens", "1", "--out", own],
        args!["embed", "--model", own, "--out", file("folder/../own.gguf"), "x"],
        args!["run", "--model", own, "--save", own, "x"],
        args!["chat", "--model", own, "--session", own],
    ] {
        let ran = ogive(form);
        assert!(ran.error(1).contains("this is the model"), "{}", ran.stderr);
    }
    let saves =
        format!("/save {own}\n/save {folder}.json\n", own = own.display(), folder = file("no/x").display());
    let ran = ogive_reads(args!["chat", "--model", own], saves.as_bytes());
    assert!(
        ran.stderr.contains("this is the model") && ran.stderr.contains("there is no such folder"),
        "{}",
        ran.stderr
    );
    assert!(fs::read(&own).unwrap() == ogive_demo_model::GGUF);
    assert_eq!(names(folder.path()).len(), 2);
}

/// Whichever of its files is named. Told before the model is opened, so none of these needs to be one.
#[test]
fn no_file_of_a_model_is_written_to() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    fs::create_dir(file("h")).unwrap();
    let names = [
        "h/config.json",
        "h/model.safetensors",
        "h/model-00002-of-00002.safetensors",
        "m-00001-of-00002.gguf",
        "m-00002-of-00002.gguf",
    ];
    names.iter().for_each(|name| fs::write(file(name), name).unwrap());
    for (model, out) in [
        ("h", "h/model.safetensors"),
        ("h/config.json", "h/model.safetensors"),
        ("h/model.safetensors", "h/config.json"),
        ("h/model-00002-of-00002.safetensors", "h/../h/model.safetensors"),
        ("m-00001-of-00002.gguf", "m-00002-of-00002.gguf"),
    ] {
        let (model, out) = (file(model), file(out));
        for form in [
            args!["logits", "--model", model, "--tokens", "1", "--out", out],
            args!["embed", "--model", model, "--out", out, "x"],
            args!["run", "--model", model, "--save", out, "x"],
            args!["chat", "--model", model, "--session", out],
            args!["quantize", model, out, "-f", "q8_0", "--force"],
        ] {
            let ran = ogive(form);
            assert!(ran.error(1).contains("this is the model; write to another name"), "{}", ran.stderr);
        }
    }
    for name in names {
        assert_eq!(fs::read_to_string(file(name)).unwrap(), name);
    }
}

/// As far as a test can come that may not mount anything: a file may grow so large and no larger.
#[test]
#[cfg(unix)]
fn of_a_file_that_does_not_fit_nothing_stays() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    for there in [None, Some(&b"precious"[..])] {
        for (args, input) in writers(&out) {
            if let Some(bytes) = there.filter(|_| args[0] != "chat") {
                fs::write(&out, bytes).unwrap();
            }
            let ran = reads(limited(8).args(&args), input.as_bytes());
            told(args[0].to_str().unwrap(), &ran, "out", &["File too large"]);
            match there.filter(|_| args[0] != "chat") {
                Some(bytes) => assert_eq!(fs::read(&out).unwrap(), bytes),
                None => assert_eq!(names(folder.path()), [""; 0]),
            }
            _ = fs::remove_file(&out);
        }
    }
}

#[test]
#[cfg(unix)]
fn folders_and_devices_that_take_no_file() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o555)).unwrap();
    let out = folder.path().join("out");
    if fs::write(&out, b"").is_ok() {
        println!("skipped: this user may write anywhere");
    } else {
        each(&out, |c, ran| told(c, &ran, "out", &["Permission denied"]));
        assert_eq!(names(folder.path()), [""; 0]);
    }
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    // Nor is what is no plain file, a device say: a model would replace it.
    let pipe = folder.path().join("pipe");
    if !std::process::Command::new("mkfifo").arg(&pipe).status().is_ok_and(|s| s.success()) {
        return println!("skipped: no mkfifo");
    }
    for form in [
        args!["quantize", "ogive:demo", pipe, "-f", "q8_0", "--force"],
        args!["synth", "--shape", "tiny", "--format", "f32", pipe],
        args!["run", "-n", "1", "--raw", "--save", pipe, "x"],
    ] {
        told("a pipe", &ogive(form), "pipe", &["no plain file", "not the name of a file"]);
    }
    assert!(!fs::metadata(&pipe).unwrap().is_file());
}

#[test]
fn templates_that_say_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (empty, messages) = (folder.path().join("empty"), folder.path().join("m.json"));
    fs::write(&empty, " \n").unwrap();
    fs::write(&messages, "[]").unwrap();
    let e = ogive(args!["template", "--model", empty, "--messages", messages]);
    assert!(e.error(1).contains("empty: it is empty"), "{}", e.stderr);
    let status = command().args(args!["run", "--chat-template", empty, "x"]).output().unwrap();
    assert_eq!(status.status.code(), Some(1));
}
