//! What becomes of a session when Ctrl-C comes, or nobody reads on.
#![cfg(unix)]

mod common;

use common::{command, limited, ogive};
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

fn ctrl_c(child: &Child) {
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
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
    assert_eq!(output.status.code(), Some(130), "{said}");
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
        assert!(matches!(output.status.code(), Some(0 | 130)), "{command_name}: {said}");
        assert_eq!(names(&place), ["kept"], "{command_name}: {said}");
        fs::remove_dir_all(&place).unwrap();
    }
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
