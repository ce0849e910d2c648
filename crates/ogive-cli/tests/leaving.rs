//! What becomes of a session, or of a file that is being written, when Ctrl-C or a signal comes, or nobody reads on.
#![cfg(unix)]
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

mod common;

use common::{command, is_nothing, limited, ogive};
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

fn ctrl_c(child: &Child) {
    send("-INT", child);
}

fn send(signal: &str, child: &Child) {
    assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
}

fn names(folder: &Path) -> Vec<OsString> {
    fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name()).collect()
}

#[test]
fn ctrl_c_between_the_lines_of_a_script_leaves_and_keeps_what_was_said() {
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("kept");
    let chat = args!["chat", "--model", ogive::DEMO, "--temp", "0", "-n", "4", "--session", kept];
    let pipe = Stdio::piped;
    let mut chat_command = command();
    let mut child = chat_command.args(&chat).stdin(pipe()).stdout(pipe()).stderr(pipe()).spawn().unwrap();
    // Held open: the next line may come at any time.
    let mut script = child.stdin.take().unwrap();
    script.write_all(b"Once upon a time\n").unwrap();
    let mut shown = BufReader::new(child.stdout.take().unwrap());
    shown.read_line(&mut String::new()).unwrap();
    ctrl_c(&child);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(2), "{said}");
    assert!(!said.contains("error"), "{said}");
    drop(script);
    let again = ogive(chat);
    assert!(again.text().is_empty() && again.stderr.contains("2 messages, "), "{}", again.stderr);
}

/// A save takes some hundredths of a second here, and the signal comes when its file is there. Should it come later, nothing is tested.
#[test]
fn ctrl_c_while_a_session_is_saved_leaves_no_part_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model.gguf");
    ogive(args!["synth", "--shape", "stories-15m", "--format", "q8_0", "-q", model]).text();
    let text = "Once upon a time there was a girl. ".repeat(120);
    let how = args!["--model", model, "-c", "8000", "--cache-type", "f32", "-n", "2"];
    let place = folder.path().join("place");
    for (command_name, option) in [("run", "--save"), ("chat", "--session")] {
        fs::create_dir(&place).unwrap();
        let (kept, template) = (place.join("kept"), folder.path().join("t.jinja"));
        fs::write(&template, "{% for m in messages %}{{ m.content }}{% endfor %}").unwrap();
        let mut run = command();
        run.arg(command_name).args(&how).args(args![option, kept, "--chat-template", template]);
        let mut child =
            run.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        while names(&place).is_empty() && child.try_wait().unwrap().is_none() {
            thread::yield_now();
        }
        // It may have ended since; then nothing hears it.
        let _ = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let [code, signal] = [output.status.code(), output.status.signal()];
        assert!(code == Some(0) || signal == Some(2), "{command_name}: {said}");
        assert_eq!(names(&place), ["kept"], "{command_name}: {said}");
        fs::remove_dir_all(&place).unwrap();
    }
}

/// What is written is of some gigabytes, and takes longer than the signal.
#[test]
fn what_ends_the_program_leaves_no_part_of_a_model() {
    for (signal, number) in [("-INT", 2), ("-TERM", 15), ("-HUP", 1)] {
        if is_nothing(number) {
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("m.gguf");
        let mut synth = command();
        synth.args(args!["synth", "--shape", "llama-3.2-1b", "--format", "f16", "-q", out]);
        let mut child = synth.stderr(Stdio::piped()).spawn().unwrap();
        while names(folder.path()).is_empty() && child.try_wait().unwrap().is_none() {
            thread::yield_now();
        }
        send(signal, &child);
        // A terminal that is closed sends it again and again.
        if signal == "-HUP" {
            send(signal, &child);
        }
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.signal(), said.as_ref()), (Some(number), ""), "{signal}");
        assert_eq!(names(folder.path()), [""; 0], "{signal}");
    }
}

/// Ctrl-C stops the answer, after which the script would go on.
#[test]
fn a_signal_in_an_answer_ends_the_conversation_and_keeps_it() {
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("kept");
    let chat = args!["chat", "--model", ogive::DEMO, "--ignore-eos", "-c", "20000", "-q", "--session", kept];
    let pipe = Stdio::piped;
    let mut run = command();
    let mut child = run.args(chat).stdin(pipe()).stdout(pipe()).stderr(pipe()).spawn().unwrap();
    let mut script = child.stdin.take().unwrap();
    script.write_all(b"Once upon a time\n").unwrap();
    let mut shown = child.stdout.take().unwrap();
    shown.read_exact(&mut [0; 20]).unwrap();
    send("-TERM", &child);
    let rest = thread::spawn(move || shown.read_to_end(&mut Vec::new()).unwrap());
    let output = child.wait_with_output().unwrap();
    rest.join().unwrap();
    drop(script);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(15), "{said}");
    assert!(!said.contains("error") && kept.exists(), "{said}");
}

