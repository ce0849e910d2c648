//! `ogive chat` by a script: without a terminal every line is a message. (The line editor needs a terminal.)

mod common;

use common::{Ran, ogive, ogive_reads, shared, shared_json};
use std::fs;
use std::path::Path;

/// Whatever was said, one after the other: a model that tells stories goes on.
const TEMPLATE: &str = "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}";

fn talk(folder: &Path, script: impl AsRef<[u8]>) -> Option<Ran> {
    let model = shared("models/stories260K/stories260K-f32.gguf")?;
    let template = folder.join("story.jinja");
    fs::write(&template, TEMPLATE).unwrap();
    let args = args!["chat", "--model", model, "--chat-template", template, "--temp", "0", "-n", "64"];
    Some(ogive_reads(args, script.as_ref()))
}

#[test]
fn answers_and_nothing_else_go_to_stdout() {
    let folder = tempfile::tempdir().unwrap();
    let Some(golden) = shared_json("models/stories260K/golden.json") else { return };
    let case = &golden["files"]["f32"]["cases"][0];
    let (prompt, whole) = (case["prompt"].as_str().unwrap(), case["greedy_text"].as_str().unwrap());
    let answer = &whole[prompt.len()..];
    let saved = folder.path().join("saved.json");
    let script = format!(
        "{prompt}\n/stats\n/save {}\n/help\n/reset\n\nOnce upon\\\na time\n/reset\n{prompt}\n/exit\nnever read\n",
        saved.display()
    );
    let ran = talk(folder.path(), script).unwrap();
    let text = ran.text();
    assert!(text.starts_with(&format!("{answer}\n")), "{text}");
    assert!(text.ends_with(&format!("{answer}\n")), "the conversation was forgotten: {text}");
    assert!(text.len() > 2 * answer.len() + 20, "the message of two lines was answered: {text}");
    for told in ["2 messages; 69 of 512 tokens", "saved to", "/system TEXT", "a new conversation"] {
        assert!(ran.stderr.contains(told), "{told}: {}", ran.stderr);
    }

    let messages: serde_json::Value = serde_json::from_slice(&fs::read(&saved).unwrap()).unwrap();
    assert_eq!(
        messages,
        serde_json::json!([
            { "role": "user", "content": prompt }, { "role": "assistant", "content": answer },
        ])
    );
    let template = folder.path().join("story.jinja");
    assert_eq!(ogive(args!["template", "--model", template, "--messages", saved]).text(), whole);
}

#[test]
fn the_conversation_is_remembered_and_led() {
    let folder = tempfile::tempdir().unwrap();
    let Some(ran) = talk(folder.path(), "Once upon a time\nLily\n/stats\n") else { return };
    ran.text();
    // The second answer read its message alone: what went before was kept.
    assert!(ran.stderr.contains("4 messages;"), "{}", ran.stderr);
    assert!(ran.stderr.contains("more kept)"), "{}", ran.stderr);
    let led =
        talk(folder.path(), "/system Once upon a time\n, Tom\n/reset\n/stats\n/system\n/stats\n").unwrap();
    led.text();
    assert!(led.stderr.contains("1 messages;") && led.stderr.contains("0 messages;"), "{}", led.stderr);
}

#[test]
fn a_mistake_does_not_end_it_but_is_not_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let long = "word ".repeat(2000);
    let Some(ran) = talk(folder.path(), format!("/frob\n/save\n{long}\nOnce upon a time")) else { return };
    assert_eq!(ran.code, Some(1));
    assert!(String::from_utf8(ran.stdout).unwrap().starts_with(", there was a little girl"));
    for told in ["unknown command `/frob`", "/save needs", "leaves no room"] {
        assert!(ran.stderr.contains(told), "{told}: {}", ran.stderr);
    }
}

#[test]
fn bytes_that_are_no_text_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let Some(ran) = talk(folder.path(), b"/stats\nab\xff\nOnce upon a time\n") else { return };
    assert_eq!(ran.error(1), "reading line 2 of stdin: it is no UTF-8 at byte 2");
}

/// On a terminal that `script` of util-linux makes.
#[test]
#[cfg(target_os = "linux")]
#[allow(clippy::print_stderr, reason = "a test that is skipped says so")]
fn on_a_terminal_a_line_that_is_no_text_does_not_end_it() {
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};
    let program = Path::new(env!("CARGO_BIN_EXE_ogive"));
    let folder = tempfile::tempdir().unwrap();
    let template = folder.path().join("story.jinja");
    fs::write(&template, TEMPLATE).unwrap();
    let line = format!("{} chat --chat-template {}", program.display(), template.display());
    let mut terminal = Command::new("script");
    terminal.args(["-qefc", &line, "/dev/null"]).env("OGIVE_MODEL", "ogive:demo").env("OGIVE_HISTORY", "");
    let Ok(mut child) = terminal.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn() else {
        eprintln!("skipped: there is no `script`");
        return;
    };
    let mut keys = child.stdin.take().unwrap();
    let mut shown = BufReader::new(child.stdout.take().unwrap()).split(b'\n');
    // Each after what was shown before it: what is read with the wrong byte is gone.
    for (press, until) in
        [(&b""[..], "Ctrl-D leaves"), (b"ab\xff", "write it again"), (b"/stats\r", "0 messages;")]
    {
        keys.write_all(press).unwrap();
        let found = shown.by_ref().any(|l| String::from_utf8_lossy(&l.unwrap()).contains(until));
        assert!(found, "{until}");
    }
    keys.write_all(b"/exit\r").unwrap();
    shown.for_each(drop);
    assert!(child.wait().unwrap().success());
}