/// The vectors are more than a pipe holds.
#[test]
fn a_signal_is_heard_between_two_vectors() {
    let mut embed = command();
    embed.args(args!["embed", "--model", ogive::DEMO, "-q"]).args(["Once"; 1000]);
    let mut child = embed.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut shown = BufReader::new(child.stdout.take().unwrap());
    shown.read_line(&mut String::new()).unwrap();
    send("-TERM", &child);
    // It waits for its reader meanwhile, and the signal's thread has its turn.
    thread::sleep(Duration::from_millis(200));
    let rest = shown.lines().count();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.signal(), said.as_ref()), (Some(15), ""));
    assert!(rest < 999, "{rest}");
}

/// One text's vectors are a line, of more than a pipe holds: with its first byte the program waits for its reader.
#[test]
fn a_second_sigterm_ends_what_nobody_reads() {
    let text = "Once upon a time there was a girl. ".repeat(20);
    let mut embed = command();
    embed.args(args!["embed", "--model", ogive::DEMO, "--pooling", "none", "-q", text]);
    let mut child = embed.stdout(Stdio::piped()).spawn().unwrap();
    let mut shown = child.stdout.take().unwrap();
    shown.read_exact(&mut [0]).unwrap();
    // However many come, these are only noted.
    send("-HUP", &child);
    send("-HUP", &child);
    // Nor does one count that comes at once after the first: some minutes are more than enough for the next.
    for _ in 0..2000 {
        if child.try_wait().unwrap().is_some() {
            break;
        }
        send("-TERM", &child);
        thread::sleep(Duration::from_millis(100));
    }
    // It would wait for ever, and this too.
    let _ = child.kill();
    assert_eq!(child.wait().unwrap().signal(), Some(15));
    let mut rest = Vec::new();
    shown.read_to_end(&mut rest).unwrap();
    assert!(!rest.ends_with(b"\n"), "the line was whole");
}

/// As if it had not been taken: a shell sets the terminal right after who was killed, and the prompt of a conversation has it raw.
#[test]
fn a_signal_that_nobody_waits_for_kills() {
    for (signal, number) in [("-INT", 2), ("-TERM", 15), ("-HUP", 1)] {
        if is_nothing(number) {
            continue;
        }
        let mut embed = command();
        embed.args(args!["embed", "--model", ogive::DEMO]);
        let mut child = embed.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let texts = child.stdin.take();
        // Said of the device when the model is open; then texts are waited for.
        let mut said = BufReader::new(child.stderr.take().unwrap());
        said.read_line(&mut String::new()).unwrap();
        send(signal, &child);
        assert_eq!(child.wait().unwrap().signal(), Some(number));
        drop(texts);
    }
}

/// As `nohup` has a hangup, and a script Ctrl-C for what it starts behind an `&`.
#[test]
fn a_signal_that_is_to_be_nothing_is_nothing() {
    for signal in ["HUP", "INT"] {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("trap '' {signal}; exec \"$@\""), "sh", env!("CARGO_BIN_EXE_ogive")]);
        shell.args(args!["run", "--model", ogive::DEMO, "--raw", "-q", "-n", "300", "--ignore-eos", "Once"]);
        let mut child = shell.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut shown = child.stdout.take().unwrap();
        shown.read_exact(&mut [0; 4]).unwrap();
        send(&format!("-{signal}"), &child);
        let rest = thread::spawn(move || shown.read_to_end(&mut Vec::new()).unwrap());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{signal}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(rest.join().unwrap() > 100, "{signal}");
    }
}

/// It goes on after what heard of Ctrl-C and ended as it liked.
#[test]
fn a_loop_of_the_shell_ends_with_what_died_of_ctrl_c() {
    if is_nothing(2) {
        return;
    }
    let mut shell = Command::new("bash");
    shell.args(["-c", "for i in 1 2; do \"$@\"; done; echo on", "bash", env!("CARGO_BIN_EXE_ogive")]);
    shell.args(args![
        "run",
        "--model",
        ogive::DEMO,
        "--raw",
        "-q",
        "-n",
        "3000",
        "-c",
        "4000",
        "--ignore-eos",
        "Once"
    ]);
    // A terminal sends it to all who are in front.
    shell.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let Ok(mut child) = shell.spawn() else {
        eprintln!("skipped: there is no bash");
        return;
    };
    let mut shown = child.stdout.take().unwrap();
    shown.read_exact(&mut [0; 4]).unwrap();
    let group = format!("-{}", child.id());
    assert!(Command::new("kill").args(["-INT", "--", &group]).status().unwrap().success());
    let mut rest = Vec::new();
    shown.read_to_end(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(2));
    assert!(!rest.ends_with(b"on\n"));
}

#[test]
fn a_conversation_that_cannot_be_saved_is_an_error_also_where_nobody_reads() {
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("kept");
    let mut chat = limited(8);
    chat.args(args!["chat", "--model", ogive::DEMO, "-n", "4", "-q", "--session", kept]);
    let mut child = chat.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let story = "Once upon a time there was ".repeat(12);
    child.stdin.take().unwrap().write_all(story.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("error: ") && said.contains("saving a session"), "{said}");
    assert_eq!(names(folder.path()), [""; 0]);
}
